"""What sections are made of: tables, figures with numbers, pictures, things to unfold."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from uncollapse.report.markup import Html, esc, join, number, short_id

__all__ = ["Cell", "figures", "grid", "note", "paragraph", "picture", "table", "unfold"]


@dataclass(frozen=True)
class Cell:
    """What a table shows in a place, and the number it is sorted by."""

    shown: object
    value: float | None = None


def paragraph(text: object, kind: str = "") -> Html:
    """A paragraph.

    >>> paragraph("1 < 2")
    '<p>1 &lt; 2</p>'
    """
    return Html(f"<p{_class(kind)}>{esc(text)}</p>")


def note(text: object) -> Html:
    """A remark in small print: what was sampled, what is missing."""
    return paragraph(text, "note")


def grid(parts: Iterable[Html], *, wide: bool = False) -> Html:
    """Figures beside each other, as many as the screen has room for."""
    inside = join(parts)
    return Html(f'<div class="grid{" wide" * wide}">{inside}</div>') if inside else Html("")


def unfold(summary: str, body: Html) -> Html:
    """Something that is shown when asked for."""
    return Html(f"<details><summary>{esc(summary)}</summary>{body}</details>")


def figures(values: Mapping[str, object]) -> Html:
    """A few numbers with their names, large.

    >>> figures({"dim": 8})
    '<dl class="figures"><div><dt>dim</dt><dd>8</dd></div></dl>'
    """
    parts = (f"<div><dt>{esc(k)}</dt><dd>{esc(_shown(v))}</dd></div>" for k, v in values.items())
    return Html(f'<dl class="figures">{"".join(parts)}</dl>')


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    caption: str = "",
    first: int | None = None,
    sortable: bool = False,
) -> Html:
    """Rows under a heading; the first cell of a row names it, numbers stand to the right.

    `first` shows that many rows and a switch for the rest. `sortable` adds sorting by column where
    scripts run.
    """
    numeric = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(head))]
    hidden = first is not None and len(rows) > first + 2
    heads = "".join(
        f'<th scope="col"{_class(_head(h, n))}>{esc(h)}</th>'
        for h, n in zip(head, numeric, strict=True)
    )
    lines = []
    for i, row in enumerate(rows):
        cells = [_cell(cell, "th" if j == 0 else "td", numeric[j]) for j, cell in enumerate(row)]
        more = hidden and i >= (first or 0)
        lines.append(f"<tr{_class('more' * more)}>{''.join(cells)}</tr>")
    label = caption or ", ".join(head)
    words = f"<caption>{esc(caption)}</caption>" if caption else ""
    inside = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{esc(label)}">'
        f"<table{_class('sortable' * sortable)}>{words}"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
    if not hidden:
        return Html(f'<div class="rows">{inside}</div>')
    name = short_id("table", label, *(row[0] for row in rows[:50]), len(rows))
    return Html(
        f'<div class="rows"><input type="checkbox" id="{name}"><label for="{name}">'
        f'<span class="closed">Show all {len(rows):,} rows</span>'
        f'<span class="open">Show the first {first} only</span></label>{inside}</div>'
    )


def picture(image: Image.Image, alt: str, caption: str = "", small: str = "") -> Html:
    """A picture inside the page, as PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    words = f"<figcaption>{esc(caption)}{f'<small>{esc(small)}</small>' * bool(small)}</figcaption>"
    return Html(
        f'<figure>{words * bool(caption)}<img alt="{esc(alt)}" width="{image.width}" '
        f'height="{image.height}" src="data:image/png;base64,{data}"></figure>'
    )


def _cell(cell: object, tag: str, numeric: bool) -> str:
    value = cell.value if isinstance(cell, Cell) else cell if _is_number(cell) else None
    data = f' data-v="{value}"' if value is not None else ""
    scope = ' scope="row"' * (tag == "th")
    shown = cell.shown if isinstance(cell, Cell) else _shown(cell)
    return f"<{tag}{scope}{_class('n' * numeric)}{data}>{esc(shown)}</{tag}>"


def _is_number(cell: object) -> bool:
    if isinstance(cell, Cell):
        return cell.value is not None or cell.shown == "–"
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))


def _shown(value: object) -> object:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return number(value)
    return value


def _head(text: str, numeric: bool) -> str:
    """Long headings wrap, but not word by word."""
    return " ".join(kind for kind, holds in (("n", numeric), ("w", len(text) > 16)) if holds)


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
