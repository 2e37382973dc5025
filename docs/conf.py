"""How Sphinx builds the site of `make docs`.

The source folder is the repository itself: a link from a page to `../../SECURITY.md` or to an example means the same
in the repository and on the site. Nothing is fetched from a network, neither by the build nor by a reader's browser.
"""

import re
from importlib.metadata import version as installed
from pathlib import Path

from docutils import nodes
from sphinx.roles import XRefRole

project = "dpadapt"
author = "The dpadapt developers"
copyright = author
release = version = installed("dpadapt")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
]

root_doc = "docs/index"
include_patterns = ["docs/**", "PAPERS.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"]
# Folders that Sphinx need not walk through.
exclude_patterns = [
    ".*",
    "benchmarks",
    "build",
    "examples",
    "src",
    "tests",
    "tools",
    "docs/_*",
    "**/.ipynb_checkpoints",
]
templates_path = [str(Path(__file__).parent / "_templates")]  # absolute: Sphinx resolves it in two ways

# Markdown.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 60  # seconds for each tutorial
nb_execution_raise_on_error = True

# The reference. torch and Flower are not installed for the documentation; types are in the docstrings.
autodoc_mock_imports = ["torch", "flwr"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_ignore_module_all = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "name"  # see below
smartquotes = False
add_module_names = False
toc_object_entries_show_parents = "hide"

# The look.
html_theme = "pydata_sphinx_theme"
html_title = f"dpadapt {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "redirect.html"}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "navigation_depth": 2,
}


def of_dpadapt_alone(app, what, name, member, skip, options):
    """Leave out what scikit-learn adds to every estimator: its own pages document that."""
    if name.startswith("set_") and name.endswith("_request"):
        return True
    module = getattr(getattr(member, "fget", member), "__module__", None) or ""
    return True if module and not module.startswith("dpadapt") else None


def name_in_docstring(role, rawtext, text, lineno, inliner, options=None, content=()):
    """Link `Ledger` and `dpadapt.epsilon`, but not `epsilon`: that is a parameter, not the function of this name."""
    if text[:1].isupper() or "." in text:
        return XRefRole()("py:obj", rawtext, text, lineno, inliner, options or {}, content)
    return [nodes.literal(rawtext, text)], []


def without_back_links(app, pagename, templatename, context, doctree):
    """Leave out links from sources to the reference: Sphinx gets them wrong for names that two modules export."""
    if pagename.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def setup(app):
    """Connect the functions above."""
    app.add_role("name", name_in_docstring)
    app.connect("html-page-context", without_back_links)
    app.connect("autodoc-skip-member", of_dpadapt_alone)
