"""From a config to the pieces of a run; each can be made alone and used in one's own loop."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import nn

from uncollapse import backbones, data
from uncollapse._base.check import InputError
from uncollapse.backbones import Embedder
from uncollapse.data import LabelledImages
from uncollapse.health import RunSettings
from uncollapse.losses import Loss
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler, UniformBatchSampler
from uncollapse.training.config import Config
from uncollapse.training.frozen_features import uses_features, with_frozen_features
from uncollapse.training.loss_sections import TrainingSize
from uncollapse.training.sample_kinds import check_samples
from uncollapse.training.sample_transforms import evaluation_transform, size_pair

__all__ = [
    "build_loss",
    "build_model",
    "build_optimiser",
    "build_sampler",
    "learning_rate",
    "load_data",
    "load_eval_data",
    "pick_device",
    "run_settings",
    "seeded",
]

# One independent stream of random numbers for each part of a run.
_STREAMS = ("model", "loss", "miner", "augment")


def seeded(config: Config, stream: str) -> torch.Generator:
    """The generator of one part of the run: the same seed gives the parts different numbers."""
    return torch.Generator().manual_seed(config.seed * len(_STREAMS) + _STREAMS.index(stream))


def load_data(config: Config, split: str) -> LabelledImages:
    """A split of the config's dataset, with the labels the config asks for."""
    c = config.data
    found = data.load(
        c.name,
        c.root,
        split,
        size=size_pair(c.size),
        fit=c.fit,
        middle=c.middle,
        channels=c.channels,
        strict=c.strict,
    )
    found = found.by_fine_labels() if c.labels == "fine" else found
    return _with_features(config, found) if uses_features(config) else found


def load_eval_data(config: Config, split: str) -> LabelledImages:
    """A split as it is evaluated: the middle crop where training crops at random, mean and std."""
    return replace(load_data(config, split), transform=evaluation_transform(config.data))


def _with_features(config: Config, found: LabelledImages) -> LabelledImages:
    plain = replace(found, transform=evaluation_transform(config.data))
    front = build_model(config, plain[:1][0].shape[1:]).front
    assert front is not None  # `uses_features` says that something is frozen
    return with_frozen_features(plain, front, config, pick_device(config.train.device))


def build_model(config: Config, shape: Iterable[int]) -> Embedder:
    """The network for samples of this shape."""
    c = config.model
    check_samples(config)
    return backbones.build(
        c.backbone,
        c.dim,
        shape=tuple(shape),
        normalize=c.normalize,
        hidden=c.hidden,
        weights=c.weights,
        freeze=c.freeze,
        freeze_bn=c.freeze_bn,
        head=c.head,
        init=c.init,
        generator=seeded(config, "model"),
    )


def build_loss(config: Config, train: LabelledImages) -> Loss:
    """The loss with its miner; parameters such as proxies are sized by the training data."""
    size = _size(config, len(train.classes), len(train))
    if 0 < config.loss.memory < config.batch.samples:
        allowed = f"0, or at least the {config.batch.samples} samples of a batch"
        raise InputError("loss.memory", config.loss.memory, allowed)
    return config.loss.build(_build_miner(config), size)


def _size(config: Config, classes: int, samples: int) -> TrainingSize:
    model = config.model
    return TrainingSize(classes, samples, model.dim, seeded(config, "loss"), model.normalize)


def run_settings(config: Config) -> RunSettings:
    """What the adviser must know of a run; it is read off its config, without its data."""
    known = RunSettings.of(config.loss.build(_build_miner(config), _size(config, 2, 2)))
    batch = config.batch
    return replace(known, lr=config.optimiser.lr, batch_size=batch.samples, k=batch.per_class)


def build_sampler(config: Config, train: LabelledImages) -> PKSampler | UniformBatchSampler:
    """The batch sampler: PK, or uniform without a same-class guarantee (HNM appendix D).

    Raises `InputError` for a batch that the data cannot fill.
    """
    c = config.batch
    if c.sampler == "uniform":
        if c.size > len(train):
            raise InputError("batch.size", c.size, f"at most the {len(train)} samples there are")
        return UniformBatchSampler(len(train), c.size, seed=config.seed)
    counts = torch.bincount(train.label_index)
    usable, largest = int((counts > 1).sum()), int(counts.max())
    if c.p > usable:
        raise InputError("batch.p", c.p, f"at most the {usable} classes of two samples or more")
    if c.k > largest and c.p * c.k > len(train):  # short classes repeat; repeats alone are a slip
        allowed = f"at most {largest}, the samples of the largest class"
        raise InputError("batch.k", c.k, allowed)
    return PKSampler(train.label_index, c.p, c.k, seed=config.seed)


def build_optimiser(config: Config, model: nn.Module, loss: nn.Module) -> torch.optim.Optimizer:
    """The optimiser over the network and the loss's own parameters (β, proxies)."""
    c = config.optimiser
    groups: list[dict[str, object]] = [{"params": _trained(model), "lr": c.lr}]
    if c.trunk_lr is not None and isinstance(model, Embedder):
        groups = [{"params": _trained(model.head), "lr": c.lr}]
        groups += [
            {"params": below, "lr": c.trunk_lr} for below in [_trained(model.trunk)] if below
        ]
    own = [p for p in loss.parameters() if p.requires_grad]
    if own:
        groups.append({"params": own, "lr": c.loss_lr or c.lr, "weight_decay": 0.0})
    if c.name == "sgd":
        return torch.optim.SGD(groups, lr=c.lr, momentum=c.momentum, weight_decay=c.weight_decay)
    kind = torch.optim.AdamW if c.name == "adamw" else torch.optim.Adam
    return kind(groups, lr=c.lr, weight_decay=c.weight_decay)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def learning_rate(config: Config, step: int) -> float:
    """Factor on the learning rate at a step (from 0): a pure function, so resuming is exact.

    >>> from uncollapse.training.config import parse_config
    >>> c = parse_config({"optimiser": {"schedule": "step", "decay_every": 10, "decay": 0.5}})
    >>> [learning_rate(c, s) for s in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """
    c = config.optimiser
    warm = min(1.0, (step + 1) / c.warmup) if c.warmup else 1.0
    if c.schedule == "step":
        return float(warm * c.decay ** (step // c.decay_every))
    if c.schedule == "cosine":
        done = max(0, step - c.warmup) / max(1, config.train.steps - c.warmup)
        return warm * 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
    return warm


def pick_device(name: str) -> torch.device:
    """`auto`: CUDA, else Apple's MPS, else the CPU; or the device named.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        device = torch.device("meta")
    if device.type == "meta":  # computes nothing
        raise InputError("train.device", repr(name), " or ".join(map(repr, _devices())))
    return device


def _devices() -> list[str]:
    """The names of this machine's devices."""
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["auto", "cpu", *cuda, *["mps"] * torch.backends.mps.is_available()]


def _build_miner(config: Config) -> Miner | None:
    c = config.mining
    if c.positives is None and c.negatives is None and config.loss.name != "triplet":
        return None
    return Miner(
        c.positives or "easy",
        c.negatives or "semihard",
        pool=c.pool,
        margin=config.loss.mining_margin if c.margin is None else c.margin,
        epsilon=c.epsilon,
        generator=seeded(config, "miner"),
        fallback=c.fallback,
        cutoffs=(c.cutoffs[0], c.cutoffs[1]),
        keep=c.keep,
        false_negatives=c.false_negatives,
    )
