"""Stand-ins for the sets and encoders of Section 4 of the public-representations paper, and zero-shot accuracy.

The paper encodes PCam, fMoW and RESISC45 by CLIP. Here: CIFAR-10 and Fashion-MNIST by EfficientNet-Lite0, which was
trained on ImageNet; reviews by MiniLM and word vectors; and principal components of public images. `SHIFTED` are the
sets whose public rows are of another kind than the private ones, each beside the same features with public rows of the
same kind where there are enough. Features are computed once and kept in the user's cache.
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
    development, quick : bool
        As for `PairSet`.
    """

    name: str
    encoder: str
    features: Callable[[], tuple[Array, Array]]
    n_public: int
    n_test: int
    zero_shot: Callable[[], float] | None = None
    fitted: bool = False
    development: bool = False
    quick: bool = False

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


@dataclass(frozen=True)
class PairSet:
    """Features whose public rows may come from another population than the private ones.

    Parameters
    ----------
    name, public : str
        What is private, in which features; what is public.
    rows : callable
        Returns public features, private features and private labels.
    n_public, n_test, n_private : int
        Number of public, test and private rows of a seed; at most as many private rows as are left.
    development : bool
        Whether a constant of `PrivateProbe` or its head was chosen with a look at accuracies on this set.
    quick : bool
        Whether a quick run measures it.
    """

    name: str
    public: str
    rows: Callable[[], tuple[Array, Array, Array]]
    n_public: int
    n_test: int
    n_private: int = 10_000
    development: bool = False
    quick: bool = False

    @property
    def title(self) -> str:
        """Name in tables."""
        return f"{self.name}; public: {self.public}"

    def split(self, seed: int) -> Split:
        """Return the rows of one seed."""
        known, X, y = self.rows()
        random = np.random.default_rng(seed)
        if known is X:
            order = random.permutation(len(y))
            chosen, rest = order[: self.n_public], order[self.n_public :]
        else:
            chosen, rest = random.permutation(len(known))[: self.n_public], random.permutation(len(y))
        test, private, _ = np.split(rest, [self.n_test, self.n_test + self.n_private])
        return Split(Public(known[chosen]), (X[private], y[private]), (X[test], y[test]), np.unique(y))


AnySet = ProbeSet | PairSet


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
CIFAR_CLASSES = (
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
FASHION_CLASSES = (
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


def imagenet_scores(features: Any) -> Array:
    """Return the scores of the 1,000 classes of ImageNet for features of `EfficientNetLite0`."""
    import torch

    from dpadapt.representation.encoders import _efficientnet

    with torch.no_grad():
        scores = _efficientnet()._fc(torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32)))
    return np.asarray(scores.numpy())


def _imagenet(features: Callable[[], tuple[Array, Array]], classes: tuple[tuple[int, ...], ...], name: str) -> float:
    """Return how often the best-scoring ImageNet class of an image belongs to its class."""
    X, y = features()

    def scores() -> Array:
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


@cache
def _digit_features() -> tuple[Array, Array, Array]:
    """Return the 288 convolutional features of a small network trained on digits: of digits, of clothes; labels."""
    digits, clothes = load("mnist").arrays, load("fashion_mnist").arrays
    images = digits["X_train"][:10_000], np.concatenate([clothes["X_train"], clothes["X_test"]])
    y = np.concatenate([clothes["y_train"], clothes["y_test"]]).astype(int)

    def encode() -> Array:
        import torch

        from benchmarks.performance.networks import small_cnn
        from dpadapt.networks import pretrained

        torch.set_num_threads(1)
        torch.manual_seed(0)
        public = Public(halved(images[0]), digits["y_train"][:10_000])
        module = pretrained(small_cnn(), public, 10, n_steps=600)
        # Up to the flattened pooling: the layer above it was trained to tell digits apart and loses most of the rest.
        body = torch.nn.Sequential(*list(module)[:7])
        return np.concatenate([np.asarray(body(torch.from_numpy(halved(some))).detach()) for some in images])

    features = kept("mnist-10000-fashion-20000-small-cnn-288", encode).astype(np.float64)
    return features[:10_000], features[10_000:], y


def halved(images: Array) -> Array:
    """Return images with means of 2 x 2 pixels, scaled by the usual mean and standard deviation of MNIST."""
    parts = images.astype(np.float32).reshape(len(images), 14, 2, 14, 2).mean(axis=(2, 4)) / 255
    return np.asarray((parts - 0.1307) / 0.3081, dtype=np.float32)[:, None]


def _clothes_alone() -> tuple[Array, Array, Array]:
    _, X, y = _digit_features()
    return X, X, y


@cache
def _clothes_in_digit_components() -> tuple[Array, Array, Array]:
    """Return the first 100 principal components of digits: of digits, of clothes; labels."""
    from sklearn.decomposition import PCA

    digits = load("mnist").arrays["X_train"][:9000].reshape(9000, -1) / 255.0
    X, y = _fashion_pixels()
    components = PCA(100, random_state=0).fit(digits)
    return components.transform(digits), components.transform(X), y


def _other_classes() -> tuple[Array, Array, Array]:
    """Return the features of three classes, those of the seven others, and the labels of the latter."""
    X, y = _cifar()
    return X[y < 3], X[y >= 3], y[y >= 3]


