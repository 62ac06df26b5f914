"""What a file of embeddings says of its rows: which run they are of, and its scale at the start.

One JSON object, `{"format": 1, "origin": {...}, "texts": {...}}`, as the array `uncollapse` of an
.npz, or under that key of the metadata of a .safetensors or .parquet file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from uncollapse.data.load_report import DataError

__all__ = ["NOTE", "Note", "Origin", "StartScale", "parse_note", "write_note"]

NOTE = "uncollapse"
_FORMAT = 1
_LONGEST = 500  # characters of a name that is shown in a line


@dataclass(frozen=True)
class StartScale:
    """The scale of a run's embedding before training, of `rows` rows of `split`.

    `spread`, `cdnv`, `fine_agreement` and `fine_chance` (see `health.Health`) are None where they
    are not known.
    """

    diameter: float
    spread: float | None
    cdnv: float | None
    split: str
    rows: int
    fine_agreement: float | None = None
    fine_chance: float | None = None

    def __str__(self) -> str:
        return (
            f"diameter {self.diameter:.3g} before training, of {self.rows:,} rows of {self.split}"
        )


@dataclass(frozen=True)
class Origin:
    """The run that embedded the rows, by its folder's name: at which step, which split.

    `split` is None for images of one's own; `start` None where no scale is known to compare with.
    `cosine` says whether the run's loss compares directions; None where that is not known.
    """

    run: str
    step: int
    split: str | None = None
    start: StartScale | None = None
    cosine: bool | None = None


@dataclass(frozen=True)
class Note:
    """All that a file says of itself; `texts` are columns of words that its format cannot hold."""

    origin: Origin | None = None
    texts: Mapping[str, Sequence[str]] | None = None


def write_note(note: Note) -> str:
    """The note as JSON.

    >>> parse_note(write_note(Note(Origin("a", 3)))).origin
    Origin(run='a', step=3, split=None, start=None, cosine=None)
    """
    plain: dict[str, Any] = {"format": _FORMAT}
    if note.origin is not None:
        plain["origin"] = asdict(note.origin)
    if note.texts:
        plain["texts"] = {name: list(words) for name, words in note.texts.items()}
    return json.dumps(plain)


def parse_note(text: object) -> Note:
    """The note that `write_note` wrote; `DataError` says what is odd about another."""
    if not isinstance(text, str):
        raise DataError(f"{type(text).__name__} where JSON was expected")
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {str(error)[:80]}") from None
    known = _table(plain, "the note")
    if known.get("format") != _FORMAT:
        raise DataError(f"format {str(known.get('format'))[:20]}, expected {_FORMAT}")
    origin = None if known.get("origin") is None else _origin(_table(known["origin"], "origin"))
    texts = _table(known.get("texts", {}), "texts")
    for name, words in texts.items():
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DataError(f"texts.{name[:20]} is no list of words")
    return Note(origin, texts or None)


def _origin(plain: dict[str, Any]) -> Origin:
    split, start, cosine = (plain.get(key) for key in ("split", "start", "cosine"))
    if not isinstance(cosine, bool | None):
        raise DataError(f"cosine is {_shown(cosine)}, expected true or false")
    return Origin(
        _word(plain, "run"),
        _count(plain, "step", 0),
        None if split is None else _word(plain, "split"),
        None if start is None else _start(_table(start, "start")),
        cosine,
    )


def _start(plain: dict[str, Any]) -> StartScale:
    spread, cdnv = (
        None if plain.get(key) is None else _size(plain, key) for key in ("spread", "cdnv")
    )
    split, rows = _word(plain, "split"), _count(plain, "rows", 1)
    fine = (_share(plain, key) for key in ("fine_agreement", "fine_chance"))
    return StartScale(_size(plain, "diameter"), spread, cdnv, split, rows, *fine)


def _table(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{name} is no table")
    return value


def _word(plain: dict[str, Any], key: str) -> str:
    value = plain.get(key)
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise DataError(f"{key} is {_shown(value)}, expected at most {_LONGEST} characters")
    return value


def _count(plain: dict[str, Any], key: str, least: int) -> int:
    value = plain.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise DataError(f"{key} is {_shown(value)}, expected a whole number from {least}")
    return value


def _size(plain: dict[str, Any], key: str) -> float:
    value = plain.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e308 else math.inf
        if math.isfinite(number) and number > 0:
            return number
    raise DataError(f"{key} is {_shown(value)}, expected a positive number")


def _share(plain: dict[str, Any], key: str) -> float | None:
    value = plain.get(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise DataError(f"{key} is {_shown(value)}, expected a number from 0 to 1")


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 2**63 else "a huge number"
    return text if len(text) <= 40 else f"{text[:40]}..."
