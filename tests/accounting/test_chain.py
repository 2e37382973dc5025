"""The chain of records: what it adds up to, and that no altered record is followed."""

import json
import math
from dataclasses import replace

import pytest

from dpadapt.accounting import chain
from dpadapt.accounting.chain import FORMAT, Allowance, Past, State, Terms
from dpadapt.accounting.filter import Filter, Sums
from dpadapt.mechanisms import Adjacency
from dpadapt.mechanisms.events import Entry, GaussianEvent

MADE = Filter.of("mixed", 3.0, 1e-6, Adjacency.ZERO_OUT)
TERMS = Terms(3.0, 1e-6, "zero-out", "patients", MADE.share, MADE.order)
CHARGE = (Entry("steps", GaussianEvent(20.0), 10),)
TIME = "2026-01-02 03:04:05"
START = State(0, chain.link(FORMAT, TIME, "terms"))


def records(*contents):
    return chain.chained(START.head, TIME, contents)


CONTENTS = [
    chain.charged(CHARGE, MADE.sums(CHARGE)),
    chain.used("mark", 0),
    chain.charged(CHARGE, MADE.sums(CHARGE)),
    chain.used("mark", 4),
]


def test_the_first_record_has_the_terms_and_an_id_of_its_own():
    ids = set()
    for _ in range(2):
        text = chain.first_text(TERMS)
        name, terms, state = chain.begin((chain.link(FORMAT, TIME, text), TIME, text))
        ids.add(name)
        assert terms == TERMS
        assert state == State(0, chain.link(FORMAT, TIME, text))
    assert len(ids) == 2
    assert chain.begin((chain.link(FORMAT, TIME, text), TIME, text.replace("3.0", "9.0"))) is None
    later = text.replace('"unit": "row"', '"unit": "household"')
    with pytest.raises(chain.UnknownTerms):
        chain.begin((chain.link(FORMAT, TIME, later), TIME, later))


def test_records_add_up_to_sums_runs_and_charges():
    state, charges = chain.follow(START, records(*CONTENTS), TERMS)
    assert (state.records, state.head) == (4, records(*CONTENTS)[-1][0])
    assert state.sums == MADE.sums(CHARGE) + MADE.sums(CHARGE)
    assert state.runs == {"mark": (CHARGE[0], 4, "")}
    assert charges == [Past(TIME, CHARGE)] * 2
    # In two steps the same.
    half, _ = chain.follow(START, records(*CONTENTS)[:3], TERMS)
    assert chain.follow(half, records(*CONTENTS)[3:], TERMS)[0] == state


@pytest.mark.parametrize("part", [0, 1, 2], ids=["hash", "time", "text"])
@pytest.mark.parametrize("number", range(4))
def test_a_chain_is_followed_up_to_an_altered_record(number, part):
    altered = [list(record) for record in records(*CONTENTS)]
    altered[number][part] += " "
    state, _ = chain.follow(START, altered, TERMS)
    assert state.records == number


def test_missing_and_swapped_records_end_the_chain():
    first, second, third, _ = records(*CONTENTS)
    for given, followed in ([second, third], 0), ([first, third], 1), ([first, third, second], 1):
        assert chain.follow(START, given, TERMS)[0].records == followed


def charged_times(times):
    """Return a record of two charges, the second of them made a number of times that no entry has."""
    content = chain.charged((*CHARGE, CHARGE[0]), Sums())
    content["charge"][-1]["times"] = times
    return content


