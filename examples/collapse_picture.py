"""Draw collapse and two cures: `docs/img/collapse.svg`, from the runs of collapse_in_a_minute.py.

    python examples/collapse_picture.py [--seed 0] [--steps 200] [--out docs/img/collapse.svg]

Three networks start from the same weights and see the same batches; only the loss differs. Curves:
the diameter of the embeddings of 40 letters that were never trained on, as a share of its start,
and R@1 among them. Maps: where the first 8 of those letters lie at the end, on the two main axes;
each frame fits its own embedding, but is no narrower than a tenth of what the network started with.
Needs the extra `plots`. About a minute and a half.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from collapse_in_a_minute import DRAWINGS, MARGIN, K, P, letters, measure, network
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner

SHOWN = 8
INK, GRID = "#24303a", "#d7dee3"
COLOURS = {"batch-hard": "#c2410c", "easy positives": "#0f766e", "scale-free": "#1d4ed8"}
DASHES = {"batch-hard": "-", "easy positives": "--", "scale-free": "-."}
LETTERS = ["#0f766e", "#c2410c", "#1d4ed8", "#a21caf", "#4d7c0f", "#b45309", "#0e7490", "#be123c"]


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
    style = {"font.size": 9, "svg.fonttype": "none", "font.family": "sans-serif"}
    style |= {"text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GRID}
    style |= {"xtick.color": INK, "ytick.color": INK, "svg.hashsalt": "collapse"}
    with plt.rc_context(style):
        figure = plt.figure(figsize=(8.6, 5.4), facecolor="white", layout="constrained")
        top, bottom = figure.subfigures(2, 1, height_ratios=[1.05, 1])
        size, recall = top.subplots(1, 2)
        _curves(size, stories, "diameters", "diameter, share of its start (log)")
        size.set(yscale="log", ylim=(1e-4, 20))
        _curves(recall, stories, "recalls", "R@1 on letters never seen, %")
        recall.set_ylim(0, 100)
        size.legend(frameon=False, loc="center right")
        maps = bottom.subplots(1, len(stories))
        for axes, (name, story) in zip(maps, stories.items(), strict=True):
            _map(axes, name, story)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _curves(axes: Any, stories: dict[str, Story], what: str, title: str) -> None:
    for name, story in stories.items():
        values = getattr(story, what)
        if what == "diameters":
            values = [value / values[0] for value in values]
        axes.plot(story.steps, values, DASHES[name], color=COLOURS[name], label=name, lw=1.8)
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.set_xlabel("training step")
    axes.grid(color=GRID, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _plane(z: Tensor) -> Tensor:
    """The two main axes about the middle."""
    centred = (z - z.mean(0)).double()
    return centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T


def _map(axes: Any, name: str, story: Story) -> None:
    plane = _plane(story.end)
    reach = max(1.1 * float(plane.abs().max()), 0.05 * story.diameters[0])
    for letter in range(SHOWN):
        x, y = plane[letter * DRAWINGS : (letter + 1) * DRAWINGS].T.tolist()
        axes.scatter(x, y, s=14, color=LETTERS[letter], marker="osD^vPX*"[letter], linewidths=0)
    figures = f"loss {story.losses[-1]:.4f}, diameter {story.diameters[-1]:.2g}"
    title = f"{name}\n{figures}, R@1 {story.recalls[-1]:.0f}"
    axes.set_title(title, fontsize=9.5, color=COLOURS[name])
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[], aspect="equal")


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
