"""Progress of long work: a bar on a terminal, a caller's function, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING

from uncollapse._base.check import InputError
from uncollapse._base.table import wrapped_for

if TYPE_CHECKING:
    from rich.console import Console as Console  # where others name the type

Report = Callable[[int, int], None]  # called with (done, total)
ProgressOption = bool | Report | None

_SHOWN = {"loss": ".4f", "diameter": ".3g", "verdict": ""}


@contextmanager
def progress_reporter(progress: ProgressOption, title: str) -> Iterator[Report]:
    """Yield `report(done, total)`; `None` shows a bar only on a terminal (stderr) or in a notebook.

    >>> seen = []
    >>> with progress_reporter(lambda done, total: seen.append((done, total)), "x") as report:
    ...     report(1, 2)
    >>> seen
    [(1, 2)]
    """
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool | None):
        raise InputError("progress", repr(progress), "True, False, None or a function(done, total)")
    elif progress is not False and in_notebook():
        draw = _bar_in_notebook()
        yield lambda done, total: draw(done, total, title)
        draw(0, 0, "")
    elif progress or (progress is None and sys.stderr.isatty()):
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lambda _done, _total: None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython may be loaded elsewhere too."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _bar_in_notebook() -> Callable[[int, int, str], None]:
    """A bar that the browser draws, where rich would need ipywidgets; a total of 0 removes it."""
    output = import_module("IPython.display")
    bar = output.display(output.HTML(""), display_id=True)

    def draw(done: int, total: int, text: str) -> None:
        html = f"<progress value={done} max={total}></progress> {escape(text)}"
        bar.update(output.HTML(html if total else ""))

    return draw


class ProgressLine:
    """Shows step, loss, diameter, verdict, R@1 and time left of a run, on a terminal.

    In a notebook there is no time left; elsewhere only notes are printed.

    The values stand under the bar: 80 columns have no room for both. `start` is the step that a
    resumed run goes on from.
    """

    def __init__(
        self, title: str, total: int, console: Console | None = None, *, start: int = 0
    ) -> None:
        from rich import progress
        from rich.console import Console, Group
        from rich.live import Live
        from rich.text import Text

        in_browser = console is None and in_notebook()
        self.console = console or Console(stderr=not in_browser)
        self._draw = _bar_in_notebook() if in_browser else None
        self._values: dict[str, str] = {}
        name, bar = progress.TextColumn("{task.description}"), progress.BarColumn(bar_width=24)
        columns = (name, bar, progress.MofNCompleteColumn(), progress.TimeRemainingColumn())
        self._bar = progress.Progress(*columns, console=self.console)
        self._task = self._bar.add_task(title, total=total, completed=start)
        self._live = Live(
            get_renderable=lambda: Group(self._bar, Text("  " + "  ".join(self._values.values()))),
            console=self.console,
        )

    def __enter__(self) -> ProgressLine:
        if self.console.is_terminal and self._draw is None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._draw is not None:
            self._draw(0, 0, "")

    def show(self, step: int, values: Mapping[str, object]) -> None:
        """Move to `step`; known values are shown until they change.

        `test/recall@1`, the recall of a split, is shown as R@1 on test.
        """
        for key, value in values.items():
            split, recall, k = key.partition("/recall@")
            form = ".1%" if recall else _SHOWN.get(key)
            if form is not None and value is not None:
                title = f"R@{k} on {split}" if recall else key
                self._values[title] = f"{title} {value:{form}}"
        self._bar.update(self._task, completed=step)
        if self._draw is not None:
            task = self._bar.tasks[0]
            text = " ".join([task.description, *self._values.values()])
            self._draw(step, int(task.total or 0), text)

    def note(self, text: str) -> None:
        """A line that stays; on a terminal it is wrapped between words."""
        if self.console.is_terminal:
            text = wrapped_for(self.console.width, text)
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def quiet_console() -> Console:
    """A console that shows nothing."""
    from rich.console import Console

    return Console(quiet=True)
