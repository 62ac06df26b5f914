"""What every result can do: print as a table, become a dict, become a pandas frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from uncollapse._base.extras import import_extra

# As the literature has them.
_NAMES = {"map": "mAP", "map_at_r": "map@r", "minp": "mINP", "thresholds": "threshold"}


class Result:
    """Base of the result dataclasses."""

    def to_dict(self) -> dict[str, Any]:
        """The numbers by name: one entry per field that is shown and is not None.

        A field with one number for each k, or rate, has an entry `name@k` for each.
        """
        numbers: dict[str, Any] = {}
        for field in fields(cast(Any, self)):
            name, value = _NAMES.get(field.name, field.name), getattr(self, field.name)
            if isinstance(value, Mapping) and field.repr:
                numbers |= {f"{name}@{k:g}": number for k, number in value.items()}
            elif value is not None and field.repr:
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
