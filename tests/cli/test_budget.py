"""The ledger that a command charges: where it is by default, its cap, and refusals before a private cell is read."""

import os

import pytest

from dpadapt.accounting.ledger import Ledger
from dpadapt.cli.budget import Wish, _rounded_down, cost_of_budget, default_ledger, ledger_of, ledger_place, plan_ledger
from dpadapt.errors import BudgetExceeded, LedgerError
from dpadapt.mechanisms import Gaussian


def wish(epsilon=1.0, *, delta=1e-6, adjacency="zero-out", unit="row", dataset="patients", pure=False):
    return Wish(cost_of_budget(epsilon, delta, pure=pure), epsilon, delta, adjacency, unit, dataset)


def without_naming_a_ledger(site, **changes):
    arguments = site.fit(**{"method": "linear", **changes})
    at = arguments.index("--ledger")
    return arguments[:at] + arguments[at + 2 :]


def no_reading(monkeypatch):
    def fail(*_args, **_options):
        raise AssertionError("a private cell was read")

    monkeypatch.setattr("dpadapt.cli.inputs.read_private", fail)


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
    outcome = run(*without_naming_a_ledger(site))
    assert outcome.code == 0, outcome.err
    ledger = Ledger.open(site.folder / "private.ledger")
    assert (ledger.epsilon, ledger.delta, ledger.dataset, ledger.unit) == (3.0, 1e-6, "private", "row")
    assert ledger.spent() == pytest.approx(1.0, rel=1e-3)
    said = " ".join(outcome.out.split())
    assert "at most epsilon = 3 at delta = 1e-06 may ever be spent on private (three times this --epsilon" in said
    # Another public file, schema and folder lead to the same ledger, which has no cap to tell of.
    again = run(*without_naming_a_ledger(site, **another_public_table(run, site)))
    assert again.code == 0, again.err
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


@pytest.mark.parametrize("dataset", ["patients", "another name", None])
def test_an_earlier_ledger_is_found_by_the_private_file_with_any_schema(run, site, dataset):
    """The fixture's ledger lies beside the schema, where earlier versions kept it, named after its data set."""
    assert run(*without_naming_a_ledger(site)).code == 0
    named = [] if dataset is None else ["--dataset", dataset]
    outcome = run(*without_naming_a_ledger(site, **another_public_table(run, site, *named)))
    assert outcome.code == 0, outcome.err
    assert Ledger.open(site.ledger).n_charges == 2


def test_a_ledger_named_after_the_public_file_is_found_with_a_new_schema(run, site):
    old = site.ledger.rename(site.folder / "public-private.ledger")
    assert run("schema", site.folder / "public.csv", "-o", site.schema, "--force").code == 0
    assert run(*without_naming_a_ledger(site)).code == 0
    assert Ledger.open(old).n_charges == 1
    outcome = run(*without_naming_a_ledger(site, **another_public_table(run, site)))
    assert outcome.code == 0, outcome.err
    assert Ledger.open(old).n_charges == 2


def test_a_ledger_elsewhere_is_not_forgotten(run, site):
    elsewhere = site.folder / "ledgers"
    elsewhere.mkdir()
    site.ledger.rename(elsewhere / "clinic.ledger")
    assert run(*site.fit(method="linear", ledger=elsewhere / "clinic.ledger")).code == 0
    assert run(*without_naming_a_ledger(site)).code == 0
    assert Ledger.open(elsewhere / "clinic.ledger").n_charges == 2
    # Nor can another one be begun.
    outcome = run(*site.fit(method="linear", ledger=site.folder / "second.ledger"))
    assert outcome.code == 2
    assert "another ledger would lack what was already spent" in outcome.err
    assert not (site.folder / "second.ledger").exists()


def test_files_of_one_named_data_set_share_a_ledger_and_others_do_not(run, site):
    for name in ("june.csv", "july.csv"):
        (site.folder / name).write_bytes(site.private.read_bytes())
        assert run(*without_naming_a_ledger(site, private=site.folder / name)).code == 0
    assert Ledger.open(site.ledger).n_charges == 2
    assert run("schema", site.folder / "public.csv", "-o", site.schema, "--force").code == 0
    # A schema without a name still finds what was spent on a file; another file has a ledger of its own.
    assert run(*without_naming_a_ledger(site, private=site.folder / "june.csv")).code == 0
    assert Ledger.open(site.ledger).n_charges == 3
    assert run(*without_naming_a_ledger(site)).code == 0
    assert Ledger.open(site.folder / "private.ledger").n_charges == 1


