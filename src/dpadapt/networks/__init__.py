"""Private training of torch networks: needs the extra `torch`."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "dpadapt.networks needs torch: pip install torch==2.13.0, then pip install 'dpadapt[torch]'.", name="torch"
    ) from None

from dpadapt.networks.estimator import PrivateNetwork
from dpadapt.networks.mixing import mixing_weights
from dpadapt.networks.three_ways import pretrained, three_ways

__all__ = ["PrivateNetwork", "mixing_weights", "pretrained", "three_ways"]
