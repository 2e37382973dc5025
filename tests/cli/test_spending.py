"""The ledger that a command charges: where it is by default, its cap, and refusals before a private cell is read."""

from pathlib import Path

import pytest
from outcomes import accepted, refused, snapshot

from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.places import ledger_of, ledger_place
from dpadapt.cli.options import SpendingOptions
from dpadapt.cli.spending import Wish, _rounded_down, cost_of_budget, found_place, plan_ledger
from dpadapt.errors import BudgetExceeded, LedgerError
from dpadapt.mechanisms import Gaussian
from tests.failures import failing


def wish(epsilon=1.0, *, delta=1e-6, adjacency="zero-out", unit="row", dataset="patients", pure=False):
    return Wish(cost_of_budget(epsilon, delta, pure=pure), epsilon, delta, adjacency, unit, dataset)


def given_place(ledger, dataset):
    return SpendingOptions(private=Path("a.csv"), epsilon=1.0, ledger=ledger, dataset=dataset).place


def without_naming_a_ledger(site, **changes):
    arguments = site.fit(**{"method": "linear", **changes})
    at = arguments.index("--ledger")
    return arguments[:at] + arguments[at + 2 :]


def no_reading(monkeypatch):
    monkeypatch.setattr("dpadapt.cli.fit.read_private", failing(AssertionError("a private cell was read")))


def another_public_table(run, site, *options):
    """Return options of a fit with another public table, and a schema made from that, both in another folder."""
    folder = site.folder / "elsewhere"
    folder.mkdir()
    (site.folder / "public.csv").rename(folder / "census.csv")
    assert run("schema", folder / "census.csv", "-o", folder / "census.toml", *options).code == 0
    return {"public": folder / "census.csv", "schema": folder / "census.toml", "out": folder / "model"}


def test_fit_keeps_a_ledger_beside_the_private_file_whatever_the_public_file_is_called(run, site):
    site.ledger.unlink()
    assert run("schema", site.folder / "public.csv", "-o", site.schema, "--force").code == 0
    outcome = accepted(run(*without_naming_a_ledger(site)))
    ledger = Ledger.open(site.folder / "private.ledger")
    assert (ledger.epsilon, ledger.delta, ledger.dataset, ledger.unit) == (3.0, 1e-6, "private", "row")
    assert ledger.spent() == pytest.approx(1.0, rel=1e-3)
    said = " ".join(outcome.out.split())
    assert "at most epsilon = 3 at delta = 1e-06 may ever be spent on private (three times this --epsilon" in said
    # Another public file, schema and folder lead to the same ledger, which has no cap to tell of.
    again = accepted(run(*without_naming_a_ledger(site, **another_public_table(run, site))))
    assert "New ledger" not in again.out
    assert ledger.n_charges == 2
    assert [path.name for path in site.folder.rglob("*.ledger")] == ["private.ledger"]


@pytest.mark.parametrize("how", ["link", "folder"])
def test_a_link_to_the_private_file_gets_no_second_budget(run, site, how):
    site.ledger.unlink()
    assert run("schema", site.folder / "public.csv", "-o", site.schema, "--force").code == 0
    folder = site.folder / "linked"
    if how == "link":
        folder.mkdir()
        (folder / "mine.csv").symlink_to(site.private)
    else:
        folder.symlink_to(site.folder, target_is_directory=True)
        (folder / "mine.csv").symlink_to("private.csv")
    assert run(*without_naming_a_ledger(site, private=folder / "mine.csv")).code == 0
    assert Ledger.open(site.folder / "private.ledger").n_charges == 1
    assert run(*without_naming_a_ledger(site)).code == 0
    assert Ledger.open(site.folder / "private.ledger").n_charges == 2


def test_a_ledger_elsewhere_is_not_forgotten(run, site):
    elsewhere = site.folder / "ledgers"
    elsewhere.mkdir()
    site.ledger.rename(elsewhere / "clinic.ledger")
    assert run(*site.fit(method="linear", ledger=elsewhere / "clinic.ledger")).code == 0
    assert run(*without_naming_a_ledger(site)).code == 0
    assert Ledger.open(elsewhere / "clinic.ledger").n_charges == 2
    # Nor can another one be begun.
    refused(
        run(*site.fit(method="linear", ledger=site.folder / "second.ledger")),
        "another ledger would lack what was already spent",
    )
    assert not (site.folder / "second.ledger").exists()


def test_of_two_fits_that_begin_at_once_one_is_refused(tmp_path):
    """The second finds, before it charges, that the first has made a ledger where the second wanted a link."""
    (tmp_path / "rows.csv").touch()
    plans = [
        plan_ledger(path, wish(), link=link)
        for path, link in (ledger_of(tmp_path / "rows.csv", given=given) for given in (None, tmp_path / "other.ledger"))
    ]
    plans[0].open()
    with pytest.raises(ValueError, match=r"another fit has begun the ledger .*rows.ledger"):
        plans[1].open()
    assert [path.name for path in tmp_path.glob("*.ledger")] == ["rows.ledger"]


