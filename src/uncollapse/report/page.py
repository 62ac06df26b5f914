"""A page in one file: sections under a title, nothing fetched, readable without script."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from uncollapse._version import __version__
from uncollapse.report.markup import Html, esc, join
from uncollapse.report.style import CSS, SCRIPT

__all__ = ["Page", "Section"]

# Even a mistake of ours cannot make the page fetch something.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Section:
    """One card of a page; `anchor` is its name in links, `tone` that of a verdict."""

    title: str
    body: Html
    anchor: str
    tone: str = ""
    glyph: str = ""

    def render(self) -> Html:
        """The section as markup."""
        kind = f' class="verdict {esc(self.tone)}"' if self.tone else ""
        glyph = f'<span class="glyph" aria-hidden="true">{esc(self.glyph)}</span>'
        title = f"{glyph if self.glyph else ''}<span>{esc(self.title)}</span>"
        name = esc(self.anchor)
        return Html(
            f'<section id="{name}" aria-labelledby="{name}-h"{kind}>'
            f'<h2 id="{name}-h">{title}</h2>{self.body}</section>'
        )


@dataclass
class Page:
    """Title, a sentence under it, and sections; `save` writes one self-contained HTML file.

    >>> page = Page("Two runs", "digits, 200 steps")
    >>> page.add("Curves", Html("<p>none</p>"))
    >>> '<h1>Two runs</h1>' in page.render(), "http" in page.render().replace("http-equiv", "")
    (True, False)
    """

    title: str
    lead: str = ""
    sections: list[Section] = field(default_factory=list)

    def add(
        self, title: str, body: Html, *, anchor: str = "", tone: str = "", glyph: str = ""
    ) -> None:
        """Append a section; an empty body is left out."""
        if body:
            name = anchor or "-".join(title.lower().split())
            self.sections.append(Section(title, body, name, tone, glyph))

    def render(self) -> str:
        """The whole document."""
        links = join(
            Html(f'<li><a href="#{esc(s.anchor)}">{esc(s.title)}</a></li>')
            for s in self.sections
            if not s.tone
        )
        lead = f'<p class="lead">{esc(self.lead)}</p>' if self.lead else ""
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<link rel="icon" href="data:,">\n<title>{esc(self.title)} · uncollapse</title>\n'
            f"<style>{CSS}</style>\n</head>\n<body>\n"
            f'<a class="skip" href="#content">To the content</a>\n'
            f"<header><h1>{esc(self.title)}</h1>{lead}"
            f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n<main id="content">\n'
            f"{join((s.render() for s in self.sections), chr(10))}\n</main>\n"
            f"<footer>Made by uncollapse {esc(__version__)}. This file needs no network.</footer>\n"
            f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
        )

    def save(self, path: str | Path) -> Path:
        """Write the page aside and rename it, so that a reader never sees a part of it."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            aside.write_text(self.render(), encoding="utf-8")
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
        return target
