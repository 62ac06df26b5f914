"""A run in memory: network, loss, optimiser and batches; a step at a time, saved whole."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError
from uncollapse.backbones import Embedder
from uncollapse.backbones.head import pooled
from uncollapse.data import Compose, LabelledImages
from uncollapse.geometry import diameter
from uncollapse.health import CollapseMonitor
from uncollapse.health.guard import Guard, GuardEvent
from uncollapse.health.strategy import finer_classes
from uncollapse.losses.memory import memories, reading
from uncollapse.mining import Miner
from uncollapse.samplers.batches import SeededBatches
from uncollapse.training import assemble, distributed
from uncollapse.training.checkpoint import Checkpoint, CheckpointError, check_config, check_tensors
from uncollapse.training.config import Config
from uncollapse.training.distributed import ALONE, Ranks
from uncollapse.training.evaluation import evenly_spaced
from uncollapse.training.races import SessionTrial

__all__ = ["BatchStream", "Session", "endless", "first_network"]


class BatchStream:
    """`(images, rows)` without end; `place` is the number of batches taken so far.

    `images` are this rank's share of the batch, `rows` those of the whole. With `workers` the
    images are read ahead in other processes; the batches stay the same.
    """

    def __init__(
        self,
        data: LabelledImages,
        sampler: SeededBatches,
        *,
        workers: int = 0,
        place: int = 0,
        ranks: Ranks = ALONE,
    ) -> None:
        self.data, self.place, self.ranks = data, place, ranks
        epoch, done = divmod(place, len(sampler))
        sampler.load_state_dict(sampler.state_dict() | {"epoch": epoch, "done": done})
        self._batches = self._ahead(sampler, workers) if workers else self._read(sampler)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        images, rows = next(self._batches)
        self.place += 1
        return images, torch.as_tensor(rows)

    def _read(self, sampler: SeededBatches) -> Iterator[tuple[Tensor, list[int]]]:
        for rows in endless(sampler):
            yield self.data[rows[self.ranks.share(len(rows))]][0], rows

    def _ahead(self, sampler: SeededBatches, workers: int) -> Iterator[tuple[Tensor, list[int]]]:
        asked: deque[list[int]] = deque()  # batches in the order the loader asks for them

        def shares() -> Iterator[list[int]]:
            for rows in endless(sampler):
                asked.append(rows)
                yield rows[self.ranks.share(len(rows))]

        for images, _ in self.data.loader(shares(), workers=workers):
            yield images, asked.popleft()


def endless(sampler: SeededBatches) -> Iterator[list[int]]:
    """Epoch after epoch: at the end of one the sampler goes on to the next."""
    while True:
        yield from sampler


# The network a run begins with: built from its config and, with `model.head = "pca"`, its data.

_SAMPLES = 4096  # axes of more would hardly differ
_BATCH = 128


def first_network(config: Config, train: LabelledImages, shape: Iterable[int]) -> Embedder:
    """`build_model`, its head at the principal axes of the training samples if asked for.

    The same config and data give the same network.
    """
    model = assemble.build_model(config, shape)
    if config.model.head != "pca":
        return model
    data = replace(train, transform=assemble.evaluation_transform(config.data))
    rows = evenly_spaced(len(data), _SAMPLES)
    model.eval()
    with torch.no_grad():
        starts = range(0, len(rows), _BATCH)
        parts = [pooled(model.features(data[rows[s : s + _BATCH]][0])) for s in starts]
        model.head.start_from_axes(torch.cat(parts))
    return model.train()


_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# What a checkpoint must have to go on with.
_STATE = (
    *("config", "shape", "loss", "optimizer", "scaler", "augment", "torch", "place"),
    *("best", "guard", "log_offset", "latest"),
)


class Session:
    """Everything that changes during a run. `advance` makes a step; the rest is saving.

    On several ranks each has its share of the batch and all of everything else, the same on each:
    the loss is computed of the whole batch by every rank, and only its own share goes backward.
    """

    def __init__(self, config: Config, data: LabelledImages, ranks: Ranks = ALONE) -> None:
        self.config, self.data, self.ranks = config, data, ranks
        self.apart = config.mining.scope == "rank" and ranks.size > 1
        _check_shares(config, ranks, self.apart)
        self.device = assemble.pick_device(config.train.device)
        if config.train.precision == "float16" and self.device.type != "cuda":
            given = f"'float16' on {self.device.type}"
            raise InputError("train.precision", given, "float32 or bfloat16 where there is no CUDA")
        self.class_of = data.label_index
        self.augment = _augment(config)
        untouched = self.augment.state_dict()
        self.shape = tuple(self.augment(replace(data, features=None)[:1][0]).shape[1:])
        self.augment.load_state_dict(untouched)
        torch.manual_seed(config.seed)  # for what draws from torch's own state, such as dropout
        self.model = first_network(config, data, self.shape).to(self.device).train()
        distributed.synchronise_batch_norm(self.model, ranks)
        self.loss = assemble.build_loss(config, data).to(self.device)
        self.optimizer = assemble.build_optimizer(config, self.model, self.loss)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=config.train.precision == "float16"
        )
        self.guard = _guard(self)
        self.stream = self._stream(place=0)
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
        events = self._guarded(z, self.class_of[rows], value if _finite(z) else None)
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
        """Learning rate, mining pool and random streams, as they are at the present step."""
        self._set_learning_rate()
        self._set_pool()
        self._set_randomness()

    def take_batch(self) -> tuple[Tensor, Tensor]:
        """The next batch of the run as it is trained on: this rank's images, and all rows."""
        images, rows = next(self.stream)
        return self.augment(images).to(self.device, non_blocking=True), rows

    def go_to_batch(self, place: int) -> None:
        """Let the next batch be the one after `place` batches of the run."""
        self.stream = self._stream(place=place)

    def train_on(self, images: Tensor, rows: Tensor) -> tuple[Tensor, float]:
        """A step of the optimiser; the whole batch's embeddings and loss, NaN where it is lost."""
        z, loss = self._batch_loss(self.forward(images).float(), self.class_of[rows], rows)
        return z, math.nan if loss is None else self._descend(loss)

    def forward(self, images: Tensor) -> Tensor:
        """Images through the network, in the run's precision."""
        dtype = _DTYPES.get(self.config.train.precision)
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            return self.model(images)  # type: ignore[no-any-return]

    @property
    def batch_size(self) -> int:
        """Samples of a batch, on all ranks together."""
        return _mined(self.config, self.ranks, apart=False)

    def rescue_lost(self) -> str | None:
        """Roll back a network whose embeddings are not finite; what was done, None if nothing."""
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

    def is_best(self, score: float | None) -> bool:
        """Whether this score beats all before it; remembers it if so."""
        if score is None or not score > self.best:
            return False
        self.best = score
        return True

    def check_ranks(self) -> None:
        """Raise if the ranks no longer have the same weights."""
        if self.ranks.size > 1:
            digest = 0
            for part in (self.model, self.loss):
                for tensor in part.state_dict().values():
                    digest = zlib.crc32(tensor.detach().cpu().contiguous().numpy(), digest)
            self.ranks.agree("weights", digest)

    def checkpoint(self) -> Checkpoint:
        """The whole state, as it is between two steps: the same whatever the number of ranks."""
        state = {
            "config": self.config.flat(),
            "shape": list(self.shape),
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "augment": self.augment.state_dict(),
            "torch": torch.get_rng_state(),
            "place": self.stream.place,
            "best": self.best,
            "log_offset": self.log_offset,
            "latest": self.latest,
            "guard": None if self.guard is None else self.guard.state_dict(),
            "ranks": self.ranks.size,
        }
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return Checkpoint(self.step, self.model.state_dict(), state)

    def accept(self, checkpoint: Checkpoint) -> None:
        """Raise `CheckpointError` for a checkpoint that is not of this run."""
        check_config(checkpoint, self.config, looking=True)
        check_tensors(checkpoint.step, checkpoint.weights, self.model.state_dict())
        lost = [key for key in _STATE if key not in checkpoint.state]
        if lost:
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} cannot be resumed: its state has no "
                f"{lost[0]!r}. It is damaged, or was written by an earlier version"
            )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a saved state; `CheckpointError` for one of another run."""
        try:
            self._restore(checkpoint)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} is not of this run: its state does not "
                f"fit ({type(error).__name__})"
            ) from error

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        self.model.load_state_dict(dict(checkpoint.weights))
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.augment.load_state_dict(state["augment"])
        torch.set_rng_state(state["torch"])
        if self.device.type == "cuda" and "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self.device)
        self.stream = self._stream(place=state["place"])
        if self.guard is not None:
            self.guard.load_state_dict(state["guard"])
        self.step, self.best = checkpoint.step, state["best"]
        self.log_offset = state["log_offset"]
        self.latest = dict(state["latest"])

    def _batch_loss(self, z: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """The embeddings of the whole batch, and the loss: theirs, or that of this rank's share.

        No loss where they are not finite, which every rank sees alike.
        """
        counts = self.ranks.counts(len(rows))
        if not self.apart:
            whole = distributed.gather(z, self.ranks, counts=counts, adjoint="own")
            return whole, self._loss_of(whole, labels, rows) if _finite(whole) else None
        whole = distributed.gather(z.detach(), self.ranks, counts=counts)
        if not _finite(whole):
            return whole, None
        share = self.ranks.share(len(rows))
        with reading(self.loss):  # each rank remembers the same: the whole batch
            loss = self._loss_of(z, labels[share], rows[share])
        for memory in memories(self.loss):
            memory.enqueue(whole, labels.to(self.device), rows.to(self.device))
        # The guard looks at the whole, and must draw the same on every rank.
        self._miner_generator().manual_seed(_mixed(self.config.seed, self.step))
        return whole, loss

    def _descend(self, loss: Tensor) -> float:
        """Follow the gradient of a loss, if it is finite; its value, the ranks' mean if apart."""
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._unite_gradients()
        value = float(loss.detach())
        value = self.ranks.mean(value) if self.apart else value
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

    def _unite_gradients(self) -> None:
        distributed.sum_gradients(self.model.parameters(), self.ranks, mean=self.apart)
        if self.apart:
            distributed.sum_gradients(self.loss.parameters(), self.ranks, mean=True)
        else:
            distributed.share_gradients(self.loss.parameters(), self.ranks)

    def _loss_of(self, z: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        labels = labels.to(self.device)
        if not (self.config.loss.wants_sample_ids or self.config.loss.memory):
            return self.loss(z, labels)  # type: ignore[no-any-return]
        return self.loss(z, labels, sample_ids=rows.to(self.device))  # type: ignore[no-any-return]

    def _figures(self, z: Tensor) -> dict[str, Any]:
        """What a logged line says beside the loss."""
        figures: dict[str, Any] = {"diameter": diameter(z.detach())}
        health = None if self.guard is None else self.guard.monitor.health
        if health is not None:
            figures["verdict"] = health.verdict
            if health.classes:
                ratios = [c.ratio for c in health.classes]
                figures["class_diameter_ratio"] = sum(ratios) / len(ratios)
        return figures | {"lr": self.optimizer.param_groups[0]["lr"]}

    def _set_pool(self) -> None:
        """Let the mining pool grow from `pool_start`: hardness comes slowly (HNM §3.3)."""
        c = self.config.mining
        miner = self.loss.miner
        if c.pool_start is None or not isinstance(miner, Miner) or self.step > c.pool_steps:
            return
        end = c.pool or max(_mined(self.config, self.ranks, self.apart), self.config.loss.memory)
        grown = round(c.pool_start + (end - c.pool_start) * self.step / c.pool_steps)
        miner.pool = c.pool if self.step == c.pool_steps else min(grown, end)

    def _set_learning_rate(self) -> None:
        factor = assemble.learning_rate(self.config, self.step)
        if self.guard is not None:
            factor *= self.guard.lr_factor
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def _set_randomness(self) -> None:
        """On several ranks, a stream for each: a function of the step, so that nothing is saved.

        The miner of the whole batch keeps its generator, which draws the same on every rank.
        """
        if self.ranks.size == 1:
            return
        own = _mixed(self.config.seed, self.step, self.ranks.rank)
        torch.default_generator.manual_seed(own)  # torch.manual_seed costs far more
        if self.device.type == "cuda":
            torch.cuda.manual_seed(own)
        self.augment.load_state_dict({"generator": torch.Generator().manual_seed(own).get_state()})
        if self.apart:
            self._miner_generator().manual_seed(own)

    def _miner_generator(self) -> torch.Generator:
        generator = getattr(self.loss.miner, "generator", None)
        return generator if generator is not None else assemble.seeded(self.config, "miner")

    def _stream(self, place: int) -> BatchStream:
        sampler = assemble.build_sampler(self.config, self.data)
        workers = self.config.data.workers
        return BatchStream(self.data, sampler, workers=workers, place=place, ranks=self.ranks)


def _guard(session: Session) -> Guard | None:
    c = session.config.guard
    if c.action == "off":
        return None
    if c.action == "rescue" and session.config.loss.wants_sample_ids:
        # Drift is measured on a reservoir, whose rows have no β of their own.
        given = "'rescue' with loss.beta_per = 'sample'"
        raise InputError("guard.action", given, "'warn' or 'stop', or loss.beta_per = 'class'")
    mined = _mined(session.config, session.ranks, session.apart)
    settings = replace(
        assemble.run_settings(session.config, session.loss),
        batch_size=mined,
        several_modes=finer_classes(session.data),
    )
    monitor = CollapseMonitor(session.loss, settings=settings, every=c.every)
    return Guard(
        session.model,
        session.optimizer,
        session.loss,
        monitor,
        action=c.action,
        tolerance=c.tolerance,
        steps=session.config.train.steps,
        race=c.race,
        trial=SessionTrial(session),
    )


def _mined(config: Config, ranks: Ranks, apart: bool) -> int:
    """Samples that are mined together: the batch, or a rank's share of it."""
    size = config.batch.samples
    return size // ranks.size if apart else size


def _check_shares(config: Config, ranks: Ranks, apart: bool) -> None:
    c = config.batch
    name, given = ("batch.p", c.p) if c.sampler == "pk" else ("batch.size", c.size)
    if apart and given % ranks.size:
        allowed = f"a multiple of the {ranks.size} ranks with mining.scope = 'rank'"
        raise InputError(name, given, allowed)
    if _mined(config, ranks, apart=False) < ranks.size:
        raise InputError(name, given, f"a batch of at least one sample for each of {ranks.size}")


def _finite(z: Tensor) -> bool:
    return bool(torch.isfinite(z.detach()).all())


def _mixed(*numbers: int) -> int:
    """One seed of several numbers, far from that of their neighbours."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _augment(config: Config) -> Compose:
    seed = assemble.seeded(config, "augment").initial_seed()
    if assemble.uses_features(config):  # made of samples that are transformed already
        return Compose([], seed=seed)
    return assemble.training_transform(config.data, seed)
