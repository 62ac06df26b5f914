"""What a run logged: curves by name, verdicts over time, and the events on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from uncollapse._base.files import DamagedFileError
from uncollapse.charts import Series
from uncollapse.health.race import Race
from uncollapse.training import Run

__all__ = ["Curve", "History", "key_name", "key_order", "read_history"]

# What is shown first; a key is placed by the first of these words found in it.
_ORDER = (
    "loss",
    "relative_diameter",
    "diameter",
    "ratio",
    "tightness",
    "modes",
    "recall@",
    "map@r",
    "mAP",
    "mINP",
)
_NAMES = {
    "loss": "Loss",
    "diameter": "Diameter",
    "relative_diameter": "Diameter, of its start",
    "class_diameter": "Class diameter",
    "lr": "Learning rate",
    "effective_rank": "Effective rank",
    "modes_per_class": "Modes per class",
    "tightness": "Class tightness",
    "within_share": "Variance inside classes",
    "hard_mined_loss": "Hard-mined loss",
    "map@r": "MAP@R",
    "mAP": "mAP",
    "mINP": "mINP",
    "nmi": "NMI",
    "nc1": "NC1",
    "cdnv": "CDNV",
    "auc": "AUC",
    "eer": "EER",
    "fold_accuracy": "Accuracy over folds",
    "tar@": "TAR at FAR",
}

_LARGEST = 1e12  # number of steps or rows
_GROUPS = {"fine": "fine labels", "share": "share of identities", "verification": "pairs"}


@dataclass
class Curve:
    """Values of one key over the steps."""

    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def series(self, name: str) -> Series:
        """The curve as a line of a chart."""
        return Series(name, self.steps, self.values)


@dataclass(frozen=True)
class History:
    """`events` are (step, text), with each change of the logged verdict among them.

    `races` are those of strategies, with the step at which the guard ran them.
    """

    curves: dict[str, Curve]
    events: Sequence[tuple[int, str]]
    verdict: str | None = None
    races: Sequence[tuple[int, Race]] = ()

    def last(self, key: str) -> float | None:
        """The last finite value of a key."""
        found = self.curves.get(key)
        values = [v for v in found.values if math.isfinite(v)] if found else []
        return values[-1] if values else None


def read_history(run: Run, complaints: list[str] | None = None) -> History:
    """Read `metrics.jsonl`: numbers become curves; `event` and `verdict` strings become events.

    A damaged line or race raises `DamagedFileError`; with `complaints` it is left out, and said
    there.
    """
    curves: dict[str, Curve] = {}
    events: list[tuple[int, str]] = []
    races: list[tuple[int, Race]] = []
    verdict: str | None = None

    def complain(why: str) -> None:
        error = DamagedFileError(run.metrics_file, why)
        if complaints is None:
            raise error
        complaints.append(str(error))

    for line in run.metrics(complaints):
        step = line.get("step", 0)
        if not isinstance(step, int):
            complain(f"a line of step {step!r}")
            continue
        for key, value in line.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and key != "step":
                curve = curves.setdefault(key, Curve())
                curve.steps.append(step)
                curve.values.append(float(value))
        if isinstance(line.get("event"), str):
            events.append((step, line["event"]))
        if "race" in line:
            race = _race(line["race"])
            if race is None:
                complain(f"the race of step {step} cannot be read")
            else:
                races.append((step, race))
        now = line.get("verdict")
        if isinstance(now, str):
            if now != verdict and (verdict is not None or now != "healthy"):
                events.append(
                    (step, f"verdict: {verdict} → {now}" if verdict else f"verdict: {now}")
                )
            verdict = now
    return History(curves, events, verdict, races)


def key_name(key: str) -> str:
    """A logged key as a person would say it.

    >>> key_name("test/fine/recall@1"), key_name("train/map@r"), key_name("my_thing")
    ('R@1, fine labels, test', 'MAP@R, train', 'My thing')
    >>> key_name("test/verification/tar@0.01")
    'TAR@0.01, pairs, test'
    """
    *groups, metric = key.split("/")
    name = metric.replace("recall@", "R@").replace("tar@", "TAR@").replace("_", " ")
    name = _NAMES.get(metric, name)
    name = name if "@" in name else name[:1].upper() + name[1:]
    said = [_GROUPS.get(group, group) for group in reversed(groups)]
    return ", ".join([name, *said])


def key_order(key: str) -> tuple[int, str]:
    """Where a key stands among the curves: what tells of collapse first.

    >>> sorted(["test/recall@1", "lr", "diameter", "loss"], key=key_order)
    ['loss', 'diameter', 'test/recall@1', 'lr']
    """
    metric = key.rpartition("/")[2]
    place = next((i for i, word in enumerate(_ORDER) if word in metric), len(_ORDER))
    return place + (metric == "lr"), key


def _race(value: object) -> Race | None:
    """A race as it was logged; None for what is none."""
    try:
        race = Race.from_dict(value)  # type: ignore[arg-type]
    except (TypeError, KeyError, AttributeError):
        return None
    numbers = [race.rows, race.spent, *(lap.steps for lap in race.laps)]
    names = [race.chosen, *(lap.strategy for lap in race.laps)]
    sound = (
        all(isinstance(name, str) for name in names)
        and all(_in(value, _LARGEST) for value in numbers)
        and all(_in(lap.recall, 1.0) for lap in race.laps)
        and race.chosen in names[1:]
    )
    return race if sound else None


def _in(value: object, high: float) -> bool:
    """Whether it is a number from 0 to `high`."""
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value <= high
