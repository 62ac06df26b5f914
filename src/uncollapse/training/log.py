"""`metrics.jsonl` and, when installed, TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uncollapse._base.files import append_lines
from uncollapse.training.config import Config
from uncollapse.training.run import Run

__all__ = ["Log"]


class Log:
    """The lines of a run. Opening drops what is past the offset; without a run nothing is written.

    One rank writes; the others have a log without a run.
    """

    def __init__(self, run: Run | None, config: Config, offset: int) -> None:
        self._lines: append_lines | None = None
        self._board: Any = None
        if run is None:
            return
        # Lines after the checkpoint will be written again; one may be cut short by a crash.
        self._lines = append_lines(run.metrics_file, keep=offset)
        if config.train.tensorboard == "auto":
            self._board = _tensorboard(run)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is not None:
            self._lines.close()
        if self._board is not None:
            self._board.close()

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """One line, flushed."""
        if not values or self._lines is None:
            return
        self._lines.write({"step": step, **values})
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)

    def offset(self) -> int:
        """Length of the file now, on disk."""
        return 0 if self._lines is None else self._lines.offset()


def _tensorboard(run: Run) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(run.path / "tensorboard")