def test_a_private_file_under_a_new_name_is_asked_about_before_a_second_ledger_is_made(run, site):
    assert run("schema", site.folder / "public.csv", "-o", site.schema, "--force").code == 0
    stray = site.ledger.rename(site.folder / "old.ledger")
    outcome = run(*without_naming_a_ledger(site))
    assert outcome.code == 2
    assert f"{stray} may be the ledger of" in outcome.err
    assert len(outcome.err.splitlines()) == 1
    # Either answer is given once.
    assert run(*site.fit(method="linear", ledger=stray)).code == 0
    assert run(*without_naming_a_ledger(site)).code == 0
    assert Ledger.open(stray).n_charges == 2


def test_two_ledgers_of_one_file_and_a_link_to_nowhere_are_refused(tmp_path):
    private = tmp_path / "rows.csv"
    for name in ("rows", "clinic"):
        Ledger.open(tmp_path / f"{name}.ledger", epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="several ledgers"):
        ledger_of(private, "clinic")
    assert ledger_of(private, "") == (tmp_path / "rows.ledger", ())
    (tmp_path / "clinic.ledger").unlink()
    (tmp_path / "rows.ledger").rename(tmp_path / "gone.ledger")
    (tmp_path / "rows.ledger").symlink_to("lost.ledger")
    with pytest.raises(ValueError, match="is not there"):
        ledger_of(private, "")


def charged(path):
    """Make a ledger with one charge."""
    ledger = Ledger.open(path, epsilon=9.0, delta=1e-6)
    ledger.start(Gaussian(2.0), label="a fit")
    return path


def test_a_schema_or_report_of_the_old_name_does_not_own_the_ledger_of_a_renamed_file(tmp_path):
    charged(tmp_path / "patients.ledger")
    for name in ("patients.toml", "patients.html", "clinic.csv"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"patients.ledger may be the ledger of .*clinic.csv"):
        ledger_of(tmp_path / "clinic.csv", "")
    (tmp_path / "patients.CSV.GZ").touch()
    assert ledger_of(tmp_path / "clinic.csv", "")[0].name == "clinic.ledger"
    assert ledger_of(tmp_path / "patients.CSV.GZ", "")[0].name == "patients.ledger"


def test_a_link_to_a_shared_ledger_is_asked_about_when_its_file_has_a_new_name(tmp_path):
    (tmp_path / "ledgers").mkdir()
    shared = charged(tmp_path / "ledgers" / "study.ledger")
    for name in ("june", "july"):
        (tmp_path / f"{name}.csv").touch()
        path, links = ledger_of(tmp_path / f"{name}.csv", "", given=shared)
        plan_ledger(path, wish(), links=links).open()
    (tmp_path / "july.csv").rename(tmp_path / "july-clean.csv")
    with pytest.raises(ValueError, match=r"july.ledger may be the ledger of"):
        ledger_of(tmp_path / "july-clean.csv", "")
    # Nor is a ledger begun in the place of one that a link does not find any more.
    shared.rename(tmp_path / "ledgers" / "moved.ledger")
    for given in (None, tmp_path / "july.ledger"):
        with pytest.raises(ValueError, match=r"july.ledger"):
            ledger_of(tmp_path / "july-clean.csv", "", given=given)


def test_a_renamed_file_is_asked_about_before_a_server_gets_a_second_ledger_for_it(tmp_path, monkeypatch):
    """A server is not asked: it knows the rows by the name that their file had."""
    # Without the driver of a server, which finds passwords in an address.
    monkeypatch.setattr("dpadapt.accounting.postgres.without_passwords", lambda address: address)
    server = "postgresql://ann@host/budgets"
    (tmp_path / "july.ledger").write_text(f"{server}\njuly\n", encoding="utf-8")
    (tmp_path / "clean.csv").touch()
    with pytest.raises(ValueError, match="leads to the data set july there"):
        ledger_of(tmp_path / "clean.csv", "", given=ledger_place(server, "clean"))
    # The file that holds the address can be named.
    place, links = ledger_of(tmp_path / "clean.csv", "", given=tmp_path / "july.ledger")
    assert (place.shown, place.dataset) == (server, "july")
    assert links == (tmp_path / "clean.ledger",)
    (tmp_path / "july.csv").touch()
    assert ledger_of(tmp_path / "clean.csv", "", given=ledger_place(server, "clean"))[0].dataset == "clean"


