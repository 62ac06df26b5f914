"""`metrics.jsonl`, and the loggers that a config names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from uncollapse._base.files import append_lines, write_text
from uncollapse.training.config import Config
from uncollapse.training.run import Run
from uncollapse.training.run_loggers import Elsewhere

__all__ = ["Log", "Watch", "repair_log"]

Watch = Callable[[int, Mapping[str, Any]], None]  # told (step, values)


class Log:
    """The lines of a run. Opening drops what is past the offset; without a run nothing is written.

    One rank writes; the others have a log without a run. `watch` is told each line written.
    """

    def __init__(
        self, run: Run | None, config: Config, offset: int, watch: Watch | None = None
    ) -> None:
        self._lines: append_lines | None = None
        self._watch = watch
        self._elsewhere = Elsewhere([])
        if run is None:
            return
        # Lines after the checkpoint will be written again; one may be cut short by a crash.
        self._lines = append_lines(run.metrics_file, keep=offset)
        self._elsewhere = Elsewhere.of(run, config)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is not None:
            self._lines.close()
        self._elsewhere.close()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One line, flushed."""
        if not values or self._lines is None:
            return
        self._lines.write({"step": step, **values})
        if self._watch is not None:
            self._watch(step, values)
        self._elsewhere.write(step, values)

    def offset(self) -> int:
        """Length of the file now, on disk."""
        return 0 if self._lines is None else self._lines.offset()

    @property
    def sha256(self) -> str | None:
        """Checksum of the file now."""
        return None if self._lines is None else self._lines.sha256


def repair_log(path: Path, keep: int, sha256: str | None) -> tuple[int, str | None]:
    """Make a log fit to go on with: how many bytes of it to keep, and what was wrong with it.

    `keep` and `sha256` are what a checkpoint says of it. Of a log that was cut, changed or lost the
    lines that can be read are kept.
    """
    content = path.read_bytes()[:keep] if path.is_file() else b""
    whole = len(content) == keep and (keep == 0 or content.endswith(b"\n"))
    if whole and sha256 in (None, hashlib.sha256(content).hexdigest()):
        return keep, None
    write_text(path, "".join(_readable(content)))
    found = "missing" if not content else "not as the checkpoint knows it: it was cut or changed"
    why = f"{path} is {found}; the weights are not affected, but lines logged before this step"
    return path.stat().st_size, f"{why} may be missing or wrong in it and in reports"


def _readable(content: bytes) -> list[str]:
    """The lines that are JSON objects of a step."""
    found = []
    for line in content.split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            found.append(json.dumps(row) + "\n")
    return found
