"""A page is a template and a dictionary; it is written as one file that fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from uncollapse._base.check import check_int, visible
from uncollapse._base.files import write_text
from uncollapse._base.progress import in_notebook
from uncollapse._base.table import number, percent, shown
from uncollapse._version import __version__
from uncollapse.charts.marks import css_variables
from uncollapse.health.verdict import cosine_text

if TYPE_CHECKING:
    from jinja2 import Environment

_LONG = 20  # characters of a name that may have to be broken
_JOINT = re.compile(r"([/_]|,(?!\d))(?=\w)")


@dataclass(frozen=True)
class Page:
    """A template of `report/templates` and what it shows; `save` writes one HTML file.

    A name that the template uses and `content` lacks is an error.

    >>> page = Page("page.html.j2", {"title": "Two runs", "lead": "1 < 2"})
    >>> "<h1>Two runs</h1>" in page.render(), "1 &lt; 2" in page.render()
    (True, True)
    """

    template: str
    content: Mapping[str, Any]

    def render(self) -> str:
        """The whole document."""
        # Sections enter themselves in `contents` as they are drawn; the links are written from it.
        template = _environment().get_template(self.template)
        return template.render({"lead": "", **self.content}, contents=[], version=__version__)

    def save(self, path: str | Path) -> Path:
        """Write the page atomically; returns the path."""
        write_text(Path(path), self.render())
        return Path(path)

    def show(self, height: int = 800) -> None:
        """Show the page inside a notebook, in so many pixels; elsewhere, say how to save it."""
        if not in_notebook():
            print("no notebook to show the page in: save(path) writes it")
            return
        notebook = import_module("IPython.display")
        frame = f'style="width:100%;height:{check_int("height", height)}px;border:0"'
        page = f'<div><iframe {frame} srcdoc="{escape(self.render())}"></iframe></div>'
        notebook.display(notebook.HTML(page))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # no page, no memory for it

    environment = Environment(
        loader=PackageLoader("uncollapse.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown_text,
    )
    script = environment.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.globals |= {"theme": css_variables(), "script_hash": f"sha256-{digest}"}
    environment.filters |= {"number": number, "percent": percent, "cosine": cosine_text}
    environment.filters |= {"shown": shown, "breakable": _breakable}
    return environment


def _shown_text(value: object) -> object:
    """Text with control characters made visible; values with markup of their own stay as is."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _breakable(value: object) -> object:
    """A long name may be broken after a comma, a slash or an underscore, not in a word."""
    if not isinstance(value, str) or len(value) < _LONG or hasattr(value, "__html__"):
        return value
    return Markup(_JOINT.sub(r"\1<wbr>", str(escape(_shown_text(value)))))  # escaped before
