"""EPS Fig. 5: t-SNE of Cars196 training classes, without and with easy positives."""

from __future__ import annotations

import textwrap
from pathlib import Path

from uncollapse.papers._draw import save
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._maps import figure_grid, look, scatter_classes
from uncollapse.papers.eps.methods import only
from uncollapse.papers.eps.protocols import CARS, TIMES
from uncollapse.report.projection import project

__all__ = ["EPS_FIG5"]

_METHODS = only("Dist-Margin", "EPS + Dist-Margin")
_CLASSES, _ROWS = 10, 9000


def _make(request: Request) -> list[Path]:
    trained = CARS.train(request, _METHODS)
    figure, axes = figure_grid(1, 2, (11.0, 5.9))
    for axis, (method, runs) in zip(axes[0], trained.runs.items(), strict=True):
        seen = look(runs[0], "train", _ROWS)
        labels = seen.data.labels[seen.rows]
        chosen = sorted(set(labels.tolist()))[:_CLASSES]
        kept = sum(labels == number for number in chosen).bool()
        points = project(seen.embeddings[kept], tsne=True, seed=request.seed)
        names = {number: str(number) for number in chosen}
        scatter_classes(axis, points, labels[kept].numpy(), names)
        axis.set_title(method, fontsize=11)
    figure.suptitle(
        f"EPS Fig. 5: t-SNE of {len(chosen)} training classes, each a colour and its number\n"
        f"seed {trained.seeds[0]}; {textwrap.fill(trained.setup.words, 100)}",
        fontsize=10,
    )
    return save(figure, request.folder("eps-fig5"), "eps-fig5")


EPS_FIG5 = Item(
    name="eps-fig5",
    summary="EPS Fig. 5: t-SNE of Cars196 training classes, without and with EPS",
    needs="Cars196 (smoke: nothing); the extra 'plots'",
    time=TIMES,
    make=_make,
    scales=("laptop", "smoke", "paper"),
)
