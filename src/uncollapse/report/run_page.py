"""The page of one run, or of several side by side: verdicts, curves, maps, neighbours, config."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError
from uncollapse._base.table import percent
from uncollapse.charts import Chart, Event, Series, curves, scatter
from uncollapse.health import Health
from uncollapse.health.race import Race
from uncollapse.report.diagnosis_page import (
    class_figures,
    class_table,
    distance_chart,
    verdict_content,
)
from uncollapse.report.neighbours import Neighbourhood, sheet_picture, word_lists
from uncollapse.report.page import (
    Cell,
    Page,
    Table,
    shown,
    verdict_cell,
    verdict_text,
)
from uncollapse.report.projection import project, projection_name
from uncollapse.report.race_charts import race_chart, race_table
from uncollapse.training import Config, NotMeasuredError, Run
from uncollapse.training.measures import Samples, SplitFacts, SplitRows, name_labels
from uncollapse.training.run import ends_below, find_damage, start_scores

__all__ = [
    "Curve",
    "History",
    "RunView",
    "Snapshot",
    "curve_charts",
    "event_table",
    "key_name",
    "key_order",
    "make_run_page",
    "numbered_events",
    "read_history",
    "run_content",
    "run_figures",
    "run_report",
    "take_snapshot",
    "view_runs",
    "write_report",
]


# What a run logged: curves by name, verdicts over time, and the events on the way.

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
_GROUPS = {"fine": "fine labels", "verification": "pairs"}


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
    numbers = [race.rows, race.spent, *(score.steps for score in race.scores)]
    names = [race.chosen, *(score.strategy for score in race.scores)]
    sound = (
        all(isinstance(name, str) for name in names)
        and all(_in(value, _LARGEST) for value in numbers)
        and all(_in(score.recall, 1.0) for score in race.scores)
        and race.chosen in names[1:]
    )
    return race if sound else None


def _in(value: object, high: float) -> bool:
    """Whether it is a number from 0 to `high`."""
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value <= high


# Curves of one or several runs as charts, with their events numbered and listed.

_SHARES = (
    "recall@",
    "precision@",
    "map@r",
    "mAP",
    "mINP",
    "nmi",
    "agreement",
    "within_share",
    "mrr",
    "accuracy",
    "fold_accuracy",
    "auc",
    "eer",
    "tar@",
)
_HIDDEN = ("verdict", "fold_standard_error")
_FLAGS = 40  # events that are marked in the curves; the list holds all


def numbered_events(histories: Sequence[History]) -> list[list[Event]]:
    """The events of each run, numbered through all of them."""
    number, found = 0, []
    for history in histories:
        events = []
        for step, text in history.events:
            number += 1
            events.append(Event(step, str(number), text))
        found.append(events)
    return found


def curve_charts(named: Mapping[str, History], events: Sequence[Sequence[Event]]) -> list[Chart]:
    """One run: a chart for each metric, its k's together. Several: a chart for each key."""
    marked = [event for part in events for event in part][:_FLAGS]
    keys = sorted({key for one in named.values() for key in one.curves}, key=key_order)
    keys = [
        key
        for key in keys
        if key.rpartition("/")[2] not in _HIDDEN and not _constant_rate(key, named)
    ]
    charts = []
    if len(named) == 1:
        history = next(iter(named.values()))
        for stem, members in _families(keys).items():
            series = [history.curves[key].series(key_name(key).split(",")[0]) for key in members]
            title = key_name(stem) if len(members) == 1 else _family_name(stem)
            charts.append(curves(title, series, events=marked, percent=_is_share(stem)))
    else:
        for members in _families(keys).values():
            key = members[0]  # of several k only the first: runs are what is compared
            # A run without this key keeps its place, so that each has one colour on the page.
            series = [one.curves.get(key, Curve()).series(name) for name, one in named.items()]
            charts.append(curves(key_name(key), series, events=marked, percent=_is_share(key)))
    return charts


def event_table(named: Mapping[str, History], events: Sequence[Sequence[Event]]) -> Table | None:
    """What the numbers in the curves stand for; None without events."""
    several = len(named) > 1
    rows = [
        [event.flag, *[name] * several, int(event.x), event.text]
        for name, part in zip(named, events, strict=True)
        for event in part
    ]
    if not rows:
        return None
    head = ["mark", *["run"] * several, "step", "what happened"]
    return Table(head, rows, title="Events marked in the curves", first=15)


