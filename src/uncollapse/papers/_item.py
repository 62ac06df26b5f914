"""What `uncollapse reproduce` can make: one item per figure, table or set of claims."""

from __future__ import annotations

import datetime
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from uncollapse._base.check import check_choice
from uncollapse._base.files import DamagedFileError, read_csv, read_json, write_json
from uncollapse._base.table import Table
from uncollapse.data import describe

__all__ = [
    "CATALOGUE",
    "RECORDED",
    "SCALES",
    "Entry",
    "Item",
    "Made",
    "MadeFile",
    "Page",
    "Recorded",
    "Request",
    "Table",
    "Trace",
    "Used",
    "made_file",
    "read_made",
    "read_recorded",
    "short_title",
    "write_made",
]


# What `uncollapse reproduce --list` lists: every item in a line, without what makes it.

# Embedded data in seconds; real data on two cores; the paper's own protocol on a GPU.
SCALES = ("smoke", "laptop", "paper")


@dataclass(frozen=True)
class Entry:
    """A figure, table or set of claims: what it shows, what data it needs, how long it takes.

    `time` is one for all scales, or one per scale. The first of the `scales` is the usual one.
    """

    name: str
    summary: str
    needs: str
    time: str | Mapping[str, str]
    scales: tuple[str, ...] = ("laptop",)

    def time_at(self, scale: str) -> str:
        """How long it takes at a scale; empty where it has none."""
        if scale not in self.scales:
            return ""
        return self.time if isinstance(self.time, str) else self.time[scale]


def _read_catalogue() -> dict[str, Entry]:
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    return {
        name: Entry(name, **(values | {"scales": tuple(values["scales"])}))
        for name, values in tomllib.loads(text).items()
    }


CATALOGUE = _read_catalogue()


# How an item was made, for a record: its data, its time, its files. `made.json` beside them.


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


# The last recorded run of each item: scale, time, data. `recorded.csv`, written by a tool.

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


# Tables and pages as data, and as Markdown; `uncollapse.cli` shows them in a terminal.


@dataclass(frozen=True)
class Page:
    """Tables under a title; `about` says how they were made, `notes` what differs.

    `picture` is the name of a file beside the page, shown on it.
    """

    title: str
    tables: Sequence[Table] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    picture: str = ""

    def markdown(self) -> str:
        """The page."""
        parts = [f"# {self.title}"] if self.title else []
        parts += [f"![{self.title}]({self.picture})"] if self.picture else []
        if self.about:
            parts.append("\n".join(f"- {name}: {value}" for name, value in self.about.items()))
        for table in self.tables:
            parts += [f"## {table.title}"] if table.title else []
            parts.append(table.markdown())
            parts += ["\n".join(f"- {note}" for note in table.notes)] if table.notes else []
        return "\n\n".join([*parts, *self.notes]) + "\n"


@dataclass(frozen=True)
class Request:
    """What an item is asked for: its name, where to, how large and with what.

    `seed` is the first of `seeds` (None: as many as the scale has). `data_root` holds the datasets
    (None: `UNCOLLAPSE_DATA`), `weights` is a file of ImageNet weights for the protocols that start
    from them, `processes` is how many trainings run at a time (None: one per core). Studies note in
    `trace` what they used.
    """

    item: str
    out: Path
    scale: str
    seed: int = 0
    seeds: int | None = None
    data_root: Path | None = None
    processes: int | None = None
    weights: Path | None = None
    trace: Trace = field(default_factory=Trace, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """`out/item/scale`, where an item that trains puts its files."""
        return self._folder(self.item)

    def runs(self, study: str) -> Path:
        """Run folders of a study; items with the same protocol name the same study."""
        return self._folder(f"runs/{study}")

    @property
    def command(self) -> str:
        """The command that asks for the same."""
        words = ["uncollapse reproduce", self.item, "--scale", self.scale]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--seeds", str(self.seeds)] if self.seeds is not None else []
        words += ["--weights", self.weights.name] if self.weights is not None else []
        return " ".join(words)

    def _folder(self, name: str) -> Path:
        path = self.out / name / self.scale
        path.mkdir(parents=True, exist_ok=True)
        return path


@dataclass(frozen=True)
class Made:
    """What an item made: the files, and the pages to show.

    `private` are those of the files that are not to be published: others' photographs.
    """

    files: Sequence[Path]
    pages: Sequence[Page] = ()
    private: Sequence[Path] = ()


@dataclass(frozen=True)
class Item(Entry):
    """One thing that can be reproduced; `make` writes its files.

    >>> Item.of("fig1", lambda request: Made([])).needs
    'nothing more'
    """

    make: Callable[[Request], Made] = field(kw_only=True)

    @classmethod
    def of(cls, name: str, make: Callable[[Request], Made]) -> Item:
        """The item that the catalogue has under this name."""
        return cls(**vars(CATALOGUE[name]), make=make)

    def run(
        self,
        out: Path,
        seed: int = 0,
        scale: str | None = None,
        *,
        seeds: int | None = None,
        data_root: Path | None = None,
        processes: int | None = None,
        weights: Path | None = None,
    ) -> Made:
        """Make the item at one of its scales (the first by default) in the folder `out`.

        How it was made is written beside its files, as `made.json`. Raises `InputError` for a scale
        it does not have and `DataError` where a dataset is missing.
        """
        scale = self.scales[0] if scale is None else scale
        check_choice("scale", scale, self.scales)
        out.mkdir(parents=True, exist_ok=True)
        request = Request(self.name, out, scale, seed, seeds, data_root, processes, weights)
        begun = time.perf_counter()
        made = self.make(request)
        write_made(
            made_file(self.name, made.files, out),
            request.trace,
            made.files,
            made.private,
            item=self.name,
            scale=scale,
            command=request.command,
            seconds=time.perf_counter() - begun,
        )
        return made
