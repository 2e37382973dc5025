"""The networks benchmark: its steps run, and its verdicts follow its figures."""

import pytest

from benchmarks.performance import networks

pytest.importorskip("torch")


def test_steps_are_compared_with_the_plain_one(monkeypatch):
    monkeypatch.setattr(networks, "N_ROWS", 60)
    monkeypatch.setattr(networks, "BATCH", 20)
    rows = {row["what"]: row for row in networks.step_times(repetitions=1)}
    assert rows["plain"]["ratio"] == 1.0
    assert rows.keys() == {"plain", "private, ghost", "private, vmap"}
    assert all(row["ms"] > 0 for row in rows.values())


def test_verdicts_follow_the_figures(capsys):
    row = {"method": "warm", "seed": 1, "accuracy": 0.86, "loss": 0.5, "scaled loss": 0.4, "epsilon": 1.0, "cpu s": 9.0}
    steps = [{"what": "plain", "ms": 1.0, "ratio": 1.0}, {"what": "private, ghost", "ms": 1.9, "ratio": 1.9}]
    results = {"steps": steps, "agreement": 2e-5, "fashion": [row, {**row, "seed": 2, "accuracy": 0.85}]}
    assert [found["verdict"] for found in networks.claims(results)] == ["missed", "missed", "holds"]
    networks.show(results)
    assert "0.8550" in capsys.readouterr().out


def test_ghost_and_vmap_agree_on_the_emnist_network():
    assert networks.agreement() < 1e-5
