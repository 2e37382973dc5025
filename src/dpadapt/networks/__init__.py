"""Private training of torch networks. Needs the extra `torch`."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "dpadapt.networks needs torch: pip install torch==2.13.0, then pip install 'dpadapt[torch]'.", name="torch"
    ) from None

from dpadapt.networks.estimator import PrivateNetwork
from dpadapt.networks.fine_tuning import freeze_batch_norm, pretrained
from dpadapt.networks.private_training import mixing_weights

__all__ = ["PrivateNetwork", "freeze_batch_norm", "mixing_weights", "pretrained"]
