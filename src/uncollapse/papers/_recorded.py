"""The last recorded run of each item: scale, time, data. `recorded.csv`, written by a tool.

`python tools/record_results.py OUT` collects it from the `made.json` of items.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from uncollapse._base.files import DamagedFileError, read_csv, write_csv
from uncollapse.papers._made import MadeFile, short_title

__all__ = ["RECORDED", "Recorded", "first_words", "read_recorded", "record", "write_recorded"]

RECORDED = Path(__file__).with_name("recorded.csv")


@dataclass(frozen=True)
class Recorded:
    """How an item was last recorded.

    `seconds` are those of training, one run after the other, or of making it where nothing is
    trained. `real` is `yes` for the paper's own data, `part` where some of it is missing, `no` for
    a stand-in; it and `data` are empty where none is needed.
    """

    item: str
    scale: str
    seconds: float
    data: str
    real: str
    seeds: str
    network: str
    date: str

    @property
    def time(self) -> str:
        """The seconds as a person says them.

        >>> [Recorded("x", "", s, "", "", "", "", "").time for s in (0.4, 42, 840, 9000)]
        ['0.4 s', '42 s', '14 min', '2.5 h']
        """
        if self.seconds < 120:
            return f"{self.seconds:.1f} s" if self.seconds < 10 else f"{self.seconds:.0f} s"
        return (
            f"{self.seconds / 60:.0f} min"
            if self.seconds < 5940
            else f"{self.seconds / 3600:.1f} h"
        )


def record(made: MadeFile) -> Recorded:
    """What is recorded of an item that was made."""
    names, real = [], [bool(one["real"]) for one in made.used]
    for one in made.used:
        title = short_title(one["data"])
        names.append(title if one["real"] else f"{title} (stand-in)")
    # A dataset that is missing left a gap, or something stands in for it.
    gaps = [f"no {short_title(name)}" for name in made.missing] if any(real) else []
    word = "" if not real else "no" if not any(real) else "yes" if made.real else "part"
    networks = dict.fromkeys(first_words(one["network"]) for one in made.used)
    seeds = max((len(one["seeds"]) for one in made.used), default=0)
    return Recorded(
        made.item,
        made.scale,
        made.time,
        ", ".join(dict.fromkeys([*names, *gaps])),
        word,
        str(seeds or ""),
        "; ".join(networks),
        made.date,
    )


def first_words(network: str) -> str:
    """A network and its training in words, up to the first comma.

    >>> first_words("a perceptron (32, 16), dim 4, 20 steps")
    'a perceptron (32, 16)'
    """
    return re.split(r",(?![^(]*\))", network)[0]


def read_recorded(path: Path = RECORDED) -> dict[str, Recorded]:
    """What was recorded, by item; nothing where there is no record."""
    if not path.is_file():
        return {}
    header, rows = read_csv(path)
    if header != [field.name for field in fields(Recorded)]:
        raise DamagedFileError(path, f"a table of {', '.join(header)}")
    try:
        found = [Recorded(row[0], row[1], float(row[2]), *row[3:]) for row in rows]
    except ValueError as error:
        raise DamagedFileError(path, str(error)) from None
    return {one.item: one for one in found}


def write_recorded(found: Mapping[str, Recorded], path: Path = RECORDED) -> None:
    """Write the record, in the order given."""
    write_csv(path, [field.name for field in fields(Recorded)], map(astuple, found.values()))
