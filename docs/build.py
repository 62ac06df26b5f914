"""What mkdocs.yml cannot say: a mkdocs hook, and a griffe extension for the API pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:.+\n?)*)", re.MULTILINE)
_TAG = re.compile(r"(`[^`]*`)|<(?=[A-Za-z/])")


def on_config(config: Any) -> Any:
    """List the pages of docs/results in the navigation, before the API, whichever there are.

    A page that mkdocs.yml does not name comes after the API, so that none is ever out of reach.
    """
    docs = Path(config["docs_dir"])
    pages = sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))
    named = str(config["nav"])
    results = [page for page in pages if page.startswith("results/")]
    others = [page for page in pages if page not in results and f"'{page}'" not in named]
    if results:
        config["nav"].insert(-1, {"Results": results})
    if others:
        config["nav"].append({"More": others})
    return config


class DocstringsAsMarkdown(griffe.Extension):
    """Docstrings are written as plain text: examples need a fence, and < an escape."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the object's docstring."""
        if obj.docstring is None:
            return
        parts, at = [], 0
        text = obj.docstring.value
        for found in _EXAMPLE.finditer(text):
            parts += [_escaped(text[at : found.start()]), f"```pycon\n{found[0].rstrip()}\n```\n"]
            at = found.end()
        obj.docstring.value = "".join([*parts, _escaped(text[at:])])


def _escaped(text: str) -> str:
    """`<Z, L>` is no tag; what stands in backticks stays."""
    return _TAG.sub(lambda found: found[1] or "&lt;", text)
