"""`metrics.jsonl`, and the loggers that a config names."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from uncollapse._base import files
from uncollapse._base.files import write_text
from uncollapse.health import Logger
from uncollapse.integrations.loggers import open_logger
from uncollapse.training.config import Config
from uncollapse.training.manifest import Manifest


class Log:
    """The log of a run. Opening it drops what is past the offset; without a path it writes nothing.

    One rank writes; the others have a log without a path. The loggers of the config get each line
    written. A logger that fails is reported and left out from then on.
    """

    def __init__(self, path: Path | None, config: Config, offset: int) -> None:
        self._file: TextIO | None = None
        self.loggers: list[Logger] = []
        if path is None:
            return
        # Lines after the checkpoint will be written again; one may be cut short by a crash.
        self._file = files.open_log(path, keep=offset)
        self.loggers = _open_loggers(path.parent, config)
        self._tell(lambda logger: logger.log_config(config.flat()))

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        self._tell(lambda logger: logger.close())

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One line, flushed."""
        if not values or self._file is None:
            return
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        numbers = {k: float(v) for k, v in values.items() if isinstance(v, int | float)}
        texts = {k: v for k in ("event", "verdict") if isinstance(v := values.get(k), str)}
        if numbers:
            self._tell(lambda logger: logger.log(numbers, step))
        for name, text in texts.items():
            self._tell(lambda logger, name=name, text=text: logger.note(name, text, step))  # type: ignore[misc]

    def offset(self) -> int:
        """Length of the file now, on disk."""
        if self._file is None:
            return 0
        os.fsync(self._file.fileno())
        return self._file.tell()

    def _tell(self, do: Callable[[Logger], None]) -> None:
        for logger in list(self.loggers):
            try:
                do(logger)
            except Exception as error:  # of a network, a disk, a service
                self.loggers.remove(logger)
                why = f"{type(logger).__name__} has failed and is left out from now on: {error}"
                warnings.warn(why, UserWarning, stacklevel=2)


def _open_loggers(folder: Path, config: Config) -> list[Logger]:
    """The loggers of the config; a missing package is an error.

    `loggers.json` says which run of each service the folder belongs to.
    """
    names = dict.fromkeys(config.train.loggers)
    file = folder / "loggers.json"
    try:
        known = files.read_json(file) if file.is_file() else {}
    except files.DamagedFileError:
        known = {}
    loggers = {name: open_logger(name, folder, run_id=known.get(name)) for name in names}
    ids = {name: logger.run_id for name, logger in loggers.items() if logger.run_id is not None}
    if ids:
        files.write_json(file, {**known, **ids})
    return list(loggers.values())


def repair_log(path: Path, keep: int, manifest: Manifest) -> tuple[int, str | None]:
    """Prepare a log for resuming: how many bytes of it to keep, and what was wrong with it.

    `keep` is its length at the checkpoint. Of a log that was cut, changed or lost, the lines that
    can be read are kept.
    """
    content = path.read_bytes()[:keep] if path.is_file() else b""
    whole = len(content) == keep and (keep == 0 or content.endswith(b"\n"))
    if whole and manifest.log_damage(path) is None:
        return keep, None
    files.open_log(path, keep=keep).close()
    rows = [row for row in files.read_jsonl(path, []) if isinstance(row.get("step"), int)]
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
    state = "missing" if not content else "not as the checkpoint knows it: it was cut or changed"
    why = f"{path} is {state}; the weights are not affected, but lines logged before this step"
    return path.stat().st_size, f"{why} may be missing or wrong in it and in reports"
