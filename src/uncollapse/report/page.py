"""A page is a template and a dictionary; it is written as one file that fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from uncollapse._base.check import visible
from uncollapse._base.files import write_text
from uncollapse._base.table import Cell, Table, number, percent, shown
from uncollapse._version import __version__
from uncollapse.charts.marks import css_variables
from uncollapse.health import VERDICTS

__all__ = [
    "Cell",
    "Page",
    "Table",
    "VerdictText",
    "fill",
    "shown",
    "verdict_cell",
    "verdict_text",
]


_LONG = 20  # characters of a name that may have to be broken
_JOINT = re.compile(r"([,/_])(?=\w)")


@dataclass(frozen=True)
class Page:
    """A template of `report/templates` and what it shows; `save` writes one HTML file.

    >>> page = Page("page.html.j2", {"title": "Two runs", "lead": "digits, 200 steps"})
    >>> page.add("Remarks", "1 < 2")
    >>> text = page.render()
    >>> "<h1>Two runs</h1>" in text, "<p>1 &lt; 2</p>" in text
    (True, True)
    """

    template: str
    content: Mapping[str, Any]
    added: list[dict[str, object]] = field(default_factory=list)

    def add(self, title: str, body: object) -> None:
        """Append a section; `body` is text, or an object with `__html__`, such as a chart."""
        self.added.append({"title": title, "body": body})

    def render(self) -> str:
        """The whole document."""
        return fill(self.template, {"lead": "", **self.content, "added": self.added})

    def save(self, path: str | Path) -> Path:
        """Write the page; a reader never sees a part of it. Returns the path."""
        target = Path(path)
        write_text(target, self.render())
        return target


def fill(template: str, content: Mapping[str, Any]) -> str:
    """The text of a template; a name that it uses and `content` lacks is an error."""
    # Sections enter themselves in `contents` as they are drawn; the links are written from it.
    return _environment().get_template(template).render(content, contents=[], version=__version__)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("uncollapse.report"),
        autoescape=lambda name: name is None or name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown_text,
    )
    script = environment.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals["theme"] = css_variables()
    environment.globals["script_hash"] = f"sha256-{digest}"
    environment.filters |= {
        "number": number,
        "percent": percent,
        "shown": shown,
        "markdown": _markdown,
        "breakable": _breakable,
    }
    return environment


def _shown_text(value: object) -> object:
    """Text of others without marks that act; what brings its own markup is left as it is."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _breakable(value: object) -> object:
    """A long name may be broken after a comma, a slash or an underscore, not in a word."""
    if not isinstance(value, str) or len(value) < _LONG or hasattr(value, "__html__"):
        return value
    return Markup(_JOINT.sub(r"\1<wbr>", str(escape(_shown_text(value)))))  # escaped before


def _markdown(value: object) -> str:
    """Text for a cell of a Markdown table."""
    text = " ".join(str(value).split())
    for sign in "\\|`<*_[":
        text = text.replace(sign, f"\\{sign}")
    return text


# What a page says about each verdict (health.VERDICTS); the adviser adds a cure.


class VerdictText(NamedTuple):
    """How a verdict is shown: a glyph, a tone of the page, a headline, and what it means."""

    glyph: str
    tone: str
    headline: str
    helps: str


_GLYPHS = {"good": "✓", "warn": "▼", "bad": "✗"}
_MERGED = "Class collapse: the modes inside classes have merged"


def verdict_text(verdict: str | None, reasons: Sequence[str] = ()) -> VerdictText:
    """The texts of a verdict; None or an unknown one is not judged.

    Of the two kinds of class collapse the deciding reason, the first, says which it is.

    >>> verdict_text("healthy").headline
    'Healthy: no collapse found'
    """
    if verdict not in VERDICTS:
        return VerdictText("?", "none", "Not judged", "")
    known = VERDICTS[verdict]
    merged = verdict == "class-collapse" and reasons and "nearly points" not in reasons[0]
    headline = _MERGED if merged else known.headline
    return VerdictText(_GLYPHS[known.tone], known.tone, headline, known.meaning)


def verdict_cell(verdict: str | None) -> Cell:
    """A verdict in a table: glyph and word.

    >>> verdict_cell("healthy")
    Cell(text='✓ healthy', value=None, note='', style='badge good')
    """
    found = verdict_text(verdict)
    return Cell(f"{found.glyph} {verdict or 'not judged'}", style=f"badge {found.tone}")