def _surf() -> tuple[Array, Array, Array]:
    """Return the SURF counts of Caltech and of Amazon images, scaled to unit sums as is usual; labels."""
    arrays = load("office_caltech10").arrays
    public, X = (arrays[f"{name}_X"].astype(np.float64) for name in ("caltech10", "amazon"))
    public, X = (rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0) for rows in (public, X))
    return public, X, arrays["amazon_y"].astype(int)


@cache
def _kitchen_words() -> tuple[Array, Array, Array]:
    """Return 300 singular directions of word counts of books: of books, of kitchenware; labels of the latter."""
    from scipy.sparse import csr_matrix, vstack
    from sklearn.decomposition import TruncatedSVD

    arrays = load("amazon_reviews").arrays

    def counts(domain: str) -> Any:
        parts = [
            csr_matrix(
                tuple(arrays[f"{domain}_{part}_{one}"] for one in ("data", "indices", "indptr")), shape=(m, 5000)
            )
            for part in ("train", "test")
            if (m := len(arrays[f"{domain}_{part}_y"]))
        ]
        return vstack(parts).astype(np.float64).log1p()

    books, kitchen = counts("books"), counts("kitchen")
    directions = TruncatedSVD(300, random_state=0).fit(books)
    y = np.concatenate([arrays["kitchen_train_y"], arrays["kitchen_test_y"]]).astype(int)
    return directions.transform(books), directions.transform(kitchen), y


@cache
def _kitchen_vectors() -> tuple[Array, Array, Array]:
    """Return the word vectors of reviews of books and of kitchenware; labels of the latter."""
    frame = load("amazon_reviews", part="text").frame
    frame = frame[frame["domain"].isin(["books", "kitchen"])]
    texts = (frame["title"].fillna("") + ". " + frame["text"].fillna("")).tolist()
    X = kept("reviews-books-kitchen-wordllama", lambda: np.asarray(load_encoder("wordllama").transform(texts)))
    X, kitchen = X.astype(np.float64), (frame["domain"] == "kitchen").to_numpy()
    return X[~kitchen], X[kitchen], (frame["label"].astype(str) == "positive").to_numpy().astype(int)[kitchen]


@cache
def _review_words(n_columns: int) -> tuple[Array, Array]:
    """Return which words a review has, hashed to columns so that no vocabulary is fitted; rows of length 1."""
    from sklearn.feature_extraction.text import HashingVectorizer

    texts, y = _texts()
    words = HashingVectorizer(n_features=n_columns, binary=True, alternate_sign=False)
    return words.transform(texts).toarray().astype(np.float32), y


def review_words(n_columns: int) -> ProbeSet:
    """Return the reviews as words, without an encoder; the rows of a split are those of the encoded reviews."""
    return ProbeSet("reviews", "words", lambda: _review_words(n_columns), 1000, 1500)


def _reviews_alone() -> tuple[Array, Array, Array]:
    X, y = _reviews("wordllama")
    return X, X, y


BUNDLED = (ProbeSet("digits", "pixels", _digits, 500, 300),)
REAL = (
    ProbeSet("Fashion-MNIST", "PCA-100 of public images", _fashion_pixels, 9000, 2000, fitted=True, development=True),
    ProbeSet("CIFAR-10", "EfficientNet-Lite0", _cifar, 2000, 2000, lambda: _imagenet(_cifar, CIFAR_CLASSES, "cifar")),
    ProbeSet("reviews", "word vectors", lambda: _reviews("wordllama"), 1000, 1500, lambda: _prompts("wordllama")),
    # The slowest to encode come last.
    ProbeSet(
        "Fashion-MNIST",
        "EfficientNet-Lite0",
        _fashion_encoded,
        1500,
        1500,
        lambda: _imagenet(_fashion_encoded, FASHION_CLASSES, f"fashion-8000-{SIDE}"),
    ),
    ProbeSet("reviews", "MiniLM", lambda: _reviews("minilm"), 1000, 1500, lambda: _prompts("minilm")),
)


SHIFTED: tuple[AnySet, ...] = (
    PairSet("clothes, digit network's 288 features", "digits", _digit_features, 3000, 3000, 14_000, development=True),
    PairSet("clothes, digit network's 288 features", "clothes", _clothes_alone, 3000, 3000, 14_000, development=True),
    REAL[0],
    PairSet(
        "clothes, digits' PCA-100", "digits", _clothes_in_digit_components, 9000, 3000, development=True, quick=True
    ),
    PairSet(
        "CIFAR-10, seven classes, EfficientNet-Lite0", "the other three", _other_classes, 2000, 1500, development=True
    ),
    PairSet("Amazon images, SURF counts", "Caltech images", _surf, 1123, 300),
    PairSet(
        "kitchen reviews, word counts' SVD-300",
        "book reviews",
        _kitchen_words,
        6465,
        2000,
        development=True,
        quick=True,
    ),
    PairSet("kitchen reviews, word vectors", "book reviews", _kitchen_vectors, 2000, 600, development=True),
    PairSet("reviews, word vectors", "reviews", _reviews_alone, 1000, 1500, development=True),
)


def named(title: str) -> AnySet:
    """Return the set with this title."""
    return next(one for one in (*BUNDLED, *REAL, *SHIFTED) if one.title == title)
