"""From a config to the pieces of a run; each can be made alone and used in one's own loop."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import nn

from uncollapse import backbones, data, losses
from uncollapse._base.check import InputError
from uncollapse.backbones import Embedder
from uncollapse.data import LabelledImages
from uncollapse.losses import Loss, TrimmedLoss
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler, UniformBatchSampler
from uncollapse.training.config import Config

__all__ = [
    "build_loss",
    "build_model",
    "build_optimiser",
    "build_sampler",
    "learning_rate",
    "load_data",
    "load_eval_data",
    "pick_device",
    "seeded",
]

_LOSSES: dict[str, type[Loss]] = {
    "triplet": losses.TripletLoss,
    "margin": losses.MarginLoss,
    "contrastive": losses.ContrastiveLoss,
    "multi-similarity": losses.MultiSimilarityLoss,
    "proxy-nca": losses.ProxyNCALoss,
    "n-pair": losses.NPairLoss,
    "sup-con": losses.SupConLoss,
}
# One independent stream of random numbers for each part of a run.
_STREAMS = ("model", "loss", "miner", "augment")


def seeded(config: Config, stream: str) -> torch.Generator:
    """The generator of one part of the run: the same seed gives the parts different numbers."""
    return torch.Generator().manual_seed(config.seed * len(_STREAMS) + _STREAMS.index(stream))


def load_data(config: Config, split: str) -> LabelledImages:
    """A split of the config's dataset, with the labels the config asks for."""
    c = config.data
    found = data.load(c.name, c.root, split, size=c.size, channels=c.channels, strict=c.strict)
    return found.by_fine_labels() if c.labels == "fine" else found


def load_eval_data(config: Config, split: str) -> LabelledImages:
    """A split as it is evaluated: the middle crop where training crops at random."""
    found = load_data(config, split)
    if config.data.augment == "paper":
        found = replace(found, transform=data.paper_transform(config.data.name, train=False))
    return found


def build_model(config: Config, shape: Iterable[int]) -> Embedder:
    """The network for samples of this shape."""
    c = config.model
    return backbones.build(
        c.backbone,
        c.dim,
        shape=tuple(shape),
        normalize=c.normalize,
        hidden=c.hidden,
        weights=c.weights,
        freeze_bn=c.freeze_bn,
        init=c.init,
        generator=seeded(config, "model"),
    )


def build_loss(config: Config, train: LabelledImages) -> Loss:
    """The loss with its miner; parameters such as proxies are sized by the training data."""
    kind = _LOSSES[config.loss.name]
    options = config.loss.model_dump(exclude={"name", "trim", "trim_on"}, exclude_none=True)
    accepted = inspect.signature(kind).parameters
    for key in options:
        if key not in accepted:
            known = ", ".join(k for k in type(config.loss).model_fields if k in accepted)
            raise InputError(f"loss.{key}", options[key], f"keys of {config.loss.name!r}: {known}")
    options["miner"] = _build_miner(config)
    if "num_classes" in accepted:
        options |= {"num_classes": len(train.classes), "dim": config.model.dim}
        options["generator"] = seeded(config, "loss")
    if options.get("beta_per") in ("class", "sample"):
        options["size"] = len(train.classes) if options["beta_per"] == "class" else len(train)
    loss = kind(**options)
    if config.loss.trim is None:
        return loss
    return TrimmedLoss(loss, fraction=config.loss.trim, on=config.loss.trim_on)


def build_sampler(config: Config, train: LabelledImages) -> PKSampler | UniformBatchSampler:
    """The batch sampler: PK, or uniform without a same-class guarantee (HNM appendix D)."""
    c = config.batch
    if c.sampler == "uniform":
        return UniformBatchSampler(len(train), c.size, seed=config.seed)
    return PKSampler(train.label_index, c.p, c.k, seed=config.seed)


def build_optimiser(config: Config, model: nn.Module, loss: nn.Module) -> torch.optim.Optimizer:
    """The optimiser over the network and the loss's own parameters (β, proxies)."""
    c = config.optimiser
    groups: list[dict[str, object]] = [{"params": list(model.parameters()), "lr": c.lr}]
    own = [p for p in loss.parameters() if p.requires_grad]
    if own:
        groups.append({"params": own, "lr": c.loss_lr or c.lr, "weight_decay": 0.0})
    if c.name == "sgd":
        return torch.optim.SGD(groups, lr=c.lr, momentum=c.momentum, weight_decay=c.weight_decay)
    kind = torch.optim.AdamW if c.name == "adamw" else torch.optim.Adam
    return kind(groups, lr=c.lr, weight_decay=c.weight_decay)


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
    except (RuntimeError, AssertionError) as error:
        given = f"{name!r} ({str(error).splitlines()[0]})"
        raise InputError("train.device", given, "auto, cpu, or a device this torch has") from None
    return device


def _build_miner(config: Config) -> Miner | None:
    c = config.mining
    if c.positives is None and c.negatives is None and config.loss.name != "triplet":
        return None
    own = config.loss.margin if config.loss.margin is not None else 0.2
    return Miner(
        c.positives or "easy",
        c.negatives or "semihard",
        pool=c.pool,
        margin=c.margin if c.margin is not None else own,
        epsilon=c.epsilon,
        generator=seeded(config, "miner"),
    )
