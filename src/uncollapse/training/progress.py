"""What a person sees while a run goes on: one line on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["ProgressLine"]

_SHOWN = {"loss": ".4f", "diameter": ".3g", "verdict": "", "recall@1": ".1%"}


class ProgressLine:
    """Step, loss, diameter, verdict, R@1 and the time left. Quiet when not a terminal."""

    def __init__(self, title: str, total: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._latest: dict[str, str] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID = self._progress.add_task(title, total=total, values="")

    def __enter__(self) -> ProgressLine:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, step: int, values: Mapping[str, object]) -> None:
        """Move to `step`; of the values, the known ones are shown until they change."""
        for name, form in _SHOWN.items():
            if values.get(name) is not None:
                self._latest[name] = format(values[name], form)
        text = "  ".join(f"{name} {value}" for name, value in self._latest.items())
        self._progress.update(self._task, completed=step, values=text)

    def note(self, text: str) -> None:
        """A line that stays."""
        self._progress.console.print(text, highlight=False, markup=False)
