"""Reports: plain dictionaries, tables, and pages that need nothing but themselves."""

import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from dpadapt import Public
from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms import Adjacency, Gaussian, NonPrivate, clipped_sum
from dpadapt.methods import METHODS, Method
from dpadapt.report.compare import compare_on_public
from dpadapt.report.contributions import contributions, help_in_words, worth_in_rows
from dpadapt.report.html import demo_page, fit_page
from dpadapt.report.plots import Level, Line, Panel, bar_chart, line_chart
from dpadapt.report.summarise import best_guess, percent, summarise_demo, summarise_fit, words
from dpadapt.report.terminal import fit_table, panel_tables

NASTY = "<script>alert('x')</script> & \"y\""


class Checked(HTMLParser):
    """Collects what a page would load, and checks that tags are closed."""

    void = frozenset({"meta", "br", "path", "circle", "rect", "polygon", "polyline", "hr", "img", "link"})

    def __init__(self):
        super().__init__()
        self.stack, self.loads, self.tags = [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "xlink:href")]
        if tag not in self.void:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.stack.pop() == tag


def check_page(page: str) -> Checked:
    parser = Checked()
    parser.feed(page)
    parser.close()
    assert parser.stack == []
    assert parser.loads == []
    assert not parser.tags & {"script", "link", "iframe", "img", "object", "embed"}
    assert not re.search(r"https?://|@import|url\(", page)
    assert "Content-Security-Policy" in page
    assert "nan" not in re.findall(r'(?:points|d|cx|cy|x|y|width)="([^"]*)"', page)
    assert len(page) < 200_000
    return parser


def render(table) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()


def render_panels(case) -> str:
    console = Console(file=io.StringIO(), width=80)
    panel_tables(console, case)
    return console.file.getvalue()


def fit(method: Method, n_classes: int = 2, **params):
    rng = np.random.default_rng(0)
    X, X_public = rng.uniform(-1, 1, (300, 3)), rng.uniform(-1, 1, (60, 3))
    y, y_public = X[:, 0], X_public[:, 0]
    if method.task == "classification":
        y, y_public = (np.floor((v + 1) / 2 * n_classes).clip(0, n_classes - 1).astype(int) for v in (y, y_public))
    public = {"public": Public(X_public, y_public, tasks=np.arange(60) % 5)} if method.beside == "public" else {}
    model = method.estimator(random_state=0, **params).fit(X, y, **public)
    return model, X_public, y_public


def summary_of(method: Method, n_classes: int = 2, name: str = "a", **params):
    model, X_public, y_public = fit(method, n_classes, **params)
    return summarise_fit(
        model,
        method=method,
        dataset=name,
        label=name,
        names=[name, "b", "c"],
        public="60 rows with labels",
        comparison=compare_on_public(model, X_public, y_public, task=method.task),
        ledger={"words": name},
    )


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_has_a_page_that_stands_alone(method, n_classes):
    if method.name == "hybrid" and n_classes > 2:
        pytest.skip("two classes only")
    summary = summary_of(method, n_classes)
    json.dumps(summary, allow_nan=False)
    page = fit_page(summary)
    check_page(page)
    assert "svg" in page
    assert summary["comparison"]["rows"][-1]["error"] < summary["comparison"]["rows"][0]["error"]
    assert "Receipt" in render(fit_table(summary))


def test_names_are_escaped():
    page = fit_page(summary_of(METHODS[0], name=NASTY))
    assert "<script>" not in page
    check_page(page)


def test_warnings_are_on_the_page():
    page = fit_page(summary_of(METHODS[0], delta=0.5))
    assert "1/n" in page
    assert "no privacy guarantee" in page


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_words_name_the_chance_of_a_guess(adjacency):
    ledger = Ledger(1.0, 1e-6, adjacency=adjacency)
    ledger.release(Gaussian(30.0), clipped_sum([[1.0]], 1.0), label="sum")
    receipt = ledger.receipt()
    assert percent(best_guess(receipt.epsilon, receipt.delta)) in words(receipt)[0]


def test_no_guarantee_is_called_so():
    ledger = Ledger(float("inf"), 0.0)
    ledger.release(NonPrivate(), clipped_sum([[1.0]], 1.0), label="leak")
    assert words(ledger.receipt())[0].startswith("There is no guarantee")


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0, 800.0])
def test_percent_never_understates(epsilon):
    share = best_guess(epsilon, 1e-6)
    shown = percent(share)
    assert float(shown.removesuffix("%")) / 100 >= share - 1e-15
    assert shown != "100%" or share == 1.0


