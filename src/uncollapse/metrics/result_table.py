"""What every result can do: print as a table, become a dict, become a pandas frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from uncollapse._base.extras import import_extra

__all__ = ["Result", "text_table"]


_NAMES = {"map": "mAP", "map_at_r": "map@r", "minp": "mINP"}  # as the literature has them


class Result:
    """Base of the result dataclasses."""

    def to_dict(self) -> dict[str, Any]:
        """The numbers by name: one entry per field that is shown and is not None.

        A field with one number for each k has an entry `name@k` for each.
        """
        numbers: dict[str, Any] = {}
        for field in fields(cast(Any, self)):
            name, value = _NAMES.get(field.name, field.name), getattr(self, field.name)
            if isinstance(value, Mapping) and field.repr:
                numbers |= {f"{name}@{k}": number for k, number in value.items()}
            elif value is not None and field.repr:
                numbers[name] = value
        return numbers

    def to_frame(self) -> Any:
        """One-row `pandas.DataFrame` of `to_dict()`; needs pandas."""
        return import_extra("pandas", extra="frames").DataFrame([self.to_dict()])

    def __str__(self) -> str:
        return text_table(list(self.to_dict().items()))


def text_table(rows: list[tuple[Any, ...]], header: tuple[str, ...] = ()) -> str:
    """Columns of text: the first to the left, the others to the right; floats get four decimals.

    >>> print(text_table([("recall@1", 0.5), ("queries", 12)]))
    recall@1  0.5000
    queries       12
    """
    cells = [list(header)] * bool(header) + [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        rest = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
    if header:
        lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
