"""From a config to the pieces of a run; each can be built alone and used in your own loop."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from uncollapse import backbones, data, losses
from uncollapse._base.check import InputError
from uncollapse.backbones import BACKBONES, SCALES_ITSELF, Embedder, Front
from uncollapse.data import LabelledImages, augment, describe, with_features
from uncollapse.data.augment import Compose
from uncollapse.health import RunSettings
from uncollapse.losses import Loss
from uncollapse.losses.registry import make_loss
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler, UniformBatchSampler
from uncollapse.training.config import Config
from uncollapse.training.sections import DataConfig


def trains_on_texts(config: Config) -> bool:
    """Whether the samples of the config's dataset are texts.

    >>> trains_on_texts(Config())
    False
    """
    return describe(config.data.name).texts


def check_samples(config: Config) -> None:
    """Raise `InputError` for texts with a backbone for images, or images with one for texts.

    Your own `module.path:function` may read either. A network that scales pixels itself refuses
    `data.mean` and `data.std`.
    """
    name, dataset = config.model.backbone, config.data.name
    texts = trains_on_texts(config)
    if texts and (name in BACKBONES or name.startswith("timm:")):
        allowed = f"a sentence: backbone (or your own function) for the texts of {dataset!r}"
        raise InputError("model.backbone", repr(name), allowed)
    if name.startswith("sentence:") and not texts:
        allowed = f"a backbone for the samples of {dataset!r}, which are no texts"
        raise InputError("model.backbone", repr(name), allowed)
    if name in SCALES_ITSELF and (config.data.mean or config.data.std):
        raise InputError.conflict(f"{name} scales pixels itself: leave out data.mean and data.std")


# What `[data]` does to decoded images: augmentation in training, mean and std always.

# In this order, whatever that of the config.
_AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "crop": augment.random_crop,
    "flip": augment.horizontal_flip,
    "colour": augment.color_jitter,
    "erase": augment.random_erasing,
}


def training_transform(config: Config) -> Compose:
    """The random steps that `data.augment` names, then `data.mean` and `data.std`.

    No step where samples are read as features.
    """
    c, steps = config.data, list[Callable[..., Tensor]]()
    seed = seeded(config, "augment").initial_seed()
    if uses_features(config):
        return Compose([], seed=seed)
    if c.augment == "paper":
        steps += data.paper_transform(c.name, train=True).steps
    elif c.augment not in ("none", []):
        steps += [_images_only]
        steps += [step for name, step in _AUGMENTATIONS.items() if name in c.augment]
    return Compose([*steps, *_standardised(c)], seed=seed)


def evaluation_transform(config: DataConfig) -> Compose | None:
    """The deterministic counterpart: the papers' centre crop, `data.mean` and `data.std`."""
    is_paper = config.augment == "paper"
    steps = data.paper_transform(config.name, train=False).steps if is_paper else []
    steps = [*steps, *_standardised(config)]
    return Compose(steps) if steps else None


def size_pair(size: int | list[int] | None) -> tuple[int, int] | None:
    """`data.size` as height and width.

    >>> size_pair(32), size_pair([64, 32]), size_pair(None)
    ((32, 32), (64, 32), None)
    """
    if isinstance(size, list):
        return size[0], size[1]
    return None if size is None else (size, size)


def _standardised(config: DataConfig) -> list[Callable[[Tensor], Tensor]]:
    if config.mean is None and config.std is None:
        return []
    return [partial(_standardise, mean=config.mean or [0.0], std=config.std or [1.0])]


def _standardise(images: Tensor, mean: list[float], std: list[float]) -> Tensor:
    for name, values in (("data.mean", mean), ("data.std", std)):
        if images.ndim != 4:
            raise InputError(name, values, "no such key: these samples are not images")
        if len(values) not in (1, images.shape[1]):
            allowed = f"one number, or one for each of the {images.shape[1]} channels"
            raise InputError(name, values, allowed)
    return augment.standardize(images, mean, std)


def _images_only(images: Tensor) -> Tensor:
    if images.ndim != 4:
        given = "samples that are not images"
        raise InputError("data.augment", given, "'none': only images are augmented")
    return images


def uses_features(config: Config) -> bool:
    """Whether samples are read as features: something is frozen, and nothing is augmented.

    >>> uses_features(Config())
    False
    """
    return config.model.freeze is not False and config.data.augment in ("none", [])


