"""Scores of a run's network before training, beside those that are shown: measured, or made now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse.training import Config, Run
    from uncollapse.training.sections import EvaluateConfig

__all__ = ["scores_before"]


def scores_before(
    run: Run,
    config: Config,
    settings: EvaluateConfig,
    scores: Mapping[str, float],
    console: Console,
) -> dict[str, float]:
    """What the network before training had of these scores, by the same names.

    Where the run's measures lack one (another split, NMI), the network is built again for it; where
    that cannot be done, a warning says why and the score is left out.
    """
    from uncollapse.cli.errors import warn
    from uncollapse.data import DataError
    from uncollapse.training import CheckpointError
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.evaluation import evaluate_splits, find_searches
    from uncollapse.training.measurer import start_network
    from uncollapse.training.measures import measures_file
    from uncollapse.training.run import find_damage, start_scores

    damage = [text for text in find_damage(run) if text.startswith(str(measures_file(run.path)))]
    for text in damage:
        warn(f"{text}; the scores before training are made again")
    known = {} if damage else start_scores(run)
    missing = list(dict.fromkeys(key.partition("/")[0] for key in scores if key not in known))
    if missing:
        try:
            with console.status("embedding with the network before training"):
                network = start_network(run, config)
                for name in missing:
                    data = load_eval_data(config, name)
                    searches, _ = find_searches(config, {name: data})
                    seen = evaluate_splits(network, {name: data}, settings, searches=searches)
                    known |= seen.flat()
        except (DataError, CheckpointError) as error:
            warn(f"no scores before training of {', '.join(missing)}: {error}")
    return {key: value for key, value in known.items() if key in scores}