def test_best_guess_is_that_of_randomized_response():
    # Randomized response attains it: right with probability e^eps / (1 + e^eps).
    assert best_guess(np.log(3), 0.0) == pytest.approx(0.75)
    assert best_guess(0.0, 0.1) == pytest.approx(0.55)


def spread_over(mean):
    return [mean - 0.01, mean + 0.01, mean, mean]


def case(alone, shared, public=0.9, floor=0.5):
    def level(key, value):
        return {"key": key, "name": key, "values": [value] * 4}

    def curve(key, shared, means, xs):
        points = [{"x": x, "values": spread_over(mean)} for x, mean in zip(xs, means, strict=True)]
        return {"key": key, "method": "m", "public": shared, "name": key, "points": points}

    def panel(key, xs, levels, *more):
        curves = [curve("together", True, shared, xs), curve("private only", False, alone, xs), *more]
        return {"key": key, "title": f"{NASTY} {key}", "axis": key, "symbol": key[0], "x": list(xs), "levels": levels,
                "curves": curves}  # fmt: skip

    fixed = [level("no model", 1.0), level("public only", public)]
    bare = curve("not private", False, [0.8, floor], (100, 1000))
    return {
        "title": NASTY, "what": "w", "task": "regression", "provenance": "p", "axis": "error", "measure": "error",
        "rows": {"public": 1, "private": 1, "test": 1}, "middle": 1.0,
        "panels": [
            panel("epsilon", (0.1, 1.0), [*fixed, level("not private", floor)]),
            panel("rows", (100, 1000), fixed, bare),
        ],
    }  # fmt: skip


def demo(*cases):
    results = {
        "epsilons": [0.1, 1.0],
        "delta": 1e-6,
        "seeds": 4,
        "cases": list(cases),
        "papers": list(cases),
        "others": [],
    }
    return summarise_demo(results | {"methods": [{"name": "m", "task": "regression", "summary": "s"}]})


def test_the_demo_page_stands_alone():
    summary = demo(case([1.4, 0.7], [0.85, 0.6]), case([300.0, 0.7], [0.85, 0.6]))
    page = demo_page(summary)
    check_page(page)
    assert "<script>" not in page
    assert "error by epsilon and rows" in page
    assert "1.400" in render_panels(summary["cases"][0])


def parts(*means):
    return [{"values": spread_over(mean), "mean": mean} for mean in means]


@pytest.mark.parametrize(
    ("means", "said"),
    [
        (
            (0.62, 0.91, 0.45, 0.36),
            "the private rows brought 65% of what they could, and the public rows took away 84%",
        ),
        ((0.62, 0.91, 0.62, 0.36), "the private rows brought nothing that can be told from chance"),
        ((0.62, 0.91, 0.70, 0.36), "the private rows did harm, and the public rows took away 38%"),
        ((0.36, 0.91, 0.36, 0.36), "there was nothing for the private rows to bring"),
        ((0.62, 0.40, 0.45, 0.36), "the public rows did harm"),
        ((0.62, 0.45, 0.45, 0.36), "the public rows made no difference that can be told from chance"),
        ((0.62, 0.36, 0.36, 0.36), "the price of privacy can't be told from chance even without the public rows"),
        ((0.62, 0.91, 0.30, 0.36), "the private rows brought all they could, and the public rows took away all"),
    ],
)
def test_each_part_of_the_data_gets_its_due(means, said):
    assert said in contributions(*parts(*means))


def test_public_rows_are_counted_in_private_ones():
    # Halfway between 0.9 at 100 rows and 0.7 at 1,000, on the logarithmic axis: sqrt(100 * 1,000) = 316.
    by_rows = demo(case([0.9, 0.7], [0.8, 0.6]))["cases"][0]["panels"][1]
    assert "100 private rows with the public ones do as well as about 320 private rows alone" in worth_in_rows(
        by_rows, 1
    )
    by_rows = demo(case([0.9, 0.7], [0.65, 0.6]))["cases"][0]["panels"][1]
    assert "better than all 1,000 private rows alone" in worth_in_rows(by_rows, 1)


def test_what_public_rows_do_alone_is_no_merit_of_the_private_ones():
    by_rows = demo(case([1.2, 0.6], [0.9, 0.6]))["cases"][0]["panels"][1]
    assert worth_in_rows(by_rows, 1) is None


def sentences(*args, **kwargs):
    panel = demo(case(*args, **kwargs))["cases"][0]["panels"][0]
    return " ".join(help_in_words(panel["levels"], panel["curves"]))


def test_help_is_said_where_there_was_some():
    said = sentences([1.4, 0.7], [0.85, 0.6])
    assert "helped at every ε, most at ε = 0.1: the error falls from 1.400 to 0.850, 61% of the way" in said
    assert "better than the public rows alone (0.900) at every ε" in said


