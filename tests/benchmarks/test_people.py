"""The benchmark of people: every one of them is asked, and CPU seconds of child processes count."""

import subprocess
import sys

from benchmarks.performance import people


def test_all_are_asked_and_the_verdict_follows(monkeypatch, capsys):
    monkeypatch.setattr(people, "MILLION", 500)
    monkeypatch.setattr(people, "POPULATIONS", ((500, True, 3), (40, False, 2)))
    monkeypatch.setattr(people, "find_spec", lambda name: None)
    results = people.run(quick=True)
    assert [row["rows"] for row in results["simulated"]] == [500, 40]
    people.show(results)
    out = capsys.readouterr().out
    assert "holds" in out
    assert "Flower is not installed" in out
    results["simulated"][0]["cpu"] = 0.6
    people.show(results)
    assert "missed" in capsys.readouterr().out


def test_seconds_of_ended_children_count():
    before = people.cpu_of_all()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert people.cpu_of_all() > before
