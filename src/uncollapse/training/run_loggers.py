"""The loggers of a run: those its config names, in the same place again after a resume."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from uncollapse._base.files import DamagedFileError, read_json, write_json
from uncollapse.health.loggers import Logger, open_logger
from uncollapse.training.config import Config
from uncollapse.training.identity import config_values
from uncollapse.training.run import Run

__all__ = ["Elsewhere"]

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