def _families(keys: Sequence[str]) -> dict[str, list[str]]:
    """Keys that differ only in their k, by what they share; each family in the order of k."""
    found: dict[str, list[str]] = {}
    for key in keys:
        stem, at, k = key.rpartition("@")
        numbered = k.replace(".", "", 1).isdigit()  # of recall@10, tar@0.01
        found.setdefault(stem + at if at and numbered else key, []).append(key)
    for stem, members in found.items():
        if stem.endswith("@"):
            members.sort(key=lambda key: float(key.rpartition("@")[2]))
    return found


def _family_name(stem: str) -> str:
    return key_name(stem.replace("recall@", "recall@k").replace("precision@", "precision@k"))


def _constant_rate(key: str, named: Mapping[str, History]) -> bool:
    """A learning rate that never changes: the config says it."""
    if key != "lr":
        return False
    return all(len(set(one.curves[key].values)) < 2 for one in named.values() if key in one.curves)


def _is_share(key: str) -> bool:
    metric = key.rpartition("/")[2]
    return any(metric.startswith(word) for word in _SHARES)


# A split of a run before and after training, as it was measured: read from the run's folder.


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The rows of a split that were measured, with their embeddings `before` and `after` training.

    `health` is that of the trained embedding at `step`, with the untrained one as the reference,
    `start` that of the untrained one; `facts` say what the split is. `samples` are None where the
    embedding is not finite. `modes` is the mode drift of the run's loss on training batches, before
    and after; None where not measured.
    """

    split: str
    facts: SplitFacts
    step: int
    rows: SplitRows
    before: Tensor
    after: Tensor
    health: Health
    start: Health
    samples: Samples | None
    modes: tuple[float | None, float | None] = (None, None)

    @property
    def labels(self) -> Array:
        """Names of the classes, one a row."""
        return name_labels(self.rows.labels, self.facts.class_names)

    @property
    def fine_labels(self) -> Array | None:
        """Names of the fine classes, one a row."""
        fine = self.rows.fine_labels
        return None if fine is None else name_labels(fine, self.facts.fine_names)

    @property
    def finest(self) -> Array:
        """The finest labels there are."""
        fine = self.fine_labels
        return self.labels if fine is None else fine

    @property
    def finite(self) -> bool:
        """Whether there is something to draw."""
        return math.isfinite(self.health.diameter)

    @property
    def sampled(self) -> str:
        """How much of the split was looked at, in words."""
        if self.facts.rows == self.facts.total:
            return f"all {self.facts.total:,} samples of {self.split}"
        return f"{self.facts.rows:,} of {self.facts.total:,} samples of {self.split}"

    @property
    def neighbours(self) -> Neighbourhood | None:
        """The queries and their nearest rows, judged by the finest labels."""
        if self.samples is None:
            return None
        found = Neighbourhood(self.samples.queries.numpy(), self.samples.neighbours.numpy())
        return found.by(self.finest)

    @property
    def pictures(self) -> Mapping[int, Tensor] | None:
        """The pictures of queries and neighbours, by row; None where samples are no pictures."""
        if self.samples is None or self.samples.pixels is None:
            return None
        return dict(zip(self.samples.shown.tolist(), self.samples.pixels, strict=True))

    @property
    def texts(self) -> Mapping[int, str] | None:
        """The texts of queries and neighbours, by row; None where samples are no texts."""
        return None if self.samples is None else self.samples.texts_by_place()


def take_snapshot(run: Run, split: str) -> Snapshot | str:
    """What was measured on a split; a sentence that says why where nothing was."""
    try:
        measures = run.measures()
        if measures.after is None:
            raise NotMeasuredError(run.path, "measures after training: it has not ended")
        if split not in measures.splits:
            raise NotMeasuredError(run.path, f"measures of the split {split!r}")
        before, after = run.rows("before", split), run.rows("after", split)
        health = measures.after.splits[split].health
        samples = run.samples(split) if math.isfinite(health.diameter) else None
    except (NotMeasuredError, DamagedFileError) as error:
        return f"Nothing is known of the embeddings of {split}: {error}."
    return Snapshot(
        split,
        measures.splits[split],
        measures.after.step,
        after,
        before.embeddings,
        after.embeddings,
        health,
        measures.before.splits[split].health,
        samples,
        (measures.before.batches.modes, measures.after.batches.modes),
    )


# A run as a report sees it: what was logged and what was measured, each read once.


@dataclass(frozen=True, eq=False)
class RunView:
    """A run, with what is read from it only once."""

    name: str
    run: Run

    @property
    def split(self) -> str:
        """What is looked at: the first evaluation split; the training one where there is none."""
        data = self.run.config.data
        return next(iter(data.eval_splits), data.train_split)

    @property
    def history(self) -> History:
        """What was logged, as far as it can be read."""
        return self._logged[0]

    @cached_property
    def snapshot(self) -> Snapshot | str:
        """The split as it was measured before and after training, or why it was not."""
        return take_snapshot(self.run, self.split)

    @property
    def health(self) -> Health | None:
        """Of the trained embedding, if there is one."""
        return self.snapshot.health if isinstance(self.snapshot, Snapshot) else None

    @property
    def verdict(self) -> str | None:
        """Of the trained embedding; where it was not measured, the last one logged."""
        return self.history.verdict if self.health is None else self.health.verdict

    @property
    def recall(self) -> float | None:
        """Recall at the smallest k, as last logged."""
        return self.history.last(f"{self.split}/recall@{min(self.run.config.evaluate.ks)}")

    @cached_property
    def start_scores(self) -> Mapping[str, float]:
        """Scores of the network before training, by `split/name`."""
        return start_scores(self.run)

    @property
    def ends_below(self) -> list[str]:
        """A sentence for each R@1 that is below that of the network before training."""
        last = {key: self.history.last(key) for key in self.start_scores}
        return ends_below(self.start_scores, {k: v for k, v in last.items() if v is not None})

    @cached_property
    def warnings(self) -> list[str]:
        """A sentence for each file that is not as the run left it."""
        found = [*find_damage(self.run), *self._logged[1]]
        if not self.summary:
            found += self._saved[1]
        return list(dict.fromkeys(found))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """How it ended; empty where that is not known."""
        try:
            return self.run.summary
        except DamagedFileError:  # among the warnings
            return {}

    @property
    def status(self) -> str:
        """How far it came, in words."""
        if self.summary:
            return f"{self.summary['status']} at step {self.summary['step']:,}"
        step, _ = self._saved
        return "not ended" if step is None else f"not ended, saved at step {step:,}"

    @cached_property
    def _logged(self) -> tuple[History, list[str]]:
        complaints: list[str] = []
        return read_history(self.run, complaints), complaints

    @cached_property
    def _saved(self) -> tuple[int | None, list[str]]:
        """The newest checkpoint that is whole, and what is wrong with newer ones."""
        complaints: list[str] = []
        for step in reversed(self.run.checkpoints.steps()):
            complaint = self.run.checkpoints.complaint(step)
            if complaint is None:
                return step, complaints
            complaints.append(complaint)
        return None, complaints


def view_runs(runs: Sequence[Run | str | Path]) -> list[RunView]:
    """Open the runs; one that is named twice is taken once."""
    found = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    opened = list({run.path.resolve(): run for run in found}.values())
    if not opened:
        raise InputError("runs", "none", "at least one run directory")
    names = _names(opened)
    return [RunView(name, run) for name, run in zip(names, opened, strict=True)]


def _names(runs: list[Run]) -> list[str]:
    """Directory names, with the folder above where two are alike."""
    short = [run.path.resolve().name for run in runs]
    if len(set(short)) == len(short):
        return short
    long = ["/".join(run.path.resolve().parts[-2:]) for run in runs]
    return long if len(set(long)) == len(long) else [str(run.path) for run in runs]


_FOLDS = "verification accuracy"
_PAIRS = {
    _FOLDS: "fold_accuracy",
    "best verification accuracy": "accuracy",
    "EER": "eer",
    "TAR at FAR 1e-2": "tar@0.01",
    "TAR at FAR 1e-3": "tar@0.001",
}


def make_run_page(views: Sequence[RunView]) -> Page:
    """The page, to render, to add to or to save."""
    return Page("run.html.j2", run_content(views))


def run_content(views: Sequence[RunView]) -> dict[str, Any]:
    """What the template shows; `several` tells a page that compares runs from that of one."""
    first, several = views[0], len(views) > 1
    data = ", ".join(dict.fromkeys(view.run.config.data.name for view in views))
    histories = {view.name: view.history for view in views}
    events = numbered_events(list(histories.values()))
    configs = {view.name: view.run.config for view in views}
    return {
        "title": f"{len(views)} runs" if several else f"Run {first.name}",
        "lead": data if several else f"{data}; {first.status}",
        "several": several,
        "warnings": _warnings(views),
        "verdict": _verdicts(views) if several else _verdict(first),
        "below": [f"{v.name}: {s}" if several else s for v in views for s in v.ends_below],
        "skipped": [line for view in views for line in _skipped(view, several)],
        "curves": curve_charts(histories, events),
        "events": event_table(histories, events),
        "races": [shown for view in views for shown in _races(view, several)],
        "maps": [_maps(view) for view in views],
        "classes": [_classes(view, several) for view in views if _drawable(view)],
        "neighbours": _neighbours(views),
        "config": config_differences(configs) if several else config_content(first.run.config),
        "made": _made(views),
        "made_pairs": {} if several else _made_pairs(first),
    }


def run_figures(view: RunView) -> dict[str, object]:
    """The few numbers that say how a run went, by name; only those that are known."""
    figures: dict[str, object] = {}
    k = min(view.run.config.evaluate.ks)
    scores = {f"recall@{k}": f"R@{k}", f"fine/recall@{k}": f"R@{k} by fine labels"}
    for key, name in (scores | {"mAP": "mAP", "mINP": "mINP"}).items():  # the last of re-ID
        value, start = view.history.last(f"{view.split}/{key}"), f"{view.split}/{key}"
        if value is None:
            continue
        figures[f"{name} on {view.split}"] = percent(value)
        if start in view.start_scores:
            figures[f"{name} on {view.split}, before training"] = percent(view.start_scores[start])
    figures |= _pair_figures(view)
    health = view.health
    if health is None:
        return figures
    figures["diameter"] = health.diameter
    if health.relative_diameter is not None:
        figures["diameter, of its start"] = percent(health.relative_diameter)
    figures |= class_figures(health)
    modes = view.snapshot.modes if isinstance(view.snapshot, Snapshot) else ()
    for name, rate in zip(("start", "end"), modes, strict=False):
        if rate is not None:
            figures[f"mode drift at the {name}"] = f"{rate:+.2f}"
    return figures


def _pair_figures(view: RunView) -> dict[str, object]:
    """Of pairs that were verified: accuracy with its standard error, EER, TAR at FAR."""
    last = view.history.last
    of = f"{view.split}/verification"
    known = {name: last(f"{of}/{key}") for name, key in _PAIRS.items()}
    figures: dict[str, object] = {k: percent(v) for k, v in known.items() if v is not None}
    error = last(f"{of}/fold_standard_error")
    if error is not None and _FOLDS in figures:
        figures[_FOLDS] = f"{figures[_FOLDS]} ± {100 * error:.1f}"
    return {f"{name} on {view.split}": value for name, value in figures.items()}


def _warnings(views: Sequence[RunView]) -> list[str]:
    several = len(views) > 1
    return [f"{v.name}: {text}" if several else text for v in views for text in v.warnings]


def _verdict(view: RunView) -> dict[str, Any]:
    found = view.snapshot
    if isinstance(found, Snapshot):
        judged = verdict_content(found.health, view.run.measures().settings)
        figures = {"figures": run_figures(view), "step": f"{found.step:,}"}
        return judged | figures | {"sampled": found.sampled, "missing": ""}
    text = verdict_text(view.verdict)._asdict()
    return text | {"missing": found, "logged": view.verdict is not None}


def _verdicts(views: Sequence[RunView]) -> dict[str, Any]:
    healthy = sum(view.verdict == "healthy" for view in views)
    tone = "good" if healthy == len(views) else "bad" if healthy == 0 else "warn"
    figures = [run_figures(view) for view in views]
    names = list(dict.fromkeys(name for one in figures for name in one))
    # A column per run: pages have room for few runs and many figures, not the other way round.
    rows: list[list[object]] = [
        ["verdict", *(verdict_cell(view.verdict) for view in views)],
        ["why", *(v.health.reasons[0] if v.health else str(v.snapshot) for v in views)],
        ["status", *(view.status for view in views)],
        *([name, *(shown(one.get(name)) for one in figures)] for name in names),
    ]
    return {
        "headline": f"{healthy} of {len(views)} runs healthy",
        "tone": tone,
        "glyph": "✓" if tone == "good" else "✗",
        "table": Table(["", *(view.name for view in views)], rows),
    }


def _skipped(view: RunView, several: bool) -> list[str]:
    """What was left out of each split, as the run's summary has it."""
    lines = []
    for split, kinds in view.summary.get("skipped", {}).items():
        said = []
        for kind, found in kinds.items():
            more = ", ..." if found["count"] > len(found["first"]) else ""
            said.append(f"{found['count']:,} {kind} ({', '.join(found['first'])}{more})")
        of = f"{view.name}, {split}" if several else split
        lines.append(f"Left out of {of}: {'; '.join(said)}.")
    return lines


