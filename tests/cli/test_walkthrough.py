"""The commands of docs/guides/cli.md run as written."""

import re
import shlex
from pathlib import Path

import pytest

_PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_walkthrough_runs(run, site, monkeypatch):
    monkeypatch.chdir(site.folder)
    for made in (site.schema, site.ledger):
        made.unlink()
    for leftover in site.folder.glob("patients.ledger-*"):
        leftover.unlink()
    blocks = re.findall(r"```console\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.S)
    commands = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(commands) >= 8
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "dpadapt"
        outcome = run(*arguments)
        assert outcome.code == 0, f"{command}: {outcome.err}"
    assert (site.folder / "predictions.csv").exists()
    assert (site.folder / "model" / "receipt.json").exists()


@pytest.mark.parametrize("option", ["--ledger-epsilon", "--seed", "--category", "--adjacency", "--method"])
def test_options_on_the_page_exist(run, option):
    assert option in _PAGE.read_text(encoding="utf-8")
    assert option in run("fit", "--help").out + run("schema", "--help").out
