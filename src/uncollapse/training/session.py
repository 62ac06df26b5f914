"""A run in memory: network, loss, optimiser and batches; a step at a time, saved whole."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse.backbones import Embedder
from uncollapse.backbones.head import pooled
from uncollapse.data import LabelledImages
from uncollapse.geometry import diameter
from uncollapse.health import CollapseMonitor
from uncollapse.health import race as races
from uncollapse.health.figures import balanced_rows
from uncollapse.health.guard import Guard, GuardEvent
from uncollapse.health.strategy import finer_classes
from uncollapse.samplers.batches import SeededBatches
from uncollapse.training import assemble, distributed
from uncollapse.training.checkpoint import Checkpoint, CheckpointError
from uncollapse.training.config import Config
from uncollapse.training.distributed import ALONE, LostRankError, Ranks
from uncollapse.training.evaluation import evenly_spaced


def batches_from(
    place: int, data: LabelledImages, sampler: SeededBatches, workers: int, ranks: Ranks
) -> Iterator[tuple[Tensor, Tensor]]:
    """`(images, rows)` without end, from batch `place` of the run on.

    `images` are this rank's share of the batch, `rows` those of the whole. With `workers` the
    images are read ahead in other processes; the batches stay the same.
    """
    epoch, done = divmod(place, len(sampler))
    sampler.load_state_dict(sampler.state_dict() | {"epoch": epoch, "done": done})
    requested: deque[list[int]] = deque()  # batches in the order the loader asks for them

    def shares() -> Iterator[list[int]]:
        for rows in endless(sampler):
            requested.append(rows)
            yield rows[ranks.share(len(rows))]

    # With a generator of its own the loader leaves torch's random state alone.
    for images, _ in data.loader(shares(), workers=workers, generator=torch.Generator()):
        yield images, torch.as_tensor(requested.popleft())


def endless(sampler: SeededBatches) -> Iterator[list[int]]:
    """Epoch after epoch: at the end of one the sampler goes on to the next."""
    while True:
        yield from sampler


# The network a run begins with: built from its config and, with `model.head = "pca"`, its data.

_SAMPLES = 4096  # axes of more would hardly differ
_BATCH = 128


def first_network(config: Config, train: LabelledImages) -> Embedder:
    """`build_model`, its head at the principal axes of the training samples if asked for.

    The same config and data give the same network.
    """
    model = assemble.build_model(config, assemble.sample_shape(config, train))
    if config.model.head != "pca":
        return model
    data, rows = assemble.as_evaluated(train, config), evenly_spaced(len(train), _SAMPLES)
    model.eval()
    device = assemble.pick_device(config.train.device)
    with torch.no_grad(), assemble.in_precision(config, device):
        starts = range(0, len(rows), _BATCH)
        parts = [pooled(model.features(data[rows[s : s + _BATCH]][0])) for s in starts]
        model.head.start_from_axes(torch.cat(parts))
    return model.train()


_PARTS = ("loss", "optimizer", "scaler", "augment")  # that have a state of their own


class Session:
    """Everything that changes during a run. `advance` makes a step, `checkpoint` saves.

    Each of several ranks has its share of the batch and a copy of everything else. Every rank
    computes the loss of the whole batch, and backpropagates through its own share.
    """

    def __init__(self, config: Config, data: LabelledImages, ranks: Ranks = ALONE) -> None:
        self.config, self.data, self.ranks = config, data, ranks
        self.batch_size = config.batch.samples  # on all ranks together
        if self.batch_size < ranks.size:
            allowed = f"a batch of at least one sample for each of {ranks.size} ranks"
            raise InputError("batch", f"{self.batch_size} samples", allowed)
        self.device = assemble.pick_device(config.train.device)
        if config.train.precision == "float16" and self.device.type != "cuda":
            given = f"'float16' on {self.device.type}"
            raise InputError("train.precision", given, "float32 or bfloat16 where there is no CUDA")
        self.class_of = data.label_index
        self.shape = assemble.sample_shape(config, data)
        self.augment = assemble.training_transform(config)
        torch.manual_seed(config.seed)  # for what draws from torch's own state, such as dropout
        self.model = first_network(config, data).to(self.device).train()
        distributed.synchronise_batch_norm(self.model, ranks)
        self.loss = assemble.build_loss(config, data).to(self.device)
        self.optimizer = assemble.build_optimizer(config, self.model, self.loss)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=config.train.precision == "float16"
        )
        self.go_to_batch(0)
        self.guard = None if config.guard.action == "off" else _guard(self)
        self.step = 0
        self.best = float("-inf")
        self.log_offset = 0
        self.latest: dict[str, Any] = {}  # the last value of each key that was logged

    def advance(self) -> dict[str, Any]:
        """One step; returns its loss and, on steps that are logged, the batch's diameter.

        Embeddings or a loss that are not finite change no weights. Where the guard then rolled the
        run back, the step has no loss; where it did not, its loss is NaN or infinite.
        """
        self.begin_step()
        images, rows = self.take_batch()
        z, value = self.train_on(images, rows)
        self.step += 1
        lost = not math.isfinite(value)
        events = self._guarded(z, self.class_of[rows], value)
        values: dict[str, Any] = {"loss": value}
        if events:
            values["event"] = "; ".join(event.text for event in events)
            races = [event.race.to_dict() for event in events if event.race is not None]
            values |= {"race": races[-1]} if races else {}
        if lost:
            if any(event.kind == "rescue" for event in events):
                del values["loss"]
            return values | {"verdict": "diverging"}
        if self.step % self.config.train.log_every == 0:
            values |= self._figures(z)
        return values

    def begin_step(self) -> None:
        """Set the learning rate and, on several ranks, the random streams of this step."""
        factor = assemble.learning_rate(self.config, self.step)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        if self.ranks.size == 1:
            return
        # On several ranks a stream for each: a function of the step, so that nothing is saved. The
        # miner of the whole batch keeps its generator, which draws the same on every rank.
        seeds = np.random.SeedSequence((self.config.seed, self.step, self.ranks.rank))
        own = int(seeds.generate_state(1, np.uint64)[0] >> 1)
        torch.default_generator.manual_seed(own)  # torch.manual_seed costs far more
        if self.device.type == "cuda":
            torch.cuda.manual_seed(own)
        self.augment.load_state_dict({"generator": torch.Generator().manual_seed(own).get_state()})

    def take_batch(self) -> tuple[Tensor, Tensor]:
        """The next batch of the run as it is trained on: this rank's images, and all rows."""
        images, rows = next(self.stream)
        self.place += 1
        return self.augment(images).to(self.device, non_blocking=True), rows

    def go_to_batch(self, place: int) -> None:
        """Let the next batch be the one that follows the first `place` batches of the run."""
        sampler, workers = assemble.build_sampler(self.config, self.data), self.config.data.workers
        self.place = place
        self.stream = batches_from(place, self.data, sampler, workers, self.ranks)

    def train_on(self, images: Tensor, rows: Tensor) -> tuple[Tensor, float]:
        """A step of the optimiser; the whole batch's embeddings and loss, NaN if not finite.

        Embeddings that are not finite have no loss; every rank sees the same ones.
        """
        counts = self.ranks.counts(len(rows))
        z = self.forward(images).float()
        z = distributed.gather(z, self.ranks, counts=counts, adjoint="own")
        if not _finite(z):
            return z, math.nan
        labels, own = self.class_of[rows].to(self.device), self.config.loss
        ids = {"sample_ids": rows.to(self.device)} if own.wants_sample_ids or own.memory else {}
        return z, self._descend(self.loss(z, labels, **ids))

    def forward(self, images: Tensor) -> Tensor:
        """Images through the network, in the run's precision."""
        with assemble.in_precision(self.config, self.device):
            return self.model(images)  # type: ignore[no-any-return]

    def rescue_lost(self) -> str | None:
        """Roll back a network that has diverged; returns what was done, None if nothing."""
        nothing = torch.full((2, self.config.model.dim), math.nan)
        rescues = [e.text for e in self._guarded(nothing, None, None) if e.kind == "rescue"]
        return "; ".join(rescues) or None

    @property
    def stopped(self) -> bool:
        """Whether the guard has asked the run to end."""
        return self.guard is not None and self.guard.stopped

    @property
    def sound(self) -> bool:
        """Whether all weights are finite."""
        return all(_finite(p) for part in (self.model, self.loss) for p in part.parameters())

    def check_ranks(self) -> None:
        """Raise if the ranks no longer have the same weights."""
        if self.ranks.size > 1:
            digest = 0
            for part in (self.model, self.loss):
                for tensor in part.state_dict().values():
                    digest = zlib.crc32(tensor.detach().cpu().contiguous().numpy(), digest)
            if len(set(self.ranks.all_values(digest))) > 1:
                raise LostRankError("the ranks have drifted apart: their weights differ")

    def checkpoint(self) -> Checkpoint:
        """The whole state, as it is between two steps: the same whatever the number of ranks."""
        state = {name: getattr(self, name).state_dict() for name in _PARTS} | {
            "config": self.config.flat(),
            "shape": list(self.shape),
            "torch": torch.get_rng_state(),
            "place": self.place,
            "best": self.best,
            "log_offset": self.log_offset,
            "latest": self.latest,
            "guard": None if self.guard is None else self.guard.state_dict(),
        }
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return Checkpoint(self.step, self.model.state_dict(), state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a saved state; `CheckpointError` for one that is not of this run."""
        checkpoint.check_config(self.config, resuming=True)
        checkpoint.check_tensors(self.model.state_dict())
        state = checkpoint.state
        try:
            self.model.load_state_dict(dict(checkpoint.weights))
            for name in _PARTS:
                getattr(self, name).load_state_dict(state[name])
            torch.set_rng_state(state["torch"])
            if self.device.type == "cuda" and "cuda" in state:
                torch.cuda.set_rng_state(state["cuda"], self.device)
            self.go_to_batch(state["place"])
            if self.guard is not None:
                self.guard.load_state_dict(state["guard"])
            self.step, self.best = checkpoint.step, state["best"]
            self.log_offset, self.latest = state["log_offset"], dict(state["latest"])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            lost = f"has no {error}" if isinstance(error, KeyError) else "does not fit"
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} cannot be resumed: its state {lost}. It "
                "is damaged, of another run, or was written by an earlier version"
            ) from error

    def _descend(self, loss: Tensor) -> float:
        """One optimiser step on a loss, unless it is not finite; returns its value."""
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        distributed.sum_gradients(self.model.parameters(), self.ranks)
        distributed.share_gradients(self.loss.parameters(), self.ranks)
        value = float(loss.detach())
        if not math.isfinite(value):
            return value
        clip = self.config.optimizer.clip
        if clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return value

    def _guarded(
        self, z: Tensor, labels: Tensor | None, loss: float | None
    ) -> Sequence[GuardEvent]:
        return () if self.guard is None else self.guard.after_step(z, labels, loss, self.step)

    def _figures(self, z: Tensor) -> dict[str, Any]:
        """What is logged besides the loss."""
        figures: dict[str, Any] = {"diameter": diameter(z.detach())}
        health = None if self.guard is None else self.guard.monitor.health
        if health is not None:
            figures["verdict"] = health.verdict
            if health.classes:
                ratios = [c.ratio for c in health.classes]
                figures["class_diameter_ratio"] = sum(ratios) / len(ratios)
        lowered = 1.0 if self.guard is None else self.guard.lr_factor
        return figures | {"lr": self.optimizer.param_groups[0]["lr"] * lowered}


def _guard(session: Session) -> Guard:
    c = session.config.guard
    if c.action == "rescue" and session.config.loss.wants_sample_ids:
        # Drift is measured on a reservoir, whose rows have no β of their own.
        given = "'rescue' with loss.beta_per = 'sample'"
        raise InputError("guard.action", given, "'warn' or 'stop', or loss.beta_per = 'class'")
    settings = replace(
        assemble.run_settings(session.config), several_modes=finer_classes(session.data)
    )
    monitor = CollapseMonitor(session.loss, settings=settings, every=c.every)
    parts, steps = (session.model, session.optimizer, session.loss), session.config.train.steps
    keys = c.model_dump(include={"action", "tolerance", "race"})
    return Guard(*parts, monitor, **keys, steps=steps, trial=SessionTrial(session))


def _finite(z: Tensor) -> bool:
    return bool(torch.isfinite(z.detach()).all())


# Races of strategies inside a run: the session's own steps, on batches of its own stream.

_PER_CLASS = 4  # held-out rows of a class, where there are classes enough
_FEWEST = 48
_BYTES = 2**30  # of batches that are kept; a longer race goes over them again


class SessionTrial(races.Trial):
    """The session as `health.race` uses it; each rank trains its share and evaluates all rows."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.model, session.optimizer, session.loss)
        self.session = session

    def batches_taken(self) -> int:
        """How many batches the run has taken."""
        return self.session.place

    def rewind(self, batches_taken: int) -> None:
        """Go back to the batch that follows the restored weights."""
        self.session.go_to_batch(batches_taken)

    def race_data(self, steps: int, rows: int) -> races.RaceData | None:
        """The next batches of the run, and rows of its training data that are not in them."""
        s, batches = self.session, []
        for _ in range(steps):
            batches.append(s.take_batch())
            if (len(batches) + 1) * batches[0][0].nbytes > _BYTES:
                break
        taken = [batch for _, batch in batches]
        seen = torch.cat(taken).numpy() if taken else np.arange(0)
        rng = np.random.default_rng((s.config.seed, s.step))
        held = held_out(s.class_of.numpy(), seen, rows, rng)
        if len(held) < _FEWEST:
            return None
        chosen = torch.from_numpy(held)
        images, _ = assemble.as_evaluated(s.data, s.config)[chosen]
        return races.RaceData(batches, images.to(s.device), s.class_of[chosen])

    def train(self, batch: tuple[Tensor, Tensor]) -> None:
        """One step, as the run makes it."""
        self.session.train_on(*batch)

    @torch.no_grad()
    def embed(self, held: Tensor) -> Tensor:
        """Held-out rows through the network, in blocks as large as a batch."""
        s = self.session
        with races.eval_except_batch_norm(s.model):
            parts = [s.forward(part).float().cpu() for part in torch.split(held, s.batch_size)]
        z = torch.cat(parts)
        return functional.normalize(z, dim=1) if s.loss.normalize else z


def held_out(ids: Array, seen: Array, most: int, rng: np.random.Generator) -> Array:
    """At most `most` held-out rows, several per class, not in `seen` if there are enough.

    >>> rows = held_out(np.arange(40) % 8, np.arange(8), 12, np.random.default_rng(0))
    >>> len(rows), min(rows.tolist()) >= 8, np.unique(rows % 8, return_counts=True)[1].tolist()
    (12, True, [4, 4, 4])
    """
    unseen = np.setdiff1d(np.arange(len(ids)), seen)
    counts = np.bincount(ids[unseen], minlength=int(ids.max()) + 1)
    if counts[counts > 1].sum() < min(_FEWEST, most):  # every sample is in some batch
        unseen = np.arange(len(ids))
        counts = np.bincount(ids)
    several = rng.permutation(np.flatnonzero(counts > 1))[: max(2, most // _PER_CLASS)]
    pool = unseen[np.isin(ids[unseen], several)]
    return pool[balanced_rows(np.unique(ids[pool], return_inverse=True)[1], most, rng)]