def _races(view: RunView, several: bool) -> list[dict[str, Any]]:
    """The races of a run's rescues: a chart and a table for each."""
    of = f"{view.name}: race" if several else "Race"
    return [
        {
            "chart": race_chart(race, f"{of} at step {step:,}"),
            "table": race_table(race),
            "chosen": race.chosen,
        }
        for step, race in view.history.races
    ]


def _drawable(view: RunView) -> bool:
    return isinstance(view.snapshot, Snapshot) and view.snapshot.finite


def _maps(view: RunView) -> dict[str, Any]:
    found = view.snapshot
    if isinstance(found, str) or not found.finite:
        missing = found if isinstance(found, str) else "The embedding is not finite."
        return {"name": view.name, "charts": [], "missing": missing}
    small = projection_name(found.after.shape[1])
    both = {"Before": found.before, "After": found.after}
    charts = [scatter(title, project(z), found.finest, note=small) for title, z in both.items()]
    return {"name": view.name, "charts": charts, "missing": ""}


def _classes(view: RunView, several: bool) -> dict[str, Any]:
    assert view.health is not None  # drawable
    name = f"{view.name}: d" if several else "D"
    return {
        "title": f"{name}iameters of the classes",
        "chart": distance_chart(view.health, f"{name}istances after training"),
        "table": class_table(view.health, first=8),
    }


