"""Pages as a browser shows them; needs Chromium."""

import json
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from dpadapt.accounting import Ledger
from dpadapt.demo import CASES, EPSILONS, demo_page, side_by_side, summarise_demo
from dpadapt.mechanisms import Gaussian
from dpadapt.methods import PREDICTORS
from dpadapt.report.fit import fit_page
from dpadapt.report.ledger import ledger_page, summarise_ledger

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --window-size=1000,1600"
).split()


def open_page(page: Path, folder: Path, *more: str) -> tuple[bytes, list[str]]:
    """Return the pixels of a page and the addresses that it asked for."""
    shot, log = folder / "shot.png", folder / "net.json"
    command = [
        CHROMIUM, *_FLAGS, *more, "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}",
        f"--log-net-log={log}", f"--screenshot={shot}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    # The browser's own requests have no origin; a page's have one, even if it is opaque.
    asked = [e["url"] for e in events if e.get("initiator", "not an origin") != "not an origin"]
    return pixels(shot.read_bytes()), [url for url in asked if not url.startswith("file:")]


def pixels(png: bytes) -> bytes:
    """Return the (filtered) pixel data of a PNG."""
    data, place = b"", 8
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        if kind == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    return zlib.decompress(data)


def busy(shot: bytes) -> float:
    """Return the share of pixel bytes that differ from what is left or above of them, roughly."""
    return 1 - shot.count(0) / len(shot)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    results = side_by_side(CASES, epsilons=EPSILONS, seeds=1, done=lambda name: None)
    page = tmp_path_factory.mktemp("demo") / "report.html"
    page.write_text(demo_page(summarise_demo(results)), encoding="utf-8")
    return page


@pytest.mark.parametrize("theme", [(), ("--force-dark-mode",)], ids=["light", "dark"])
def test_the_report_shows_something_and_asks_for_nothing(report, tmp_path, theme):
    shot, asked = open_page(report, tmp_path, *theme)
    assert asked == []
    assert busy(shot) > 0.01


@pytest.mark.parametrize("width", [1000, 390])
def test_the_verdict_of_a_fit_is_shown_on_desks_and_phones(summary_of, tmp_path, width):
    summary = summary_of(PREDICTORS[0])
    page = tmp_path / "fit.html"
    page.write_text(fit_page(summary), encoding="utf-8")
    shot, asked = open_page(page, tmp_path, f"--window-size={width},1600")
    assert asked == []
    assert busy(shot) > 0.01
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, check=True, capture_output=True, timeout=120, text=True).stdout
    title, words = summary["verdict"]["title"], summary["verdict"]["words"]
    assert shown.index(title) < shown.index("The guarantee")
    assert words.split(".")[0] in shown


def test_the_check_sees_blank_pages_and_requests(tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<img src="http://example.invalid/x.png" alt="">')
    shot, asked = open_page(page, tmp_path)
    assert asked == ["http://example.invalid/x.png"]
    assert busy(shot) < 0.01


@pytest.mark.parametrize("width", [1000, 390])
def test_the_page_of_a_ledger_is_shown_on_desks_and_phones(tmp_path, width):
    ledger = Ledger.open(tmp_path / "patients.ledger", epsilon=3.0, delta=1e-6, dataset="patients")
    ledger.allow("anna", 1.0).start(Gaussian(20.0), label="a sum")
    page = tmp_path / "ledger.html"
    page.write_text(ledger_page(summarise_ledger(ledger, "patients.ledger")), encoding="utf-8")
    shot, asked = open_page(page, tmp_path, f"--window-size={width},1200")
    assert asked == []
    assert busy(shot) > 0.01
