"""EPS Figs. 2, 4 and 5: where the trained networks put the images, and what lies nearest."""

from __future__ import annotations

import textwrap

import torch
from PIL import Image, ImageDraw, ImageFont

from uncollapse.papers._compare import Claim, Comparison, change, publish, spread
from uncollapse.papers._draw import save
from uncollapse.papers._item import TRAINED_SCALES, Item, Made, Request
from uncollapse.papers._study import Trained
from uncollapse.papers.eps._maps import figure_grid, scatter_classes
from uncollapse.papers.eps._scores import (
    Column,
    Embedded,
    embed_split,
    measure,
    measure_all,
)
from uncollapse.papers.eps._table import TIMES
from uncollapse.papers.eps.methods import some_methods
from uncollapse.papers.eps.mnist import MNIST, PARITY_METHODS
from uncollapse.papers.eps.photographs import CARS
from uncollapse.report.contact_sheets import contact_sheet, save_png
from uncollapse.report.projection import project
from uncollapse.training.search import nearest

__all__ = ["EMBEDDING_FIGURES"]

_CAR_METHODS = some_methods("Dist-Margin", "EPS + Dist-Margin")
# Fig. 2: the splits in words, their digits, and how many images of each are drawn.
_DIGITS = {"val": ("digits 0-5, seen", range(6)), "test": ("digits 6-9, unseen", range(6, 10))}
_DIGIT_IMAGES = 2500
_QUERIES, _NEIGHBOURS, _TEST_CARS = 6, 5, 4000  # Fig. 4
_CLASSES, _TRAINING_CARS = 10, 9000  # Fig. 5
_HEAD = 30  # pixels above a contact sheet


def _digits_in_the_plane(request: Request) -> Made:
    trained = MNIST.train(request, PARITY_METHODS)
    figure, axes = figure_grid(2, 2, (9.0, 9.4))
    for column, (method, runs) in enumerate(trained.runs.items()):
        for row, (split, (words, digits)) in enumerate(_DIGITS.items()):
            seen = embed_split(runs[0], split, _DIGIT_IMAGES)
            labels = seen.data.by_fine_labels().labels[seen.rows].numpy()
            names = {digit: str(digit) for digit in digits}
            axis = axes[row][column]
            scatter_classes(axis, seen.embeddings.numpy(), labels, names, first=digits[0])
            score = measure(runs[0], [Column("R@1", split, fine=True, k=1)])["R@1"]
            axis.set_title(f"{method}: {words}\nR@1 by digit {score:.1f} %", fontsize=11)
    how = f"held-out images, seed {trained.seeds[0]}; {trained.setup.words}"
    figure.suptitle(
        "EPS Fig. 2: embeddings in the plane after training with no label but odd or even\n"
        + textwrap.fill(how, 92),
        fontsize=10,
    )
    return publish(
        request,
        "EPS Fig. 2: the digits in the plane, trained by odd and even",
        Comparison(
            claims=[_digits_apart(trained, split, words) for split, (words, _) in _DIGITS.items()]
        ),
        about=trained.about(request),
        notes=trained.notes,
        figure=figure,
    )


def _digits_apart(trained: Trained, split: str, words: str) -> Claim:
    """Whether clusters are digits: NMI of k-means with as many clusters as there are digits."""
    found = measure_all(trained, Column("NMI", split, fine=True))
    without, with_eps = (spread(values)[0] for values in found.values())
    return Claim(
        f"{words}: NMI of clusters and digits, without EPS → with EPS",
        "clusters overlap → they are separate",
        change(without, with_eps),
        with_eps > without,
    )


def _nearest_cars(request: Request) -> Made:
    trained = CARS.train(request, _CAR_METHODS)
    sheets = {
        method: _sheet(embed_split(runs[0], "test", _TEST_CARS), request.seed)
        for method, runs in trained.runs.items()
    }
    width = max(sheet.width for sheet in sheets.values())
    page = Image.new("RGB", (width, sum(s.height + _HEAD for s in sheets.values())), "white")
    draw, top = ImageDraw.Draw(page), 0
    for method, sheet in sheets.items():
        words = f"{method}: a query, then its nearest; a tick is the query's class"
        draw.text((4, top + 6), words, "#222222", ImageFont.load_default(16))
        page.paste(sheet, (0, top + _HEAD), sheet)
        top += sheet.height + _HEAD
    return Made([save_png(page.convert("RGBA"), request.folder / f"{request.item}.png")])


def _sheet(seen: Embedded, seed: int) -> Image.Image:
    """Queries spread over the split, the same ones for every method."""
    step = max(1, len(seen.rows) // _QUERIES)
    queries = [(seed + place * step) % len(seen.rows) for place in range(_QUERIES)]
    data = seen.data.subset(seen.rows)
    chosen = torch.tensor(queries)
    found = nearest(seen.embeddings[chosen], seen.embeddings, _NEIGHBOURS, exclude=chosen).rows
    right = data.labels[found] == data.labels[chosen][:, None]
    return contact_sheet(data[chosen][0], [data[row][0] for row in found], right.tolist())


def _tsne_of_cars(request: Request) -> Made:
    trained = CARS.train(request, _CAR_METHODS)
    figure, axes = figure_grid(1, 2, (11.0, 5.9))
    for axis, (method, runs) in zip(axes[0], trained.runs.items(), strict=True):
        seen = embed_split(runs[0], "train", _TRAINING_CARS)
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
    return Made(save(figure, request.folder, request.item))


EMBEDDING_FIGURES = (
    Item(
        name="eps-fig2",
        summary="EPS Fig. 2: the digits in the plane, with random and with easy positives",
        needs="MNIST (smoke: nothing); the extra 'plots'",
        time=TIMES | {"laptop": "seconds after table1", "paper": "hours"},
        make=_digits_in_the_plane,
        scales=TRAINED_SCALES,
    ),
    Item(
        name="eps-fig4",
        summary="EPS Fig. 4: nearest neighbours of some cars, without and with EPS",
        needs="Cars196 (smoke: nothing)",
        time=TIMES,
        make=_nearest_cars,
        scales=TRAINED_SCALES,
    ),
    Item(
        name="eps-fig5",
        summary="EPS Fig. 5: t-SNE of Cars196 training classes, without and with EPS",
        needs="Cars196 (smoke: nothing); the extra 'plots'",
        time=TIMES,
        make=_tsne_of_cars,
        scales=TRAINED_SCALES,
    ),
)
