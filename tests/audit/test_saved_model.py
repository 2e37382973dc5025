"""The audit of a saved model: an honest one holds, a tampered receipt and a planted flaw are found."""

import hashlib
import json
from dataclasses import replace
from functools import wraps
from inspect import signature

import numpy as np
import pytest

from dpadapt import (
    Ledger,
    PrivateLinearRegression,
    PrivateSourceTargetClustering,
    PrivateTransferRegressor,
    Public,
    save,
)
from dpadapt.accounting import epsilon
from dpadapt.accounting.receipt import Entry
from dpadapt.audit import Pace, audit_model, saved_model
from dpadapt.audit.replay import Release, Tape
from dpadapt.hybrid import PrivateHybridClassifier, SimulatedAgents
from dpadapt.learning import estimator
from dpadapt.mechanisms import Adjacency, Gaussian, NonPrivate
from dpadapt.mechanisms.mechanism import GaussianEvent, PureEvent
from dpadapt.methods import METHODS, find
from dpadapt.papers.adaptation import PrivateMixture
from dpadapt.persist import load
from dpadapt.tables import Category, Number, Schema

RANDOM = np.random.default_rng(5)
X = RANDOM.uniform(-1, 1, (300, 2))
Y = X @ [1.0, -0.5]
# At mu = 2 the fewest refits decide; the noise of seeded audits repeats.
EPSILON, DELTA = 9.9, 1e-5
QUICK = {"fits": 36, "confidence": 0.95, "seed": 2}
# Two rows for each person.
PERSONS = np.arange(len(X)) // 2


def audit_receipt(folder):
    """Audit the receipt alone: no time is left for refits."""
    return audit_model(folder, pace=Pace(1e-9))


