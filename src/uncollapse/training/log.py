"""`metrics.jsonl` and, when installed, TensorBoard."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TextIO

from uncollapse.training.config import Config
from uncollapse.training.run import Run

__all__ = ["Log"]


class Log:
    """The lines of a run. Opening drops what is past the offset; without a run nothing is written.

    One rank writes; the others have a log without a run.
    """

    def __init__(self, run: Run | None, config: Config, offset: int) -> None:
        self._file: TextIO | None = None
        self._board: Any = None
        if run is None:
            return
        # Lines after the checkpoint will be written again; one may be cut short by a crash.
        with run.metrics_file.open("ab") as file:
            os.truncate(file.fileno(), min(offset, file.tell()))
        self._file = run.metrics_file.open("a", encoding="utf-8")
        if config.train.tensorboard == "auto":
            self._board = _tensorboard(run)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """One line, flushed."""
        if not values or self._file is None:
            return
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)

    def offset(self) -> int:
        """Length of the file now, on disk."""
        if self._file is None:
            return 0
        os.fsync(self._file.fileno())
        return self._file.tell()


def _tensorboard(run: Run) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(run.path / "tensorboard")
