"""What every result can do: show itself at a prompt and in a notebook, print, become a dict."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from textwrap import shorten
from typing import Any, cast

from uncollapse._base.check import percent, visible
from uncollapse._base.extras import import_extra
from uncollapse._base.table import shown

# As the literature has them.
_NAMES = {"map": "mAP", "map_at_r": "map@r", "minp": "mINP", "thresholds": "threshold"}
_SHARES = {"recall", "r precision", "map", "mrr", "cmc", "minp", "nmi", "ami", "f1", "auc", "tar"}
_LINE, _MOST = 120, 12  # characters of a line at a prompt, figures in either place
_TONES = {"good": "#2e9e5b", "warn": "#d08700", "bad": "#d64545"}  # on light and dark pages
_COLOURS = ("#3f7fd0", "#d08700")
_CARD = (
    '<div style="border:1px solid #8885;border-left:4px solid {};border-radius:4px;max-width:64em;'
    'padding:.6em 1em;margin:.2em 0;line-height:1.6"><b>{}</b>{}<div>{}</div>{}{}</div>'
)
_FIGURE = (
    '<span style="display:inline-block;margin-right:1.4em"><span style="opacity:.7">{}</span> '
    "<b>{}</b></span>"
)
_BAR = (
    '<div><span style="display:inline-block;width:11em;opacity:.7">{}</span><progress max="1" '
    'value="{:.4f}" style="width:16em;accent-color:#3f7fd0"></progress> <b>{}</b></div>'
)


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
        lines = [f"<div>{_safe(line)}</div>" for line in self.lines]
        figures = [_FIGURE.format(_safe(k), _safe(shown(v))) for k, v in self.figures.items()]
        bars = [_BAR.format(_safe(k), max(0.0, v), percent(v)) for k, v in self.shares.items()]
        parts = ["".join(part[:_MOST]) for part in (lines, figures, bars)]
        edge = _TONES.get(self.tone, "#888")
        return _CARD.format(edge, _safe(self.title), *parts, _drawn(self.curves))


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


def _safe(value: object) -> str:
    return html.escape(visible(str(value)))


def _drawn(curves: Mapping[str, Sequence[float]]) -> str:
    """The curves, and their names in their colours."""
    top = max((height for heights in curves.values() for height in heights), default=0.0) or 1.0
    lines = names = ""
    for (name, heights), colour in zip(curves.items(), _COLOURS, strict=False):
        step = 300 / max(len(heights) - 1, 1)
        at = " ".join(f"{step * i:.1f},{62 - 60 * h / top:.1f}" for i, h in enumerate(heights))
        lines += f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{at}"/>'
        names += f'<span style="color:{colour};margin-right:1.4em">{_safe(name)}</span>'
    size = 'width="300" height="64" viewBox="0 0 300 64"'
    return f'<svg {size} role="img">{lines}</svg><div>{names}</div>' if curves else ""
