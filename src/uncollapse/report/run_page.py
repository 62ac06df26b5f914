"""The page of one run, or of several side by side: verdicts, curves, maps, neighbours, config."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError
from uncollapse._base.table import Cell, Table, percent, shown
from uncollapse.charts import Chart, Event, Series, curves, scatter
from uncollapse.health.race import Race
from uncollapse.health.verdict import Health, Reference, Thresholds
from uncollapse.metrics.ranking import QUERIES
from uncollapse.report import parts
from uncollapse.report.diagnosis import Diagnosis, diagnose
from uncollapse.report.neighbours import Neighbourhood, sheet_picture, word_lists
from uncollapse.report.page import Page
from uncollapse.training import measures as files
from uncollapse.training.measures import Measures, Moment, NotMeasuredError, RunFolder, Samples


def run_report(
    runs: Sequence[RunFolder | str | Path],
    path: str | Path,
    *,
    warn: Callable[[str], None] | None = None,
) -> Path:
    """Write one page about the runs: verdicts, curves, config, maps before and after, pictures.

    Everything is read from the run directories; neither dataset nor network is needed. Verdicts,
    maps and pictures are of each run's first evaluation split as it was measured; where it was not,
    a sentence says so. Files that are not as the run left them are named on the page, and `warn`
    is called with each of these sentences.
    """
    views = view_runs(runs)
    written = Page("run.html.j2", run_content(views)).save(path)
    for text in (text for view in views for text in view.warnings):
        if warn is not None:
            warn(text)
    return written


def write_report(run: RunFolder | str | Path, *, warn: Callable[[str], None] | None = None) -> Path:
    """Write `report.html` into a run's own directory."""
    folder = run.path if isinstance(run, RunFolder) else Path(run)
    return run_report([run], folder / "report.html", warn=warn)


def diagnose_run(
    run: RunFolder | str | Path,
    *,
    reference: Health | Reference | float | None = None,
    tsne: bool = False,
    max_rows: int = QUERIES,
    thresholds: Thresholds | None = None,
) -> Diagnosis:
    """Diagnose the rows that a run was measured on, with the untrained network as the reference.

    Everything is read from the folder; neither dataset nor network is needed. The verdict is that
    of `train` and `report`. `reference` is a diameter to compare with instead. Raises
    `NotMeasuredError` where the run has not ended or was not measured, `DamagedFileError` for files
    that are not as the run left them.
    """
    run = run if isinstance(run, RunFolder) else RunFolder.open(run)
    measures, _ = _ended(run)
    split = measures.split
    rows, facts = run.rows("after", split), measures.splits[split]
    before = Reference.of(measures.before.splits[split].health)
    fine, named = rows.fine_labels, files.name_labels
    result = diagnose(
        rows.embeddings,
        named(rows.labels, facts.class_names),
        None if fine is None else named(fine, facts.fine_names),
        title=run.path.resolve().name,
        reference=before if reference is None else reference,
        before=run.rows("before", split).embeddings if reference is None else None,
        thresholds=thresholds,
        tsne=tsne,
        max_rows=max_rows,
        cosine=measures.settings.normalize is not False,
        settings=measures.settings,
    )
    size = measures.before.splits[split].health.diameter
    words = f"diameter {size:.3g} before training, of {facts.rows:,} rows of {split}"
    known = reference is None and 0 < size < math.inf
    return replace(result, split=split, compared_with=words if known else "")


