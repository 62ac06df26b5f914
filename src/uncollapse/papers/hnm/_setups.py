"""What figures 5 to 12 train at each scale: HNM §4 and appendices C to E.

The paper names neither its optimiser nor its image size. It follows Hermans et al. 2017, so at its
own scale we take theirs: Adam at 3e-4 and, for Market-1501, 256 × 128 with flips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from uncollapse.papers.hnm._study import Setup

__all__ = ["SCALE_TIMES", "market", "omniglot_letters", "uniform"]

_P, _K = (2, 4, 8, 18), (2, 4, 8, 16, 32)
_DIMS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SIZES = (16, 32, 64, 128, 256, 512)
_OPEN = (
    "The paper states neither optimiser nor learning rate nor image size; here they are those of "
    "Hermans et al. 2017, whom it follows, at a constant rate."
)
_SMOKE = (
    "Smoke: the digits of scikit-learn and a few steps of a tiny network. It shows that the "
    "figure is made, not what the paper says."
)
# Networks of seconds for 8 × 8 digits.
_TINY: Mapping[str, Mapping[str, object]] = {
    "resnet18": {"backbone": "mlp", "hidden": [32]},
    "resnet50": {"backbone": "mnist-cnn"},
    "googlenet": {"backbone": "mlp", "hidden": [64, 32]},
    "conv2": {"backbone": "conv2"},
}
SCALE_TIMES = {"smoke": "seconds", "laptop": "half an hour", "paper": "days, GPU"}


def market(backbone: str, steps: int = 300) -> Mapping[str, Sequence[Setup]]:
    """Market-1501 in P × K batches (HNM §4); on a laptop so many steps on 32 × 32 pixels."""
    paper = Setup(
        data={"name": "market1501", "augment": "paper", "eval_splits": ["query"], "workers": 4},
        model={"backbone": backbone},
        steps=40_000,
        seeds=3,
        batches=[(p, k) for p in _P for k in _K],
        dims=_DIMS,
        batch=(8, 4),
        differs=f"{_OPEN} Diameters are those of query images: people not trained on.",
    )
    laptop = replace(
        paper,
        data={"name": "market1501", "eval_splits": ["query"], "size": 32},
        steps=steps,
        seeds=2,
        batches=[(2, 2), (4, 4), (8, 4), (8, 16)],
        dims=(4, 16, 64, 256, 1024),
        differs=f"Laptop: 32 × 32 pixels without flips, {steps:,} steps instead of 40,000, 2 "
        f"repeats instead of 3, a part of the grid. {paper.differs}",
    )
    return {"smoke": [_digits(backbone)], "laptop": [laptop], "paper": [paper]}


def uniform(data: str) -> Mapping[str, Sequence[Setup]]:
    """SOP, CUB200 or Cars196 in batches drawn at random: HNM appendix D, always ResNet-18."""
    note = (
        "Batches are drawn without regard to classes (appendix D), so a sample may have no "
        "positive; the column `anchors` of the runs is the share that has one. "
        "The paper's text lists neither its batch sizes nor the batch of its dimension plot: "
        f"ours are {', '.join(map(str, _SIZES))}, and 128. {_OPEN}"
    )
    paper = Setup(
        data={"name": data, "augment": "paper", "workers": 4},
        model={"backbone": "resnet18"},
        steps=40_000,
        seeds=3,
        batches=_SIZES,
        dims=_DIMS,
        batch=128,
        differs=note,
    )
    laptop = replace(
        paper,
        data={"name": data, "size": 32, "eval_splits": []},
        steps=300,
        seeds=2,
        batches=(16, 64, 256),
        dims=(4, 64, 1024),
        batch=64,
        differs="Laptop: 32 × 32 pixels, squashed and uncropped, 300 steps instead of 40,000, 2 "
        "repeats instead of 3, batches of 16, 64 and 256 and 64 for the dimensions, and diameters "
        f"of training images. {note}",
    )
    smoke = replace(_digits("resnet18"), batches=(8, 16, 32), batch=16)
    return {"smoke": [smoke], "laptop": [laptop], "paper": [paper]}


def omniglot_letters() -> Setup:
    """Where Market-1501 is not at hand: letters in place of people, 20 images of each."""
    return Setup(
        data={"name": "omniglot", "labels": "fine", "size": 20},
        model={"backbone": "conv2"},
        steps=200,
        seeds=3,
        batches=[(2, 2), (4, 4), (8, 4), (8, 8), (18, 8)],
        dims=(4, 16, 128, 1024),
        batch=(8, 4),
        lr=1e-3,
        differs="Omniglot letters (964 to train on, 659 others to test) in place of the people of "
        "Market-1501, 20 × 20 pixels, 200 steps of Adam at 1e-3 instead of 40,000, and a part of "
        "the grid. The paper states neither its optimiser nor its convnet.",
    )


def _digits(backbone: str) -> Setup:
    """Embedded digits, with the convnet itself or a stand-in for a larger network."""
    return Setup(
        data={"name": "digits"},
        model=_TINY[backbone],
        steps=30,
        seeds=1,
        batches=[(2, 2), (4, 4), (8, 8)],
        dims=(4, 16, 64),
        batch=(4, 2),
        dim=16,
        lr=1e-3,
        differs=_SMOKE,
    )
