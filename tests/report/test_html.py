"""Pages need nothing but themselves, escape every text, and show warnings."""

import json
import re
from html.parser import HTMLParser

import pytest

from dpadapt.methods import PREDICTORS
from dpadapt.report.html import demo_page, fit_page


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


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("method", PREDICTORS, ids=lambda method: method.name)
def test_every_method_has_a_page_that_stands_alone(summary_of, method, n_classes):
    if method.name == "hybrid" and n_classes > 2:
        pytest.skip("two classes only")
    summary = summary_of(method, n_classes)
    json.dumps(summary, allow_nan=False)
    page = fit_page(summary)
    check_page(page)
    assert "svg" in page
    assert summary["comparison"]["rows"][-1]["error"] < summary["comparison"]["rows"][0]["error"]


def test_names_are_escaped(summary_of, nasty):
    page = fit_page(summary_of(PREDICTORS[0], name=nasty))
    assert "<script>" not in page
    check_page(page)


def test_warnings_are_on_the_page(summary_of):
    page = fit_page(summary_of(PREDICTORS[0], delta=0.5))
    assert "1/n" in page
    assert "no privacy guarantee" in page


def test_the_demo_page_stands_alone(demo, case):
    summary = demo(case([1.4, 0.7], [0.85, 0.6]), case([300.0, 0.7], [0.85, 0.6]))
    page = demo_page(summary)
    check_page(page)
    assert "<script>" not in page
    assert "error by epsilon and rows" in page


def test_the_verdict_comes_first(summary_of):
    page = fit_page(summary_of(PREDICTORS[0]))
    assert page.index('class="verdict') < page.index("<h2>")
    assert page.index(summary_of(PREDICTORS[0])["verdict"]["title"]) < page.index("epsilon</dt>")


def test_numbers_of_each_class_are_on_the_page_with_what_they_do_not_show(summary_of):
    method = next(method for method in PREDICTORS if method.name == "transfer" and method.task == "classification")
    summary = summary_of(method, decision_threshold={"miss": 3, "false alarm": 1})
    page = fit_page(summary)
    section = page.partition("<h3>By class</h3>")[2].partition("</section>")[0]
    assert section.count("<tr><td>") == 2
    assert "another population" in section
    assert "does not show\nwhether the private rows helped" in section
    assert "a = 1 is predicted from a probability of 0.25 on" in section
    assert sum(row["support"] for row in summary["by_class"]["rows"]) == 60


def test_groups_that_lean_on_the_overall_level_are_named_on_the_page(summary_of, nasty):
    groups = ["Public rows say nothing.", f"{nasty}: leans on the overall level (10% of its own effect was kept)."]
    page = fit_page(summary_of(PREDICTORS[0]) | {"groups": groups})
    section = page.partition("<h2>Groups that public rows lack, or have few of</h2>")[2].partition("</section>")[0]
    assert "leans on the overall level (10%" in section
    assert "<script>" not in section
    check_page(page)


def test_no_model_on_public_rows_is_emphasised(summary_of):
    # The errors there say nothing about the private population: none of them is the result.
    page = fit_page(summary_of(PREDICTORS[0]))
    section = page.partition("<h2>For reference: errors on public rows</h2>")[2].partition("</section>")[0]
    assert "strong" not in section
    assert "not whether the private rows helped" in section
    assert "this model" not in section
