"""The noise question asked of a run: EPS §4.2 on its own data and network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from uncollapse.health import NoiseProbe, noise_probe
from uncollapse.training.assemble import load_eval_data
from uncollapse.training.config import Config
from uncollapse.training.evaluation import evenly_spaced
from uncollapse.training.network_start import first_network
from uncollapse.training.run import Run
from uncollapse.training.trust import check_trusted

__all__ = ["noise_probe_run"]


def noise_probe_run(
    run: Run | Config,
    p: Sequence[float] = (1.0, 0.9, 0.8, 0.7),
    *,
    steps: int = 200,
    max_samples: int = 2000,
    fine_tune: bool = False,
) -> NoiseProbe:
    """Inject label noise into a run's training data, train briefly, and compare positives.

    At each p the config's network is trained from scratch (`fine_tune` starts from the run's last
    checkpoint) for `steps`, once with regular and once with easy positives, on at most
    `max_samples` evenly spaced samples. Fine labels, where the data has them, are used to judge.
    """
    config = run.config if isinstance(run, Run) else run
    data = load_eval_data(config, config.data.train_split)
    rows = evenly_spaced(len(data), max_samples)
    samples, labels = data[rows]
    if isinstance(run, Run):
        check_trusted(run.path, config, trust=run.trust)

    def network() -> nn.Module:
        if fine_tune and isinstance(run, Run):
            return run.load_model()
        return first_network(config, data, replace(data, features=None)[:1][0].shape[1:])

    return noise_probe(
        network,
        samples,
        labels,
        p,
        fine_labels=None if data.fine_labels is None else data.fine_labels[rows],
        steps=steps,
        lr=config.optimiser.lr,
        seed=config.seed,
    )
