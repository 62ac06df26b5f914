"""EPS Figs. 2, 4 and 5: where the trained networks put the images, and what lies nearest."""

from __future__ import annotations

import io
from dataclasses import replace

import torch
from PIL import Image
from torch import Tensor

from uncollapse.charts import Chart, panels, scatter
from uncollapse.charts.marks import Picture
from uncollapse.metrics.nearest_rows import nearest
from uncollapse.papers.comparison import Finding, Scorecard, before_table, change, publish, spread
from uncollapse.papers.eps.scores import (
    STUDIES,
    Column,
    Embedded,
    embed_split,
    measure,
    method_scores,
    some_methods,
)
from uncollapse.papers.items import Made, Request
from uncollapse.papers.study import Trained
from uncollapse.report.neighbours import contact_sheet
from uncollapse.report.parts import project

_CAR_METHODS = some_methods("Dist-Margin", "EPS + Dist-Margin")
# Fig. 2: the splits in words, their digits, and how many images of each are drawn.
_DIGITS = {"val": ("digits 0-5, seen", range(6)), "test": ("digits 6-9, unseen", range(6, 10))}
_DIGIT_IMAGES = 2500
_QUERIES, _NEIGHBOURS, _TEST_CARS = 6, 5, 4000  # Fig. 4
_CLASSES, _TRAINING_CARS = 10, 9000  # Fig. 5


def digits(request: Request) -> Made:
    """EPS Fig. 2: the digits in the plane, and whether clusters are digits."""
    trained = STUDIES["mnist"].train(request, some_methods("Triplet", "EPS + Triplet"))
    maps, claims, tables = [], [], []
    for split, (words, of_split) in _DIGITS.items():
        recall = Column("R@1", split, fine=True, k=1)
        for method, runs in trained.runs.items():
            seen = embed_split(runs[0], split, _DIGIT_IMAGES)
            labels = seen.data.by_fine_labels().labels[seen.rows].numpy()
            points = seen.embeddings.numpy()
            drawn = scatter(f"{method}: {words}", points, labels, first=of_split[0])
            # The digits stand on the map.
            score = measure(runs[0], [recall])[0]
            maps.append(replace(drawn, note=f"R@1 by digit {score:.1f} %", legend=()))
        # NMI of k-means with as many clusters as there are digits.
        nmi = [Column("NMI", split, fine=True)]
        without, with_eps = (
            spread([measure(run, nmi)[0] for run in runs])[0] for runs in trained.runs.values()
        )
        what = f"{words}: NMI of clusters and digits, without EPS → with EPS"
        says = "clusters overlap → they are separate"
        claims.append(Finding(what, says, change(without, with_eps), with_eps > without))
        scores = method_scores(trained, [recall])
        tables.append(before_table(scores, f"R@1 by digit, {words}"))
    figure = panels(
        "EPS Fig. 2: embeddings in the plane after training with no label but odd or even",
        maps,
        columns=len(trained.runs),
        note=f"held-out images, seed {trained.seeds[0]}; {trained.setup.words}",
    )
    title = "EPS Fig. 2: the digits in the plane, trained by odd and even"
    comparison = Scorecard(claims=claims)
    return publish(request, title, comparison, [trained], more=tables, figure=figure)


def nearest_cars(request: Request) -> Made:
    """EPS Fig. 4: queries and their nearest neighbours, as photographs."""
    trained = STUDIES["cars196"].train(request, _CAR_METHODS)
    words = "a query, then its nearest; a tick is the query's class"
    sheets = [
        _shown(f"{method}: {words}", _sheet(embed_split(runs[0], "test", _TEST_CARS), request.seed))
        for method, runs in trained.runs.items()
    ]
    claim = Finding(
        "neighbours of one query",
        "with EPS they show the car from one side",
        "see the picture: Cars196 has no labels for that",
        None,
    )
    title = "EPS Fig. 4: nearest neighbours, without and with EPS"
    return _car_page(request, title, trained, claim, panels(title, sheets, columns=1), photos=True)


def _car_page(
    request: Request, title: str, trained: Trained, claim: Finding, figure: Chart, *, photos: bool
) -> Made:
    """The page of a figure without numbers in the paper; R@1 is that of the networks shown."""
    recall = Column("R@1", "test", k=1)
    scores = before_table(method_scores(trained, [recall]), "R@1, classes not trained on")
    return publish(
        request,
        title,
        Scorecard(claims=[claim]),
        [trained],
        more=[scores],
        figure=figure,
        photos=photos,
    )


def _shown(title: str, sheet: Image.Image) -> Chart:
    """A contact sheet at its own size in pixels."""
    file = io.BytesIO()
    sheet.save(file, "PNG")
    width, height = sheet.width / 2, sheet.height / 2
    picture = Picture(0, 0, width, height, file.getvalue(), title)
    return Chart(title, "a row for each query", (picture,), width, height)


def _sheet(seen: Embedded, seed: int) -> Image.Image:
    """Queries spread over the split, the same ones for every method."""
    step = max(1, len(seen.rows) // _QUERIES)
    queries = [(seed + i * step) % len(seen.rows) for i in range(_QUERIES)]
    data = replace(seen.data, features=None).subset(seen.rows)  # pictures, not what is made of them
    chosen = torch.tensor(queries)
    rows = nearest(seen.embeddings[chosen], seen.embeddings, _NEIGHBOURS, exclude=chosen).rows
    right = data.labels[rows] == data.labels[chosen][:, None]
    return contact_sheet(data[chosen][0], [data[row][0] for row in rows], right.tolist())


def tsne_of_cars(request: Request) -> Made:
    """EPS Fig. 5: some of the training classes, and how much of the variance is inside them."""
    trained = STUDIES["cars196"].train(request, _CAR_METHODS)
    maps, inside = [], []
    for method, runs in trained.runs.items():
        seen = embed_split(runs[0], "train", _TRAINING_CARS)
        labels = seen.data.labels[seen.rows]
        chosen = sorted(set(labels.tolist()))[:_CLASSES]
        kept = sum(labels == number for number in chosen).bool()
        inside.append(100.0 * _inside(seen.embeddings[kept], labels[kept]))
        points = project(seen.embeddings[kept], tsne=True, seed=request.seed)
        drawn = scatter(method, points, labels[kept].numpy(), rule=False)
        maps.append(replace(drawn, legend=()))
    figure = panels(
        f"EPS Fig. 5: t-SNE of {len(chosen)} training classes, each a colour and its number",
        maps,
        columns=2,
        note=f"seed {trained.seeds[0]}; {trained.setup.words}",
    )
    claim = Finding(
        f"variance inside the {len(chosen)} classes (%), without EPS → with EPS, seed "
        f"{trained.seeds[0]}",
        "narrow clusters → more diverse classes",
        change(*inside),
        inside[1] > inside[0],
    )
    title = "EPS Fig. 5: training classes of Cars196, without and with EPS"
    return _car_page(request, title, trained, claim, figure, photos=False)


def _inside(z: Tensor, labels: Tensor) -> float:
    """Share of the variance that lies inside classes; 0 where all points are one."""
    whole = float(((z - z.mean(0)) ** 2).sum())
    classes = [z[labels == c] for c in set(labels.tolist())]
    inside = sum(float(((rows - rows.mean(0)) ** 2).sum()) for rows in classes)
    return inside / whole if whole > 0 else 0.0
