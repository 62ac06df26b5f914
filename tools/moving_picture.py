"""Draw a collapse that moves: `docs/img/collapse-moving.svg`, from two real runs.

    python tools/moving_picture.py [--seed 0] [--steps 80] [--out docs/img/collapse-moving.svg]

Two networks start from the same weights on letters made of random strokes, with batch-hard mining.
One runs on; the other has a `Guard`, which sees the fall, rolls back and goes on with what wins a
short race. Points: six letters that were never trained on, on the two main axes of each moment,
turned to fit the moment before; both frames have the same scale. Figures: the loss of the step's
batch, and diameter and R@1 of 40 letters that were never trained on.

Where animation is off, the picture shows the last moment. About a minute.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from collapse_in_a_minute import DRAWINGS, MARGIN, K, P, letters, measure, network
from uncollapse._base.files import write_text
from uncollapse.charts.marks import css_variables
from uncollapse.health import Guard
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner

SHOWN, EVERY = 6, 2  # letters drawn, steps between two moments
SIDE, GAP, TOP, WIDTH, HEIGHT = 380, 24, 70, 808, 530
COLUMNS = {"step": 0, "loss": 58, "diameter": 158, "R@1, unseen letters": 256}
MOMENT, HOLD = 0.22, 3.0  # seconds
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass
class Film:
    """What one run did, moment by moment."""

    title: str
    steps: list[int] = field(default_factory=list)
    planes: list[Tensor] = field(default_factory=list)
    figures: list[tuple[float, float, float]] = field(default_factory=list)  # loss, diameter, R@1
    event: tuple[int, str] | None = None


def record(film: Film, seed: int, steps: int, data: list[Tensor], *, guarded: bool) -> Film:
    torch.manual_seed(seed)
    images, labels, new_images, new_labels = data
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    loss_fn = TripletLoss(margin=MARGIN, miner=Miner("hard", "hard"))
    guard = Guard(model, optimiser, loss_fn, steps=max(steps, 200)) if guarded else None
    by_letter = torch.arange(len(labels)).view(-1, DRAWINGS)
    for step in range(steps + 1):
        chosen = torch.randperm(len(by_letter))[:P]
        drawing = torch.rand(P, DRAWINGS).argsort(1)[:, :K]
        batch = by_letter[chosen].gather(1, drawing).flatten()
        z = model(images[batch])
        loss = loss_fn(z, labels[batch])
        if step % EVERY == 0:
            diameter, recall = measure(model, new_images, new_labels)
            with torch.no_grad():
                shown = model(new_images[: SHOWN * DRAWINGS])
            film.steps.append(step)
            film.planes.append(_plane(shown, film.planes[-1] if film.planes else None))
            film.figures.append((loss.item(), diameter, recall))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if guard is not None:
            guard.after_step(z, labels[batch], loss, step)
            rescues = [event for event in guard.events if event.kind == "rescue"]
            if rescues and film.event is None:
                film.event = (step, f"step {step}: rolled back, on with {guard.strategy}")
                print(rescues[0])
    return film


def _plane(z: Tensor, before: Tensor | None) -> Tensor:
    """The two main axes about the middle, turned to lie as the moment before did."""
    centred = (z - z.mean(0)).double()
    plane = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T
    if before is None or not bool(plane.abs().max() > 0):
        return plane
    u, _, vh = torch.linalg.svd(plane.T @ before)
    return plane @ (u @ vh)


def draw(films: list[Film]) -> str:
    """The SVG: everything stands as at the last moment, and moves where it may."""
    reach = 1.08 * max(float(plane.abs().max()) for film in films for plane in film.planes)
    moments = len(films[0].steps)
    length = moments * MOMENT + HOLD
    times = [i * MOMENT / length for i in range(moments)]
    body = [_panel(film, i, reach, times, length) for i, film in enumerate(films)]
    last = films[0].steps[-1]
    ends = "; ".join(f"{film.title}: {_said(film.figures[-1])}" for film in films)
    bar = (
        f'<rect x="0" y="{HEIGHT - 6}" width="{WIDTH}" height="6" fill="var(--grid)"/>'
        f'<rect x="0" y="{HEIGHT - 6}" width="{WIDTH}" height="6" fill="var(--s0)">'
        f'<animate attributeName="width" dur="{length:g}s" repeatCount="indefinite" '
        f'keyTimes="0;{_times(times[-1:])};1" values="0;{WIDTH};{WIDTH}"/></rect>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="t d">'
        f'<title id="t">Batch-hard mining falls to a point; a guard rescues the same run</title>'
        f'<desc id="d">After {last} steps. {ends}</desc>'
        f"<style>{css_variables()} text {{ font-family: {FONT}; fill: var(--ink); }} "
        ".soft { fill: var(--soft); } .good { fill: var(--good); }</style>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="var(--card)"/>{"".join(body)}{bar}</svg>\n'
    )


def _panel(film: Film, place: int, reach: float, times: list[float], length: float) -> str:
    left, unit = place * (SIDE + GAP) + 12, SIDE / 2 / reach
    middle = (left + SIDE / 2, TOP + SIDE / 2)
    parts = [
        f'<text x="{left}" y="32" font-size="22" font-weight="700">{film.title}</text>',
        f'<rect x="{left + 0.5}" y="{TOP + 0.5}" width="{SIDE - 1}" height="{SIDE - 1}" rx="10" '
        'fill="none" stroke="var(--line)"/>',
    ]
    parts += [
        f'<text x="{left + x}" y="{TOP + SIDE + 28}" font-size="13" class="soft">{name}</text>'
        for name, x in COLUMNS.items()
    ]
    paths = torch.stack(film.planes)
    for i in range(paths.shape[1]):
        x = (middle[0] + unit * paths[:, i, 0]).tolist()
        y = (middle[1] - unit * paths[:, i, 1]).tolist()
        at = ";".join(f"{a:.1f} {b:.1f}" for a, b in zip([*x, x[-1]], [*y, y[-1]], strict=True))
        parts.append(
            f'<circle r="4" fill="var(--s{i // DRAWINGS})" fill-opacity=".8" '
            f'transform="translate({x[-1]:.1f} {y[-1]:.1f})"><animateTransform '
            f'attributeName="transform" type="translate" dur="{length:g}s" '
            f'repeatCount="indefinite" keyTimes="{_times(times)};1" values="{at}"/></circle>'
        )
    for i, (step, figures) in enumerate(zip(film.steps, film.figures, strict=True)):
        until = times[i + 1] if i + 1 < len(times) else 1.0
        parts.append(_counter(left, step, figures, times[i], until, length))
    if film.event is not None:
        seen = next(i for i, step in enumerate(film.steps) if step >= film.event[0])
        parts.append(
            f'<text x="{left}" y="56" font-size="14" class="good">'
            f"{film.event[1]}{_switch(times[seen], 1.0, length)}</text>"
        )
    return "".join(parts)


def _counter(
    left: float,
    step: int,
    figures: tuple[float, float, float],
    start: float,
    end: float,
    length: float,
) -> str:
    """The figures of one moment, seen while it lasts; without animation only the last is."""
    loss, diameter, recall = figures
    shown = (f"{step}", f"{loss:.4f}", f"{diameter:.2g}", f"{recall:.0f} %")
    texts = "".join(
        f'<tspan x="{left + x}">{value}</tspan>'
        for x, value in zip(COLUMNS.values(), shown, strict=True)
    )
    off = "" if end == 1.0 else ' display="none"'
    return (
        f'<text y="{TOP + SIDE + 56}" font-size="21" font-weight="600"{off}>{texts}'
        f"{_switch(start, end, length)}</text>"
    )


def _switch(start: float, end: float, length: float) -> str:
    """Seen from `start` to `end`, shares of the whole."""
    turns = [(0.0, "none")] * (start > 0) + [(start, "inline")] + [(end, "none")] * (end < 1)
    return (
        f'<animate attributeName="display" calcMode="discrete" dur="{length:g}s" '
        f'repeatCount="indefinite" keyTimes="{_times([time for time, _ in turns])}" '
        f'values="{";".join(value for _, value in turns)}"/>'
    )


def _times(times: list[float]) -> str:
    return ";".join(f"{time:.3f}".lstrip("0") or "0" for time in times)


def _said(figures: tuple[float, float, float]) -> str:
    loss, diameter, recall = figures
    return f"loss {loss:.4f}, diameter {diameter:.2g}, R@1 {recall:.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--out", type=Path, default=Path("docs/img/collapse-moving.svg"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # the same figures everywhere
    data = [*letters(120, 2 * options.seed), *letters(40, 2 * options.seed + 1)]
    films = []
    for title, guarded in (("batch-hard", False), ("batch-hard with a guard", True)):
        film = record(Film(title), options.seed, options.steps, data, guarded=guarded)
        print(f"{title}: {_said(film.figures[0])} -> {_said(film.figures[-1])}", flush=True)
        films.append(film)
    write_text(options.out, draw(films))
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