def run_content(views: Sequence[RunView]) -> dict[str, Any]:
    """What the template shows; `several` tells a page that compares runs from that of one."""
    first, several = views[0], len(views) > 1
    data = ", ".join(dict.fromkeys(view.config["data.name"] for view in views))
    config = config_content(first.config, first.defaults)
    made = Table(["run", "directory", "seed", "versions"])
    for view in views:
        versions = view.summary.get("versions", {}).items()
        used = ", ".join(f"{name} {version}" for name, version in versions) or "–"
        made.add(view.name, Cell(view.run.path, style="code"), view.config["seed"], used)
    return {
        "title": f"{len(views)} runs" if several else f"Run {first.name}",
        "lead": data if several else f"{data}; {first.status}",
        "several": several,
        "warnings": [view.prefix + text for view in views for text in view.warnings],
        "verdict": _verdicts(views) if several else _verdict(first),
        "below": [view.prefix + text for view in views for text in view.ends_below],
        "skipped": [
            (view.titled(f"left out of {split}"), kinds)
            for view in views
            for split, kinds in view.summary.get("skipped", {}).items()
        ],
        **curve_content({view.name: view.history for view in views}),
        "races": [race for view in views for race in race_content(view.history, view.titled)],
        "maps": [_maps(view) for view in views],
        "classes": [_classes(view, view.health) for view in views if view.health and view.finite],
        "neighbours": _neighbours(views),
        "config": config_differences(views) if several else config,
        "made": made,
    }


# What a run logged: curves by name, verdicts over time, and the events on the way.


@dataclass(frozen=True)
class History:
    """`curves` are (step, value) by key; `events` (step, text), with each change of the verdict.

    `races` are those of strategies, with the step at which the guard ran them. `complaints` name
    lines that could not be read.
    """

    curves: Mapping[str, Sequence[tuple[int, float]]]
    events: Sequence[tuple[int, str]] = ()
    verdict: str | None = None
    races: Sequence[tuple[int, Race]] = ()
    complaints: Sequence[str] = ()

    def last(self, key: str) -> float | None:
        """The last finite value of a key."""
        values = [value for _, value in self.curves.get(key, ()) if math.isfinite(value)]
        return values[-1] if values else None


def read_history(run: RunFolder) -> History:
    """Read `metrics.jsonl`: numbers become curves; `event` and `verdict` strings become events."""
    curves: dict[str, list[tuple[int, float]]] = {}
    events: list[tuple[int, str]] = []
    races: list[tuple[int, Race]] = []
    complaints: list[str] = []
    verdict: str | None = None
    for line in run.metrics(complaints):
        step = line.get("step", 0)
        if not isinstance(step, int):
            complaints.append(str(DamagedFileError(run.metrics_file, f"a line of step {step!r}")))
            continue
        for key, value in line.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and key != "step":
                curves.setdefault(key, []).append((step, float(value)))
        if isinstance(line.get("event"), str):
            events.append((step, line["event"]))
        if "race" in line and (race := _race(line["race"])) is not None:
            races.append((step, race))
        elif "race" in line:
            why = f"the race of step {step} cannot be read"
            complaints.append(str(DamagedFileError(run.metrics_file, why)))
        now = line.get("verdict")
        if isinstance(now, str):
            if now != verdict and (verdict is not None or now != "healthy"):
                change = f"{verdict} → {now}" if verdict else now
                events.append((step, f"verdict: {change}"))
            verdict = now
    return History(curves, events, verdict, races, complaints)


def _race(value: object) -> Race | None:
    """A race as it was logged; None for what is none."""
    try:
        race = Race.from_dict(value)  # type: ignore[arg-type]
        shares = [score.recall for score in race.scores]
        sizes = [race.rows, race.spent, *(score.steps for score in race.scores)]
        known = all(
            type(size) in (int, float) and 0 <= size <= most
            for sizes_of, most in ((shares, 1.0), (sizes, 1e12))
            for size in sizes_of
        )
        names = [score.strategy for score in race.scores]
        return race if known and race.chosen in names and set(map(type, names)) == {str} else None
    except (TypeError, KeyError, AttributeError):
        return None


# Curves of one or several runs as charts, with their events numbered and listed.

