"""What a person sees of a sweep: a live table of the runs under way, or a line for each run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from uncollapse.sweep.job import Job, Outcome

__all__ = ["Board"]

_COLOURS = {"finished": "green", "stopped": "yellow", "failed": "red", "interrupted": "yellow"}
_TAIL = 4096  # bytes of a log that hold its last lines


class Board:
    """Runs under way with their last logged figures; plain lines where there is no terminal."""

    def __init__(self, console: Console | None = None, *, total: int | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.total = total
        self.period = 0.5  # seconds between two looks
        self._counts: dict[str, int] = {}
        self._running: dict[str, tuple[Job, Path, float]] = {}
        self._begun = time.monotonic()
        self._live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live.is_started:
            self._live.stop()
        self.console.print(self._counted(), highlight=False)

    def began(self, job: Job, path: Path) -> None:
        """A run is under way."""
        self._running[job.name] = job, path, time.monotonic()

    def ended(self, outcome: Outcome) -> None:
        """A run is over; one that was over before is only counted."""
        self._counts[outcome.status] = self._counts.get(outcome.status, 0) + 1
        if self._running.pop(outcome.name, None) is None:
            return
        known = sum(self._counts.values())
        place = f"{known}/{self.total}" if self.total else str(known)
        line = Text(f"{place}  {outcome.name}  ")
        line.append(outcome.status, style=_COLOURS[outcome.status])
        line.append(f"  {outcome.seconds:.1f} s")
        if outcome.error:
            line.append(f"  {outcome.error}")
        self.console.print(line, highlight=False, soft_wrap=True)

    def refresh(self) -> None:
        """Draw the table anew, where it is drawn at all."""
        if self._live.is_started:
            self._live.update(Group(self._table(), self._counted()), refresh=True)

    def _table(self) -> Table:
        table = Table("run", box=None, pad_edge=False)
        for name in ("step", "loss", "diameter", "R@1", "seconds"):
            table.add_column(name, justify="right")
        table.add_column("verdict")
        for name, (job, path, begun) in self._running.items():
            seen = _last_figures(path / "metrics.jsonl")
            table.add_row(
                name,
                f"{seen.get('step', 0)}/{job.config.train.steps}",
                *(f"{seen[key]:.3g}" if key in seen else "" for key in ("loss", "diameter")),
                f"{seen['recall@1']:.1%}" if "recall@1" in seen else "",
                f"{time.monotonic() - begun:.0f}",
                str(seen.get("verdict", "")),
            )
        return table

    def _counted(self) -> Text:
        known = sum(self._counts.values())
        parts = [f"{count} {status}" for status, count in self._counts.items()]
        parts += [f"{len(self._running)} running"] * bool(self._running)
        if self.total:
            parts.append(f"{self.total - known - len(self._running)} to come")
        return Text(f"{', '.join(parts)}; {time.monotonic() - self._begun:.0f} s")


def _last_figures(path: Path) -> dict[str, Any]:
    """The newest value of each key among the last lines of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    found: dict[str, Any] = {}
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:  # the first may be cut in two
            continue
        found |= values
        recalls = [v for k, v in values.items() if k.endswith("recall@1") and "fine/" not in k]
        if recalls:
            found["recall@1"] = recalls[0]
    return found
