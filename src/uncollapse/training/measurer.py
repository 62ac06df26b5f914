"""Take the measures of a run, once: at its start, at its end, or afterwards from its checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import Array
from uncollapse._base.files import DamagedFileError
from uncollapse.data import LabelledImages
from uncollapse.health import Health, measure
from uncollapse.health.fine_modes import with_modes
from uncollapse.health.sample import balanced_rows
from uncollapse.losses import Loss
from uncollapse.training.assemble import build_loss, load_eval_data
from uncollapse.training.config import Config
from uncollapse.training.evaluation import Evaluated, embed, evaluate_splits
from uncollapse.training.first_batches import settled_copy, undisturbed
from uncollapse.training.gallery_search import GallerySearch, find_searches
from uncollapse.training.measured_rows import (
    NotMeasuredError,
    SplitRows,
    read_rows,
    write_rows,
    write_samples,
)
from uncollapse.training.measures import (
    BatchFigures,
    Measures,
    Moment,
    SplitFacts,
    SplitFigures,
    check_rows,
    measures_file,
    name_labels,
    read_measures,
    write_measures,
)
from uncollapse.training.network_start import first_network
from uncollapse.training.pair_check import PairCheck, find_checks
from uncollapse.training.run import Run, warn_user
from uncollapse.training.sample_pictures import choose_samples
from uncollapse.training.summary import reseal
from uncollapse.training.trust import check_trusted

__all__ = ["Measurer", "fixed_rows", "measure_run", "start_network"]

_ROWS = 2000


class Measurer:
    """Measures a run into its folder: the definitions of all figures are in `measures`.

    Args:
        folder: the run's.
        config: the run's.
        train: the training split, as it is evaluated.
        splits: the evaluation splits, as they are evaluated; `train` stands in where there is none.
        searches: the splits that are queries, with their gallery.
        checks: the splits with pairs to verify.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        train: LabelledImages,
        splits: Mapping[str, LabelledImages],
        searches: Mapping[str, GallerySearch] | None = None,
        checks: Mapping[str, PairCheck] | None = None,
    ) -> None:
        self.folder, self.config, self.train, self.evaluated = folder, config, train, splits
        self.searches, self.checks = dict(searches or {}), dict(checks or {})
        self.splits = dict(splits) or {config.data.train_split: train}
        self.rows = {name: fixed_rows(data) for name, data in self.splits.items()}

    def known(self) -> Measures | None:
        """What was measured before this."""
        try:
            return read_measures(self.folder)
        except NotMeasuredError:
            return None

    def drop_damaged(self) -> str | None:
        """Remove measures that cannot be used: they are taken again. Says what was wrong."""
        try:
            check_rows(self.folder)
            self.known()
        except (DamagedFileError, NotMeasuredError) as error:
            measures_file(self.folder).unlink(missing_ok=True)
            return f"{error}; the measures are taken again"
        return None

    def settled(self, model: nn.Module, loss: Loss) -> tuple[nn.Module, BatchFigures]:
        """`settled_copy` of a network, with this run's batches."""
        return settled_copy(model, loss, self.config, self.train)

    def take_before(
        self, network: nn.Module, batches: BatchFigures, seen: Evaluated | None = None
    ) -> Measures:
        """Measure the untrained network, which is `settled`; what is known already is kept.

        `seen` is the evaluation of this network, if it was made already.
        """
        known = self.known()
        if known is not None:
            return known
        moment, embedded = self._moment(0, network, batches, seen)
        facts = {
            name: SplitFacts(
                data.name,
                data.shape,
                len(data),
                len(self.rows[name]),
                dict(data.class_names),
                dict(data.fine_names),
            )
            for name, data in self.splits.items()
        }
        measures = Measures(facts, moment)
        write_rows(self.folder, "before", 0, embedded)
        write_measures(self.folder, measures)
        return measures

    def rebuild(self, shape: Sequence[int]) -> tuple[nn.Module, BatchFigures]:
        """The `settled` network as it was before training: the config's seed gives its weights.

        `shape` is that of a sample as the network sees it.
        """
        with undisturbed(self.config.seed, torch.device("cpu")):
            model = first_network(self.config, self.train, shape).train()
        return self.settled(model, build_loss(self.config, self.train))

    def rebuild_before(self, shape: Sequence[int]) -> Measures:
        """`take_before` of the network built again from the config."""
        return self.take_before(*self.rebuild(shape))

    def take_after(
        self, step: int, model: nn.Module, loss: Loss, seen: Evaluated | None = None
    ) -> Measures:
        """Measure the trained network; where that was done at this step, nothing is.

        The measures before training must be there.
        """
        known = read_measures(self.folder)
        if known.after is not None and known.after.step == step:
            return known
        batches = self.settled(model, loss)[1]
        moment, embedded = self._moment(step, model, batches, seen, known.before)
        found = {
            name: choose_samples(
                data.subset(self.rows[name]), _finest(data, self.rows[name]), rows.embeddings
            )
            for (name, data), rows in zip(self.splits.items(), embedded.values(), strict=True)
            if math.isfinite(moment.splits[name].health.diameter)
        }
        write_rows(self.folder, "after", step, embedded)
        write_samples(self.folder, step, {k: one for k, one in found.items() if one is not None})
        measures = replace(known, after=moment)
        write_measures(self.folder, measures)  # last: the other files are there when it says so
        return measures

    def _moment(
        self,
        step: int,
        network: nn.Module,
        batches: BatchFigures,
        seen: Evaluated | None,
        before: Moment | None = None,
    ) -> tuple[Moment, dict[str, SplitRows]]:
        settings = self.config.evaluate
        if seen is None:
            seen = evaluate_splits(
                network, self.evaluated, settings, searches=self.searches, checks=self.checks
            )
        figures, embedded = {}, {}
        for name, data in self.splits.items():
            rows = self.rows[name]
            points = seen.embeddings.get(name)
            if points is not None and len(points) == len(data):
                z = points[rows]
            else:
                z = embed(network, data.subset(rows), batch=settings.batch)
            embedded[name] = _rows(data, rows, z)
            reference = None if before is None else before.splits[name].health
            start = None if before is None else read_rows(self.folder, "before", name).embeddings
            cosine = self.config.loss.normalizes
            health = _health(data, rows, z, reference, start, cosine=cosine)
            figures[name] = SplitFigures(health, seen.scores.get(name, {}))
        return Moment(step, batches, figures), embedded


