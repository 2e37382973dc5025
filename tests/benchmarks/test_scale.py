"""The benchmark of large data: verdicts that can fail, and a small run from end to end."""

import copy

import pytest

from benchmarks.scale import huge
from benchmarks.scale import run as scale

SIZE = {"few": 100, "many": 1000, "on_workers": 400, "columns": 3}


def fit(kind, mode, n, **changes):
    facts = {"cpu": n / 1000, "clock": 1.0, "memory": 2.5e8, "coef": [1.0], "entries": ["a"]}
    return {"kind": kind, "mode": mode, "n": n, **facts, **changes}


def results():
    fits = []
    for kind in scale.KINDS:
        fits += [fit(kind, "memory", 100), fit(kind, "files", 100), fit(kind, "files", 1000)]
        fits += [fit(kind, "memory", 400), fit(kind, "files", 400), fit(kind, "workers", 400, clock=0.6)]
    public = {"all": 1.0, "sample": 1.0}
    return {"quick": False, "size": SIZE, "versions": {}, "minutes": 1.0, "fits": fits, "public": public}


def verdicts(results):
    return [one["verdict"] for one in scale.claims(results)]


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (2, {"cpu": 1.9}),
        (2, {"memory": 1.3e9}),
        (2, {"memory": 2.9e8}),
        (1, {"coef": [1.0 + 1e-15]}),
        (1, {"entries": ["b"]}),
        (5, {"clock": 0.8}),
        (5, {"memory": 3.1e8}),
        (5, {"coef": [2.0]}),
    ],
)
def test_every_claim_can_fail(place, change):
    bad = copy.deepcopy(results())
    bad["fits"][place].update(change)
    assert "missed" in verdicts(bad)


def test_a_sample_that_loses_is_a_miss():
    assert "missed" in verdicts({**results(), "public": {"all": 1.0, "sample": 1.02}})


def test_a_small_fit_from_memory_and_from_files_is_the_same(tmp_path):
    scale.write_files(tmp_path, 3000, 3)
    memory, files = (scale.fitted("classifier", mode, 3000, 3, tmp_path) for mode in ("memory", "files"))
    assert files["coef"] == memory["coef"]
    assert files["entries"] == memory["entries"]
    assert scale.tables(results())[0]["rows"]


def test_the_huge_run_works_at_a_small_size(monkeypatch, tmp_path):
    monkeypatch.setattr(huge, "_alone", lambda function, *arguments: function(*arguments))
    fits = list(huge.measured(2000))
    assert [(fit["kind"], fit["n"]) for fit in fits] == [("regressor", 2000), ("classifier", 2000)]
    results = {"quick": False, "versions": {"dpadapt": "0"}, "fits": fits, "minutes": 1.0}
    assert [one["verdict"] for one in huge.claims(results)] == ["holds", "holds"]
    fits[0]["memory"] = 2.1e9
    assert [one["verdict"] for one in huge.claims(results)] == ["missed", "holds"]
    page = tmp_path / "page.md"
    page.write_text(f"{huge.START}\n{huge.END}\n", encoding="utf-8")
    huge.write_markdown(results, page)
    assert "2.10 GB" in page.read_text(encoding="utf-8")
