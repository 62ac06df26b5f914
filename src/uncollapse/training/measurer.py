"""Take the measures of a run, once: at its start, at its end, or afterwards from its checkpoint."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse._base.arrays import Array, rows_of_texts
from uncollapse._base.files import DamagedFileError
from uncollapse.data import LabelledImages
from uncollapse.geometry import diameter, hard_mined_loss
from uncollapse.health import drift, measure
from uncollapse.health.drifts import MODE_NEIGHBOURS, batch_gradient, has_unit_rows, mode_rates
from uncollapse.health.figures import balanced_rows, with_modes
from uncollapse.health.strategy import settings_of
from uncollapse.losses import Loss
from uncollapse.losses.memory import memories
from uncollapse.metrics.nearest_rows import nearest_of
from uncollapse.training import measures as files
from uncollapse.training.assemble import (
    build_loss,
    build_sampler,
    in_precision,
    load_eval_data,
    pick_device,
    run_settings,
)
from uncollapse.training.config import Config
from uncollapse.training.distributed import ALONE, Ranks, SharedBatchNorm
from uncollapse.training.evaluation import Evaluated, embed, evaluate_splits, find_judges
from uncollapse.training.measures import BatchFigures, Measures, Moment, NotMeasuredError, Samples
from uncollapse.training.run import Run, check_trusted, warn_user
from uncollapse.training.session import endless, first_network

_BATCHES = 8
_ROWS = 2000


def settled_copy(
    model: nn.Module, loss: Loss, config: Config, train: LabelledImages
) -> tuple[nn.Module, BatchFigures]:
    """A copy of the network that has seen the first 8 batches of its training, and their figures.

    The batches are those of the run's own sampler, of `train` as it is given. The copy is in
    evaluation mode, batch norm that has seen nothing yet at the plain mean of the batches'
    statistics; what is frozen, or was loaded with weights, keeps its own.
    Network, loss and random state are left as they are; every rank may do this for itself.
    """
    network, loss = copy.deepcopy(model), copy.deepcopy(loss).cpu()
    device = next(network.parameters(), torch.empty(0)).device
    _average_statistics(network.train())
    labels, batches = train.label_index, []
    with undisturbed(config.seed, device), torch.no_grad():
        for rows in itertools.islice(endless(build_sampler(config, train)), _BATCHES):
            z = network(train[rows][0].to(device)).float().cpu()
            batches.append((z, labels[rows], torch.as_tensor(rows)))
        figures = _figures(batches, loss, config)
    return network.eval(), figures


def _average_statistics(model: nn.Module) -> None:
    """Let batch norm keep the plain mean of all batches it sees from now on.

    Batch norm that has seen nothing would be evaluated with mean 0 and variance 1, which is another
    network: a GoogLeNet's diameter is then 0. Layers that are frozen, or have statistics already,
    stay as they are.
    """
    for layer in model.modules():
        if isinstance(layer, SharedBatchNorm):
            layer.ranks = ALONE  # it sees whole batches here
        if isinstance(layer, _BatchNorm) and layer.training:
            known = layer.running_mean is not None and bool(layer.running_mean.any())
            layer.momentum = 0.0 if known else None


@contextmanager
def undisturbed(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global random state inside the context, and restore it afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def _figures(
    batches: list[tuple[Tensor, Tensor, Tensor]], loss: Loss, config: Config
) -> BatchFigures:
    shares = [_share_of_anchors(labels) for _, labels, _ in batches]
    margin, count = config.loss.hinge_margin, len(batches)
    if not all(bool(torch.isfinite(z).all()) for z, _, _ in batches):
        unknown = None if margin is None else math.nan
        anchors = sum(shares) / count
        return BatchFigures(count, math.nan, unknown, math.nan, unknown, anchors)
    usable = [batch for batch, share in zip(batches, shares, strict=True) if share > 0.0]
    for memory in memories(loss):  # that of a run that has not begun: these batches
        memory.eval()
        if not len(memory.memory):
            for z, y, rows in batches:
                memory.enqueue(z, y, rows)
    hardest = slope = None
    if margin is not None:
        hardest = sum(hard_mined_loss(z, y, margin) for z, y, _ in usable) / count
        pairs = [(z, y) for z, y, _ in usable]
        unit = bool(pairs) and has_unit_rows(pairs[0][0])
        slope = drift(loss, pairs, normalize=unit).value if pairs else 0.0
    return BatchFigures(
        count=count,
        diameter=sum(diameter(z) for z, _, _ in batches) / count,
        hard_mined_loss=hardest,
        loss=sum(float(loss(z, y, sample_ids=rows)) for z, y, rows in usable) / count,
        drift=slope,
        anchors=sum(shares) / count,
        modes=_mode_drift(usable, loss),  # last: the figures above draw from the miner first
    )


def _mode_drift(batches: list[tuple[Tensor, Tensor, Tensor]], loss: Loss) -> float | None:
    """Mean of `mode_drift` over the batches with several modes per class; None without any."""
    rates = []
    for z, labels, rows in batches:
        batch_loss = partial(loss, sample_ids=rows)
        gradient = batch_gradient(batch_loss, z, labels, loss.normalize or has_unit_rows(z))
        rates.append(mode_rates(gradient, labels, MODE_NEIGHBOURS).value)
    known = [value for value in rates if not math.isnan(value)]
    return sum(known) / len(known) if known else None


def _share_of_anchors(labels: Tensor) -> float:
    """Share of samples that have a positive and a negative in the batch."""
    _, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    return float((counts[inverse] > 1).float().mean()) if len(counts) > 1 else 0.0


# A few queries with their nearest neighbours, as pictures or texts: EPS Fig. 4.

_QUERIES, _NEIGHBOURS = 6, 6
_SIDE = 96  # pixels; 42 colour pictures of this size are 1.2 MB
_TEXT = 2_000  # bytes of a text; a page shows less


def choose_samples(data: LabelledImages, embeddings: Tensor) -> Samples | None:
    """Six queries, balanced over classes and always the same, with their six nearest rows.

    `data` holds the rows of `embeddings`, which must be finite; None for fewer than two of them.
    """
    if len(embeddings) < 2:
        return None
    ids = _finest_ids(data)
    chosen = balanced_rows(ids, _QUERIES, np.random.default_rng(0))
    queries = torch.from_numpy(chosen[np.argsort(ids[chosen], kind="stable")])
    k = min(_NEIGHBOURS, len(embeddings) - 1)
    near = torch.from_numpy(nearest_of(embeddings, queries.numpy(), k))
    shown = torch.unique(torch.cat([queries, near.flatten()]))
    if data.holds_texts:
        texts = data.texts(shown) or []
        rows = rows_of_texts(texts)
        rows = rows if rows.shape[1] <= _TEXT else rows_of_texts(texts, _TEXT)
        return Samples(queries, near, shown, texts=rows)
    pixels = small_pictures(data.pixels(shown)) if len(data.shape) == 3 else None
    return Samples(queries, near, shown, pixels)


def small_pictures(pixels: Tensor, side: int = _SIDE) -> Tensor:
    """Pictures `[n, C, H, W]` as uint8, at most `side` high and wide; small ones stay as they are.

    Floats in [0, 1] are brightness; other ranges are stretched to it, picture by picture.

    >>> small_pictures(torch.ones(2, 3, 200, 100)).shape
    torch.Size([2, 3, 96, 48])
    """
    values = pixels.float()
    if pixels.dtype != torch.uint8:
        low, high = values.amin((1, 2, 3), keepdim=True), values.amax((1, 2, 3), keepdim=True)
        outside = (low < 0.0) | (high > 1.0)
        room = torch.where(high > low, high - low, 1.0)
        values = 255.0 * torch.where(outside, (values - low) / room, values)
    scale = min(1.0, side / max(pixels.shape[2:]))
    if scale < 1.0:
        size = [max(1, round(length * scale)) for length in pixels.shape[2:]]
        values = interpolate(values, size, mode="bilinear", antialias=True)
    return values.round().clamp(0, 255).to(torch.uint8)


class Measurer:
    """Measures a run into its folder: the definitions of all figures are in `measures`.

    `train` is the training split and `evaluated` the evaluation splits, as they are evaluated;
    `judges` are the galleries that are searched and the pairs that are verified, by split. Without
    an evaluation split, `train` stands in. `notes` are what a user should know.
    """

    def __init__(self, run: Run, config: Config, train: LabelledImages) -> None:
        self.run, self.config, self.train = run, config, train
        self.evaluated = {name: load_eval_data(config, name) for name in config.data.eval_splits}
        self.judges, self.notes = find_judges(config, self.evaluated)
        self.splits = self.evaluated or {config.data.train_split: train}
        self.rows = {name: fixed_rows(data) for name, data in self.splits.items()}

    def evaluate(self, network: nn.Module, ranks: Ranks = ALONE) -> Evaluated:
        """`evaluate_splits` of the evaluation splits, in the precision of the training."""
        with self._in_precision():
            return evaluate_splits(
                network, self.evaluated, self.config.evaluate, judges=self.judges, ranks=ranks
            )

    def _in_precision(self) -> AbstractContextManager[Any]:
        return in_precision(self.config, pick_device(self.config.train.device))

    def drop_damaged(self) -> str | None:
        """Remove damaged measures, which are then taken again; return what was wrong."""
        try:
            files.check_rows(self.run.path)
            if files.measures_file(self.run.path).is_file():
                self.run.measures()
        except (DamagedFileError, NotMeasuredError) as error:
            files.measures_file(self.run.path).unlink(missing_ok=True)
            return f"{error}; the measures are taken again"
        return None

    def take_before(
        self,
        network: nn.Module,
        batches: BatchFigures,
        loss: Loss,
        evaluated: Evaluated | None = None,
    ) -> Measures:
        """Measure the untrained network, a `settled_copy`; existing measures are kept.

        `evaluated` is the evaluation of this network, if it was made already.
        """
        if (known := self.run.known_measures()) is not None:
            return known
        moment, rows = self._moment(0, network, batches, evaluated)
        facts = {}
        for name, data in self.splits.items():
            names, count = (dict(data.class_names), dict(data.fine_names)), len(self.rows[name])
            facts[name] = files.SplitFacts(data.name, data.shape, len(data), count, *names)
        settings = run_settings(self.config).known(settings_of(loss))
        taken = Measures(facts, moment, None, settings, self.config.defaults())
        files.write_tensors(self.run.path / files.ROW_FILES[0], 0, rows)
        files.write_measures(self.run.path, taken)
        return taken

    def take_after(
        self, step: int, model: nn.Module, loss: Loss, evaluated: Evaluated | None = None
    ) -> Measures:
        """Measure the trained network, unless that was done at this step.

        Where the untrained network was not measured, it is built again and measured first.
        """
        known = self.run.known_measures() or self.take_before(*_rebuilt(self.config, self.train))
        if known.after is not None and known.after.step == step:
            return known
        batches = settled_copy(model, loss, self.config, self.train)[1]
        moment, rows = self._moment(step, model, batches, evaluated, known.before)
        samples: dict[str, Samples] = {}
        for name, data in self.splits.items():
            if not math.isfinite(moment.splits[name].health.diameter):
                continue
            chosen = choose_samples(data.subset(self.rows[name]), rows[name].embeddings)
            samples |= {} if chosen is None else {name: chosen}
        files.write_tensors(self.run.path / files.ROW_FILES[1], step, rows)
        files.write_tensors(self.run.path / files.ROW_FILES[2], step, samples)
        taken = replace(known, after=moment)
        # Last: the other files are there when it says so.
        files.write_measures(self.run.path, taken)
        return taken

    def _moment(
        self,
        step: int,
        network: nn.Module,
        batches: BatchFigures,
        evaluated: Evaluated | None,
        before: Moment | None = None,
    ) -> tuple[Moment, dict[str, files.SplitRows]]:
        evaluated = self.evaluate(network) if evaluated is None else evaluated
        figures, embedded = {}, {}
        for name, data in self.splits.items():
            rows = self.rows[name]
            points = evaluated.embeddings.get(name)
            if points is not None and len(points) == len(data):
                z = points[rows]
            else:
                with self._in_precision():
                    z = embed(network, data.subset(rows), batch=self.config.evaluate.batch)
            fine = None if data.fine_labels is None else data.fine_labels[rows]
            embedded[name] = files.SplitRows(rows, data.labels[rows], z, fine)
            labels = files.name_labels(data.labels[rows], data.class_names)
            health = measure(
                z,
                labels,
                reference=None if before is None else before.splits[name].health,
                fine_labels=None if fine is None else fine.numpy(),
                before=None if before is None else self.run.rows("before", name).embeddings,
                modes=fine is None,
                cosine=self.config.loss.normalizes,
            )
            if fine is not None:
                health = with_modes(health, z.numpy(), labels, fine.numpy())
            figures[name] = files.SplitFigures(health, evaluated.scores.get(name, {}))
        return Moment(step, batches, figures), embedded


def measure_run(
    run: Run, *, data_root: str | Path | None = None, warn: Callable[[str], None] = warn_user
) -> Measures:
    """Measure a run afterwards, from its dataset and its last checkpoint; returns all measures.

    For runs of earlier versions, and those that have not ended. What was measured while a run
    trained is kept; otherwise the network at its start is built again from the config. `data_root`
    says where the dataset is now. `warn` is called with what a user should know: measures that are
    damaged and taken again, a checkpoint that cannot be used and the older one that is.

    Raises `DataError` without the dataset, `CheckpointError` without a checkpoint.
    """
    config = run.config.with_root(data_root)
    check_trusted(run.path, config, trust=run.trust)
    train = load_eval_data(config, config.data.train_split)
    measurer = Measurer(run, config, train)
    chosen = run.choose()
    for text in filter(None, [*chosen.warnings, *measurer.notes, measurer.drop_damaged()]):
        warn(text)
    loss = build_loss(config, train)
    loss.load_state_dict(chosen.checkpoint.state["loss"])
    return measurer.take_after(chosen.checkpoint.step, chosen.model, loss)


def start_network(run: Run) -> nn.Module:
    """A run's network as it was before its first step, in evaluation mode, built again.

    Batch norm has the statistics described in `measures` for the network before training.
    """
    config = run.config
    check_trusted(run.path, config, trust=run.trust)
    return _rebuilt(config, load_eval_data(config, config.data.train_split))[0]


def _rebuilt(config: Config, train: LabelledImages) -> tuple[nn.Module, BatchFigures, Loss]:
    """The network before its first step, built again: its `settled_copy`, and the loss."""
    with undisturbed(config.seed, torch.device("cpu")):
        network = first_network(config, train).train()
    loss = build_loss(config, train)
    return *settled_copy(network, loss, config, train), loss


def fixed_rows(data: LabelledImages, most: int = _ROWS) -> Tensor:
    """At most `most` rows, balanced over the finest labels; always the same."""
    return torch.from_numpy(balanced_rows(_finest_ids(data), most, np.random.default_rng(0)))


def _finest_ids(data: LabelledImages) -> Array:
    labels = data.labels if data.fine_labels is None else data.fine_labels
    ids: Array = torch.unique(labels, return_inverse=True)[1].numpy()
    return ids
