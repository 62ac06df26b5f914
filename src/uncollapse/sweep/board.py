"""What a person sees of a sweep: a live table of the runs under way, or a line for each run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncollapse._base.progress import LiveTable
from uncollapse.sweep.job import Job, Outcome

if TYPE_CHECKING:
    from uncollapse._base.progress import Console

__all__ = ["Board"]

_COLOURS = {"finished": "green", "stopped": "yellow", "failed": "red", "interrupted": "yellow"}
_NUMBERS = ("step", "loss", "diameter", "R@1", "seconds")
_COLUMNS = {"run": "left"} | dict.fromkeys(_NUMBERS, "right") | {"verdict": "left"}
_TAIL = 4096  # bytes of a log that hold its last lines


class Board:
    """Runs under way with their last logged figures; plain lines where there is no terminal."""

    def __init__(self, console: Console | None = None, *, total: int | None = None) -> None:
        self.total = total
        self.period = 0.5  # seconds between two looks
        self._counts: dict[str, int] = {}
        self._running: dict[str, tuple[Job, Path, float]] = {}
        self._begun = time.monotonic()
        self._shown = LiveTable(console)

    def __enter__(self) -> Board:
        self._shown.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.__exit__(*_)
        self._shown.line((self._counted(), ""))

    @property
    def console(self) -> Console:
        """Where it is shown."""
        return self._shown.console

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
        error = f"  {outcome.error}" if outcome.error else ""
        self._shown.line(
            (f"{place}  {outcome.name}  ", ""),
            (outcome.status, _COLOURS[outcome.status]),
            (f"  {outcome.seconds:.1f} s{error}", ""),
        )

    def refresh(self) -> None:
        """Draw the table anew, where it is drawn at all."""
        self._shown.draw(_COLUMNS, [self._row(name) for name in self._running], self._counted())

    def _row(self, name: str) -> list[str]:
        job, path, begun = self._running[name]
        seen = _last_figures(path / "metrics.jsonl")
        return [
            name,
            f"{seen.get('step', 0)}/{job.config.train.steps}",
            *(f"{seen[key]:.3g}" if key in seen else "" for key in ("loss", "diameter")),
            str(seen.get("recall@1", "")),
            f"{time.monotonic() - begun:.0f}",
            str(seen.get("verdict", "")),
        ]

    def _counted(self) -> str:
        known = sum(self._counts.values())
        parts = [f"{count} {status}" for status, count in self._counts.items()]
        parts += [f"{len(self._running)} running"] * bool(self._running)
        if self.total:
            parts.append(f"{self.total - known - len(self._running)} to come")
        return f"{', '.join(parts)}; {time.monotonic() - self._begun:.0f} s"


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
        keys = [k for k in values if k.endswith("recall@1") and "fine/" not in k]
        if keys:  # of all identities, where they were looked at
            best = min(keys, key=lambda key: "share/" in key)
            found["recall@1"] = f"{values[best]:.1%} {best.partition('/')[0]}"
    return found
