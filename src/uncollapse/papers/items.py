"""The items of `uncollapse reproduce`: one per figure, table or set of claims."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path

from uncollapse._base.check import InputError, check_choice, did_you_mean
from uncollapse._base.files import (
    DamagedFileError,
    csv_rows,
    read_toml,
    write_csv,
    write_json,
    write_text,
)
from uncollapse._base.table import Table

# Embedded data in seconds; real data on two cores; the paper's own protocol on a GPU.
SCALES = ("smoke", "laptop", "paper")
RECORDED = Path(__file__).with_name("recorded.csv")


@dataclass(frozen=True)
class ItemPage:
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
class Made:
    """What an item made: the files, and the pages to show.

    `private` are those of the files that are not to be published: others' photographs.
    """

    files: Sequence[Path]
    pages: Sequence[ItemPage] = ()
    private: Sequence[Path] = ()


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


@dataclass(frozen=True)
class Request:
    """What to make: the item, the output folder, the scale, and its inputs.

    `seed` is the first of `seeds` (None: as many as the scale has). `data_root` holds the datasets
    (None: `UNCOLLAPSE_DATA`), `weights` is a file of ImageNet weights for the protocols that start
    from them, `processes` is how many trainings run at a time (None: one per core; 0: none, the
    runs that have finished are shown). Studies note in `used` what they trained, and in `missing`
    the datasets that were not there.
    """

    item: str
    out: Path
    scale: str
    seed: int = 0
    seeds: int | None = None
    data_root: Path | None = None
    processes: int | None = None
    weights: Path | None = None
    used: list[Used] = field(default_factory=list, compare=False, repr=False)
    missing: list[str] = field(default_factory=list, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """`out/item/scale`, where an item that trains puts its files."""
        return self._folder(self.item)

    def runs(self, study: str) -> Path:
        """Run folders of a study; items with the same protocol name the same study."""
        return self._folder(f"runs/{study}")

    @property
    def command(self) -> str:
        """The command of the same request."""
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
class Item:
    """A figure, table or set of claims: what it shows, what data it needs, how long it takes.

    `time` is by scale, the usual scale first. `make` is the function that makes it from a
    `Request`, as `module:name`; it is loaded when it is called.
    """

    name: str
    summary: str
    needs: str
    time: Mapping[str, str]
    make: str

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
        scale = next(iter(self.time)) if scale is None else scale
        check_choice("scale", scale, tuple(self.time))
        out.mkdir(parents=True, exist_ok=True)
        request = Request(self.name, out, scale, seed, seeds, data_root, processes, weights)
        module, _, function = self.make.partition(":")
        begun = time.perf_counter()
        made: Made = getattr(import_module(f"uncollapse.papers.{module}"), function)(request)
        write_made(request, made, time.perf_counter() - begun)
        return made


def write_made(request: Request, made: Made, seconds: float) -> None:
    """Write `made.json` beside the files; with the item's name where items share a folder.

    `seconds` is the time that making it took, with the runs there were; `training_seconds` is that
    of all runs that it shows, one after the other, whenever they were made.
    """
    folder = made.files[0].parent
    name = f"{request.item}-made.json" if folder == request.out else "made.json"
    trained = {name: spent for used in request.used for name, spent in used.runs.items()}
    values = {
        "item": request.item,
        "scale": request.scale,
        "command": request.command,
        "date": today(),
        "seconds": round(seconds, 1),
        "training_seconds": round(sum(trained.values()), 1),
        "used": [asdict(used) | {"runs": sorted(used.runs)} for used in request.used],
        "missing": request.missing,
        "files": [file.name for file in made.files],
        "private": [file.name for file in made.private],
    }
    write_json(folder / name, values)


def write_claims(
    request: Request, page: ItemPage, header: Sequence[str], rows: Sequence[Sequence[object]]
) -> list[Path]:
    """Claims that need no training: a page and a CSV, under the item's name."""
    files = [request.out / f"{request.item}.md", request.out / f"{request.item}.csv"]
    write_text(files[0], page.markdown())
    write_csv(files[1], header, rows)
    return files


def today() -> str:
    """The date for a record."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def duration(seconds: float) -> str:
    """A duration in words.

    >>> [duration(seconds) for seconds in (0.4, 42, 840, 9000)]
    ['0.4 s', '42 s', '14 min', '2.5 h']
    """
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5940 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Recorded:
    """How an item was last recorded.

    `seconds` are those of training, one run after the other, or of making it where nothing is
    trained. `real` is `yes` for the paper's own data, `part` where some of it is missing, `no` for
    a stand-in; it and `data` are empty where none is needed. `holds` is `yes`, `in part` or `no`
    for what the paper says, `not judged at this scale`, or empty where it says nothing to judge.
    """

    item: str
    scale: str
    seconds: float
    data: str
    real: str
    holds: str
    seeds: str
    network: str
    date: str

    @property
    def time(self) -> str:
        """The seconds in words."""
        return duration(self.seconds)


def read_recorded(path: Path = RECORDED) -> dict[str, Recorded]:
    """What was recorded, by item; nothing where there is no record."""
    if not path.is_file():
        return {}
    header, *rows = csv_rows(path)
    if header != [field.name for field in fields(Recorded)]:
        raise DamagedFileError(path, f"a table of {', '.join(header)}")
    try:
        return {row[0]: Recorded(row[0], row[1], float(row[2]), *row[3:]) for row in rows}
    except ValueError as error:
        raise DamagedFileError(path, str(error)) from None


def get_item(name: str) -> Item:
    """The item of that name, or an error that lists the names.

    >>> get_item("fig4").needs
    'the extra geometry'
    """
    if name not in CATALOGUE:
        given = repr(name) + did_you_mean(name, CATALOGUE)
        raise InputError("item", given, "one of " + ", ".join(CATALOGUE))
    return CATALOGUE[name]


CATALOGUE = {
    name: Item(name, **values)
    for name, values in read_toml(Path(__file__).with_name("catalogue.toml")).items()
}