def test_a_link_that_cannot_be_made_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.symlink_to", failing(OSError(1, "not permitted")))
    path, link = ledger_of(tmp_path / "rows.csv", given=tmp_path / "other.ledger")
    plan = plan_ledger(path, wish(), link=link)
    plan.open()
    assert any("name the ledger by --ledger" in note for note in plan.notes)


def test_a_fit_beyond_the_cap_is_refused_before_a_private_cell_is_read(run, site, monkeypatch):
    Ledger.open(site.ledger).start(Gaussian(2.0), label="an earlier fit")
    left = Ledger.open(site.ledger).remaining()
    no_reading(monkeypatch)
    outcome = run(*site.fit(method="linear", epsilon=2.5))
    assert outcome.code == 2
    for part in ("No private cell was read and nothing was spent", f"epsilon = {left:.3g} left", "or less"):
        assert part in outcome.err
    assert len(Ledger.open(site.ledger).entries) == 1


def test_what_the_refusal_proposes_is_let_through(tmp_path):
    path = tmp_path / "rows.ledger"
    Ledger.open(path, epsilon=3.0, delta=1e-6, dataset="patients").start(Gaussian(2.0), label="an earlier fit")
    with pytest.raises(BudgetExceeded) as refusal:
        plan_ledger(path, wish(2.9))
    proposed = float(str(refusal.value).partition("--epsilon of ")[2].partition(" or less")[0])
    assert 0 < proposed <= Ledger.open(path).remaining()
    assert plan_ledger(path, wish(proposed)).cap is None


def test_a_full_ledger_proposes_no_budget(tmp_path):
    path = tmp_path / "rows.ledger"
    Ledger.open(path, epsilon=1.0, delta=1e-6, dataset="patients").start(Gaussian(4.2250), label="everything")
    with pytest.raises(BudgetExceeded, match="Use the models that were fitted"):
        plan_ledger(path, wish(0.5))


def test_a_cap_that_is_asked_for_is_used_and_one_below_the_fit_is_refused(run, site):
    site.ledger.unlink()
    refused(run(*without_naming_a_ledger(site, ledger_epsilon=0.5)), "--ledger-epsilon 0.5")
    own = site.private.with_suffix(".ledger")
    assert not own.exists()
    outcome = accepted(run(*without_naming_a_ledger(site, ledger_epsilon=2, ledger_delta=1e-5)))
    assert "(as asked for)" in " ".join(outcome.out.split())
    assert (Ledger.open(own).epsilon, Ledger.open(own).delta) == (2.0, 1e-5)


def test_a_person_at_the_terminal_is_asked_for_the_cap(tmp_path, monkeypatch):
    asked = []

    class Terminal:
        def isatty(self):
            return True

    def answer(question, **options):
        asked.append(question)
        return 7.5

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr("typer.prompt", answer)
    plan = plan_ledger(tmp_path / "rows.ledger", wish())
    assert plan.cap == (7.5, 1e-6)
    assert len(asked) == 1
    plan.open()
    # Written down: nobody is asked again. Nor if the option says it.
    assert plan_ledger(tmp_path / "rows.ledger", wish()).cap is None
    assert plan_ledger(tmp_path / "other.ledger", wish(), epsilon=2.0).cap == (2.0, 1e-6)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("made", "wanted", "words"),
    [
        ({"unit": "person"}, {}, "with --person"),
        ({}, {"unit": "person"}, "Leave --person out"),
        ({"adjacency": "add-remove"}, {}, "Use --adjacency add-remove"),
        ({"dataset": "employees"}, {}, "employees"),
    ],
    ids=["persons", "rows", "neighbours", "data set"],
)
def test_a_ledger_on_other_terms_is_refused_with_the_option_to_change(tmp_path, made, wanted, words):
    path = tmp_path / "rows.ledger"
    Ledger.open(path, **{"epsilon": 3.0, "delta": 1e-6, "dataset": "patients", **made})
    with pytest.raises(LedgerError, match=words):
        plan_ledger(path, wish(**wanted), dataset="patients")


@pytest.mark.parametrize(("option", "value"), [("epsilon", 5.0), ("delta", 1e-5)])
def test_the_cap_of_a_ledger_that_exists_cannot_be_changed(tmp_path, option, value):
    path = tmp_path / "rows.ledger"
    Ledger.open(path, epsilon=3.0, delta=1e-6, dataset="patients")
    with pytest.raises(LedgerError, match=f"--ledger-{option}.*can't be changed"):
        plan_ledger(path, wish(), **{option: value})


def test_options_that_ask_for_a_ledger_and_refuse_it_are_refused(run, site):
    refused(run(*site.fit(), "--no-ledger"), "--no-ledger")
    assert site.untouched()


