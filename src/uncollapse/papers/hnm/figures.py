"""HNM Figs. 5 to 12 as data: the diameter against batch size and dimension (§4, appendices C to E).

The paper names neither its optimiser nor its image size. It follows Hermans et al. 2017, so at its
own scale we take theirs: Adam at 3e-4 and, for Market-1501, 256 × 128 with flips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uncollapse.papers._study import Study
from uncollapse.papers.hnm.diameters import (
    DiameterFigure,
    Grid,
    Panel,
    grid,
    margin_claims,
    outlier_claims,
    threshold_claims,
)

__all__ = ["DIAMETER_FIGURES"]

_P, _K = (2, 4, 8, 18), (2, 4, 8, 16, 32)
_DIMS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SIZES = (16, 32, 64, 128, 256, 512)
_OPEN = (
    "The paper states neither optimiser nor learning rate nor image size; here they are those of "
    "Hermans et al. 2017, whom it follows, at a constant rate."
)
_QUERY = (
    "Diameters are those of query images: people not trained on. R@1 and mAP are by the official "
    "protocol: queries against the gallery, same person and camera left out."
)
# Networks of seconds for 8 × 8 digits.
_TINY: Mapping[str, Mapping[str, Any]] = {
    "resnet18": {"backbone": "mlp", "hidden": [32]},
    "resnet50": {"backbone": "mnist-cnn"},
    "googlenet": {"backbone": "mlp", "hidden": [64, 32]},
    "conv2": {"backbone": "conv2"},
}


def _digits(backbone: str, *, uniform: bool = False) -> Grid:
    """Embedded digits, with the convnet itself or a stand-in for a larger network."""
    return grid(
        {"name": "digits"},
        _TINY[backbone],
        steps=30,
        seeds=1,
        batches=(8, 16, 32) if uniform else [(2, 2), (4, 4), (8, 8)],
        dims=(4, 16, 64),
        batch=16 if uniform else (4, 2),
        dim=16,
        lr=1e-3,
        differs="Smoke: the digits of scikit-learn and a few steps of a tiny network. It shows "
        "that the figure is made, not what the paper says.",
    )


@dataclass(frozen=True)
class _Small:
    """What a laptop trains of a network on Market-1501: `size` is height and width."""

    size: tuple[int, int]
    steps: int
    batches: Sequence[tuple[int, int]]
    dims: Sequence[int]

    def grid(self, backbone: str) -> Grid:
        """Queries are judged in a gallery of at most 2,000, in their own proportions."""
        height, width = self.size
        return grid(
            {"name": "market1501", "eval_splits": ["query"], "size": [height, width]},
            {"backbone": backbone},
            steps=self.steps,
            seeds=2,
            batches=self.batches,
            dims=self.dims,
            batch=(8, 4),
            differs=f"Laptop: {height} × {width} pixels without flips, {self.steps:,} steps "
            f"instead of 40,000, 2 repeats instead of 3, a part of the grid. {_OPEN} {_QUERY} At "
            "this scale it is bounded: so many of the people, drawn once, that they and their "
            "share of the distractors fit a gallery of 2,000. Scores in it are higher than in "
            "the whole gallery.",
        )


def _market(backbone: str, small: _Small, *others: Grid) -> Study[Grid]:
    """Market-1501 in P × K batches (§4); on a laptop `small`, or `others` without Market."""
    paper = grid(
        {"name": "market1501", "augment": "paper", "eval_splits": ["query"], "workers": 4},
        {"backbone": backbone},
        steps=40_000,
        seeds=3,
        batches=[(p, k) for p in _P for k in _K],
        dims=_DIMS,
        batch=(8, 4),
        differs=f"{_OPEN} {_QUERY}",
    )
    laptop = [small.grid(backbone), *others]
    scales = {"smoke": [_digits(backbone)], "laptop": laptop, "paper": [paper]}
    return Study("hnm", scales, partial=True)


def _uniform(data: str) -> Study[Grid]:
    """SOP, CUB200 or Cars196 in batches drawn at random: appendix D, always ResNet-18."""
    note = (
        "Batches are drawn without regard to classes (appendix D), so a sample may have no "
        "positive; the column `anchors` of the runs is the share that has one. "
        "The paper's text lists neither its batch sizes nor the batch of its dimension plot: "
        f"ours are {', '.join(map(str, _SIZES))}, and 128. {_OPEN}"
    )
    paper = grid(
        {"name": data, "augment": "paper", "workers": 4},
        {"backbone": "resnet18"},
        steps=40_000,
        seeds=3,
        batches=_SIZES,
        dims=_DIMS,
        batch=128,
        differs=note,
    )
    laptop = grid(
        {"name": data, "size": 32, "fit": "stretch", "eval_splits": ["train"]},
        {"backbone": "resnet18"},
        steps=60,
        seeds=2,
        batches=(16, 64, 128),
        dims=(4, 64, 1024),
        batch=64,
        differs="Laptop: 32 × 32 pixels, stretched and uncropped, 60 steps instead of 40,000, 2 "
        "repeats instead of 3, batches of 16, 64 and 128 and 64 for the dimensions. Diameters "
        "and R@1 are of 2,000 training images, searched among each other. "
        f"{note}",
    )
    scales = {"smoke": [_digits("resnet18", uniform=True)], "laptop": [laptop], "paper": [paper]}
    return Study("hnm", scales, partial=True)


# Where Market-1501 is not at hand: letters instead of people, 20 images of each.
_LETTERS = grid(
    {"name": "omniglot", "labels": "fine", "size": 20},
    {"backbone": "conv2"},
    steps=200,
    seeds=3,
    batches=[(2, 2), (4, 4), (8, 4), (8, 8), (18, 8)],
    dims=(4, 16, 128, 1024),
    batch=(8, 4),
    lr=1e-3,
    differs="Omniglot letters (964 to train on, 659 others to test) instead of the people of "
    "Market-1501, 20 × 20 pixels, 200 steps of Adam at 1e-3 instead of 40,000, and a part of the "
    "grid. The paper states neither its optimiser nor its convnet.",
)

# §4: ResNet-18 from scratch, margin 0, 40,000 steps, 3 repeats. Left: d = 128, P in {2, 4, 8, 18}
# and K in {2, 4, 8, 16, 32}. Right: P = 8, K = 4, d from 4 to 1024.
_RESNET18 = _market(
    "resnet18", _Small((32, 16), 100, [(2, 2), (4, 4), (8, 4), (18, 8)], (4, 128, 1024))
)
# Appendix C: the same with margins; on a laptop shorter, and the ends and the middle of the axes.
_FEW = [(2, 2), (8, 4), (18, 8)]
_MARGINS = _market("resnet18", _Small((32, 16), 60, _FEW, (4, 128, 1024)))
# Appendix E: as Fig. 5, other networks from scratch; Fig. 12 "a simple 2-layer convolutional
# network".
_RESNET50 = _market("resnet50", _Small((32, 16), 60, [(2, 2), (4, 4), (8, 4)], (4, 128, 1024)))
_GOOGLENET = _market("googlenet", _Small((32, 16), 100, _FEW, (4, 128, 1024)))
_LARGE = [(2, 2), (4, 4), (8, 4), (8, 8), (18, 8)]
_CONV2 = _market("conv2", _Small((48, 24), 200, _LARGE, (4, 16, 128, 1024)), _LETTERS)
# Appendix D: "a fixed batch size without the same-class guarantees".
_SOP, _CUB, _CARS = _uniform("sop"), _uniform("cub200"), _uniform("cars196")

DIAMETER_FIGURES = (
    DiameterFigure(
        "fig5a",
        "Fig. 5 (left): diameter and batch size",
        [Panel("batch", _RESNET18)],
    ),
    DiameterFigure(
        "fig5b",
        "Fig. 5 (right): diameter and dimension",
        [Panel("dim", _RESNET18)],
    ),
    DiameterFigure(  # appendix C
        "fig6",
        "Fig. 6: diameter and batch size with a margin",
        [Panel("batch", _MARGINS, margin) for margin in (0.01, 0.05)],
        more=threshold_claims,
    ),
    DiameterFigure(  # appendix C
        "fig7",
        "Fig. 7: diameter and dimension with a margin",
        [Panel("dim", _MARGINS, margin) for margin in (0.01, 0.05)],
        more=margin_claims,
    ),
    DiameterFigure(
        "fig8",
        "Fig. 8: Stanford Online Products",
        [Panel("batch", _SOP), Panel("dim", _SOP)],
    ),
    # The batch size alone: at a given batch all dimensions collapsed, or none.
    DiameterFigure(
        "fig9",
        "Fig. 9: CUB200 and Cars196",
        [Panel("batch", _CUB, title="CUB200"), Panel("batch", _CARS, title="Cars196")],
    ),
    DiameterFigure(
        "fig10",
        "Fig. 10: ResNet-50",
        [Panel("batch", _RESNET50), Panel("dim", _RESNET50)],
    ),
    DiameterFigure(
        "fig11",
        "Fig. 11: GoogLeNet",
        [Panel("batch", _GOOGLENET), Panel("dim", _GOOGLENET)],
        more=outlier_claims,
    ),
    DiameterFigure(
        "fig12",
        "Fig. 12: a two-layer convnet",
        [Panel("batch", _CONV2), Panel("dim", _CONV2)],
    ),
)