# What is shown first; a key is placed by the first of these words found in it.
_ORDER = (
    *("loss", "relative_diameter", "diameter", "ratio", "tightness", "modes"),
    *("recall@", "map@r", "mAP", "mINP"),
)
_SHARES = (
    *("recall@", "precision@", "map@r", "mAP", "mINP", "mrr", "nmi", "agreement", "within_share"),
    *("accuracy", "fold_accuracy", "auc", "eer", "tar@"),
)
_NAMES = {
    "relative_diameter": "Diameter, of its start",
    "lr": "Learning rate",
    "tightness": "Class tightness",
    "within_share": "Variance inside classes",
    "hard_mined_loss": "Hard-mined loss",
    "map@r": "MAP@R",
    "mAP": "mAP",
    "mINP": "mINP",
    "fold_accuracy": "Accuracy over folds",
    "tar@": "TAR at FAR",
    **{name: name.upper() for name in ("nmi", "nc1", "cdnv", "auc", "eer")},
}
_GROUPS = {"fine": "fine labels", "verification": "pairs"}
_FLAGS = 40  # events that are marked in the curves; the list holds all


def curve_content(histories: Mapping[str, History]) -> dict[str, Any]:
    """`curves`, a list of charts, and `events`: what the numbers in them stand for.

    One run: a chart for each metric, its k's together. Several: a chart for each key.
    """
    several = len(histories) > 1
    rows: list[list[object]] = []
    events = []
    for name, history in histories.items():
        for step, text in history.events:
            events.append(Event(step, str(len(rows) + 1), text))
            rows.append([events[-1].flag, *[name] * several, step, text])
    charts = []
    for stem, keys in _families(histories).items():
        if several:  # of several k only the first: runs are what is compared
            title, lines = key_name(keys[0]), [(name, keys[0], name) for name in histories]
        else:
            stem = stem.replace("recall@", "recall@k").replace("precision@", "precision@k")
            title = key_name(keys[0] if len(keys) == 1 else stem)
            (run,) = histories
            lines = [(key_name(key).split(",")[0], key, run) for key in keys]
        # A run without this key keeps its place, so that each has one colour on the page.
        drawn = ((name, histories[run].curves.get(key, ())) for name, key, run in lines)
        series = [Series(name, [x for x, _ in line], [y for _, y in line]) for name, line in drawn]
        is_share = stem.rpartition("/")[2].startswith(_SHARES)
        charts.append(curves(title, series, events=events[:_FLAGS], percent=is_share))
    head = ["mark", *["run"] * several, "step", "what happened"]
    table = Table(head, rows, title="Events marked in the curves", first=15)
    return {"curves": charts, "events": table if rows else None}


def key_name(key: str) -> str:
    """A logged key in words.

    >>> key_name("test/fine/recall@1"), key_name("train/map@r"), key_name("my_thing")
    ('R@1, fine labels, test', 'MAP@R, train', 'My thing')
    >>> key_name("test/verification/tar@0.01")
    'TAR@0.01, pairs, test'
    """
    *groups, metric = key.split("/")
    name = metric.replace("recall@", "R@").replace("tar@", "TAR@").replace("_", " ")
    name = _NAMES.get(metric, name if "@" in name else name[:1].upper() + name[1:])
    return ", ".join([name, *(_GROUPS.get(group, group) for group in reversed(groups))])


def _key_order(key: str) -> tuple[int, str]:
    """Sort key of the curves: signs of collapse come first."""
    metric = key.rpartition("/")[2]
    rank = next((i for i, word in enumerate(_ORDER) if word in metric), len(_ORDER))
    return rank + (metric == "lr"), key


