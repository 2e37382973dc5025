"""The benchmark of probes: verdicts follow from rows, features are computed once, the bundled set runs."""

import json

import numpy as np
import pytest

from benchmarks.representation import probe, probe_sets, run, shifted, subspace
from benchmarks.representation.probe import EPSILONS, METHODS, OURS, SGD
from dpadapt.datasets.synthetic import shared_subspace
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
        ("1.25 times", "true", subspace.OURS_TRUE, 0.13),
        ("at 5,000 public rows: 0.22", "angle", "em", 0.23),
        ("under 0.2 CPU seconds", "angle", "seconds", 0.3),
        ("than ours within the subspace", "transfer", subspace.SOFT, 0.32),
        ("than DP-SGD on all features", "transfer", subspace.SOFT, 0.55),
    ],
)
def test_claims_hold_or_are_missed_by_their_figures(rows, words, part, name, bad):
    assert verdict(rows, words) == "holds"
    assert verdict(changed(rows, part, name, bad), words) == "missed"


def test_the_papers_claim_of_being_close_is_judged(rows):
    assert verdict(rows, "close to the true subspace's") == "missed"
    near = changed(rows, "transfer", subspace.MOMENTS, 0.14)
    assert verdict(near, "close to the true subspace's") == "holds"


def test_tables_and_figures_are_complete(rows):
    for table in subspace.tables(rows):
        assert table["rows"]
        assert all(len(line) == len(table["columns"]) for line in table["rows"])
    assert len(subspace.figures(rows)[0]["panels"]) == 3
    assert all(
        line["points"] for figure in subspace.figures(rows) for panel in figure["panels"] for line in panel["lines"]
    )


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
    assert (tmp_path / "page.md").read_text().count(run.START) == 1
    run.show(results)
    printed = capsys.readouterr().out
    assert "paper 4" in printed
    # Brackets are no markup.
    assert "dpadapt[torch]" in printed


def probe_row(title, epsilon, **values):
    filled = {name: [50.0, 52.0] for name in METHODS} | values
    return {"part": "probe", "set": title, "epsilon": epsilon, "seeds": 2, "values": filled}


def verdicts(rows):
    return {claim["claim"]: claim["verdict"] for claim in probe.claims(rows)}


def test_a_point_above_is_a_point_above():
    title = probe.PCA
    near, far = ([probe_row(title, 0.3, **{OURS: [value], SGD: [75.0]})] for value in (75.9, 76.0))
    words = f"{title}, epsilon 0.3: 1 point above DP-SGD tuned on test"
    assert verdicts(near)[words] != "holds"
    assert verdicts(far)[words] == "holds"


def test_ways_are_compared_at_every_epsilon():
    flat = [60.0] * len(EPSILONS)
    values = {"public only": [9.0] * len(EPSILONS), "scratch": flat, "finetune": [70.0] * len(EPSILONS)}
    values |= {"probe": [71.0] * (len(EPSILONS) - 1) + [69.0], "our probe": flat}
    rows = [{"part": "ways", "set": "a after b", "epsilon": 0.0, "seeds": 1, "values": values}]
    judged = verdicts(rows)
    assert judged["Paper, Figure 1: a after b: finetune* above scratch* at every epsilon"] == "holds"
    assert judged["Paper, Figure 1: a after b: probe* above finetune* at every epsilon"] != "holds"
    assert len(probe.tables(rows)) == len(probe.figures(rows)) == 1


def test_zero_shot_is_judged_where_there_is_any():
    limit = {"not private*": [80.0], "largest class": [10.0], "zero-shot": 51.5, "reason": ""}
    rows = [probe_row("a", 0.3), {"part": "limit", "set": "a", "epsilon": 0.0, "seeds": 1, "values": limit}]
    assert verdicts(rows)["Paper, Table 1: a: private probing is above zero-shot"] != "holds"
    rows[1]["values"] = limit | {"zero-shot": None, "reason": "none"}
    assert verdicts(rows) == {}


def test_features_are_computed_once_and_kept_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []
    first, again = (probe_sets.kept("a", lambda: made.append(1) or np.eye(3)) for _ in range(2))
    assert made == [1]
    assert np.array_equal(first, again)
    assert [path.name for path in (tmp_path / "dpadapt" / "features").iterdir()] == ["a.npy"]


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


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(probe, "find_spec", lambda name: None)
    for part in ("ways", "opacus"):
        with pytest.raises(ModuleNotFoundError, match="not installed"):
            probe.measure((part, "", 0.0, 1))


def shifted_row(title, part="shifted", **values):
    names = shifted.METHODS if part == "shifted" else (shifted.OURS, *shifted.ABLATIONS)
    filled = {name: [70.0, 72.0] for name in names} | values
    return {"part": part, "set": title, "epsilon": 1.0, "seeds": 2, "values": filled, "cpu": 60.0}


def test_verdicts_on_shifted_sets_follow_from_the_shown_figures():
    title = probe_sets.SHIFTED[0].title
    words = f"Probe, {title}: at most 0.5 points behind DP-SGD tuned on test"
    for value, verdict in ((70.46, "holds"), (70.44, "missed")):  # shown as 70.5 and 70.4 against 71.0
        rows = [shifted_row(title, **{shifted.OURS: [value, value]})]
        judged = {claim["claim"]: claim["verdict"] for claim in shifted.claims(rows)}
        assert judged[words] == verdict
        assert judged[f"Probe, {title}: accuracy of the prototype"] == "missed"
    speed = {"part": "moments speed", "set": "", "values": {shifted.OURS: 2.1, shifted.HEAD: 1.0}}
    assert shifted.claims([speed])[0]["verdict"] == "missed"


def test_shifted_tables_are_complete_and_written_to_their_own_page(tmp_path):
    titles = [one.title for one in probe_sets.SHIFTED]
    rows = [shifted_row(title) for title in titles] + [shifted_row(titles[0], "ablation")]
    tables = shifted.tables(rows)
    assert len(tables) == 3
    assert all(len(line) == len(table["columns"]) for table in tables for line in table["rows"])
    harmed = shifted.tables([shifted_row(titles[0], **{shifted.OURS: [70.0, 70.9]})])[1]["rows"]
    assert harmed[0][1] == "1 of 2"
    assert len(shifted.figures(rows)[0]["panels"]) == len(titles)
    results = {"quick": False, "rows": {"shifted": rows}, "skipped": [], "minutes": 1.0, "processes": 2, "versions": {}}
    run.write_probes(results, tmp_path / "page.md")
    assert "10.0 minutes on 1 core(s)" in (tmp_path / "page.md").read_text()
    run.write_markdown(results, tmp_path / "other.md")
    assert titles[0] not in (tmp_path / "other.md").read_text()


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


def test_without_real_data_only_the_speed_of_shifted_probes_is_measured(monkeypatch):
    monkeypatch.setattr(shifted, "real_data", lambda: False)
    assert [piece[0] for piece in shifted.pieces(quick=True)] == ["moments speed"]
