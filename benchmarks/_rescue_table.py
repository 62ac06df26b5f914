"""What the guard saves: a case for each run that may collapse, and counts over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from _study import Setting
from _study_grid import by_hand
from _study_run import FAR_TOO_HIGH

__all__ = ["Case", "Results", "cases_of", "counts", "place_of", "place_words"]

Results = Mapping[Setting, Mapping[str, Any]]
ALARMS = ("shrinking", "network-collapse", "diverging")
HEALTHY, MEDIAN, LEAST, FALSE, TIME = 0.95, 0.98, 0.93, 0.01, 0.12  # what is asked of the guard
GOOD = 0.9  # of the best by hand: a run that needs no alarm
POOR = 0.7  # of the best by hand: a run that the monitor calls healthy, and that is not


@dataclass(frozen=True)
class Case:
    """A run that may collapse, the same with a rescue, and the strategies chosen by hand there."""

    setting: Setting
    alone: Mapping[str, Any]
    saved: Mapping[str, Any]
    hand: Mapping[Setting, Mapping[str, Any]]

    @property
    def collapsed(self) -> bool:
        """The verdict at the end of the run without a rescue."""
        return self.alone["verdict"] in ALARMS

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

    @property
    def slower(self) -> float:
        """Time of the guarded run over the mean of the unguarded ones there, less 1."""
        others = [self.alone, *self.hand.values()]
        return float(self.saved["seconds"]) / fmean(one["seconds"] for one in others) - 1.0

    def row(self) -> dict[str, Any]:
        """One line of the file."""
        s, rescues = self.setting, [e for e in self.saved["events"] if e[1] == "rescue"]
        place = {
            "data": s.data,
            "network": s.backbone,
            "unit": s.unit,
            "P": s.p,
            "K": s.k,
            "dim": s.dim,
            "lr": s.lr,
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
            "slower": f"{self.slower:.4f}",
        }


def cases_of(found: Results) -> list[Case]:
    """Those whose runs are all there."""
    cases = []
    for setting, alone in sorted(found.items(), key=lambda pair: pair[0].strategy):
        saved = replace(setting, guard="rescue")
        asked = by_hand(setting)
        if not setting.is_batch_hard or setting.guard != "warn" or saved not in found:
            continue
        if all(one in found for one in asked):
            cases.append(Case(setting, alone, found[saved], {one: found[one] for one in asked}))
    return sorted(cases, key=lambda case: (*place_of(case.setting), case.setting.seed))


def counts(cases: Sequence[Case]) -> str:
    """How the guard did beside what is asked of it, as Markdown."""
    usual = [case for case in cases if not case.diverges]
    bad = [case for case in usual if case.collapsed]
    if not bad:
        return f"{len(cases)} cases, none collapsed."
    ratios = [case.ratio for case in bad]
    well = [case for case in usual if not case.collapsed]
    hand = {one: result for case in usual for one, result in case.hand.items()}
    quiet = {one: r for one, r in hand.items() if r["verdict"] == "healthy"}
    # A verdict that stays to the end may be wrong as well: runs as good as any must not be alarmed.
    good = {
        one: result
        for case in usual
        for one, result in case.hand.items()
        if result["recall"] >= GOOD * case.best_recall
    }
    alarmed = sum(bool(r["events"] or _first_alarm(r)) for r in good.values())
    false = [one for one, r in quiet.items() if r["events"] or _first_alarm(r)]
    lost = [case for case in cases if case.diverges and case.collapsed]
    saved = sum(case.healthy for case in bad)
    slower = fmean(case.saved["seconds"] for case in usual) / fmean(
        fmean(one["seconds"] for one in (case.alone, *case.hand.values())) for case in usual
    )
    lines = [
        f"{len(usual)} cases at {len({case.setting.place for case in usual})} places; "
        f"{len(bad)} collapsed without a guard, "
        f"{sum(case.setting.has_batch_norm for case in bad)} of them with batch norm.",
        "",
        "| of the runs that collapse | asked | found |",
        "|---|---|---|",
        f"| end healthy with rescue | {HEALTHY:.0%} | {saved / len(bad):.1%} ({saved} of "
        f"{len(bad)}) |",
        f"| R@1 over the best by hand, median | {MEDIAN} | {median(ratios):.3f} |",
        f"| the same, smallest | {LEAST} | {min(ratios):.3f} |",
        f"| the same, at least {LEAST} | all | {sum(r >= LEAST for r in ratios)} of {len(bad)} |",
        f"| the same of means over seeds, smallest | - | {min(_over_seeds(bad)):.3f} |",
        f"| R@1 over the same strategy by hand, median | - | {median(_own_shares(bad)):.3f} |",
        f"| false alarms, of runs by hand that end healthy | {FALSE:.0%} | "
        f"{len(false)} of {len(quiet)} |",
        f"| alarms, of runs by hand with {GOOD} of the best R@1 there | - | "
        f"{alarmed} of {len(good)} |",
        f"| time over unguarded, all cases together | {TIME:.0%} | {slower - 1:+.1%} |",
        f"| the same, median of those that collapse | {TIME:.0%} | "
        f"{median(case.slower for case in bad):+.1%} |",
    ]
    if well:
        kept = median(case.saved["recall"] / case.alone["recall"] for case in well)
        poor = sum(case.alone["recall"] < POOR * case.best_recall for case in well)
        acted = sum(any(e[1] == "rescue" for e in case.saved["events"]) for case in well)
        lines += [
            f"| where nothing collapsed ({len(well)} cases): rescued all the same | - | {acted} |",
            f"| the same: R@1 with the guard over without, median | 1 | {kept:.3f} |",
            f"| the same: R@1 without it below {POOR} of the best by hand | - | {poor} |",
        ]
    if lost:
        healthy = sum(case.healthy for case in lost)
        lines.append(f"| learning rate far too high: end healthy | - | {healthy} of {len(lost)} |")
    for one in false:
        at, verdict = next((c for c in quiet[one]["changes"] if c[1] != "healthy"), (0, "event"))
        lines += [
            "",
            f"False alarm: {verdict} at step {at}: {place_words(one)} {one.strategy}.",
        ]
    return "\n".join(lines)


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


def _own_shares(cases: Sequence[Case]) -> list[float]:
    """R@1 with rescue over that of a run that had its last strategy from the start."""
    pairs = [
        (case.saved["recall"], result["recall"])
        for case in cases
        for one, result in case.hand.items()
        if one.strategy == case.saved["final_strategy"]
    ]
    return [saved / own for saved, own in pairs]


def _first_alarm(result: Mapping[str, Any]) -> int | None:
    return next((step for step, verdict in result["changes"] if verdict != "healthy"), None)


def place_of(s: Setting) -> tuple[Any, ...]:
    return s.lr >= FAR_TOO_HIGH, s.data, s.backbone, s.unit, s.p, s.k, s.dim, s.lr


def place_words(s: Setting) -> str:
    sphere = "unit" if s.unit else "free"
    return f"{s.data}, {s.backbone}, {sphere}, P{s.p} K{s.k}, dim {s.dim}, lr {s.lr:g}"
