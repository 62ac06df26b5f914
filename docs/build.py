"""What mkdocs.yml cannot say: a mkdocs hook, and a griffe extension for the API pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n(?:.+\n?)*)", re.MULTILINE)


def on_config(config: Any) -> Any:
    """List the pages of docs/results in the navigation, before the API, whichever there are."""
    docs = Path(config["docs_dir"])
    pages = sorted(str(page.relative_to(docs)) for page in docs.glob("results/**/*.md"))
    if pages:
        config["nav"].insert(-1, {"Results": pages})
    return config


class FenceExamples(griffe.Extension):
    """Docstrings hold bare `>>>` examples, as doctest reads them; markdown needs a fence."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Wrap each example of the object's docstring."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text
            )