def with_frozen_features(data: LabelledImages, front: Front, config: Config) -> LabelledImages:
    """The samples with cached features, after `data.transform`."""
    device = pick_device(config.train.device)
    front = front.to(device)

    def compute(samples: Tensor) -> Tensor:
        if samples.ndim == 4:  # half as long on a CPU, and the way GPUs like it
            samples = samples.contiguous(memory_format=torch.channels_last)
        with in_precision(config, device):
            made: Tensor = front(samples.to(device))
        return made

    return with_features(data, compute, _identity(front, config))


def in_precision(config: Config, device: torch.device) -> AbstractContextManager[Any]:
    """The context in which a network computes in `train.precision`."""
    dtype = _DTYPES.get(config.train.precision)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def _identity(front: Front, config: Config) -> str:
    """A key for the cache: structure and weights of the network, preparation of its samples."""
    digest = hashlib.blake2b(repr(front).encode(), digest_size=16)
    for name, tensor in front.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    c, precision = config.data, config.train.precision
    made = f"{config.model.backbone} {config.model.freeze} {digest.hexdigest()} {c.mean} {c.std}"
    return made if precision == "float32" else f"{made} {precision}"


_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# One independent stream of random numbers for each part of a run.
_STREAMS = ("model", "loss", "miner", "augment")


def seeded(config: Config, stream: str) -> torch.Generator:
    """An independent random generator for one part of the run, derived from the run's seed."""
    return torch.Generator().manual_seed(config.seed * len(_STREAMS) + _STREAMS.index(stream))


def load_data(config: Config, split: str) -> LabelledImages:
    """A split of the config's dataset to train on, with the labels the config asks for."""
    c = config.data
    how = c.model_dump(include={"fit", "middle", "channels", "strict"})
    split_data = data.load(c.name, c.root, split, size=size_pair(c.size), **how)
    split_data = split_data.by_fine_labels() if c.labels == "fine" else split_data
    if not uses_features(config):
        return split_data
    front = build_model(config, sample_shape(config, split_data)).front
    assert front is not None  # `uses_features` says that something is frozen
    return with_frozen_features(as_evaluated(split_data, config), front, config)


def as_evaluated(split_data: LabelledImages, config: Config) -> LabelledImages:
    """The split with its evaluation transform instead of augmentation."""
    return replace(split_data, transform=evaluation_transform(config.data))


def sample_shape(config: Config, split_data: LabelledImages) -> tuple[int, ...]:
    """Shape of a sample as the network sees it, whatever features are cached of it."""
    plain = replace(as_evaluated(split_data, config), features=None)
    return tuple(plain[:1][0].shape[1:])


def load_eval_data(config: Config, split: str) -> LabelledImages:
    """A split of the config's dataset, with its evaluation transform."""
    return as_evaluated(load_data(config, split), config)


def build_model(config: Config, shape: Sequence[int]) -> Embedder:
    """The network for samples of this shape."""
    check_samples(config)
    settings = config.model.model_dump(exclude={"backbone"})
    generator = seeded(config, "model")
    return backbones.build(config.model.backbone, **settings, shape=shape, generator=generator)


def build_loss(config: Config, train: LabelledImages) -> Loss:
    """The loss with its miner; parameters such as proxies are sized by the training data.

    Trimmed, with a memory, a classifier and a regulariser, as `[loss]` says.
    """
    c, batch, dim = config.loss.checked(), config.batch.samples, config.model.dim
    if c.memory is not None and c.memory.size < batch:
        allowed = f"at least the {batch} samples of a batch"
        raise InputError("loss.memory.size", c.memory.size, allowed)
    generator = seeded(config, "loss")
    sizes = dict[str, Any](num_classes=len(train.classes), dim=dim, generator=generator)
    sizes_and_miner = sizes | {"samples": len(train), "miner": _build_miner(config)}
    loss: Any = make_loss(c.kind, c.settings, **sizes_and_miner)
    if c.trim is not None:
        loss = losses.TrimmedLoss(loss, fraction=c.trim, on=c.trim_on)
    if c.memory is not None:
        loss = losses.CrossBatchMemory(loss, **c.memory.model_dump())
    if c.identity is not None:
        loss = losses.IdentityLoss(loss, **sizes, **c.identity.model_dump())
    if c.regularizer is None:
        return loss  # type: ignore[no-any-return]
    unit = c.normalizes or config.model.normalize
    kinds: dict[str, Callable[[], Loss]] = {
        "variance-covariance": partial(losses.VarianceCovarianceLoss, normalize=unit),
        "coding-rate": losses.CodingRateLoss,  # always of directions, as published
        "sigreg": partial(losses.SIGRegLoss, normalize=unit, generator=generator),
    }
    other = kinds[c.regularizer.name]()
    return losses.MultipleLosses([loss, other], weights=[1.0, c.regularizer.weight])


