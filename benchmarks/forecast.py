"""Forecast beside outcome: do drift, drift + probe and the bound (17) predict_scale collapse?

python benchmarks/forecast.py            all data (Omniglot in UNCOLLAPSE_DATA)
python benchmarks/forecast.py --quick    what comes with the packages
"""

from __future__ import annotations

import random
import sys
from itertools import product
from typing import Any

from _forecast_table import Outcome, picture, summary, write_csv
from _study import Setting, asked, cached, recall, splits
from uncollapse.geometry import diameter
from uncollapse.health.drift_forecast import embedded_batches, forecast
from uncollapse.losses import TripletLoss
from uncollapse.training.assemble import build_loss, build_model
from uncollapse.training.session import Session

SEEN = ("scales", "relative_losses", "drifts")  # of a probe
PROBE, BATCHES, OTHER_BATCHES = 40, 8, 1000  # the forecast sees other batches than the run
STRATEGIES: tuple[dict[str, Any], ...] = (
    {"positives": "hard", "negatives": "hard"},
    {"positives": "hard", "negatives": "hard", "margin": 0.0},
    {"positives": "hard", "negatives": "hard", "scale_free": True},
    {"positives": "hard", "negatives": "semihard"},
    {"positives": "easy", "negatives": "hard"},
    {"positives": "easy", "negatives": "semihard"},
    {"positives": "inside", "negatives": "hard"},
)
# data, backbone, (P, K), dimensions, seeds
SHAPES = ((4, 4), (10, 4), (10, 16))
GRID: tuple[tuple[str, str, tuple[tuple[int, int], ...], tuple[int, ...], int], ...] = (
    ("digits", "mlp", SHAPES, (4, 64), 2),
    ("noisy digits", "mlp", SHAPES, (4, 64), 2),
    ("noisy digits", "conv2", ((4, 4), (10, 16)), (64,), 2),
    ("mnist parity", "mlp", ((2, 4), (2, 64)), (16,), 1),
    ("letters", "mlp", ((4, 4), (18, 8), (36, 4)), (4, 64), 2),
    ("letters", "conv2", ((4, 4), (18, 8)), (64,), 2),
)


def grid(names: list[str]) -> list[Setting]:
    """All runs in random order: a study cut short is a sample of the whole."""
    found = [
        Setting(name, backbone, p, k, dim, **strategy, seed=seed)
        for name, backbone, shapes, dims, seeds in GRID
        for (p, k), dim, strategy, seed in product(shapes, dims, STRATEGIES, range(seeds))
        if name in names
    ]
    random.Random(0).shuffle(found)
    return found


def one_run(setting: Setting) -> dict[str, Any]:
    """Forecast, then train and look."""
    train, test = splits(setting.data)
    config = setting.config()
    model, loss = build_model(config, train.shape), build_loss(config, train)
    assert isinstance(loss, TripletLoss)
    other = setting.seed + OTHER_BATCHES
    (cell,) = forecast(
        model,
        train,
        [setting.p],
        [setting.k],
        loss_fn=loss,
        alternatives=False,
        batches=BATCHES,
        probe_steps=PROBE,
        probe_lr=setting.lr,
        seed=other,
    ).cells
    assert cell.probe is not None
    session = Session(config, train)
    before = recall(session, test)
    for _ in range(setting.steps):
        session.advance()
    assert session.guard is not None
    monitor = session.guard.monitor
    assert monitor.health is not None
    batches = embedded_batches(session.model, train, setting.p, setting.k, BATCHES, other)
    return {
        "drift": cell.drift,
        "spread": cell.spread,
        "diameter": cell.diameter,
        "loss": cell.loss,
        "bound": cell.bound,
        "probe": {name: [float(f"{v:.5g}") for v in getattr(cell.probe, name)] for name in SEEN},
        "verdict": monitor.verdict,
        "changes": monitor.changes,
        "scale": monitor.health.relative_diameter,
        "diameter_after": sum(diameter(z) for z, _ in batches) / BATCHES,
        "recall_before": before,
        "recall": recall(session, test),
    }


def main() -> int:
    chosen = asked(__doc__ or "", "forecast")
    found = cached(grid(chosen.names), one_run, chosen.cache, chosen.jobs)
    runs = [Outcome(setting, result) for setting, result in found]
    text = summary(runs)
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        write_csv(runs, chosen.out / "runs.csv")
        picture(runs, chosen.out / "scores.png")
        (chosen.out / "summary.md").write_text(
            f"# The forecast beside what came of it\n\n{text}\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
