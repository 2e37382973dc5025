"""Stand-ins for the sets and encoders of Section 4 of the public-representations paper, and zero-shot accuracy.

The paper encodes PCam, fMoW and RESISC45 by CLIP. Here: CIFAR-10 and Fashion-MNIST by EfficientNet-Lite0, which was
trained on ImageNet; reviews by MiniLM and word vectors; and principal components of public images. Features are
computed once and kept in the user's cache.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.loading import cache_folder, load
from dpadapt.data import Public
from dpadapt.representation.encoders import load_encoder

Array = NDArray[Any]
# Side of encoded images in pixels, and word pieces per review. Smaller than usual, to save time: images of 28 pixels
# lose little, and only the first sentences of a review are encoded.
SIDE, PIECES = 64, 64


@dataclass(frozen=True, eq=False)
class Split:
    """Unlabelled public features, private and test rows."""

    public: Public
    private: tuple[Array, Array]
    test: tuple[Array, Array]
    classes: Array


@dataclass(frozen=True)
class ProbeSet:
    """Features with labels, how they are split, and the accuracy of a zero-shot rule.

    Parameters
    ----------
    name, encoder : str
    features : callable
        Returns features and labels.
    n_public, n_test : int
        Number of public and test rows; the others are private.
    zero_shot : callable, optional
        Returns the accuracy of a rule that has seen no row of the set.
    fitted : bool
        Whether the features are principal components of the split's public rows.
    """

    name: str
    encoder: str
    features: Callable[[], tuple[Array, Array]]
    n_public: int
    n_test: int
    zero_shot: Callable[[], float] | None = None
    fitted: bool = False

    @property
    def title(self) -> str:
        """Name in tables."""
        return f"{self.name}, {self.encoder}"

    def split(self, seed: int) -> Split:
        """Return the rows of one seed."""
        from sklearn.decomposition import PCA

        X, y = self.features()
        order = np.random.default_rng(seed).permutation(len(y))
        public, test, private = np.split(order, [self.n_public, self.n_public + self.n_test])
        if self.fitted:
            X = PCA(100, random_state=0).fit(X[public]).transform(X)
        return Split(Public(X[public]), (X[private], y[private]), (X[test], y[test]), np.unique(y))


def kept(name: str, make: Callable[[], Array]) -> Array:
    """Return features from the user's cache; compute and store them the first time."""
    path = cache_folder() / "features" / f"{name}.npy"
    if path.is_file():
        return np.asarray(np.load(path, allow_pickle=False))
    features = make().astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written under a unique name first: another process may compute the same features.
    draft = path.with_name(f"{name}.{np.random.default_rng().integers(2**32)}.npy")
    np.save(draft, features)
    draft.replace(path)
    return features


def _digits() -> tuple[Array, Array]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


@cache
def _cifar() -> tuple[Array, Array]:
    arrays = load("cifar10", part="features").arrays
    X = np.concatenate([arrays["F_train"], arrays["F_test"]]).astype(np.float64)
    return X, np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(int)


def _fashion_images(n: int) -> tuple[Array, Array]:
    arrays = load("fashion_mnist").arrays
    X = np.concatenate([arrays["X_train"], arrays["X_test"]])[:n]
    return X, np.concatenate([arrays["y_train"], arrays["y_test"]])[:n].astype(int)


@cache
def _fashion_pixels() -> tuple[Array, Array]:
    X, y = _fashion_images(20_000)
    return X.reshape(len(X), -1) / 255.0, y


@cache
def _fashion_encoded() -> tuple[Array, Array]:
    X, y = _fashion_images(8000)

    def encode() -> Array:
        return np.asarray(load_encoder("efficientnet-lite0").set_params(side=SIDE).transform(X))

    return kept(f"fashion-8000-efficientnet-lite0-{SIDE}", encode).astype(np.float64), y


def _texts() -> tuple[list[str], Array]:
    frame = load("amazon_reviews", part="text").frame.sample(6000, random_state=0)
    # The title often states the sentiment.
    texts = (frame["title"].fillna("") + ". " + frame["text"].fillna("")).tolist()
    return texts, (frame["label"].astype(str) == "positive").to_numpy().astype(int)


@cache
def _reviews(encoder: str) -> tuple[Array, Array]:
    texts, y = _texts()

    def encode() -> Array:
        settings = {"max_pieces": PIECES} if encoder == "minilm" else {}
        return np.asarray(load_encoder(encoder).set_params(**settings).transform(texts))

    size = f"-{PIECES}" if encoder == "minilm" else ""
    return kept(f"reviews-6000-{encoder}{size}", encode).astype(np.float64), y


# Classes of ImageNet that belong to each class of the set; a class without any can't be predicted zero-shot.
_CIFAR_CLASSES = (
    (404, 895),
    (436, 511, 817, 627, 468, 656, 751, 609),
    (*range(7, 25), *range(80, 101), *range(127, 147)),
    tuple(range(281, 286)),
    (351, 352, 353),
    tuple(range(151, 269)),
    (30, 31, 32),
    (339,),
    (510, 628, 403, 554, 724, 871, 914, 814),
    (555, 569, 675, 717, 734, 864, 867),
)
_FASHION_CLASSES = (
    (610,),
    (608,),
    (841, 474),
    (578, 689, 601),
    (869, 568, 617),
    (774, 502),
    (),
    (770, 630),
    (748, 636, 414),
    (514,),
)


def _imagenet(features: Callable[[], tuple[Array, Array]], classes: tuple[tuple[int, ...], ...], name: str) -> float:
    """Return how often the best-scoring ImageNet class of an image belongs to its class."""
    X, y = features()

    def scores() -> Array:
        from dpadapt.representation.ready_encoders import imagenet_scores

        by_class = imagenet_scores(X)
        best = [by_class[:, list(places)].max(axis=1) if places else np.full(len(X), -np.inf) for places in classes]
        return np.stack(best, axis=1)

    return float(np.mean(kept(f"{name}-zero-shot", scores).argmax(axis=1) == y))


def _prompts(encoder: str) -> float:
    """Return how often a review is closer to a sentence of its own sentiment than to one of the other."""
    X, y = _reviews(encoder)

    def directions() -> Array:
        sentences = ["A negative review. I hate it, it is terrible.", "A positive review. I love it, it is great."]
        return np.asarray(load_encoder(encoder).transform(sentences))

    return float(np.mean((X @ kept(f"reviews-{encoder}-zero-shot", directions).T).argmax(axis=1) == y))


BUNDLED = (ProbeSet("digits", "pixels", _digits, 500, 300),)
REAL = (
    ProbeSet("Fashion-MNIST", "PCA-100 of public images", _fashion_pixels, 9000, 2000, fitted=True),
    ProbeSet("CIFAR-10", "EfficientNet-Lite0", _cifar, 2000, 2000, lambda: _imagenet(_cifar, _CIFAR_CLASSES, "cifar")),
    ProbeSet("reviews", "word vectors", lambda: _reviews("wordllama"), 1000, 1500, lambda: _prompts("wordllama")),
    # The slowest to encode come last.
    ProbeSet(
        "Fashion-MNIST",
        "EfficientNet-Lite0",
        _fashion_encoded,
        1500,
        1500,
        lambda: _imagenet(_fashion_encoded, _FASHION_CLASSES, f"fashion-8000-{SIDE}"),
    ),
    ProbeSet("reviews", "MiniLM", lambda: _reviews("minilm"), 1000, 1500, lambda: _prompts("minilm")),
)


def named(title: str) -> ProbeSet:
    """Return the set with this title."""
    return next(one for one in (*BUNDLED, *REAL) if one.title == title)