def run_settings(config: Config) -> RunSettings:
    """The settings that advice on a run depends on, apart from those of its loss."""
    batch = config.batch
    return RunSettings(lr=config.optimizer.lr, batch_size=batch.samples, k=batch.per_class)


def build_sampler(config: Config, train: LabelledImages) -> PKSampler | UniformBatchSampler:
    """The batch sampler: PK, or uniform without a same-class guarantee (HNM appendix D).

    Raises `InputError` for a batch that the data cannot fill.
    """
    c = config.batch
    if c.sampler == "uniform":
        if c.size > len(train):
            raise InputError("batch.size", c.size, f"at most the {len(train)} samples there are")
        return UniformBatchSampler(len(train), c.size, seed=config.seed)
    labels = train.label_index
    counts = torch.bincount(labels)
    usable, largest = int((counts > 1).sum()), int(counts.max())
    if c.p > usable:
        raise InputError("batch.p", c.p, f"at most the {usable} classes of two samples or more")
    if c.k > largest and c.p * c.k > len(train):  # short classes repeat; repeats alone are a slip
        allowed = f"at most {largest}, the samples of the largest class"
        raise InputError("batch.k", c.k, allowed)
    return PKSampler(labels, c.p, c.k, seed=config.seed)


def build_optimizer(config: Config, model: nn.Module, loss: nn.Module) -> torch.optim.Optimizer:
    """The optimiser over the network and the loss's own parameters (β, proxies)."""
    c = config.optimizer
    own = _trained(loss)
    groups: list[dict[str, object]] = [{"params": _trained(model), "lr": c.lr}]
    if c.trunk_lr is not None and isinstance(model, Embedder):
        rates = ((model.head, c.lr), (model.trunk, c.trunk_lr))
        groups = [{"params": _trained(part), "lr": rate} for part, rate in rates if _trained(part)]
    if own:
        groups.append({"params": own, "lr": c.loss_lr or c.lr, "weight_decay": 0.0})
    if c.name == "sgd":
        return torch.optim.SGD(groups, lr=c.lr, momentum=c.momentum, weight_decay=c.weight_decay)
    kind = torch.optim.AdamW if c.name == "adamw" else torch.optim.Adam
    # A fifth of the time on a CPU, but rounded otherwise: float32 stays as it always was.
    fused = config.train.precision == "bfloat16" and pick_device(config.train.device).type == "cpu"
    return kind(groups, lr=c.lr, weight_decay=c.weight_decay, fused=fused or None)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def learning_rate(config: Config, step: int) -> float:
    """Factor on the learning rate at a step (from 0): a pure function, so resuming is exact.

    >>> from uncollapse.training.config import parse_config
    >>> c = parse_config({"optimizer": {"schedule": "step", "decay_every": 10, "decay": 0.5}})
    >>> [learning_rate(c, s) for s in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """
    c = config.optimizer
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
    has_mps = torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu")
    with suppress(RuntimeError, AssertionError, NotImplementedError):
        torch.empty(0, device=name)
        if torch.device(name).type != "meta":  # which computes nothing
            return torch.device(name)
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    known = ["auto", "cpu", *cuda, *["mps"] * has_mps]
    raise InputError("train.device", repr(name), " or ".join(map(repr, known)))


def _build_miner(config: Config) -> Miner | None:
    c = config.mining
    if c.positives is None and c.negatives is None and config.loss.name != "triplet":
        return None
    settings = c.model_dump(include={"pool", "epsilon", "fallback", "keep", "cutoffs"})
    return Miner(
        c.positives or "easy",
        c.negatives or "semihard",
        **settings,
        margin=config.loss.mining_margin if c.margin is None else c.margin,
        generator=seeded(config, "miner"),
        false_negatives=c.false_negatives.build(),
    )