def _neighbours(views: Sequence[RunView]) -> dict[str, Any]:
    sheets, lists, missing = [], [], []
    for view in views:
        found = view.snapshot
        if not isinstance(found, Snapshot) or not found.finite:
            missing.append(f"{view.name}: no embedding to search in.")
            continue
        kind = "label" if found.fine_labels is None else "fine label"
        named = {"kind": kind, "title": view.name if len(views) > 1 else ""}
        if found.neighbours is not None and found.pictures is not None:
            sheets.append(sheet_picture(found.neighbours, found.pictures, **named))
        elif found.neighbours is not None and found.texts is not None:
            lists.append(word_lists(found.neighbours, found.texts, found.finest, **named))
        else:
            missing.append(f"{view.name}: the samples of {found.facts.data} are not pictures.")
    return {"sheets": sheets, "lists": lists, "missing": missing, "judged": True}


def _made(views: Sequence[RunView]) -> Table:
    rows = []
    for view in views:
        path = Cell(view.run.path, style="code")
        rows.append([view.name, path, view.run.config.seed, _versions(view)])
    return Table(["run", "directory", "seed", "versions"], rows)


def _made_pairs(view: RunView) -> dict[str, str]:
    made = {"directory": str(view.run.path), "seed": str(view.run.config.seed)}
    return made | {"versions": _versions(view)}


