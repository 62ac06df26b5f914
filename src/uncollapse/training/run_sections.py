"""The sections of a run's config, all but `[loss]`: their keys, bounds and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator

from uncollapse.backbones import HEADS
from uncollapse.data import DATASETS, describe
from uncollapse.data.images import FITS
from uncollapse.health.loggers import LOGGERS
from uncollapse.mining.false_negatives import FalseNegatives
from uncollapse.mining.miner import KEEP
from uncollapse.mining.negatives import FALLBACKS, NEGATIVES
from uncollapse.mining.positives import POSITIVES
from uncollapse.training.section_base import OneOf, Section

__all__ = [
    "AUGMENTATIONS",
    "BatchConfig",
    "DataConfig",
    "DistributedConfig",
    "EvaluateConfig",
    "GuardConfig",
    "MiningConfig",
    "ModelConfig",
    "OptimiserConfig",
    "TrainConfig",
]


AUGMENTATIONS = ("flip", "crop", "colour", "erase")


class DataConfig(Section):
    """`[data]`: which samples, and how images become them.

    `labels = "fine"` trains on the fine labels instead. `size` is `[height, width]`, or one number
    for a square; `middle` the share of height and width that is kept. `augment` is `"none"`,
    `"paper"` or a list of `AUGMENTATIONS`. `pairs` is a file of pairs to verify.
    """

    name: str = "mnist-parity"
    root: str | None = None
    train_split: str = "train"
    eval_splits: list[str] = Field(["test"])
    pairs: str | None = None
    labels: Literal["coarse", "fine"] = "coarse"
    size: int | list[int] | None = None
    fit: Annotated[str, OneOf(FITS)] | None = None
    middle: float | None = Field(None, gt=0, le=1)
    channels: Literal[1, 3] | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    augment: str | list[str] = "none"
    strict: bool = False
    workers: int = Field(0, ge=0)

    @field_validator("size", mode="plain")
    @classmethod
    def _pixels(cls, value: Any) -> int | list[int] | None:
        sides = value if isinstance(value, list | tuple) else [value, value]
        if value is None or (len(sides) == 2 and all(_is_count(side) for side in sides)):
            return list(value) if isinstance(value, tuple) else value
        raise ValueError("[height, width] or one number for a square, in pixels of at least 1")

    @field_validator("mean", "std")
    @classmethod
    def _channels(cls, value: list[float] | None, info: ValidationInfo) -> list[float] | None:
        small = info.field_name == "std" and value is not None and min(value, default=1.0) <= 0
        if value is not None and (len(value) not in (1, 3) or small):
            above = " above 0" if info.field_name == "std" else ""
            raise ValueError(f"one number{above}, or three: of red, green and blue, in [0, 1]")
        return value

    @field_validator("augment", mode="plain")
    @classmethod
    def _steps(cls, value: Any) -> str | list[str]:
        if value in ("none", "paper"):
            return str(value)
        names = [value] if isinstance(value, str) else value
        if isinstance(names, list) and all(name in AUGMENTATIONS for name in names):
            return names
        words = ", ".join(map(repr, AUGMENTATIONS))
        raise ValueError(f"'none', 'paper' or a list of {words}")

    @model_validator(mode="before")
    @classmethod
    def _queries(cls, given: Any) -> Any:
        """A dataset without `test` that has queries for a gallery is evaluated on those."""
        if not isinstance(given, Mapping) or "eval_splits" in given:
            return given
        name = given.get("name")
        splits = describe(name).splits if name in DATASETS else ()
        searched = "query" in splits and "test" not in splits
        return {**given, "eval_splits": ["query"]} if searched else given


class ModelConfig(Section):
    """`[model]`: the network and its embedding dimension.

    `freeze = true` trains the head alone, a stage's name all that comes after that stage. What is
    frozen is computed once per sample and kept in the cache, unless samples are augmented.
    `head = "pca"` starts at the principal axes of the training samples' features.
    """

    backbone: str = "mnist-cnn"
    dim: int = Field(128, ge=1)
    normalize: bool = False
    hidden: list[int] = Field([512])
    weights: str | None = None
    freeze: bool | str = False
    freeze_bn: bool = False
    head: Annotated[str, OneOf(HEADS)] = "linear"
    init: Literal["hnm", "eps"] = "hnm"


class BatchConfig(Section):
    """`[batch]`: P classes of K samples (`pk`), or `size` samples drawn at random (`uniform`)."""

    sampler: Literal["pk", "uniform"] = "pk"
    p: int = Field(8, ge=1)
    k: int = Field(4, ge=1)
    size: int = Field(128, ge=2)

    @property
    def samples(self) -> int:
        """Samples of a batch, whichever sampler draws it."""
        return self.p * self.k if self.sampler == "pk" else self.size

    @property
    def per_class(self) -> int | None:
        """Samples of a class in a batch; None where that is left to chance."""
        return self.k if self.sampler == "pk" else None

    @field_validator("k")
    @classmethod
    def _a_pair(cls, value: int, info: ValidationInfo) -> int:
        if value < 2 and info.data.get("sampler") == "pk":
            raise ValueError("a whole number of at least 2: a sample needs a positive")
        return value


class MiningConfig(Section):
    """`[mining]`: the settings of `mining.Miner`, and how its pool grows.

    With neither named, the triplet loss mines easy positives and semi-hard negatives, and the other
    losses charge all their tuples. With one named, the other is `easy` or `semihard`. The pool
    grows from `pool_start`, if set, to `pool` (or the whole batch) over `pool_steps`. Without
    `margin` it is the loss's, or 0.2 for a loss that has none.

    The keys `false_negatives_...` are the rules of `mining.FalseNegatives`.

    `scope` matters on several ranks: `global` mines and charges the whole batch as one process
    would, `rank` each rank's share by itself, and takes the mean of the ranks' losses.
    """

    positives: Annotated[str, OneOf(POSITIVES)] | None = None
    negatives: Annotated[str, OneOf(NEGATIVES)] | None = None
    pool: int | None = Field(None, ge=2)
    pool_start: int | None = Field(None, ge=2)
    pool_steps: int = Field(1000, ge=1)
    margin: float | None = Field(None, ge=0)
    epsilon: float = Field(0.1, ge=0)
    fallback: Annotated[str, OneOf(FALLBACKS)] = "nearest-outside"
    cutoffs: list[float] = Field([0.5, 1.4])
    keep: Annotated[str, OneOf(KEEP)] = "all"
    false_negatives_absolute: float | None = Field(None, gt=0)
    false_negatives_relative: float | None = Field(None, gt=0)
    false_negatives_quantile: float | None = Field(None, gt=0, lt=1)
    false_negatives_agreement: float | None = Field(None, ge=0.5, lt=1)
    false_negatives_neighbours: int = Field(3, ge=1)
    scope: Literal["global", "rank"] = "global"

    @property
    def false_negatives(self) -> FalseNegatives | None:
        """The filter these keys make; None without a rule."""
        rules = {
            "absolute": self.false_negatives_absolute,
            "relative": self.false_negatives_relative,
            "quantile": self.false_negatives_quantile,
            "agreement": self.false_negatives_agreement,
        }
        if all(value is None for value in rules.values()):
            return None
        return FalseNegatives(**rules, neighbours=self.false_negatives_neighbours)

    @field_validator("cutoffs")
    @classmethod
    def _in_order(cls, value: list[float]) -> list[float]:
        if len(value) != 2 or not 0 < value[0] < value[1]:
            raise ValueError("two numbers, 0 < first < second")
        return value


class GuardConfig(Section):
    """`[guard]`: what to do about collapse: nothing, `warn`, `stop` the run, or `rescue` it.

    A rescue lets strategies race for at most a tenth of `train.steps`, unless `race = false`.
    """

    action: Literal["off", "warn", "stop", "rescue"] = "warn"
    every: int = Field(50, ge=1)
    tolerance: float = Field(0.02, ge=0)
    probation: int = Field(200, ge=1)
    race: bool = True


class OptimiserConfig(Section):
    """`[optimiser]`: the optimiser, its learning-rate schedule and gradient clipping.

    `trunk_lr` is the rate of the backbone below the head, `loss_lr` that of the loss's parameters.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = Field(1e-3, gt=0)
    trunk_lr: float | None = Field(None, gt=0)
    loss_lr: float | None = Field(None, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    schedule: Literal["constant", "cosine", "step"] = "constant"
    warmup: int = Field(0, ge=0)
    decay_every: int = Field(1000, ge=1)
    decay: float = Field(0.1, gt=0, le=1)
    clip: float | None = Field(None, gt=0)


class EvaluateConfig(Section):
    """`[evaluate]`: what is measured on each evaluation split.

    Queries that search a gallery with cameras are judged by re-identification: by all identities
    before and after training, on the way by the share `reid_share` of them.
    """

    ks: list[int] = Field([1, 2, 4, 8])
    clustering: bool = False
    multiplier: int = Field(1, ge=1)
    max_samples: int | None = Field(None, ge=2)
    reid_share: float = Field(0.1, gt=0, le=1)
    batch: int = Field(256, ge=1)

    @field_validator("ks")
    @classmethod
    def _counts(cls, value: list[int]) -> list[int]:
        if not value or min(value) < 1:
            raise ValueError("one or more whole numbers of at least 1")
        return value


class TrainConfig(Section):
    """`[train]`: how long, how often to look, and on what."""

    steps: int = Field(1000, ge=1)
    log_every: int = Field(10, ge=1)
    evaluate_every: int = Field(200, ge=1)
    checkpoint_every: int = Field(100, ge=1)
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "auto"
    threads: int | None = Field(None, ge=1)
    keep_memory: bool = True
    loggers: list[Annotated[str, OneOf(LOGGERS)]] = Field([])
    tensorboard: Literal["auto", "off"] = "off"  # auto: a logger where it is installed

    @field_validator("device")
    @classmethod
    def _computes(cls, value: str) -> str:
        """Whether this machine has it is asked where it is used: the config may be another's."""
        try:
            known = value == "auto" or torch.device(value).type != "meta"
        except RuntimeError:
            known = False
        if not known:
            raise ValueError("'auto', 'cpu', 'cuda', 'cuda:1' or the like, or 'mps'")
        return value


class DistributedConfig(Section):
    """`[distributed]`: several ranks; `timeout` is the seconds one waits for one that hangs."""

    timeout: float = Field(1800.0, gt=0)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
