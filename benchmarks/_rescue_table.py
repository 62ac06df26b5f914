"""What the guard saves and what it harms: a case for each run that may collapse, counts by axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from _study import Setting
from _study_advice import advised
from _study_data import plain
from _study_grid import FAR_TOO_HIGH, FIXED_ON, Planned

__all__ = ["Case", "Results", "advice", "cases_of", "counts", "followed", "place_of", "place_words"]

Results = Mapping[Setting, Mapping[str, Any]]
ALARMS = ("shrinking", "network-collapse", "cone", "diverging")
GOOD = 0.9  # of the best by hand: a run that is not lost
NOISE, NOISE_SHARE = (
    0.02,
    0.03,
)  # of R@1: by more than this a run is harmed


@dataclass(frozen=True)
class Case:
    """A run that may collapse, the same with a rescue, and the runs by hand there."""

    axis: str
    setting: Setting
    alone: Mapping[str, Any]
    saved: Mapping[str, Any]
    hand: Mapping[Setting, Mapping[str, Any]]

    @property
    def collapsed(self) -> bool:
        """Whether the run without a rescue ends with an alarm, and without R@1 worth having."""
        return self.alone["verdict"] in ALARMS and (self.lost or not self.hand)

    @property
    def lost(self) -> bool:
        """Whether the run without a rescue ends far below the best by hand."""
        return bool(self.alone["recall"] < GOOD * self.best_recall)

    @property
    def acted(self) -> bool:
        """Whether the guard changed the run."""
        return any(kind == "rescue" for _, kind, _ in self.saved["events"])

    @property
    def harmed(self) -> bool:
        """Whether the guard made it worse, by more than noise, or changed it without a word."""
        lost = float(self.alone["recall"]) - float(self.saved["recall"])
        if not self.acted:
            return lost != 0.0
        return lost > min(NOISE, NOISE_SHARE * self.alone["recall"])

    @property
    def diverges(self) -> bool:
        """Whether it is one of the runs whose learning rate is far too high."""
        return self.setting.lr >= FAR_TOO_HIGH

    @property
    def best(self) -> Setting | None:
        """The strategy chosen by hand with the best R@1."""
        return max(self.hand, key=lambda one: float(self.hand[one]["recall"]), default=None)

    @property
    def best_recall(self) -> float:
        """Its R@1; NaN where none was tried."""
        return float("nan") if self.best is None else float(self.hand[self.best]["recall"])

    @property
    def ratio(self) -> float:
        """R@1 with rescue over that."""
        return float(self.saved["recall"]) / self.best_recall

    @property
    def healthy(self) -> bool:
        """Whether the guarded run ended so."""
        return bool(self.saved["verdict"] == "healthy")

    def row(self) -> dict[str, Any]:
        """One line of the file."""
        s, rescues = self.setting, [e for e in self.saved["events"] if e[1] == "rescue"]
        place = {
            "axis": self.axis,
            "data": s.data,
            "network": s.backbone,
            "unit": s.unit,
            "P": s.p,
            "K": s.k,
            "dim": s.dim,
            "optimizer": s.optimizer,
            "lr": s.lr,
            "loop": s.loop,
            "seed": s.seed,
            "strategy": s.strategy,
        }
        return place | {
            "untrained": f"{self.alone['recall_before']:.4f}",
            "no_guard": f"{self.alone['recall']:.4f}",
            "no_guard_verdict": self.alone["verdict"],
            "first_alarm": _first_alarm(self.alone) or "",
            "rescued": f"{self.saved['recall']:.4f}",
            "rescued_verdict": self.saved["verdict"],
            "rescues_at": " ".join(str(e[0]) for e in rescues),
            "final_strategy": self.saved["final_strategy"],
            "best_by_hand": f"{self.best_recall:.4f}",
            "best_strategy": "" if self.best is None else self.best.strategy,
            "ratio": f"{self.ratio:.4f}",
            "collapsed": self.collapsed,
            "harmed": self.harmed,
        }


def cases_of(planned: Iterable[Planned], found: Results) -> list[Case]:
    """Those whose runs are all there."""
    cases = []
    for axis, setting, hand in planned:
        saved = replace(setting, guard="rescue")
        if all(one in found for one in (setting, saved, *hand)):
            by_hand = {one: found[one] for one in hand}
            cases.append(Case(axis, setting, found[setting], found[saved], by_hand))
    return sorted(cases, key=lambda case: (case.axis, *place_of(case.setting), case.setting.seed))


def counts(cases: Sequence[Case]) -> str:
    """What the guard did on each axis, apart on data that its rules were fixed on, as Markdown."""
    lines = [
        "| axis | data | cases | acted on | harmed | collapse alone | of these end healthy | "
        "R@1 over the best by hand, median | smallest | smallest of means over seeds | "
        "lost without a verdict | their R@1 over the best by hand, median |",
        "|---" * 12 + "|",
    ]
    for name, members in _grouped(cases).items():
        bad = [case for case in members if case.collapsed]
        quiet = [case for case in members if case.lost and not case.collapsed]
        cells = [
            *name,
            str(len(members)),
            str(sum(case.acted for case in members)),
            str(sum(case.harmed for case in members)),
            str(len(bad)),
            f"{sum(case.healthy for case in bad)}" if bad else "-",
            *_shares([case for case in bad if case.hand]),
            str(len(quiet)),
            *_shares(quiet)[:1],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    for case in cases:
        if case.harmed or (case.collapsed and not case.healthy):
            what = "harmed" if case.harmed else f"ends {case.saved['verdict']}"
            shares = f"{100 * case.alone['recall']:.1f} / {100 * case.saved['recall']:.1f}"
            lines += ["", f"{what}: {_words(case.setting)}: R@1 {shares}"]
    return "\n".join(lines)


def _shares(bad: Sequence[Case]) -> list[str]:
    if not bad:
        return ["-"] * 3
    ratios = [case.ratio for case in bad]
    return [f"{value:.3f}" for value in (median(ratios), min(ratios), min(_over_seeds(bad)))]


def followed(planned: Iterable[Planned], found: Results) -> dict[Setting, list[Setting]]:
    """What a run that ends in an alarm was advised when it first was warned, and by the forecast.

    Runs with the guard "stop" have the advice; those that are not there yet are left out.
    """
    every = {}
    for _, setting, _ in planned:
        stopped, forecast = (replace(setting, guard=name) for name in ("stop", "forecast"))
        choices = [
            one
            for _, kind, text in found.get(stopped, {}).get("events", ())
            if kind == "warning"
            for one in advised(setting, text)
        ]
        if found.get(forecast, {}).get("risk") == "high":
            strategy = dict(found[forecast]["recommended"])
            strategy["lr"] = setting.lr * strategy.pop("lr_factor")
            known = {name: strategy[name] for name in strategy if name in vars(setting)}
            choices.append(replace(setting, **known))
        every[setting] = [one for one in dict.fromkeys(choices) if one != setting]
    return every


def advice(cases: Sequence[Case], runs: Mapping[Setting, list[Setting]], found: Results) -> str:
    """How runs end that follow the advice given to those that collapse, as Markdown."""
    lines = [
        "| axis | data | advised | end healthy | R@1 over the best by hand, median | smallest |",
        "|---" * 6 + "|",
    ]
    worst = []
    bad = [case for case in cases if case.collapsed and case.hand]
    for name, members in _grouped(bad).items():
        pairs = [(c, one) for c in members for one in runs.get(c.setting, ()) if one in found]
        shares = [found[one]["recall"] / case.best_recall for case, one in pairs]
        well = sum(found[one]["verdict"] not in ALARMS for _, one in pairs)
        figures = [f"{median(shares):.3f}", f"{min(shares):.3f}"] if shares else ["-", "-"]
        lines.append("| " + " | ".join([*name, str(len(pairs)), str(well), *figures]) + " |")
        for case, one in pairs:
            result = found[one]
            if result["verdict"] in ALARMS:
                changed = f"{one.strategy}, lr {one.lr:g}{', unit' * one.unit}"
                worst += ["", f"{_words(case.setting)}: advised {changed}: {result['verdict']}"]
    return "\n".join([*lines, *worst])


def _grouped(cases: Iterable[Case]) -> dict[tuple[str, str], list[Case]]:
    """By axis and what varies on it, and by whether the data had a say in the rules."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        s, fixed = case.setting, plain(case.setting.data) in FIXED_ON
        varied = {"losses": s.loss, "optimizers": s.optimizer, "loops": s.loop}.get(case.axis)
        for name in (case.axis, f"{case.axis}: {varied}")[: 2 if varied else 1]:
            groups.setdefault((name, "rules fixed on" if fixed else "judged"), []).append(case)
    return dict(sorted(groups.items()))


