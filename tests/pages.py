"""What tests of pages share: a check of HTML, and cases of a made-up demo."""

import re
from html.parser import HTMLParser

from dpadapt.demo import summarise_demo

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
