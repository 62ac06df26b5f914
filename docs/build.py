"""What mkdocs.yml cannot say: a mkdocs hook, and a griffe extension for the API pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:.+\n?)*)", re.MULTILINE)
_RESULTS = "results/index.md"
_TAG = re.compile(r"(`[^`]*`)|<(?=[A-Za-z/])")


def on_config(config: Any) -> Any:
    """One entry for all of docs/results at the end of the studies: a page that lists them.

    A page that mkdocs.yml does not name comes after the API, so that none is ever out of reach.
    """
    docs = Path(config["docs_dir"])
    pages = sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))
    named = str(config["nav"])
    results = [page for page in pages if page.startswith("results/")]
    others = [page for page in pages if page not in results and f"'{page}'" not in named]
    if results:
        next(part["Studies"] for part in config["nav"] if "Studies" in part).append(
            {"All results": _RESULTS}
        )
    if others:
        config["nav"].append({"More": others})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Write the page that lists the results: each by its title, pictures where there is no page."""
    docs = Path(config["docs_dir"])
    results = sorted((docs / "results").rglob("*.md"), key=_in_order)
    if results:
        lines = [f"- [{_title(page)}]({page.relative_to(docs / 'results')})" for page in results]
        listed = {page.parent for page in results}
        pictures = sorted((docs / "results").rglob("*.png"), key=_in_order)
        lines += [
            f"- [{one.stem}]({one.relative_to(docs / 'results')}) (picture)"
            for one in pictures
            if one.parent not in listed
        ]
        text = "\n".join(["# Results", "", *lines, ""])
        files.append(File.generated(config, _RESULTS, content=text))
    return files


def _title(page: Path) -> str:
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else page.parent.name


def _in_order(page: Path) -> list[object]:
    """fig2 before fig10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(page))]


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