def _families(histories: Mapping[str, History]) -> dict[str, list[str]]:
    """Keys that differ only in their k, by what they share; each family in the order of k."""
    families: dict[str, list[str]] = {}
    for key in sorted({key for one in histories.values() for key in one.curves}, key=_key_order):
        rates = [{value for _, value in one.curves.get(key, ())} for one in histories.values()]
        constant = key == "lr" and all(len(values) < 2 for values in rates)  # the config says it
        if constant or key.endswith("/fold_standard_error"):
            continue
        stem, at, k = key.rpartition("@")
        numbered = k.replace(".", "", 1).isdigit()  # of recall@10, tar@0.01
        families.setdefault(stem + at if at and numbered else key, []).append(key)
    for stem, keys in families.items():
        if stem.endswith("@"):
            keys.sort(key=lambda key: float(key.rpartition("@")[2]))
    return families


def race_content(history: History, titled: Callable[[str], str]) -> list[dict[str, Any]]:
    """The races of a run's rescues: a chart and a table for each."""
    return [
        {
            "chart": parts.race_chart(race, titled(f"race at step {step:,}")),
            "table": parts.race_table(race),
        }
        for step, race in history.races
    ]


# A split of a run before and after training, as it was measured: read from the run's folder.


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The rows of a split that were measured, with their embeddings `before` and `after` training.

    `labels` are the names of the finest classes there are, of this `kind`. `health` is that of the
    trained embedding at `step`, with the untrained one as the reference; `sampled` says how much of
    the split was measured. `samples` are None where the embedding is not finite. `modes` is the
    mode drift of the run's loss on training batches, before and after; None where not measured.
    """

    step: int
    sampled: str
    before: Tensor
    after: Tensor
    kind: str
    labels: Array
    health: Health
    samples: Samples | None
    modes: tuple[float | None, float | None]


def take_snapshot(run: RunFolder, split: str) -> Snapshot:
    """What was measured on a split; `NotMeasuredError` or `DamagedFileError` where nothing was."""
    measures, end = _ended(run)
    if split not in measures.splits:
        raise NotMeasuredError(run.path, f"measures of the split {split!r}")
    after, facts = run.rows("after", split), measures.splits[split]
    health = end.splits[split].health
    kind, labels, names = "label", after.labels, facts.class_names
    if after.fine_labels is not None:
        kind, labels, names = "fine label", after.fine_labels, facts.fine_names
    some = "all" if facts.rows == facts.total else f"{facts.rows:,} of"
    return Snapshot(
        end.step,
        f"{some} {facts.total:,} samples of {split}",
        run.rows("before", split).embeddings,
        after.embeddings,
        kind,
        files.name_labels(labels, names),
        health,
        run.samples(split) if math.isfinite(health.diameter) else None,
        (measures.before.batches.modes, end.batches.modes),
    )


def _ended(run: RunFolder) -> tuple[Measures, Moment]:
    """The measures of a run, and those of its end."""
    measures = run.measures()
    if measures.after is None:
        raise NotMeasuredError(run.path, "measures after training: it has not ended")
    return measures, measures.after


# A run as a report sees it: what was logged and what was measured.


class RunView:
    """A run and what is read from it; `prefix` names it on a page of several.

    `split` is the first evaluation split, or the training one where there is none. `snapshot` is
    what was measured on it, or a sentence on why it was not; `health` is that of the trained
    embedding. `warnings` has a sentence for each file that is not as the run left it, `ends_below`
    one for each R@1 that is below that of the network before training.
    """

    def __init__(self, name: str, run: RunFolder, prefix: str) -> None:
        self.name, self.run, self.prefix = name, run, prefix
        measures = run.known_measures()
        self.defaults = {} if measures is None else measures.defaults
        self.config, self.history = resolved(run.values, self.defaults), read_history(run)
        self.start_scores = files.start_scores(run)
        last = {key: self.history.last(key) for key in self.start_scores}
        known = {key: value for key, value in last.items() if value is not None}
        self.ends_below = files.ends_below(self.start_scores, known)
        self.split = next(iter(self.config["data.eval_splits"]), self.config["data.train_split"])
        self.warnings = list(dict.fromkeys([*files.find_damage(run), *self.history.complaints]))
        try:
            self.summary = run.summary
        except DamagedFileError:  # among the warnings
            self.summary = {}
        self.snapshot: Snapshot | str
        self.health: Health | None = None
        try:
            self.snapshot = take_snapshot(run, self.split)
            self.health = self.snapshot.health
        except (NotMeasuredError, DamagedFileError) as error:
            self.snapshot = f"Nothing is known of the embeddings of {self.split}: {error}."
        # Where nothing was measured, the verdict is the last one logged.
        self.verdict = self.health.verdict if self.health else self.history.verdict
        self.finite = self.health is not None and math.isfinite(self.health.diameter)

    def titled(self, text: str) -> str:
        """A title that begins with the run's name, or with a capital."""
        return self.prefix + text if self.prefix else text[:1].upper() + text[1:]

    @property
    def status(self) -> str:
        """How far it came, in words."""
        if self.summary:
            return f"{self.summary['status']} at step {self.summary['step']:,}"
        steps = [points[-1][0] for points in self.history.curves.values()]
        return f"not ended, logged to step {max(steps):,}" if steps else "not ended"