def test_files_of_one_named_data_set_share_a_ledger_across_folders(run, site):
    for month in ("june", "july"):
        folder = site.folder / month
        folder.mkdir()
        (folder / "rows.csv").write_bytes(site.private.read_bytes())
    site.ledger.unlink()
    assert run(*without_naming_a_ledger(site, private=site.folder / "june" / "rows.csv")).code == 0
    linked = site.folder / "schemas" / "mine.toml"
    linked.parent.mkdir()
    linked.symlink_to(site.schema)
    outcome = run(*without_naming_a_ledger(site, private=site.folder / "july" / "rows.csv", schema=linked))
    assert outcome.code == 0, outcome.err
    assert Ledger.open(site.folder / "june" / "patients.ledger").n_charges == 2


def test_of_two_fits_that_begin_at_once_one_is_refused(tmp_path):
    """The second finds, before it charges, that the first has made a ledger where the second wanted a link."""
    (tmp_path / "rows.csv").touch()
    plans = [
        plan_ledger(path, wish(), links=links)
        for path, links in (ledger_of(tmp_path / "rows.csv", dataset) for dataset in ("", "patients"))
    ]
    plans[0].open()
    with pytest.raises(ValueError, match=r"another fit has begun the ledger .*rows.ledger"):
        plans[1].open()
    assert [path.name for path in tmp_path.glob("*.ledger")] == ["rows.ledger"]


def test_an_evaluation_asks_about_a_ledger_of_no_table(tmp_path):
    charged(tmp_path / "old.ledger")
    of_fit = charged(tmp_path / "private.ledger")
    for name in ("private.csv", "new.csv"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"old.ledger may be the ledger of .*new.csv"):
        ledger_of(tmp_path / "new.csv", "", or_else=of_fit)
    (tmp_path / "old.ledger").unlink()
    (tmp_path / "private.csv").unlink()
    assert ledger_of(tmp_path / "new.csv", "", or_else=of_fit)[0] == of_fit


def test_a_link_that_cannot_be_made_is_said(tmp_path, monkeypatch):
    def fail(*_args, **_options):
        raise OSError(1, "not permitted")

    monkeypatch.setattr("pathlib.Path.symlink_to", fail)
    path, links = ledger_of(tmp_path / "rows.csv", "", given=tmp_path / "other.ledger")
    plan = plan_ledger(path, wish(), links=links)
    plan.open()
    assert any("name the ledger by --ledger" in note for note in plan.notes)


def test_a_fit_beyond_the_cap_is_refused_before_a_private_cell_is_read(run, site, monkeypatch):
    Ledger.open(site.ledger).start(Gaussian(2.0), label="an earlier fit")
    left = Ledger.open(site.ledger).remaining()
    no_reading(monkeypatch)
    outcome = run(*without_naming_a_ledger(site, epsilon=2.5))
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
    outcome = run(*without_naming_a_ledger(site, ledger_epsilon=0.5))
    assert outcome.code == 2
    assert "--ledger-epsilon 0.5" in outcome.err
    assert not site.ledger.exists()
    outcome = run(*without_naming_a_ledger(site, ledger_epsilon=2, ledger_delta=1e-5))
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
        plan_ledger(path, wish(**wanted), dataset="patients")


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


def test_pipes_and_links_in_a_circle_are_refused_at_once(tmp_path):
    private = tmp_path / "rows.csv"
    private.touch()
    circle = tmp_path / "circle.ledger"
    circle.symlink_to(circle)
    with pytest.raises(ValueError, match="is not there"):
        ledger_of(private, "", given=circle)
    circle.unlink()
    # To open a pipe would wait for somebody who writes to it.
    os.mkfifo(tmp_path / "rows.ledger")
    assert ledger_of(private, "")[0] == tmp_path / "rows.ledger"
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    with pytest.raises(ValueError, match="leads back to itself"):
        ledger_of(loop, "")
