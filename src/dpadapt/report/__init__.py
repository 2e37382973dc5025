"""Reports: results as plain dictionaries first, then as terminal tables or one self-contained HTML page.

Plots are inline SVG. A page has some tens of kilobytes, needs no script and no network, follows the reader's light or
dark theme, and prints.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@lru_cache(maxsize=1)
def environment() -> "Environment":
    """Return the jinja environment of the templates of all pages."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("dpadapt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(template: str, summary: Mapping[str, Any], **more: Any) -> str:
    """Return the HTML page of a template, such as "fit", with what `summary` and `more` hold."""
    return environment().get_template(f"{template}.html.j2").render(summary, **more)
