"""The commands of the guides of the command line run as written, page after page."""

import re
import shlex
from pathlib import Path

import pytest

_GUIDES = Path(__file__).parents[2] / "docs" / "guides"
_TEXT = "".join((_GUIDES / f"{name}.md").read_text(encoding="utf-8") for name in ("cli", "cli-fit", "schema", "teams"))


def test_the_walkthrough_runs(run, site, monkeypatch):
    monkeypatch.chdir(site.folder)
    for made in (site.schema, site.ledger):
        made.unlink()
    for leftover in site.folder.glob("patients.ledger-*"):
        leftover.unlink()
    blocks = re.findall(r"```console\n(.*?)```", _TEXT, re.S)
    commands = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(commands) >= 15
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "dpadapt"
        outcome = run(*arguments)
        assert outcome.code == 0, f"{command}: {outcome.err}"
    assert (site.folder / "predictions.csv").exists()
    assert (site.folder / "model" / "receipt.json").exists()


@pytest.mark.parametrize("option", ["--ledger-epsilon", "--seed", "--category", "--adjacency", "--method"])
def test_options_on_the_page_exist(run, option):
    assert option in _TEXT
    assert option in run("fit", "--help").out + run("schema", "--help").out
