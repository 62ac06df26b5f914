"""EPS Fig. 4: what lies nearest to some cars, without and with easy positives."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont

from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._maps import Look, look
from uncollapse.papers.eps.methods import only
from uncollapse.papers.eps.protocols import CARS, TIMES
from uncollapse.report.contact_sheet import contact_sheet, save_png
from uncollapse.training.lookup import nearest

__all__ = ["EPS_FIG4"]

_METHODS = only("Dist-Margin", "EPS + Dist-Margin")
_QUERIES, _NEIGHBOURS, _ROWS = 6, 5, 4000
_HEAD = 30


def _make(request: Request) -> list[Path]:
    trained = CARS.train(request, _METHODS)
    sheets = {
        method: _sheet(look(runs[0], "test", _ROWS), request.seed)
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
    return [save_png(page.convert("RGBA"), request.folder("eps-fig4") / "eps-fig4.png")]


def _sheet(seen: Look, seed: int) -> Image.Image:
    """Queries spread over the split, the same ones for every method."""
    step = max(1, len(seen.rows) // _QUERIES)
    queries = [(seed + place * step) % len(seen.rows) for place in range(_QUERIES)]
    data = seen.data.subset(seen.rows)
    chosen = torch.tensor(queries)
    found = nearest(seen.embeddings[chosen], seen.embeddings, _NEIGHBOURS, exclude=chosen).rows
    right = data.labels[found] == data.labels[chosen][:, None]
    return contact_sheet(data[chosen][0], [data[row][0] for row in found], right.tolist())


EPS_FIG4 = Item(
    name="eps-fig4",
    summary="EPS Fig. 4: nearest neighbours of some cars, without and with EPS",
    needs="Cars196 (smoke: nothing)",
    time=TIMES,
    make=_make,
    scales=("laptop", "smoke", "paper"),
)