def measure_run(
    run: Run,
    *,
    data_root: str | Path | None = None,
    warn: Callable[[str], None] = warn_user,
) -> Measures:
    """Measure a run afterwards, from its dataset and its last checkpoint; returns all measures.

    For runs of earlier versions, and those that have not ended. What was measured while a run
    trained is kept; otherwise the network at its start is built again from the config. `data_root`
    says where the dataset is now. What a user should know is told to `warn`: measures that are
    damaged and taken again, a checkpoint that cannot be used and the older one that is.

    Raises `DataError` without the dataset, `CheckpointError` without a checkpoint.
    """
    config = run.config.with_root(data_root)
    check_trusted(run.path, config, trust=run.trust)
    train = load_eval_data(config, config.data.train_split)
    splits = {name: load_eval_data(config, name) for name in config.data.eval_splits}
    searches, unsearched = find_searches(config, splits)
    checks, unchecked = find_checks(config, splits, searches)
    measurer = Measurer(run.path, config, train, splits, searches, checks)
    chosen = run.choose()
    said = [*chosen.warnings, *unsearched, *unchecked]
    for text in [*said, *filter(None, [measurer.drop_damaged()])]:
        warn(text)
    if measurer.known() is None:
        measurer.rebuild_before(chosen.checkpoint.state["shape"])
    loss = build_loss(config, train)
    loss.load_state_dict(chosen.checkpoint.state["loss"])
    measures = measurer.take_after(chosen.step, chosen.model, loss)
    reseal(run)
    return measures


def start_network(run: Run, config: Config | None = None) -> nn.Module:
    """A run's network as it was before its first step, in evaluation mode, built again.

    Where it has batch norm, that holds what `measures` says of a network before training. `config`
    is the run's, with another place of the dataset.
    """
    config = run.config if config is None else config
    check_trusted(run.path, config, trust=run.trust)
    train = load_eval_data(config, config.data.train_split)
    return Measurer(run.path, config, train, {}).rebuild(run.sample_shape)[0]


def fixed_rows(data: LabelledImages, most: int = _ROWS) -> Tensor:
    """At most so many rows, as even over the finest labels as these allow, always the same."""
    labels = data.labels if data.fine_labels is None else data.fine_labels
    ids = torch.unique(labels, return_inverse=True)[1].numpy()
    return torch.from_numpy(balanced_rows(ids, most, np.random.default_rng(0)))


def _health(
    data: LabelledImages,
    rows: Tensor,
    z: Tensor,
    reference: Health | None = None,
    before: Tensor | None = None,
    *,
    cosine: bool,
) -> Health:
    labels = name_labels(data.labels[rows], data.class_names)
    fine = None if data.fine_labels is None else data.fine_labels[rows].numpy()
    found = measure(
        z,
        labels,
        reference=reference,
        fine_labels=fine,
        before=before,
        modes=fine is None,
        cosine=cosine,
    )
    return found if fine is None else with_modes(found, z.numpy(), labels, fine)


def _rows(data: LabelledImages, rows: Tensor, z: Tensor) -> SplitRows:
    fine = None if data.fine_labels is None else data.fine_labels[rows]
    return SplitRows(rows, data.labels[rows], fine, z)


def _finest(data: LabelledImages, rows: Tensor) -> Array:
    if data.fine_labels is None:
        return name_labels(data.labels[rows], data.class_names)
    return name_labels(data.fine_labels[rows], data.fine_names)