def test_a_pure_budget_fits_a_pure_ledger(tmp_path):
    plan = plan_ledger(tmp_path / "pure.ledger", wish(1.0, delta=0.0, pure=True))
    assert plan.cap == (3.0, 0.0)
    plan.open()
    assert plan_ledger(tmp_path / "pure.ledger", wish(3.0, delta=0.0, pure=True)).cap is None
    with pytest.raises(BudgetExceeded):
        plan_ledger(tmp_path / "pure.ledger", wish(3.1, delta=0.0, pure=True))


@pytest.mark.parametrize(("epsilon", "rounded"), [(2.74, 2.7), (0.0996, 0.099), (1.0, 1.0), (0.95, 0.95), (5e-4, 0.0)])
def test_proposed_budgets_are_rounded_down(epsilon, rounded):
    assert _rounded_down(epsilon) == pytest.approx(rounded)
    assert _rounded_down(epsilon) <= epsilon


def copied(site):
    """Charge the private file, and return a copy of it under another name beside it."""
    site.ledger.rename(site.private.with_suffix(".ledger"))
    copy = site.folder / "copy.csv"
    copy.write_bytes(site.private.read_bytes())
    return copy, site.private.with_suffix(".ledger")


@pytest.mark.parametrize("how", ["copied", "renamed"])
def test_a_copied_or_renamed_private_file_gets_no_second_ledger_in_silence(run, site, monkeypatch, how):
    copy, ledger = copied(site)
    if how == "renamed":
        site.private.unlink()
    before = snapshot(site.folder)
    with monkeypatch.context() as patch:
        no_reading(patch)
        outcome = run(*without_naming_a_ledger(site, private=copy))
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1
    for part in (f"{ledger} may be that of its rows", "name that ledger with --ledger", "Nothing was spent"):
        assert part in outcome.err
    assert snapshot(site.folder) == before
    # The answer is given once.
    assert run(*site.fit(method="linear", private=copy, ledger=ledger)).code == 0
    assert run(*without_naming_a_ledger(site, private=copy)).code == 0
    assert Ledger.open(ledger).n_charges == 2
    assert [path.name for path in site.folder.glob("*.ledger") if not path.is_symlink()] == ["private.ledger"]


def test_rows_that_were_never_charged_get_a_ledger_that_is_named(run, site):
    copy, ledger = copied(site)
    assert run(*site.fit(method="linear", private=copy, ledger=copy.with_suffix(".ledger"))).code == 0
    assert not Ledger.open(ledger).entries
    assert Ledger.open(copy.with_suffix(".ledger")).n_charges == 1


@pytest.mark.parametrize(
    ("answer", "charged_ledger"), [("private.ledger", "private.ledger"), ("new", "copy.ledger"), ("no.ledger", None)]
)
def test_a_person_at_the_terminal_is_asked_which_ledger_is_charged(site, monkeypatch, answer, charged_ledger):
    copy, ledger = copied(site)
    questions = []

    def prompt(question, **_options):
        questions.append(question)
        return answer

    monkeypatch.setattr("dpadapt.cli.spending.at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.prompt", prompt)
    if charged_ledger is None:
        with pytest.raises(ValueError, match=r"there is no such ledger. Nothing was spent"):
            found_place(copy, None)
    else:
        assert found_place(copy, None)[0] == site.folder / charged_ledger
    assert len(questions) == 1
    assert str(ledger) in questions[0]


def test_a_fit_says_which_ledger_was_charged_and_what_is_left(run, site):
    outcome = run(*site.fit(method="linear"))
    ledger = Ledger.open(site.ledger)
    charge = (
        f"Charged to {site.ledger} (patients): epsilon = {ledger.spent():.4g} of 3 spent, {ledger.remaining():.4g} left"
    )
    assert f"{charge} at delta = 1e-06." in outcome.out


def test_a_server_gets_no_second_ledger_for_a_renamed_file(tmp_path, monkeypatch):
    """A server is not asked: it knows the rows by the name that their file had."""
    # Without the driver of a server, which finds passwords in an address.
    monkeypatch.setattr("dpadapt.integrations.postgres.without_passwords", lambda address: address)
    server = "postgresql://ann@host/budgets"
    (tmp_path / "july.ledger").write_text(f"{server}\njuly\n", encoding="utf-8")
    (tmp_path / "clean.csv").touch()
    with pytest.raises(ValueError, match=r"july.ledger near .* by --dataset"):
        ledger_of(tmp_path / "clean.csv", given=ledger_place(server))
    # The file that holds the address can be named, and so can the data set.
    place, link = ledger_of(tmp_path / "clean.csv", given=tmp_path / "july.ledger")
    assert (place.shown, place.dataset) == (server, "july")
    assert link == tmp_path / "clean.ledger"
    assert ledger_of(tmp_path / "clean.csv", given=given_place(server, "clean"))[0].dataset == "clean"
    for ledger, dataset in ((None, "clean"), ("a.ledger", "clean"), (server, "")):
        with pytest.raises(ValueError, match="--dataset names the data set on the server"):
            given_place(ledger, dataset)
