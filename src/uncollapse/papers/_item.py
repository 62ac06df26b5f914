"""What `uncollapse reproduce` can make: one item per figure, table or set of claims."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from uncollapse._base.check import check_choice
from uncollapse.papers._catalogue import CATALOGUE, Entry
from uncollapse.papers._made import Trace, made_file, write_made
from uncollapse.papers._page import Page

__all__ = ["Item", "Made", "Request"]


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
