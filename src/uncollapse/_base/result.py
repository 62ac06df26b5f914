"""What every result can do: show itself at a prompt and in a notebook, print, become a dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from textwrap import shorten
from typing import Any, cast

from uncollapse._base.check import percent, visible
from uncollapse._base.extras import import_extra
from uncollapse._base.table import shown

# As the literature has them.
_NAMES = {"map": "mAP", "map_at_r": "map@r", "minp": "mINP", "thresholds": "threshold"}
_SHARES = {"recall", "r precision", "map", "mrr", "cmc", "minp", "nmi", "ami", "f1", "auc", "tar"}
_LINE, _MOST = 120, 12  # characters of a line at a prompt, figures in either place


@dataclass(frozen=True)
class Card:
    """A result in short: at most five lines at a prompt, a card in a notebook.

    `tone` is `good`, `warn`, `bad` or empty. `shares` of one are drawn as bars. `curves` are drawn
    over each other, each by its heights, and left out at a prompt.
    """

    title: str
    lines: Sequence[str] = ()
    tone: str = ""
    figures: Mapping[str, object] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def text(self) -> str:
        """The title, three lines, and the figures."""
        known = {name: percent(share) for name, share in self.shares.items()} | dict(self.figures)
        last = ", ".join(f"{name} {shown(value)}" for name, value in [*known.items()][:_MOST])
        lines = filter(None, (self.title, *self.lines[:3], last))
        return "\n".join(shorten(visible(line), _LINE, placeholder=" …") for line in lines)

    def html(self) -> str:
        """The card with its styles inside; it takes the text colour of the page it stands on."""
        from jinja2 import Environment  # no card, no time for it

        text = Path(__file__).with_name("card.html.j2").read_text("utf-8")
        page = Environment(autoescape=True, finalize=lambda value: visible(str(value)))
        return page.from_string(text).render(card=self, most=_MOST, percent=percent, shown=shown)


class Shown:
    """Base of what users get back: a few lines at a prompt, a card in a notebook."""

    def card(self) -> Card:
        """What is shown."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.card().text()

    def _repr_html_(self) -> str:
        return self.card().html()


class Result(Shown):
    """Base of the result dataclasses."""

    def card(self) -> Card:
        """Shares of one as bars, everything else as numbers."""
        known = {k.replace("_", " "): v for k, v in self.to_dict().items() if v is not None}
        names = [name for name in known if name.lower().split("@")[0] in _SHARES]
        shares = {name: known.pop(name) for name in names}
        return Card(type(self).__name__.removesuffix("Result"), figures=known, shares=shares)

    def to_dict(self) -> dict[str, Any]:
        """The numbers by name: one entry per field that is shown and is not None.

        A field with one number for each k, or rate, has an entry `name@k` for each.
        """
        numbers: dict[str, Any] = {}
        for each in fields(cast(Any, self)):
            name, value = _NAMES.get(each.name, each.name), getattr(self, each.name)
            if isinstance(value, Mapping) and each.repr:
                numbers |= {f"{name}@{k:g}": number for k, number in value.items()}
            elif value is not None and each.repr:
                numbers[name] = value
        return numbers

    def to_frame(self) -> Any:
        """One-row `pandas.DataFrame` of `to_dict()`; needs pandas."""
        return import_extra("pandas", extra="frames").DataFrame([self.to_dict()])

    def __str__(self) -> str:
        numbers = self.to_dict()
        texts = [f"{v:.4f}" if isinstance(v, float) else str(v) for v in numbers.values()]
        names, width = max(map(len, numbers)), max(map(len, texts))
        lines = zip(numbers, texts, strict=True)
        return "\n".join(f"{name:<{names}}  {text:>{width}}" for name, text in lines)
