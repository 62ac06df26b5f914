"""How an item was made, for a record: its data, its time, its files. `made.json` beside them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from uncollapse._base.files import DamagedFileError, read_json, write_json
from uncollapse.data import describe

__all__ = ["MadeFile", "Trace", "Used", "made_file", "read_made", "short_title", "write_made"]


@dataclass(frozen=True)
class Used:
    """Runs of one study: the dataset and what it is in words, the network, and seconds by run.

    `real` says whether it is the paper's own dataset, whole; else another one stands in for it.
    """

    data: str
    words: str
    real: bool
    network: str
    seeds: Sequence[int]
    runs: Mapping[str, float]


@dataclass
class Trace:
    """What studies note while an item is made: what was used, and which datasets were missing."""

    used: list[Used] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def lacks(self, name: str) -> None:
        """Note a dataset that was looked for and not found."""
        if name not in self.missing:
            self.missing.append(name)


@dataclass(frozen=True)
class MadeFile:
    """What `made.json` says.

    `seconds` is the time that making it took, with the runs there were; `training_seconds` is that
    of all runs that it shows, one after the other, whenever they were made. `private` files (among
    `files`) are not to be published.
    """

    item: str
    scale: str
    command: str
    date: str
    seconds: float
    training_seconds: float
    used: Sequence[Mapping[str, Any]]
    missing: Sequence[str]
    files: Sequence[str]
    private: Sequence[str]

    @property
    def time(self) -> float:
        """Seconds of training or, where nothing is trained, of making it."""
        return self.training_seconds if self.used else self.seconds

    @property
    def real(self) -> bool | None:
        """Whether all data is the paper's own, and all of it was there; None without data."""
        if not self.used:
            return None
        return not self.missing and all(one["real"] for one in self.used)


def made_file(item: str, files: Sequence[Path], out: Path) -> Path:
    """Where it is written: beside the files; with the item's name where items share a folder."""
    folder = files[0].parent
    return folder / (f"{item}-made.json" if folder == out else "made.json")


def write_made(
    path: Path,
    trace: Trace,
    files: Sequence[Path],
    private: Sequence[Path],
    *,
    item: str,
    scale: str,
    command: str,
    seconds: float,
) -> None:
    """Write `made.json`: what was asked for, what the studies noted, the names of the files."""
    trained = {name: spent for one in trace.used for name, spent in one.runs.items()}
    found = MadeFile(
        item=item,
        scale=scale,
        command=command,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        seconds=round(seconds, 1),
        training_seconds=round(sum(trained.values()), 1),
        used=[asdict(one) | {"runs": sorted(one.runs)} for one in trace.used],
        missing=list(trace.missing),
        files=[file.name for file in files],
        private=[file.name for file in private],
    )
    write_json(path, asdict(found))


def read_made(path: Path) -> MadeFile:
    """Read `made.json`; `DamagedFileError` for a file that is something else."""
    try:
        return MadeFile(**read_json(path))
    except TypeError as error:
        raise DamagedFileError(path, f"not the record of an item ({error})") from None


def short_title(data: str) -> str:
    """A dataset's title without what explains it.

    >>> short_title("market1501"), short_title("mnist-parity")
    ('Market-1501', 'MNIST')
    """
    title = describe(data).title
    for mark in (":", " (", ",", " by "):
        title = title.partition(mark)[0]
    return title
