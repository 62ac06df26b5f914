"""Detectors of collapse side by side: the same real runs, the same snapshots, every known collapse.

python benchmarks/detectors.py            digits, and features of real networks where out/features
                                          has them (benchmarks/real_features.py); resumable
python benchmarks/detectors.py --quick    digits alone, one seed
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from _collapse_runs import Setting, available, settings, snapshots
from _figures_of_others import (
    alpha_req,
    centroid_similarity,
    chunked_lidar,
    collapse_level,
    lidar,
    lost_rank,
    no_separation,
    of_three,
    pcf,
    pi_ratio,
    rho_spectrum,
    worst_class_rank,
)
from uncollapse._base.files import read_json, write_json
from uncollapse._base.progress import progress_reporter
from uncollapse.health import Health, Thresholds, measure
from uncollapse.metrics import cdnv, nc1, retrieval
from uncollapse.metrics.collapse import anisotropy, rankme, uniformity

OUT = Path("out/detectors")
KINDS = (
    "point at the origin",
    "point far out",
    "cone",
    "dimensional",
    "class",
    "mode",
    "uninformative",
    "diverging",
)
FALSE_ALARMS = 0.05  # of healthy snapshots of digits, which thresholds without a source are set by
Array = np.ndarray


class Start(NamedTuple):
    """What a run began as: embeddings of the same rows, fine labels, and ours of both."""

    rows: Array
    fine: Array
    health: Health
    with_fine: Health


class Detector(NamedTuple):
    """What it is, where it comes from, its figure (more is worse), and its source's threshold."""

    name: str
    source: str
    figure: Callable[[Array, Array, Start], float]
    threshold: float | None = None


def nearness(found: Health) -> float:
    """How near the nearest threshold of a verdict is: 1 + it where one is crossed, else below 1."""
    limits, ratios = Thresholds(), []
    if found.relative_diameter is not None:
        ratios += [limits.shrink_ratio / max(found.relative_diameter, 1e-300)]
        ratios += [found.relative_diameter / limits.diverge_ratio]
    tight = [one.tightness for one in found.classes if math.isfinite(one.tightness)]
    if tight:
        some = float(np.quantile(tight, limits.class_share))
        ratios.append(limits.tightness / max(some, 1e-300))
    if found.fine_kept is not None:
        ratios.append(limits.fine_kept / max(found.fine_kept, 1e-3))
    elif found.modes_kept is not None:
        ratios.append(limits.modes_kept / max(found.modes_kept, 1e-3))
    if found.cosines is not None:
        ratios.append((1 - limits.cone_median) / max(1 - found.cosines.median, 1e-12))
    ratios.append(limits.axes_most / max(found.axes, 1))
    near = float(np.nanmax(ratios))
    return 1 + near if found.verdict != "healthy" else min(near, 0.999)


def ours_alone(z: Array, y: Array, _start: Start) -> float:
    return nearness(measure(z, y, modes=False))


def ours(z: Array, y: Array, start: Start) -> float:
    return nearness(measure(z, y, reference=start.health, before=start.rows, modes=False))


def ours_fine(z: Array, y: Array, start: Start) -> float:
    found = measure(z, y, reference=start.with_fine, fine_labels=start.fine, modes=False)
    return nearness(found)


DETECTORS = (
    Detector("uncollapse, start and fine labels", "uc.measure(fine_labels=...)", ours_fine, 1.0),
    Detector("uncollapse, with the start", "uc.measure(z, y, before=...)", ours, 1.0),
    Detector("uncollapse, one snapshot", "uc.measure(z, y)", ours_alone, 1.0),
    Detector("RankMe", "Garrido et al. 2023", lambda z, y, s: -rankme(z)),
    Detector("LiDAR", "Thilak et al. 2024", lambda z, y, s: -lidar(z, y)),
    Detector("alpha-ReQ", "Agrawal et al. 2022", lambda z, y, s: alpha_req(z)),
    Detector("NC1", "Papyan et al. 2020", lambda z, y, s: -nc1(z, y)),
    Detector("CDNV", "Galanti et al. 2022", lambda z, y, s: -cdnv(z, y)),
    Detector("rho spectrum", "Roth et al. 2020", lambda z, y, s: rho_spectrum(z)),
    Detector("pi ratio", "Roth et al. 2020", lambda z, y, s: -pi_ratio(z, y)),
    Detector("uniformity", "Wang and Isola 2020", lambda z, y, s: uniformity(z)),
    Detector("collapse level", "lightly, SimSiam", lambda z, y, s: collapse_level(z)),
    Detector("PCF", "OML", lambda z, y, s: -pcf(z)),
    Detector("aggregate, max", "MONAI", lambda z, y, s: max(of_three(z, y))),
    Detector("aggregate, mean", "MONAI", lambda z, y, s: float(np.mean(of_three(z, y)))),
    Detector("centroid similarity", "MONAI", lambda z, y, s: centroid_similarity(z, y)),
    Detector("effective rank", "MONAI", lambda z, y, s: lost_rank(z)),
    Detector("worst class rank", "MONAI", lambda z, y, s: worst_class_rank(z, y)),
    Detector("separation", "MONAI", lambda z, y, s: no_separation(z, y)),
    Detector("RankMe callback", "stable-pretraining", lambda z, y, s: -rankme(z, eps=1e-5)),
    Detector("LiDAR callback", "stable-pretraining", lambda z, y, s: -chunked_lidar(z)),
    Detector("LiDAR callback, by class", "same", lambda z, y, s: -chunked_lidar(z, y)),
    Detector("mean cosine", "Ethayarajh 2019", lambda z, y, s: anisotropy(z).mean),
)


