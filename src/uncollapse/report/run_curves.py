"""Curves of one or several runs as charts, with their events numbered and listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uncollapse.charts import Chart, Event, curves
from uncollapse.report.history import Curve, History, key_name, key_order
from uncollapse.report.tables import Table

__all__ = ["curve_charts", "event_table", "numbered_events"]

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
    return Table(head, rows, caption="Events marked in the curves", first=15)


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
