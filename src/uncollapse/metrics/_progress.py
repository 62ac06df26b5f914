"""Progress of a long evaluation: a bar on a terminal, a caller's function, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from uncollapse._check import InputError

__all__ = ["ProgressOption", "progress_reporter"]

Report = Callable[[int, int], object]
ProgressOption = bool | Report | None


@contextmanager
def progress_reporter(progress: ProgressOption, title: str) -> Iterator[Report]:
    """Yield `report(done, total)`; `None` shows a bar only if stderr is a terminal.

    >>> seen = []
    >>> with progress_reporter(lambda done, total: seen.append((done, total)), "x") as report:
    ...     report(1, 2)
    >>> seen
    [(1, 2)]
    """
    if callable(progress):
        yield progress
    elif progress is None or isinstance(progress, bool):
        if progress or (progress is None and sys.stderr.isatty()):
            with Progress(console=Console(stderr=True), transient=True) as bar:
                task = bar.add_task(title, total=None)
                yield lambda done, total: bar.update(task, completed=done, total=total)
        else:
            yield lambda _done, _total: None
    else:
        raise InputError("progress", repr(progress), "True, False, None or a function(done, total)")