@pytest.mark.parametrize(
    ("contents", "what"),
    [
        ([chain.used("mark", 0)], "unknown run"),
        ([CONTENTS[0], chain.used("mark", 1)], "unknown run"),
        ([*CONTENTS, chain.used("mark", 3)], "not charged"),
        ([*CONTENTS, chain.used("mark", 11)], "not charged"),
        ([CONTENTS[0], chain.used("mark", 0), chain.used("mark", -1)], "unknown form|not charged"),
        ([*CONTENTS, chain.used("mark", math.inf)], "unknown form|not charged"),
        ([{"charge": []}], "unknown form"),
        ([chain.charged(CHARGE, Sums(float("nan")))], "unknown form"),
        ([chain.charged((), Sums())], "unknown form"),
        ([chain.charged((replace(CHARGE[0], times=0),), Sums())], "unknown form"),
        ([charged_times(-10)], "unknown form"),
        ([charged_times(1.5)], "unknown form"),
        ([None], "unknown form"),
        (["converted"], "unknown form"),
    ],
)
def test_records_that_no_store_wrote_are_refused_although_their_hashes_are_valid(contents, what):
    with pytest.raises(chain.BrokenChain, match=what):
        chain.follow(START, records(*contents), TERMS)


LIMIT = Filter.of("mixed", 0.5, 1e-7, Adjacency.ZERO_OUT)
UNDER = {**CONTENTS[0], **chain.under("anna", LIMIT.sums(CHARGE))}


def test_a_charge_under_an_allowance_is_added_to_both_sums():
    raised = replace(LIMIT, epsilon=1.0)
    contents = [chain.allowed("anna", LIMIT), UNDER, chain.used("mark", 0), CONTENTS[0], chain.allowed("anna", raised)]
    state, past = chain.follow(START, records(*contents), TERMS)
    assert state.sums == MADE.sums(CHARGE) + MADE.sums(CHARGE)
    assert state.allowances == {"anna": Allowance(raised, LIMIT.sums(CHARGE))}
    assert state.runs == {"mark": (CHARGE[0], 0, "anna")}
    limits = [Past(TIME, (), "anna", (0.5, 1e-7)), Past(TIME, (), "anna", (1.0, 1e-7))]
    assert past == [limits[0], Past(TIME, CHARGE, "anna"), Past(TIME, CHARGE), limits[1]]
    half, _ = chain.follow(START, records(*contents)[:2], TERMS)
    assert chain.follow(half, records(*contents)[3:], TERMS)[0].records == 2  # not the next record
    assert chain.follow(half, [], TERMS)[0] == half


@pytest.mark.parametrize(
    ("contents", "what"),
    [
        ([UNDER], "unknown allowance"),
        ([chain.allowed("bert", LIMIT), UNDER], "unknown allowance"),
        ([chain.allowed("anna", LIMIT), UNDER | {"allowance sums": [0.0, float("nan"), 0.0, 0]}], "unknown form"),
        ([chain.allowed("anna", LIMIT), UNDER | {"allowance sums": [0.0, -1.0, 0.0, 0]}], "unknown form"),
        ([chain.allowed("anna", LIMIT), UNDER | {"allowance sums": None}], "unknown form"),
        ([chain.allowed("anna", LIMIT), chain.allowed("anna", replace(LIMIT, order=99))], "fixed about an allowance"),
        ([chain.allowed("anna", LIMIT), chain.allowed("anna", replace(LIMIT, delta=1e-6))], "fixed about an allowance"),
        ([chain.allowed("anna", LIMIT), chain.allowed("anna", replace(LIMIT, share=0.1))], "fixed about an allowance"),
        (
            [{"allow": "anna", "limit": {"epsilon": -1.0, "delta": 0.0, "share": 1.0, "order": 2, "plain_share": 0.0}}],
            "unknown form",
        ),
        ([{"allow": "anna"}], "unknown form"),
        ([chain.allowed("anna", LIMIT), chain.used("mark", 0)], "unknown run"),
    ],
)
def test_allowances_that_no_store_wrote_are_refused_although_their_hashes_are_valid(contents, what):
    with pytest.raises(chain.BrokenChain, match=what):
        chain.follow(START, records(*contents), TERMS)


def test_fields_that_a_store_adds_are_ignored():
    more = [{**content, "token": str(k)} for k, content in enumerate(CONTENTS)]
    assert [json.loads(text)["token"] for _, _, text in records(*more)] == list("0123")
    assert chain.follow(START, records(*more), TERMS)[0].sums == chain.follow(START, records(*CONTENTS), TERMS)[0].sums
