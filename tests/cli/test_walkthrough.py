"""The commands of the guides of the command line run as written, page after page."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.thorough

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


def test_the_commands_of_the_first_page_fit_a_model_to_two_files(run, tmp_path, monkeypatch):
    """A newcomer's way: install, ask for advice, fit."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name, level in (("public", 0.0), ("private", 0.5)):
        age, smoker = draw.integers(18, 90, 600), draw.choice(["no", "yes"], 600)
        y = np.where(age / 30 + (smoker == "yes") + draw.standard_normal(600) > 2 + level, "ill", "well")
        pd.DataFrame({"age": age, "smoker": smoker, "y": y}).to_csv(f"{name}.csv", index=False)
    page = (_GUIDES.parent / "start.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```bash\n(.*?)```", page, re.S)
    install, *commands = re.sub(r"\\\n", "", block).splitlines()
    assert install == "pip install dpadapt"
    for command in commands:
        outcome = run(*shlex.split(command, comments=True)[1:])
        assert outcome.code == 0, f"{command}: {outcome.err}"
    assert Path("model", "report.html").exists()
    assert Path("private.ledger").exists()