class Run(NamedTuple):
    """One run's figures: recall and each detector's at each step."""

    kind: str
    data: str
    steps: list[int]
    recall: list[float]
    figures: dict[str, list[float]]


def judged(setting: Setting, folder: Path) -> Run:
    """Every detector at every snapshot, from its file or now."""
    path = folder / f"{setting.name}.json"
    names = [one.name for one in DETECTORS]
    if path.exists():
        kept = read_json(path)
        if list(kept["figures"]) == names:
            return Run(**kept)
    seen = snapshots(setting, folder)
    y = seen.coarse if setting.labels == "coarse" else seen.fine
    truth = seen.fine if setting.kind in ("class", "mode") else y
    first = seen.embeddings[0]
    start = Start(
        first,
        seen.fine,
        measure(first, y, modes=False),
        measure(first, y, fine_labels=seen.fine, modes=False),
    )
    chosen = sorted({*range(0, len(seen.steps), 2), len(seen.steps) - 1})
    every = [seen.embeddings[i] for i in chosen]
    run = Run(
        setting.kind,
        setting.data,
        seen.steps[chosen].tolist(),
        [_recall(z, truth) for z in every],
        {one.name: [_figure(one, z, y, start) for z in every] for one in DETECTORS},
    )
    write_json(path, run._asdict())
    return run


def _recall(z: Array, y: Array) -> float:
    if not np.isfinite(z).all():
        return 0.0
    return float(retrieval(z, y, ks=(1,), progress=False).recall[1])


def _figure(detector: Detector, z: Array, y: Array, start: Start) -> float:
    if not np.isfinite(z).all():
        return math.inf  # every detector would see it
    value = float(detector.figure(z, y, start))
    return value if not math.isnan(value) else math.inf


def collapsed(run: Run, best: float) -> bool:
    """Whether it did what it was made for: it ends clearly below what that data allows."""
    if run.kind == "diverging":
        return True
    return run.recall[-1] <= 0.85 * best


def thresholds(runs: Sequence[Run]) -> dict[str, float]:
    """The sources' where they give one; else what few healthy snapshots of digits exceed."""
    healthy = [run for run in runs if run.kind == "healthy" and run.data == "digits"]
    found = {}
    for one in DETECTORS:
        every = np.concatenate([run.figures[one.name] for run in healthy])
        limit = float(np.quantile(every, 1 - FALSE_ALARMS, method="higher"))
        found[one.name] = limit if one.threshold is None else one.threshold
    return found


def warning(run: Run, name: str, limit: float) -> float | None:
    """Steps from the first alarm to the step at which recall has lost half of its best."""
    recall = np.array(run.recall)
    worst = np.flatnonzero(recall <= 0.5 * np.maximum.accumulate(recall))
    if not len(worst):
        return None
    alarms = np.flatnonzero(np.array(run.figures[name]) > limit)
    return run.steps[worst[0]] - run.steps[alarms[0]] if len(alarms) else -math.inf


def table(runs: Sequence[Run]) -> list[list[str]]:
    """A row for each detector: AUC by kind, alarms at the end, steps of warning, false alarms."""
    healthy = [run for run in runs if run.kind == "healthy"]
    limits, rows = thresholds(runs), []
    for one in DETECTORS:
        row = [one.name]
        for kind in KINDS:
            bad = [run.figures[one.name][-1] for run in runs if run.kind == kind]
            good = [run.figures[one.name][-1] for run in healthy]
            row.append(f"{_auc(bad, good):.2f}" if bad else "-")
        caught = [run.figures[one.name][-1] > limits[one.name] for run in runs if run.kind in KINDS]
        ahead = [warning(run, one.name, limits[one.name]) for run in runs if run.kind in KINDS]
        known = [steps for steps in ahead if steps is not None]
        false = [max(run.figures[one.name]) > limits[one.name] for run in healthy]
        row.append(f"{100 * np.mean(caught):.0f} %")
        row.append(
            f"{np.median(known):+.0f}" if known and np.isfinite(np.median(known)) else "none"
        )
        row.append(f"{100 * np.mean(false):.0f}")
        rows.append(row)
    return rows


def _auc(bad: list[float], good: list[float]) -> float:
    both = np.nan_to_num(np.array([*bad, *good]), posinf=1e300, neginf=-1e300)
    return float(roc_auc_score([1] * len(bad) + [0] * len(good), both))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data", nargs="*", help=f"of {', '.join(available())}; all by default")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = ["digits"] if args.quick else args.data or available()
    every = list(settings(data, 1 if args.quick else args.seeds))
    runs, best = [], defaultdict(float)
    with progress_reporter(None, "runs") as report:
        for done, setting in enumerate(every):
            run = judged(setting, args.out)
            runs.append((setting, run))
            if setting.kind == "healthy" and setting.loss != "frozen":
                key = setting.data, setting.seed
                best[key] = max(best[key], run.recall[-1])
            report(done + 1, len(every))
    kept = [
        run
        for setting, run in runs
        if run.kind == "healthy" or collapsed(run, best[setting.data, setting.seed])
    ]
    counts = {kind: sum(run.kind == kind for run in kept) for kind in ("healthy", *KINDS)}
    print(f"data: {', '.join(data)}; runs: " + ", ".join(f"{n} {k}" for k, n in counts.items()))
    print(f"left out, because they did not collapse: {len(runs) - len(kept)}\n")
    header = ["detector", *KINDS, "caught", "steps of warning", "false alarms of 100"]
    for row in (header, ["---"] * len(header), *table(kept)):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
