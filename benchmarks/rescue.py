"""Batch-hard runs that collapse: is it seen in time, and does the guard's rescue save them?

python benchmarks/rescue.py            all data (Omniglot in UNCOLLAPSE_DATA)
python benchmarks/rescue.py --quick    what comes with the packages
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from _study import Setting, asked, cached, recall, splits
from uncollapse.training.session import Session

LOOK, STEPS, BAR = 10, 300, 0.9  # steps between two looks at R@1; steps of a run; share to reach
ALARMS = ("shrinking", "network-collapse")
BY_HAND: tuple[dict[str, Any], ...] = (
    {"positives": "easy", "negatives": "hard"},
    {"positives": "easy", "negatives": "semihard"},
    {"positives": "inside", "negatives": "hard"},
    {"positives": "hard", "negatives": "hard", "scale_free": True},
)
# data, backbone, (P, K), seeds
GRID: tuple[tuple[str, str, tuple[tuple[int, int], ...], int], ...] = (
    ("noisy digits", "mlp", ((10, 16),), 2),
    ("noisy digits", "conv2", ((10, 4), (10, 16)), 2),
    ("letters", "mlp", ((18, 8), (36, 4)), 2),
    ("letters", "conv2", ((18, 8),), 2),
)


def groups(names: Sequence[str]) -> list[list[Setting]]:
    """For each run without a guard: itself, the same with rescue, and those chosen by hand."""
    found = []
    for name, backbone, shapes, seeds in GRID:
        for (p, k), seed in ((shape, seed) for shape in shapes for seed in range(seeds)):
            base = Setting(name, backbone, p, k, 64, "hard", "hard", steps=STEPS, seed=seed)
            saved = replace(base, guard="rescue")
            found.append([base, saved, *(replace(base, **choice) for choice in BY_HAND)])
    return [group for group in found if group[0].data in names]


def one_run(setting: Setting) -> dict[str, Any]:
    """Train; look at R@1 every few steps where it is to be seen falling, else at the end."""
    train, test = splits(setting.data)
    session = Session(setting.config(), train)
    watched = setting.is_batch_hard and setting.guard == "warn"
    scores = [(0, recall(session, test))]
    for step in range(1, setting.steps + 1):
        session.advance()
        if step == setting.steps or (watched and step % LOOK == 0):
            scores.append((step, recall(session, test)))
    assert session.guard is not None
    return {
        "verdict": session.guard.monitor.verdict,
        "changes": session.guard.monitor.changes,
        "events": [[event.step, event.kind, event.text] for event in session.guard.events],
        "scores": scores,
        "chance": 1.0 / len(test.classes),
    }


@dataclass(frozen=True)
class Case:
    """A run that may collapse, the same with a rescue, and the strategies chosen by hand."""

    setting: Setting
    alone: dict[str, Any]
    saved: dict[str, Any]
    by_hand: list[dict[str, Any]]

    @property
    def collapsed(self) -> bool:
        """The verdict at the end of the run without a guard."""
        return self.alone["verdict"] in ALARMS

    @property
    def alarm(self) -> int | None:
        """Step of the monitor's first alarm."""
        return next((step for step, verdict in self.alone["changes"] if verdict in ALARMS), None)

    @property
    def lost(self) -> int | None:
        """Step at which R@1 was first seen at chance: at most twice one over the classes."""
        limit = 2 * self.alone["chance"]
        return next((step for step, score in self.alone["scores"] if score <= limit), None)

    @property
    def in_time(self) -> bool:
        """Whether the alarm came before R@1 was at chance."""
        return self.alarm is not None and (self.lost is None or self.alarm < self.lost)

    @property
    def best(self) -> float:
        """The best R@1 of the strategies chosen by hand."""
        return max(_last(one) for one in self.by_hand)

    @property
    def ratio(self) -> float:
        """R@1 with rescue over that."""
        return _last(self.saved) / self.best

    @property
    def rescued(self) -> bool:
        """Whether it ended healthy and as good as `BAR` asks."""
        return self.saved["verdict"] == "healthy" and self.ratio >= BAR

    def row(self) -> dict[str, Any]:
        """One line of the table."""
        s, rescues = self.setting, [e for e in self.saved["events"] if e[1] == "rescue"]
        return {
            "data": s.data,
            "network": s.backbone,
            "P": s.p,
            "K": s.k,
            "seed": s.seed,
            "R@1 untrained": f"{self.alone['scores'][0][1]:.3f}",
            "without guard": f"{_last(self.alone):.3f} {self.alone['verdict']}",
            "alarm at": self.alarm or "-",
            "chance at": self.lost or "-",
            "rescues at": " ".join(str(e[0]) for e in rescues) or "-",
            "with rescue": f"{_last(self.saved):.3f} {self.saved['verdict']}",
            "best by hand": f"{self.best:.3f}",
            "ratio": f"{self.ratio:.3f}",
        }


def _last(result: dict[str, Any]) -> float:
    return float(result["scores"][-1][1])


def summary(cases: Sequence[Case]) -> str:
    """The counts and the table, as Markdown."""
    bad = [case for case in cases if case.collapsed]
    others = [one for case in cases for one in case.by_hand]
    healthy = [one for one in others if one["verdict"] == "healthy"]
    false = sum(any(verdict != "healthy" for _, verdict in one["changes"]) for one in healthy)
    worst = min((case.ratio for case in bad), default=float("nan"))
    rows = [case.row() for case in cases]
    lines = [
        f"- {len(bad)} of {len(cases)} batch-hard runs collapsed without a guard.",
        f"- Alarm before R@1 was at chance: {sum(c.in_time for c in bad)} of {len(bad)} "
        f"({sum(c.lost is None for c in bad)} of them had not yet reached chance at the end).",
        f"- False alarms: {false} of {len(healthy)} runs that ended healthy, of {len(others)} "
        "with strategies chosen by hand.",
        f"- Rescued (healthy, and at least {BAR:.0%} of the best R@1 by hand): "
        f"{sum(c.rescued for c in bad)} of {len(bad)}; smallest share {worst:.3f}.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|---" * len(rows[0]) + "|",
    ]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    chosen = asked(__doc__ or "", "rescue")
    wanted = groups(chosen.names)
    settings = [one for group in wanted for one in group]
    found = dict(cached(settings, one_run, chosen.cache, chosen.jobs))
    whole = [group for group in wanted if all(one in found for one in group)]
    cases = [Case(g[0], found[g[0]], found[g[1]], [found[one] for one in g[2:]]) for g in whole]
    text = summary(cases)
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / "summary.md").write_text(
            f"# What the guard rescues\n\n{text}\n", encoding="utf-8"
        )
        with (chosen.out / "runs.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(cases[0].row()), lineterminator="\n")
            writer.writeheader()
            writer.writerows(case.row() for case in cases)
    return 0 if all(case.rescued and case.in_time for case in cases if case.collapsed) else 1


if __name__ == "__main__":
    sys.exit(main())