def view_runs(runs: Sequence[RunFolder | str | Path]) -> list[RunView]:
    """Open the runs; a run that is named twice is shown once."""
    opened = [run if isinstance(run, RunFolder) else RunFolder.open(run) for run in runs]
    folders = {run.path.resolve(): run for run in opened}
    if not folders:
        raise InputError("runs", "none", "at least one run directory")
    # Directory names, with the folders above where two are alike.
    lengths = range(1, 1 + max(len(folder.parts) for folder in folders))
    named = ({"/".join(path.parts[-n:]): run for path, run in folders.items()} for n in lengths)
    views = next(views for views in named if len(views) == len(folders))
    return [RunView(name, run, f"{name}: " * (len(views) > 1)) for name, run in views.items()]


# The sections of the page.

_FOLDS = "verification accuracy"
_PAIRS = {
    _FOLDS: "fold_accuracy",
    "best verification accuracy": "accuracy",
    "EER": "eer",
    "TAR at FAR 1e-2": "tar@0.01",
    "TAR at FAR 1e-3": "tar@0.001",
}


def run_figures(view: RunView) -> dict[str, object]:
    """The few numbers that say how a run went, by name; only those that are known."""
    figures: dict[str, object] = {}
    k = min(view.config["evaluate.ks"])
    scores = {f"R@{k}": f"recall@{k}", f"R@{k} by fine labels": f"fine/recall@{k}"}
    scores |= {"mAP": "mAP", "mINP": "mINP"}  # of re-ID
    scores |= {name: f"verification/{key}" for name, key in _PAIRS.items()}
    for name, metric in scores.items():
        key, title = f"{view.split}/{metric}", f"{name} on {view.split}"
        value, start = view.history.last(key), view.start_scores.get(key)
        if value is None:
            continue
        figures[title] = percent(value)
        error = view.history.last(f"{view.split}/verification/fold_standard_error")
        if name == _FOLDS and error is not None:
            figures[title] = f"{percent(value)} ± {percent(error, 2)}"
        if start is not None and name not in _PAIRS:
            figures[f"{title}, before training"] = percent(start)
    if not isinstance(view.snapshot, Snapshot):
        return figures
    health = view.snapshot.health
    figures["diameter"] = health.diameter
    if health.relative_diameter is not None:
        figures["diameter, of its start"] = percent(health.relative_diameter)
    figures |= parts.class_figures(health)
    for name, rate in zip(("start", "end"), view.snapshot.modes, strict=True):
        if rate is not None:
            figures[f"mode drift at the {name}"] = f"{rate:+z.2f}"
    return figures


def _verdict(view: RunView) -> dict[str, Any]:
    snapshot = view.snapshot
    if isinstance(snapshot, str):
        logged = view.verdict is not None
        return parts.verdict_text(view.verdict) | {"missing": snapshot, "logged": logged}
    return parts.verdict_content(snapshot.health, view.run.measures().settings) | {
        "figures": run_figures(view),
        "snapshot": snapshot,
        "missing": "",
    }


