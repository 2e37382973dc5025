"""The ledger that a command charges: where it is by default, its cap, and refusals before a private cell is read."""

import pytest

from dpadapt.accounting.ledger import Ledger
from dpadapt.cli.budget import Wish, _rounded_down, cost_of_budget, default_ledger, plan_ledger
from dpadapt.errors import BudgetExceeded, LedgerError
from dpadapt.mechanisms import Gaussian


def wish(epsilon=1.0, *, delta=1e-6, adjacency="zero-out", unit="row", dataset="patients", pure=False):
    return Wish(cost_of_budget(epsilon, delta, pure=pure), epsilon, delta, adjacency, unit, dataset)


def beside_the_schema(site, **changes):
    arguments = site.fit(**changes)
    at = arguments.index("--ledger")
    return arguments[:at] + arguments[at + 2 :]


def no_reading(monkeypatch):
    def fail(*_args, **_options):
        raise AssertionError("a private cell was read")

    monkeypatch.setattr("dpadapt.cli.inputs.read_private", fail)


def test_fit_keeps_a_ledger_named_after_the_data_set_beside_the_schema(run, site, tmp_path):
    site.ledger.unlink()
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    outcome = run(*beside_the_schema(site, out=folder / "model"))
    assert outcome.code == 0, outcome.err
    ledger = Ledger.open(site.ledger)
    assert (ledger.epsilon, ledger.delta, ledger.dataset, ledger.unit) == (3.0, 1e-6, "patients", "row")
    assert ledger.spent() == pytest.approx(1.0, rel=1e-3)
    said = " ".join(outcome.out.split())
    assert "at most epsilon = 3 at delta = 1e-06 may ever be spent on patients (three times this --epsilon" in said
    assert list(folder.iterdir()) == [folder / "model"]
    # The second fit finds it, and has no cap to tell of.
    again = run(*beside_the_schema(site))
    assert again.code == 0
    assert "New ledger" not in again.out
    assert Ledger.open(site.ledger).n_charges == 2


def test_a_link_to_the_schema_gets_no_second_budget(run, site, tmp_path):
    folder = tmp_path / "linked"
    folder.mkdir()
    link = folder / site.schema.name
    link.symlink_to(site.schema)
    outcome = run(*beside_the_schema(site, schema=link))
    assert outcome.code == 0, outcome.err
    assert Ledger.open(site.ledger).n_charges == 1
    assert list(folder.iterdir()) == [link]


def test_a_fit_beyond_the_cap_is_refused_before_a_private_cell_is_read(run, site, monkeypatch):
    Ledger.open(site.ledger).start(Gaussian(2.0), label="an earlier fit")
    left = Ledger.open(site.ledger).remaining()
    no_reading(monkeypatch)
    outcome = run(*beside_the_schema(site, epsilon=2.5))
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
    outcome = run(*beside_the_schema(site, ledger_epsilon=0.5))
    assert outcome.code == 2
    assert "--ledger-epsilon 0.5" in outcome.err
    assert not site.ledger.exists()
    outcome = run(*beside_the_schema(site, ledger_epsilon=2, ledger_delta=1e-5))
    assert outcome.code == 0
    assert "(as asked for)" in " ".join(outcome.out.split())
    assert (Ledger.open(site.ledger).epsilon, Ledger.open(site.ledger).delta) == (2.0, 1e-5)


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
        plan_ledger(path, wish(**wanted))


@pytest.mark.parametrize(("option", "value"), [("epsilon", 5.0), ("delta", 1e-5)])
def test_the_cap_of_a_ledger_that_exists_cannot_be_changed(tmp_path, option, value):
    path = tmp_path / "rows.ledger"
    Ledger.open(path, epsilon=3.0, delta=1e-6, dataset="patients")
    with pytest.raises(LedgerError, match=f"--ledger-{option}.*can't be changed"):
        plan_ledger(path, wish(), **{option: value})


def test_options_that_ask_for_a_ledger_and_refuse_it_are_refused(run, site):
    outcome = run(*site.fit(), "--no-ledger")
    assert outcome.code == 2
    assert "--no-ledger" in outcome.err
    assert site.untouched()


def test_a_ledger_that_cannot_be_made_names_the_ways_out(run, site, tmp_path):
    outcome = run(*site.fit(ledger=tmp_path / "no" / "such.ledger"))
    assert outcome.code == 2
    assert "--no-ledger" in outcome.err


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("patients", "patients.ledger"),
        ("../../etc/passwd", "etc-passwd.ledger"),
        ("..", "private.ledger"),
        ("Klinik Süd", "Klinik-Süd.ledger"),
        ("x" * 500, "x" * 60 + ".ledger"),
    ],
)
def test_the_name_of_a_ledger_leads_to_no_other_folder(tmp_path, dataset, name):
    assert default_ledger(dataset, tmp_path) == tmp_path / name


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
