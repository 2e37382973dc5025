"""The snippets of other libraries on docs/coming-from run where these libraries are installed.

scikit-learn and OpenDP always are, and tests/test_docs.py runs their pages. diffprivlib needs an older scikit-learn,
and Opacus torch: each in an environment of its own. Their snippets stand in blocks of `py`, ours in blocks of `python`.
"""

import re
import warnings
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs" / "coming-from"
# Module to import, and the page with its snippets.
OTHERS = {"diffprivlib": "diffprivlib.md", "opacus": "opacus.md"}


@pytest.mark.parametrize("library", OTHERS)
def test_snippets_of_another_library_run(library, capsys):
    pytest.importorskip(library, reason=f"needs {library}, which the tests do not install")
    text = (PAGES / OTHERS[library]).read_text(encoding="utf-8")
    blocks = re.findall(r"```py\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are not ours to mend
            exec(compile(block, OTHERS[library], "exec"), namespace)
    assert capsys.readouterr().out