def test_harm_is_said_too():
    said = sentences([0.7, 0.6], [1.2, 0.8])
    assert "did not clearly help at any ε" in said
    assert "harm at every ε" in said
    assert "better than the public rows alone (0.900) at ε = 1 and worse than they are at ε = 0.1" in said


def test_no_difference_is_no_help():
    assert "did not clearly help" in sentences([0.7, 0.6], [0.7, 0.6])


def test_comparison_needs_enough_public_rows_and_bears_one_class():
    model, X, y = fit(METHODS[1])
    assert compare_on_public(model, X[:10], y[:10], task="classification") is None
    one = compare_on_public(model, X, np.zeros_like(y), task="classification")
    assert one["rows"][1]["error"] == 0.0


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [1e9, -1e-9], [-1.0, -2.0], [3e-7, 1e-7]], ids=str)
def test_bars_are_finite(values):
    svg = bar_chart([f"n{k}" for k in range(len(values))], values, title="t", x_label="x")
    assert "nan" not in svg
    assert "inf" not in svg


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("means", [[1.0, 1.0], [0.0, 0.0], [1e9, 1.0], [1.0, 1e-9]], ids=str)
def test_lines_are_finite_and_inside(means, whole):
    line = Line("a", [0.1, 10.0], means, means, means, "s1")
    panel = Panel([line], [Level("r", 1.0)], "x")
    svg = line_chart([panel, panel], title="t", y_label="y", whole=whole)
    assert "nan" not in svg
    heights = [float(v) for v in re.findall(r'cy="([^"]*)"', svg)]
    heights += [float(y) for drawn in re.findall(r'points="([^"]*)"', svg) for y in re.findall(r",([-0-9.]+)", drawn)]
    assert all(0 <= height <= 400 for height in heights)
    assert ('<path class="dot' in svg) == (max(means) > 1 and not whole)


def test_a_curve_leaves_the_plot_at_its_own_slope_and_carries_its_value():
    line = Line("a", [1, 10, 100], [300.0, 0.9, 0.5], [300.0, 0.9, 0.5], [300.0, 0.9, 0.5], "s1")
    svg = line_chart([Panel([line], [Level("r", 1.0)], "x")], title="t", y_label="y")
    assert ">300<" in svg
    (drawn,) = re.findall(r'<polyline class="line s1" points="([^"]*)"', svg)
    (x0, y0), (x1, _), _ = (tuple(map(float, point.split(","))) for point in drawn.split())
    # Cut where it crosses the top edge, hardly left of its second point; not flat along the edge.
    assert x1 - x0 < 2
    assert y0 == pytest.approx(18)


def test_values_above_the_plot_do_not_overlap():
    lines = [Line(f"l{k}", [1, 10], [300.0 + k, 0.5], [300.0, 0.5], [300.0, 0.5], "s1") for k in range(3)]
    svg = line_chart([Panel(lines, [Level("r", 1.0)], "x")], title="t", y_label="y")
    places = [float(re.search(rf'y="([0-9.]+)">{300 + k}<', svg)[1]) for k in range(3)]
    assert min(np.diff(places)) > 16


def test_end_labels_do_not_overlap():
    lines = [Line(f"l{k}", [0.1, 1.0], [1, 0.5], [1, 0.5], [1, 0.5], "s1") for k in range(6)]
    svg = line_chart([Panel(lines, [Level("r", 0.5)], "x")], title="t", y_label="y")
    places = sorted(float(y) for y in re.findall(r'class="end [^"]*" x="[^"]*" y="([^"]*)"', svg))
    assert len(places) == 7
    assert min(np.diff(places)) > 16


def test_panels_stand_beside_each_other():
    line = Line("a", [0.1, 10.0], [1.0, 0.5], [1.0, 0.5], [1.0, 0.5], "s1")
    svg = line_chart(
        [Panel([line], [], "x", "left"), Panel([line], [], "n", "right")], title="t", y_label="y", whole=True
    )
    centres = [float(x) for x in re.findall(r'cx="([^"]*)"', svg)]
    assert max(centres[:2]) < min(centres[2:])
    assert svg.count('class="end s1"') == 1
    assert "left" in svg
    assert "right" in svg


def test_labels_below_an_axis_do_not_touch_and_the_last_stays():
    line = Line("a", [0.3, 0.31, 0.4, 5.0, 5.1], [1.0] * 5, [1.0] * 5, [1.0] * 5, "s1")
    page = line_chart([Panel([line], [], "x")] * 6, title="t", y_label="y")
    assert page.count(">5.1</text>") == 6
    assert ">5</text>" not in page
    assert page.count('class="mark"') == 30
