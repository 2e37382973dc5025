"""`dpadapt cost` and `dpadapt calibrate`."""

import json

import pytest
from outcomes import accepted, refused

from dpadapt.cli.cost import _round_up


def test_cost_agrees_with_the_golden_number(run):
    # dp-accounting 0.6, privacy-loss distribution: 6.770 +- 0.01 (issue 2).
    outcome = accepted(run("cost", "--gaussian", 1.5, "--rate", 0.04, "--steps", 2250, "--delta", 1e-5))
    assert float(outcome.out.split("epsilon = ")[1].split()[0]) == pytest.approx(6.77, abs=0.005)


def test_cost_is_rounded_up(run):
    exact = json.loads(run("cost", "--gaussian", 3, "--delta", 1e-5, "--json").out)["epsilon"]
    shown = float(run("cost", "--gaussian", 3, "--delta", 1e-5).out.split("epsilon = ")[1].split()[0])
    assert exact <= shown <= exact * 1.001


def test_cost_mixes_mechanisms_with_their_own_steps_and_rates(run):
    outcome = run("cost", "--gaussian", "20:100", "--gaussian", "5:10:0.1", "--laplace", 10, "--pure", 0.1,
                  "--delta", 1e-5, "--json")  # fmt: skip
    facts = json.loads(outcome.out)
    assert [release["times"] for release in facts["releases"]] == [100, 10, 1, 1]
    assert [release["event"]["kind"] for release in facts["releases"]] == ["Gaussian", "Sampled", "Laplace", "Pure"]
    parts = [
        json.loads(run("cost", *part, "--delta", 1e-5, "--json").out)["epsilon"]
        for part in (["--gaussian", "20:100"], ["--gaussian", "5:10:0.1"], ["--laplace", 10], ["--pure", 0.1])
    ]
    assert max(parts) < facts["epsilon"] < sum(parts)


def test_pure_noise_adds_up_at_delta_0(run):
    outcome = run("cost", "--laplace", "10:3", "--pure", "0.2", "--delta", 0, "--json")
    assert json.loads(outcome.out)["epsilon"] == pytest.approx(0.5)


def test_gaussian_noise_at_delta_0_costs_infinitely_much(run):
    assert json.loads(run("cost", "--gaussian", 1, "--delta", 0, "--json").out)["epsilon"] == "inf"
    assert "epsilon = inf" in run("cost", "--gaussian", 1, "--delta", 0).out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["cost", "--delta", "1e-5"], "--gaussian"),
        (["cost", "--gaussian", "0", "--delta", "1e-5"], "--gaussian"),
        (["cost", "--gaussian", "x:y", "--delta", "1e-5"], "--gaussian"),
        (["cost", "--gaussian", "1:2:3:4", "--delta", "1e-5"], "--gaussian"),
        (["cost", "--gaussian", "1", "--steps", "0", "--delta", "1e-5"], "steps"),
        (["cost", "--gaussian", "1", "--rate", "2", "--delta", "1e-5"], "rate"),
        (["cost", "--pure", "0.1", "--rate", "0.5", "--delta", "1e-5"], "--pure"),
        (["cost", "--gaussian", "1", "--delta", "1"], "delta"),
        (["calibrate", "--epsilon", "0", "--delta", "1e-5"], "epsilon"),
        (["calibrate", "--epsilon", "1", "--delta", "0"], "delta"),
        (["calibrate", "--epsilon", "1", "--delta", "1e-5", "--steps", "0"], "steps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_bad_numbers_are_refused_by_name(run, arguments, named):
    refused(run(*arguments), named)


EXTREME = [
    ["cost", "--laplace", "1e-300"],
    ["cost", "--gaussian", "1e-300"],
    ["cost", "--gaussian", "1e300:3:0.5"],
    ["cost", "--gaussian", "1e-3:1000:0.5"],
    ["cost", "--gaussian", f"1:{2**53}:0.5"],
    ["cost", "--gaussian", f"1:{10**400}"],
    ["cost", "--gaussian", "5e-324"],
    ["cost", "--gaussian", "1e308"],
    ["cost", "--pure", "1e300"],
    ["cost", "--pure", "5e-324"],
    ["calibrate", "--epsilon", "1e300"],
    ["calibrate", "--epsilon", "1e300", "--rate", "0.5"],
    ["calibrate", "--epsilon", "1e-300"],
    ["calibrate", "--epsilon", "5e-324"],
    ["calibrate", "--epsilon", "1", "--steps", f"{2**53}"],
    ["calibrate", "--epsilon", "1", "--steps", f"{10**400}"],
]


@pytest.mark.parametrize("delta", ["1e-6", "5e-324"])
@pytest.mark.parametrize("arguments", EXTREME, ids=lambda arguments: " ".join(arguments)[:40])
def test_extreme_numbers_give_a_number_or_one_line(run, arguments, delta):
    outcome = run(*arguments, "--delta", delta)
    assert outcome.code in (0, 2)
    assert outcome.err.count("\n") == (0 if outcome.code == 0 else 1)
    assert "unexpected" not in outcome.err


@pytest.mark.parametrize("arguments", [["--rate", "1e-30"], ["--steps", "1000000000", "--rate", "0.5"]])
def test_a_search_that_finds_nothing_in_time_is_ended(run, monkeypatch, arguments):
    monkeypatch.setattr("dpadapt.cli.cost._LONGEST_COMPUTATION", 2)
    refused(run("calibrate", "--epsilon", 1, "--delta", 1e-6, *arguments), "no answer was found in 2 seconds")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (1.0, "1"), (1.0000000001, "1"), (1.00001, "1.001"), (0.12345, "0.1235"), (123456.0, "123500"),
     (1e-300, "1.000e-300"), (5e-324, "4.941e-324"), (1.7e308, "1.700e+308"), (float("inf"), "inf")],
)  # fmt: skip
def test_numbers_are_rounded_up_whatever_their_size(value, shown):
    assert _round_up(value, 4) == shown


def test_calibrate_agrees_with_the_golden_number(run):
    # Closed form for 15,000 full-batch steps at (1, 1e-5): 456.91 +- 0.01 (issue 2).
    outcome = run("calibrate", "--epsilon", 1, "--delta", 1e-5, "--steps", 15000)
    assert float(outcome.out.split(" = ")[1].split()[0]) == pytest.approx(456.91, abs=0.01)
    exact = json.loads(run("calibrate", "--epsilon", 1, "--delta", 1e-5, "--steps", 15000, "--json").out)
    assert float(outcome.out.split(" = ")[1].split()[0]) >= exact["noise_multiplier"]
