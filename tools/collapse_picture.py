"""Draw collapse and two cures: `docs/img/collapse.svg`, from the runs of collapse_in_a_minute.py.

    python tools/collapse_picture.py [--seed 0] [--steps 200] [--out docs/img/collapse.svg]

Three networks start from the same weights and see the same batches; only the loss differs. Curves:
the diameter of the embeddings of 40 letters that were never trained on, as a share of its start,
and R@1 among them. Maps: where the first 8 of those letters lie at the end, on the two main axes;
each frame fits its own embedding, but is no narrower than a tenth of what the network started with.
About a minute and a half.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from collapse_in_a_minute import DRAWINGS, MARGIN, K, P, letters, measure, network
from uncollapse.charts import Axes, Chart, Entry, Scale, Series, area, panels, save
from uncollapse.charts.marks import DASHES, Mark, Points, Rect, line_look, marker_kind
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner

SHOWN = 8
CURVES, SIDE = (390.0, 230.0), 255.0  # units of the drawing


@dataclass
class Story:
    """What one run did: its curves, and its embeddings at the end."""

    steps: list[int] = field(default_factory=list)
    diameters: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    end: Tensor = field(default_factory=lambda: torch.empty(0))


def train(loss_fn: TripletLoss, seed: int, steps: int, data: list[Tensor], every: int) -> Story:
    torch.manual_seed(seed)
    images, labels, new_images, new_labels = data
    model, story = network(), Story()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    by_letter = torch.arange(len(labels)).view(-1, DRAWINGS)
    for step in range(steps + 1):
        if step % every == 0:
            diameter, recall = measure(model, new_images, new_labels)
            story.steps.append(step)
            story.diameters.append(diameter)
            story.recalls.append(recall)
        chosen = torch.randperm(len(by_letter))[:P]
        drawing = torch.rand(P, DRAWINGS).argsort(1)[:, :K]
        batch = by_letter[chosen].gather(1, drawing).flatten()
        loss = loss_fn(model(images[batch]), labels[batch])
        story.losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        story.end = model(new_images[: SHOWN * DRAWINGS])
    return story


def draw(stories: dict[str, Story], path: Path) -> None:
    sizes = [
        Series(name, story.steps, [value / story.diameters[0] for value in story.diameters])
        for name, story in stories.items()
    ]
    recalls = [Series(name, story.steps, story.recalls) for name, story in stories.items()]
    across, up = area(*CURVES)
    steps = sizes[0].x
    x = Scale(min(steps), max(steps), *across)
    top = (
        _curves(
            "Diameter, share of its start (log)", sizes, Axes(x, Scale(1e-4, 20, *up, log=True))
        ),
        _curves("R@1 on letters never seen, %", recalls, Axes(x, Scale(0, 100, *up))),
    )
    legend = [Entry(name, line_look(i)[:1]) for i, name in enumerate(stories)]
    maps = [_map(name, story) for name, story in stories.items()]
    above = panels("", top, columns=2)
    below = panels("", maps, columns=len(maps))
    words = "Three networks from the same weights on the same batches; only the loss differs"
    save(panels(words, [above, below], columns=1, legend=legend), path)


def _curves(title: str, lines: list[Series], axes: Axes) -> Chart:
    drawn = [
        axes.line(one.x, one.y, f"s{i}", dash=DASHES[i], tip=one.name)
        for i, one in enumerate(lines)
    ]
    ends = ", ".join(f"{one.name} ends at {one.y[-1]:.3g}" for one in lines)
    return Chart(title, ends, (*axes.frame("training step"), axes.inside(*drawn)), *CURVES)


def _plane(z: Tensor) -> Tensor:
    """The two main axes about the middle."""
    centred = (z - z.mean(0)).double()
    return centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T


def _map(name: str, story: Story) -> Chart:
    plane = _plane(story.end)
    reach = max(1.1 * float(plane.abs().max()), 0.05 * story.diameters[0])
    axes = Axes(Scale(-reach, reach, 0, SIDE), Scale(-reach, reach, SIDE, 0))
    marks: list[Mark] = [Rect(0.5, 0.5, SIDE - 1, SIDE - 1, color="line")]
    for letter in range(SHOWN):
        x, y = plane[letter * DRAWINGS : (letter + 1) * DRAWINGS].T.tolist()
        marks.append(Points(axes.places(x, y), marker_kind(letter), f"s{letter}", size=0.8))
    figures = f"loss {story.losses[-1]:.4f}, diameter {story.diameters[-1]:.2g}"
    note = f"{figures}, R@1 {story.recalls[-1]:.0f}"
    return Chart(name, f"where {SHOWN} letters lie at the end", marks, SIDE, SIDE, note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("docs/img/collapse.svg"))
    options = parser.parse_args()
    data = [*letters(120, 2 * options.seed), *letters(40, 2 * options.seed + 1)]
    hard = Miner("hard", "hard")
    runs = {
        "batch-hard": TripletLoss(margin=MARGIN, miner=hard),
        "easy positives": TripletLoss(margin=MARGIN, miner=Miner("easy", "hard")),
        "scale-free": TripletLoss(margin=MARGIN, miner=hard, scale_free=True),
    }
    stories = {}
    for name, loss_fn in runs.items():
        story = train(loss_fn, options.seed, options.steps, data, every=max(1, options.steps // 40))
        stories[name] = story
        print(
            f"{name:16} loss {story.losses[-1]:.4f}  diameter {story.diameters[0]:.3g} -> "
            f"{story.diameters[-1]:.3g}  R@1 {story.recalls[0]:.1f} -> {story.recalls[-1]:.1f}",
            flush=True,
        )
    draw(stories, options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