@pytest.fixture
def folder(tmp_path):
    """Return the folder of an honest model with a ledger beside it."""
    ledger = Ledger.open(tmp_path / "rows.ledger", epsilon=20.0, delta=DELTA)
    save(PrivateMixture(epsilon=EPSILON, delta=DELTA).fit(X, Y, ledger=ledger), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def two_entries(tmp_path):
    """Return the folder of a model whose receipt has several entries."""
    model = PrivateHybridClassifier(epsilon=EPSILON, delta=DELTA, classes=[0, 1]).fit(X, (Y > 0).astype(int))
    save(model, tmp_path / "two")
    return tmp_path / "two"


def tamper(folder, change, *, params=None):
    """Change the receipt, and what model.json says about it, as a careful forger would."""
    receipt = json.loads((folder / "receipt.json").read_text())
    change(receipt)
    content = json.dumps(receipt).encode()
    (folder / "receipt.json").write_bytes(content)
    model = json.loads((folder / "model.json").read_text())
    model["checksums"]["receipt.json"] = hashlib.sha256(content).hexdigest()
    model["params"] |= params or {}
    (folder / "model.json").write_text(json.dumps(model))


def verdicts(audit):
    return {finding.check: finding.verdict for finding in audit.findings}


def refuted(audit):
    return [finding.check for finding in audit.findings if finding.verdict == "refuted"]


def test_an_honest_model_holds_and_its_ledger_is_not_charged(folder):
    before = (folder.parent / "rows.ledger").read_bytes()
    audit = audit_model(folder, ledger=Ledger.open(folder.parent / "rows.ledger", read_only=True), **QUICK)
    assert set(verdicts(audit).values()) == {"holds"}, audit.findings
    assert len(audit.findings) == 12
    assert (audit.verdict, audit.words.split(":")[0]) == ("holds", "holds")
    assert "no proof" in audit.words
    assert (folder.parent / "rows.ledger").read_bytes() == before


def test_an_exchanged_receipt_is_found(folder):
    text = (folder / "receipt.json").read_text()
    (folder / "receipt.json").write_text(text.replace("9.", "1.", 1))
    audit = audit_receipt(folder)
    assert refuted(audit) == ["receipt.json belongs to the model"]
    assert (audit.verdict, audit.receipt) == ("refuted", None)
    assert "REFUTED" in audit.words


def test_a_lower_epsilon_is_found(folder):
    tamper(folder, lambda receipt: receipt.update(epsilon=receipt["epsilon"] / 2))
    audit = audit_receipt(folder)
    assert "a second accountant confirms the receipt" in refuted(audit)
    assert "the entries cost what the receipt claims" in refuted(audit)


def test_a_removed_entry_is_found(two_entries):
    tamper(two_entries, lambda receipt: receipt["entries"].pop(0))
    assert "the entries cost what the receipt claims" in refuted(audit_receipt(two_entries))


def test_a_removed_entry_with_a_matching_epsilon_is_found(two_entries):
    def change(receipt):
        receipt["entries"].pop(0)
        event = receipt["entries"][0]["event"]
        times = receipt["entries"][0]["times"]
        receipt["epsilon"] = epsilon({GaussianEvent(event["noise_multiplier"]): times}, DELTA)

    tamper(two_entries, change)
    assert refuted(audit_model(two_entries, **QUICK)) == ["a refit costs what the receipt claims"]


def test_a_larger_noise_multiplier_is_found(folder):
    tamper(folder, lambda receipt: receipt["entries"][0]["event"].update(noise_multiplier=3.0))
    assert "the entries cost what the receipt claims" in refuted(audit_receipt(folder))


def forge(receipt):
    """Raise the noise and lower the epsilon to match."""
    receipt["entries"][0]["event"]["noise_multiplier"] = 3.0
    receipt["epsilon"] = epsilon(GaussianEvent(3.0), DELTA)


def test_a_larger_noise_multiplier_with_a_matching_epsilon_is_found(folder):
    tamper(folder, forge)
    assert refuted(audit_model(folder, **QUICK)) == ["a refit costs what the receipt claims"]


def test_a_forgery_of_everything_is_found_by_the_ledger_alone(folder):
    tamper(folder, forge, params={"epsilon": epsilon(GaussianEvent(3.0), DELTA)})
    audit = audit_model(folder, ledger=Ledger.open(folder.parent / "rows.ledger", read_only=True), **QUICK)
    assert refuted(audit) == ["the ledger was charged"]


@pytest.mark.parametrize("params", [{"epsilon": 1.0}, {"delta": 1e-6}, {"adjacency": "replace-one"}])
def test_a_receipt_beyond_the_budget_of_the_model_is_found(folder, params):
    tamper(folder, lambda receipt: None, params=params)
    assert "the receipt keeps to the model's budget" in refuted(audit_receipt(folder))


def test_seeds_are_found_whether_the_receipt_shows_them_or_not(tmp_path):
    save(PrivateMixture(epsilon=EPSILON, delta=DELTA, random_state=0).fit(X, Y), tmp_path)
    assert refuted(audit_receipt(tmp_path)) == ["all noise is secret"]
    tamper(tmp_path, lambda receipt: receipt["entries"][0].update(seeded=False))
    assert refuted(audit_receipt(tmp_path)) == ["all noise is secret"]


def test_releases_without_noise_are_found(folder):
    def change(receipt):
        receipt["entries"].append(Entry("all rows", NonPrivate().event()).to_dict())
        receipt["epsilon"] = "inf"

    tamper(folder, change)
    assert {"the receipt keeps to the model's budget", "all noise is secret"} <= set(refuted(audit_receipt(folder)))


def test_the_wrong_ledger_is_found(folder, tmp_path):
    caps = {"epsilon": 20.0, "delta": DELTA}
    save(load(folder).model, folder, extra={"schema": {"dataset": "patients"}})
    wrong = [
        Ledger.open(tmp_path / "empty.ledger", **caps),
        Ledger.open(tmp_path / "other.ledger", dataset="customers", **caps),
        Ledger.open(tmp_path / "replaced.ledger", adjacency="replace-one", **caps),
    ]
    for ledger, words in zip(wrong, ("not in the ledger", "'customers'", "replace-one"), strict=True):
        finding = saved_model._ledger_finding(load(folder), ledger)
        assert finding.verdict == "refuted"
        assert words in finding.words


def test_charges_are_found_in_the_ledger_of_a_study(tmp_path):
    ledger = Ledger.open(tmp_path / "a.ledger", epsilon=20.0, delta=DELTA)
    study = ledger.child(15.0, DELTA, label="a study: the first")
    save(PrivateMixture(epsilon=EPSILON, delta=DELTA).fit(X, Y, ledger=study), tmp_path / "model")
    assert saved_model._ledger_finding(load(tmp_path / "model"), ledger).verdict == "holds"


def test_an_entry_that_the_receipt_has_twice_must_be_charged_twice(folder, tmp_path):
    saved = load(folder)
    saved.model.privacy_ = replace(saved.model.privacy_, entries=saved.model.privacy_.entries * 2)
    finding = saved_model._ledger_finding(saved, Ledger.open(tmp_path / "rows.ledger"))
    assert finding.verdict == "refuted"


def test_a_model_that_released_nothing_must_say_so(tmp_path):
    save(PrivateMixture(epsilon=1e-4, delta=1e-9).fit(X, Y), tmp_path)
    audit = audit_receipt(tmp_path)
    assert verdicts(audit)["nothing was released"] == "holds"
    tamper(tmp_path, lambda receipt: receipt.update(warnings=[]))
    assert refuted(audit_receipt(tmp_path)) == ["nothing was released"]


def test_half_the_noise_is_found(folder, monkeypatch):
    original = Gaussian._apply
    monkeypatch.setattr(
        Gaussian,
        "_apply",
        lambda self, bounded, *, scale, random: original(self, bounded, scale=scale / 2, random=random),
    )
    flaws = refuted(audit_model(folder, **{**QUICK, "fits": 60}))
    assert flaws == ["the noise that is drawn is as large as claimed", "an attack does not refute the claim"]


def test_a_statistic_that_moves_too_far_is_found(folder, monkeypatch):
    original = Gaussian.scale
    # As if the sensitivity were half of what one row can do.
    monkeypatch.setattr(
        Gaussian, "scale", lambda self, bounded, adjacency, **more: original(self, bounded, adjacency, **more) / 2
    )
    assert "one row moves no statistic beyond its noise" in refuted(audit_model(folder, **QUICK))


def test_a_leak_is_found(folder, monkeypatch):
    original = PrivateMixture.fit

    def leaky(self, X, y, **beside):
        fitted = original(self, X, y, **beside)
        fitted.largest_ = float(np.max(X[-1]))
        return fitted

    monkeypatch.setattr(PrivateMixture, "fit", leaky)
    audit = audit_model(folder, **QUICK)
    assert refuted(audit) == ["replays find no leak"]
    assert any("largest_" in finding.words for finding in audit.findings)


def test_a_draw_without_a_charge_is_found():
    release = Release("Gaussian", GaussianEvent(1.0), 1.0, np.zeros(1), np.zeros(1))
    for drawn, verdict in ((2, "holds"), (3, "refuted")):
        tape = Tape((release,) * drawn, ((Entry("sums", GaussianEvent(1.0), 2),),), None)
        assert saved_model._charged_draws([tape]).verdict == verdict


@pytest.mark.parametrize("params", [{"adjacency": "add-remove", "n_rows": 300}, {"adjacency": "replace-one"}])
def test_other_adjacencies_hold(tmp_path, params):
    save(PrivateMixture(epsilon=EPSILON, delta=DELTA, **params).fit(X, Y), tmp_path)
    audit = audit_model(tmp_path, **QUICK)
    assert refuted(audit) == []
    assert verdicts(audit)["one row moves no statistic beyond its noise"] == "holds"


@pytest.fixture
def of_persons(tmp_path):
    """Return the folder of an honest model that protects persons."""
    save(PrivateLinearRegression(epsilon=EPSILON, delta=DELTA).fit(X, Y, persons=PERSONS), tmp_path / "persons")
    return tmp_path / "persons"


def test_an_honest_model_of_persons_holds(of_persons):
    audit = audit_model(of_persons, **QUICK)
    assert set(verdicts(audit).values()) == {"holds"}, audit.findings
    assert {"the fit was given persons", "one person moves no statistic beyond its noise"} <= set(verdicts(audit))


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_made_up_persons_have_several_rows_with_rows_of_others_between_them(tmp_path, adjacency):
    params = {"adjacency": adjacency.value, "n_rows": 150 if adjacency is Adjacency.ADD_REMOVE else None}
    save(PrivateLinearRegression(epsilon=EPSILON, delta=DELTA, **params).fit(X, Y, persons=PERSONS), tmp_path)
    for first, second in saved_model._MadeUp.of(load(tmp_path)).pairs():
        ids, others = first[-1], second[-1]
        last = ids.max()
        places = np.flatnonzero(ids == last)
        assert len(places) >= 4
        assert (np.diff(places) > 1).all()
        # All other persons have the same rows in both data sets, and some have several.
        assert np.array_equal(ids[ids != last], others[others != last])
        assert np.array_equal(first[0][ids != last], second[0][others != last])
        assert set(np.bincount(ids[ids != last])) == {1, 2, 3}
        assert np.count_nonzero(others == last) == (adjacency is not Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_made_up_persons_of_a_clustering_have_several_rows(tmp_path, adjacency):
    model = PrivateSourceTargetClustering(2, EPSILON, adjacency=adjacency.value)
    save(model.fit(X, public=Public(X[:40] + 0.1), persons=PERSONS), tmp_path)
    made_up = saved_model._MadeUp.of(load(tmp_path))
    pairs = made_up.pairs()
    for first, second in pairs:
        last = first[1].max()
        assert np.count_nonzero(first[1] == last) >= 2
        assert np.array_equal(first[0][first[1] != last], second[0][second[1] != last])
    # Where persons may be added, somebody may be the only one.
    assert any(len(second[1]) == 0 for _, second in pairs) == (adjacency is Adjacency.ADD_REMOVE)
    assert saved_model._moved([made_up.replayed(pair) for pair in pairs]).verdict == "holds"


def test_rows_that_count_fully_are_found(of_persons, monkeypatch):
    """A flaw that only persons with several rows show."""
    honest = estimator.person_shares
    monkeypatch.setattr(
        estimator,
        "person_shares",
        lambda ids, n_rows: replace(honest(ids, n_rows), values=np.sign(honest(ids, n_rows).values)),
    )
    flaws = refuted(audit_model(of_persons, **QUICK))
    assert flaws == ["one person moves no statistic beyond its noise", "an attack does not refute the claim"]


def test_a_number_of_rows_that_is_shown_is_found_where_persons_are_protected(of_persons, monkeypatch):
    original = PrivateLinearRegression.fit

    @wraps(original)
    def leaky(self, X, y, **beside):
        fitted = original(self, X, y, **beside)
        fitted.n_seen_ = len(X)
        return fitted

    monkeypatch.setattr(PrivateLinearRegression, "fit", leaky)
    assert refuted(audit_model(of_persons, **QUICK)) == ["replays find no leak"]


def test_a_receipt_of_persons_must_come_from_a_method_that_takes_them(folder, of_persons):
    tamper(folder, lambda receipt: receipt.update(unit="person"))
    tamper(of_persons, lambda receipt: receipt.update(assumptions=[]))
    for forged, words in ((folder, "the method takes none"), (of_persons, "nothing about their ids")):
        audit = audit_receipt(forged)
        assert refuted(audit) == ["the fit was given persons"]
        assert any(words in finding.words for finding in audit.findings)


def test_models_fitted_with_people_hold(tmp_path):
    people = SimulatedAgents(RANDOM.uniform(-1, 1, (3000, 2)), RANDOM.integers(0, 2, 3000), 1.0)
    model = PrivateHybridClassifier(epsilon=EPSILON, delta=DELTA, mode="hybrid", classes=[0, 1])
    save(model.fit(X, (Y > 0).astype(int), agents=people), tmp_path)
    made_up = saved_model._like_the_receipt(saved_model._MadeUp.of(load(tmp_path)), model.privacy_)
    tapes = [made_up.replayed(pair) for pair in made_up.pairs()[-2:]]
    assert saved_model._same_cost(model.privacy_, tapes[0][0], EPSILON).verdict == "holds"
    assert saved_model._moved(tapes).verdict == "holds"
    # People are made up anew for every refit, and rows are enough for the same releases.
    assert all(tape.result.people_asked_ for pair in tapes for tape in pair)
    labels = [entry.label for entry in tapes[0][0].result.privacy_.entries]
    assert labels == [entry.label for entry in model.privacy_.entries]


def test_a_budget_too_small_for_the_made_up_rows_is_undecided(tmp_path):
    many = RANDOM.uniform(-1, 1, (60_000, 1))
    model = PrivateMixture(epsilon=1e-3, delta=DELTA).fit(many, many[:, 0])
    assert model.privacy_.entries
    save(model, tmp_path)
    audit = audit_model(tmp_path, **QUICK)
    assert refuted(audit) == []
    assert verdicts(audit)["a refit costs what the receipt claims"] == "undecided"


def test_a_method_that_does_not_use_up_its_budget_is_not_refuted_for_it(folder):
    receipt = load(folder).model.privacy_
    made_up = saved_model._MadeUp.of(load(folder))
    tape = made_up.replayed(made_up.pairs()[0])[0]
    lower = replace(receipt, epsilon=receipt.epsilon / 2)
    assert saved_model._same_cost(lower, tape, EPSILON).verdict == "refuted"
    assert saved_model._same_cost(lower, tape, 2 * EPSILON).verdict == "undecided"


def test_time_that_is_up_leaves_checks_undecided(folder):
    audit = audit_receipt(folder)
    assert audit.verdict == "undecided"
    assert verdicts(audit)["a second accountant confirms the receipt"] == "holds"
    assert audit.findings[-1].words == "not decided: the time was up"
    assert "undecided: " in audit.words


def test_a_refit_that_fails_is_undecided(folder, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise ValueError("these rows are not to its liking.")

    monkeypatch.setattr(PrivateMixture, "fit", refuse)
    assert "not to its liking" in audit_model(folder, **QUICK).findings[-1].words
    monkeypatch.setattr(saved_model, "_like_the_receipt", lambda made_up, receipt: made_up)
    audit = audit_model(folder, **QUICK)
    assert audit.verdict == "undecided"
    assert [finding.verdict for finding in audit.findings[5:]] == ["undecided"] * 6


def test_a_model_with_intervals_is_refitted_with_public_labels(tmp_path):
    """Without these the estimator refuses; the search for what makes the same releases goes on."""
    public = Public(X[:100], Y[:100] + 0.1 * RANDOM.standard_normal(100))
    save(PrivateTransferRegressor(EPSILON, DELTA, intervals=True).fit(X, Y, public=public), tmp_path)
    saved = load(tmp_path)
    made_up = saved_model._like_the_receipt(saved_model._MadeUp.of(saved), saved.model.privacy_)
    assert made_up.public.y is not None
    assert made_up.fit(made_up.rows(), Ledger(EPSILON, DELTA)).privacy_.entries[-1].label == "calibration"


def test_made_up_rows_follow_the_saved_schema():
    schema = Schema("d", (Number("age", 0, 99), Category("plan", ("free", "paid", "none")), Number("cost", 0, 9)))
    rows = RANDOM.uniform(-1, 1, (60, 4))
    model = PrivateLinearRegression(target_bounds=(0, 9), random_state=0).fit(rows, RANDOM.uniform(0, 9, 60))
    made_up = saved_model._MadeUp.of(
        saved_model.Saved(model, find("linear", "regression"), {"schema": schema.to_dict(), "label": "cost"})
    )
    made, labels = made_up.rows()
    assert np.array_equal(np.unique(made[:, 1:]), [0.0, 1.0])
    assert (made[:, 1:].sum(axis=1) == 1).all()
    assert np.abs(made[:, 0]).max() <= 1
    assert labels.min() >= 0
    assert labels.max() <= 9


def test_classes_of_made_up_rows_are_those_of_the_model():
    model = find("logistic", "classification").estimator(random_state=0).fit(X, np.where(Y > 0, "yes", "no"))
    made_up = saved_model._MadeUp.of(saved_model.Saved(model, find("logistic", "classification"), {}))
    assert set(made_up.rows()[1]) == {"no", "yes"}
    assert all(set(y) <= {"no", "yes"} for pair in made_up.pairs() for _, y in pair)
    assert made_up.params["random_state"] is None


@pytest.mark.parametrize(
    ("kind", "draw"),
    [
        ("Gaussian", lambda scale: RANDOM.normal(0, scale, 20_000)),
        ("Laplace", lambda scale: RANDOM.laplace(0, scale, 20_000)),
        ("DiscreteLaplace", lambda scale: np.subtract(*RANDOM.geometric(-np.expm1(-1 / scale), (2, 20_000)))),
    ],
)
@pytest.mark.parametrize("scale", [0.7, 3.0, 80.0])
def test_sizes_of_noise_have_the_stated_moments(kind, draw, scale):
    sizes = saved_model._sizes(kind, draw(scale), scale)
    assert sizes.sizes.mean() == pytest.approx(1.0, abs=5 * (sizes.variance / 20_000) ** 0.5 + 1e-3)
    assert sizes.sizes.var() == pytest.approx(sizes.variance, rel=0.15)
    # Half the noise, measured by the claimed scale.
    assert saved_model._sizes(kind, draw(scale / 2), scale).sizes.mean() == pytest.approx(sizes.halved, rel=0.1)


def test_choices_and_hardly_any_noise_have_no_sizes():
    assert saved_model._sizes("ExponentialMechanism", np.zeros(1), 1.0) is None
    assert saved_model._sizes("DiscreteLaplace", np.zeros(1), 0.01) is None


def test_shares_of_the_bound_are_exact():
    def share(kind, event, scale, moved):
        value = np.asarray(moved, dtype=float)
        releases = (Release(kind, event, scale, part, None) for part in (value, 0 * value))
        return saved_model._share_of_bound(*releases)

    # Scale 6 at multiplier 2 covers a move of 3 in l2; at epsilon 1/2, of 3 in l1.
    assert share("Gaussian", GaussianEvent(2.0), 6.0, [1.8, 2.4]) == pytest.approx(1.0)
    assert share("DiscreteLaplace", PureEvent(0.5), 6.0, [1, -2]) == pytest.approx(1.0)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not a model"):
        audit_model(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name}-{method.task}")
def test_no_honest_model_is_refuted(method, tmp_path):
    wanted = {"n_clusters": 2, "classes": [0, 1]}
    model = method.estimator()
    model.set_params(**{name: value for name, value in wanted.items() if name in model.get_params()})
    labels = Y if method.task == "regression" else (Y > 0).astype(int)
    data = (X,) if method.task == "clustering" else (X, labels)
    rows = RANDOM.uniform(-1, 1, (150, 2))
    public = Public(
        rows, rows[:, 0] if method.task == "regression" else (rows[:, 0] > 0).astype(int), tasks=np.arange(150) % 5
    )
    save(model.fit(*data, **({"public": public} if method.beside == "public" else {})), tmp_path)
    audit = audit_model(tmp_path, seed=7)
    assert refuted(audit) == [], audit.findings
    assert [finding.check for finding in audit.findings if finding.verdict == "undecided"] in (
        [],
        ["an attack does not refute the claim"],
    )


TAKING_PERSONS = [method for method in METHODS if "persons" in signature(type(method.estimator()).fit).parameters]


@pytest.mark.slow
@pytest.mark.parametrize("method", TAKING_PERSONS, ids=lambda method: f"{method.name}-{method.task}")
def test_no_honest_model_of_persons_is_refuted(method, tmp_path):
    rows = RANDOM.uniform(-1, 1, (150, 2))
    labels, known = (Y, rows[:, 0]) if method.task == "regression" else ((Y > 0) * 1, (rows[:, 0] > 0) * 1)
    save(method.estimator().fit(X, labels, public=Public(rows, known), persons=PERSONS), tmp_path)
    audit = audit_model(tmp_path, seed=7)
    assert refuted(audit) == [], audit.findings
    assert verdicts(audit)["one person moves no statistic beyond its noise"] == "holds"