def _versions(view: RunView) -> str:
    versions = view.summary.get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "–"


# The report of one run, or of several side by side: one page from their run directories.


def run_report(
    runs: Sequence[Run | str | Path],
    path: str | Path,
    *,
    warn: Callable[[str], None] | None = None,
) -> Path:
    """Write one page about the runs: verdicts, curves, config, maps before and after, pictures.

    Everything is read from the run directories; neither dataset nor network is needed. Verdicts,
    maps and pictures are of each run's first evaluation split as it was measured; where it was not,
    a sentence says so. Files that are not as the run left them are named on the page, and each is
    told to `warn`.
    """
    views = view_runs(runs)
    written = make_run_page(views).save(path)
    for text in (text for view in views for text in view.warnings):
        if warn is not None:
            warn(text)
    return written


def write_report(run: Run | str | Path, *, warn: Callable[[str], None] | None = None) -> Path:
    """Write `report.html` into a run's own directory."""
    found = run if isinstance(run, Run) else Run.open(run)
    return run_report([found], found.path / "report.html", warn=warn)


# Configs in a report: all keys of one, or where several differ.


def config_content(config: Config) -> dict[str, dict[str, str]]:
    """Keys and values: those `changed` from the defaults, and `every` one."""
    own = _set_keys(Config(loss=type(config.loss)()))  # of this loss
    values, usual = _set_keys(config), own | {"loss.name": Config().loss.name}
    every = {key: _text(value) for key, value in values.items()}
    changed = {key: text for key, text in every.items() if usual.get(key) != values[key]}
    return {"changed": changed, "every": every}


def config_differences(configs: Mapping[str, Config]) -> dict[str, Any]:
    """`differences`: a column per run, a row per key in which they differ; and the `same` keys."""
    values = {name: _set_keys(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for one in values.values() for key in one)
    rows = {key: [_text(one.get(key)) for one in values.values()] for key in keys}
    differ = [[key, *row] for key, row in rows.items() if len(set(row)) > 1]
    return {
        "differences": Table(["key", *values], differ) if differ else None,
        "same": {key: row[0] for key, row in rows.items() if len(set(row)) == 1},
    }


def _set_keys(config: Config) -> dict[str, Any]:
    return {key: value for key, value in config.flat().items() if value is not None}


def _text(value: object) -> str:
    return "–" if value is None else str(value)
