"""`metrics.jsonl`, and the loggers that a config names."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uncollapse._base.files import DamagedFileError, append_lines, read_json, write_json, write_text
from uncollapse.health.loggers import Logger, open_logger
from uncollapse.training.checkpoint import config_values
from uncollapse.training.config import Config
from uncollapse.training.run import Run

__all__ = ["Elsewhere", "Log", "Watch", "repair_log"]


# The loggers of a run: those its config names, in the same place again after a resume.

_PLACES = "loggers.json"  # which run of each service a run folder belongs to


class Elsewhere:
    """Writes lines of the log elsewhere. The run folder has them all: a logger may fail.

    One that does is warned of and left out from then on.
    """

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self.loggers = list(loggers)

    @classmethod
    def of(cls, run: Run, config: Config) -> Elsewhere:
        """Those of the config; a package that is missing is an error where it was named."""
        names = list(dict.fromkeys(config.train.loggers))
        if config.train.tensorboard == "auto" and find_spec("tensorboard"):
            names = list(dict.fromkeys(["tensorboard", *names]))
        if not names:
            return cls([])
        file = run.path / _PLACES
        try:
            places = read_json(file) if file.is_file() else {}
        except DamagedFileError:
            places = {}
        found = {name: open_logger(name, run.path, run_id=places.get(name)) for name in names}
        ids = {name: one.run_id for name, one in found.items() if one.run_id is not None}
        if ids:
            write_json(file, {**places, **ids})
        self = cls(list(found.values()))
        self._each(lambda one: one.log_config(config_values(config)))
        return self

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """The numbers of a line, and what happened."""
        numbers = {k: float(v) for k, v in values.items() if isinstance(v, int | float)}
        words = {
            k: v for k, v in values.items() if k in ("event", "verdict") and isinstance(v, str)
        }
        if numbers:
            self._each(lambda one: one.log(numbers, step))
        for name, text in words.items():
            self._each(lambda one, name=name, text=text: one.note(name, text, step))  # type: ignore[misc]

    def close(self) -> None:
        """Nothing follows."""
        self._each(lambda one: one.close())

    def _each(self, do: Callable[[Logger], None]) -> None:
        for one in list(self.loggers):
            try:
                do(one)
            except Exception as error:  # of a network, a disk, a service
                self.loggers.remove(one)
                why = f"{type(one).__name__} has failed and is left out from now on: {error}"
                warnings.warn(why, UserWarning, stacklevel=2)


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