def _verdicts(views: Sequence[RunView]) -> dict[str, Any]:
    healthy = sum(view.verdict == "healthy" for view in views)
    tone = "good" if healthy == len(views) else "bad" if healthy == 0 else "warn"
    figures = [run_figures(view) for view in views]
    names = list(dict.fromkeys(name for one in figures for name in one))
    # A column per run: pages have room for few runs and many figures, not the other way round.
    rows: list[list[object]] = [
        ["verdict", *(parts.verdict_cell(view.verdict) for view in views)],
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


def _maps(view: RunView) -> dict[str, Any]:
    snapshot = view.snapshot
    if isinstance(snapshot, str) or not view.finite:
        missing = snapshot if isinstance(snapshot, str) else "The embedding is not finite."
        return {"name": view.name, "charts": [], "missing": missing}
    note = parts.projection_name(snapshot.after.shape[1])
    both = {"Before": snapshot.before, "After": snapshot.after}
    charts: list[Chart] = [
        scatter(title, parts.project(z), snapshot.labels, note=note) for title, z in both.items()
    ]
    return {"name": view.name, "charts": charts, "missing": ""}


def _classes(view: RunView, health: Health) -> dict[str, Any]:
    return {
        "title": view.titled("diameters of the classes"),
        "chart": parts.distance_chart(health, view.titled("distances after training")),
        "table": parts.class_table(health, first=8),
    }


def _neighbours(views: Sequence[RunView]) -> dict[str, Any]:
    content: dict[str, Any] = {"sheets": [], "lists": [], "missing": [], "judged": True}
    for view in views:
        snapshot = view.snapshot
        if isinstance(snapshot, str) or snapshot.samples is None:
            content["missing"].append(f"{view.name}: no embedding to search in.")
            continue
        samples, labels = snapshot.samples, snapshot.labels
        near = Neighbourhood(samples.queries.numpy(), samples.neighbours.numpy()).by(labels)
        named = {"kind": snapshot.kind, "title": view.name if view.prefix else ""}
        texts = samples.texts_by_place()
        if samples.pixels is not None:
            pictures = dict(zip(samples.shown.tolist(), samples.pixels, strict=True))
            content["sheets"].append(sheet_picture(near, pictures, **named))
        elif texts is not None:
            content["lists"].append(word_lists(near, texts, labels, **named))
        else:
            content["missing"].append(f"{view.name}: its samples are neither pictures nor texts.")
    return content


def resolved(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config with their values, in the order of the `defaults`, if these are known.

    >>> resolved({"loss.name": "margin", "batch.p": 4}, {"batch.p": 8, "batch.k": 2})
    {'batch.p': 4, 'batch.k': 2, 'loss.name': 'margin'}
    """
    return {key: value for key, value in {**defaults, **values}.items() if value is not None}


def config_content(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Keys and values: those `changed` from the defaults, if these are `known`, and `every` one."""
    every = {key: str(value) for key, value in config.items()}
    changed = {key: every[key] for key in every if defaults and config[key] != defaults.get(key)}
    return {"changed": changed, "every": every, "known": bool(defaults)}


def config_differences(views: Sequence[RunView]) -> dict[str, Any]:
    """`differences`: a column per run, a row per key in which they differ; and the `same` keys."""
    keys = dict.fromkeys(key for view in views for key in view.config)
    rows = {key: [str(view.config.get(key, "–")) for view in views] for key in keys}
    differ = [[key, *row] for key, row in rows.items() if len(set(row)) > 1]
    names = [view.name for view in views]
    return {
        "differences": Table(["key", *names], differ) if differ else None,
        "same": {key: row[0] for key, row in rows.items() if len(set(row)) == 1},
    }
