"""The benchmark of probes: verdicts follow from rows, features are computed once, the bundled set runs."""

import numpy as np
import pytest

from dpadapt.benchmarks import paper4_probe, paper4_probe_measure, paper4_probe_sets
from dpadapt.benchmarks.paper4_probe_measure import EPSILONS, METHODS, OURS, SGD


def probe_row(title, epsilon, **values):
    filled = {name: [50.0, 52.0] for name in METHODS} | values
    return {"part": "probe", "set": title, "epsilon": epsilon, "seeds": 2, "values": filled}


def verdicts(rows):
    return {found["claim"]: found["verdict"] for found in paper4_probe.claims(rows)}


def test_a_point_above_is_a_point_above():
    title = paper4_probe.PCA
    near, far = ([probe_row(title, 0.3, **{OURS: [value], SGD: [75.0]})] for value in (75.9, 76.0))
    words = f"{title}, epsilon 0.3: 1 point above DP-SGD tuned on test"
    assert verdicts(near)[words] != "holds"
    assert verdicts(far)[words] == "holds"


def test_ways_are_compared_at_every_epsilon():
    flat = [60.0] * len(EPSILONS)
    values = {"public only": [9.0] * len(EPSILONS), "scratch": flat, "finetune": [70.0] * len(EPSILONS)}
    values |= {"probe": [71.0] * (len(EPSILONS) - 1) + [69.0], "our probe": flat}
    rows = [{"part": "ways", "set": "a after b", "epsilon": 0.0, "seeds": 1, "values": values}]
    found = verdicts(rows)
    assert found["Paper, Figure 1: a after b: finetune* above scratch* at every epsilon"] == "holds"
    assert found["Paper, Figure 1: a after b: probe* above finetune* at every epsilon"] != "holds"
    assert len(paper4_probe.tables(rows)) == len(paper4_probe.figures(rows)) == 1


def test_zero_shot_is_judged_where_there_is_any():
    limit = {"not private*": [80.0], "largest class": [10.0], "zero-shot": 51.5, "reason": ""}
    rows = [probe_row("a", 0.3), {"part": "limit", "set": "a", "epsilon": 0.0, "seeds": 1, "values": limit}]
    assert verdicts(rows)["Paper, Table 1: a: private probing is above zero-shot"] != "holds"
    rows[1]["values"] = limit | {"zero-shot": None, "reason": "none"}
    assert verdicts(rows) == {}


def test_features_are_computed_once_and_kept_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []
    first, again = (paper4_probe_sets.kept("a", lambda: made.append(1) or np.eye(3)) for _ in range(2))
    assert made == [1]
    assert np.array_equal(first, again)
    assert [path.name for path in (tmp_path / "dpadapt" / "features").iterdir()] == ["a.npy"]


def test_bundled_rows_are_measured_and_shown(monkeypatch):
    monkeypatch.setattr(paper4_probe_measure, "real_data", lambda: False)
    for name in ("_SGD", "_WHITENED"):
        monkeypatch.setattr(paper4_probe_measure, name, getattr(paper4_probe_measure, name)[:1])
    todo = [piece for piece in paper4_probe.pieces(quick=True) if piece[0] in ("probe", "limit")]
    rows = [paper4_probe.measure((part, name, epsilon, 1)) for part, name, epsilon, _ in todo]
    values = {row["epsilon"]: row["values"] for row in rows}
    assert values[1.0][OURS][0] > values[0.3][OURS][0]
    assert values[0.0]["not private*"][0] > 90
    assert len(paper4_probe.tables(rows)) == 1
    assert [line["name"] for line in paper4_probe.figures(rows)[0]["panels"][0]["lines"]] == list(METHODS)


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(paper4_probe_measure, "find_spec", lambda name: None)
    for part in ("ways", "opacus"):
        with pytest.raises(ModuleNotFoundError, match="not installed"):
            paper4_probe.measure((part, "", 0.0, 1))