def _over_seeds(cases: Sequence[Case]) -> list[float]:
    """Mean R@1 with rescue over that of the strategy by hand with the best mean, seeds together."""
    groups: dict[Setting, list[Case]] = {}
    for case in cases:
        groups.setdefault(replace(case.setting, seed=0), []).append(case)
    shares = []
    for some in groups.values():
        by_strategy: dict[str, list[float]] = {}
        for one, result in (pair for case in some for pair in case.hand.items()):
            by_strategy.setdefault(one.strategy, []).append(result["recall"])
        best = max(fmean(recalls) for recalls in by_strategy.values())
        shares.append(fmean(case.saved["recall"] for case in some) / best)
    return shares


def _first_alarm(result: Mapping[str, Any]) -> int | None:
    return next((step for step, verdict in result["changes"] if verdict != "healthy"), None)


def place_of(s: Setting) -> tuple[Any, ...]:
    high = s.lr >= FAR_TOO_HIGH
    return high, s.data, s.backbone, s.unit, s.p, s.k, s.dim, s.optimizer, s.loop, s.lr


def place_words(s: Setting) -> str:
    sphere = "unit" if s.unit else "free"
    words = f"{s.data}, {s.backbone}, {sphere}, P{s.p} K{s.k}, dim {s.dim}, lr {s.lr:g}"
    words += f", {s.optimizer}" * (s.optimizer != "adam")
    return words + f", loop {s.loop}" * (s.loop != "engine")


def _words(s: Setting) -> str:
    return f"{place_words(s)}, seed {s.seed}, {s.strategy}"
