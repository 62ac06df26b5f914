"""Draw the house from its imports and from a traced run: `docs/img/architecture.svg`.

python tools/architecture.py            # writes the picture
python tools/architecture.py --check    # writes nothing; fails where the picture is another one

A box is a package. A thin line is an import, left out where a longer way leads there. A thick
arrow is a call of the traced run (three steps of training on digits, a look at its rows, the page
of the run), numbered in the order in which it was first made. `_base` serves all and gets no lines.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uncollapse as uc
from uncollapse._base.extras import without_kernels
from uncollapse._base.files import write_text
from uncollapse._base.progress import quiet_console
from uncollapse.charts.marks import css_variables
from uncollapse.report import write_report

SOURCES = Path(uc.__file__).parent
PICTURE = Path(__file__).parents[1] / "docs" / "img" / "architecture.svg"
FLOORS = {
    "telling": ["cli", "report", "papers", "charts"],
    "running": ["sweep", "training", "data", "backbones", "integrations"],
    "judging": ["health", "metrics"],
    "learning": ["mining", "losses", "samplers"],
    "points": ["geometry", "distances", "noise"],
    "ground": ["_kernels", "_base"],
}
WIDTH, BOX, TALL, ROW, TOP = 820, (112, 34), 34, 92, 36
LEFT = 90  # of the rooms; the floors' names are before it
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
Edge = tuple[str, str]


def imports() -> set[Edge]:
    """Which package imports which, without what only type checkers see."""
    edges = set()
    for path in SOURCES.rglob("*.py"):
        room = path.relative_to(SOURCES).parts[0]
        if room.endswith(".py"):  # the root
            continue
        for module in _imported(ast.parse(path.read_text(encoding="utf-8"))):
            parts = module.split(".")
            if parts[0] == "uncollapse" and len(parts) > 1 and (SOURCES / parts[1]).is_dir():
                edges.add((room, parts[1]))
    return {(above, below) for above, below in edges if above != below}


def _imported(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from _imported(child)


def reduced(edges: set[Edge]) -> set[Edge]:
    """Without the edges that a longer way replaces."""
    below = {room: {b for a, b in edges if a == room} for room in {r for e in edges for r in e}}

    def reached(room: str) -> set[str]:
        return below[room].union(*(reached(other) for other in below[room]))

    return {(a, b) for a, b in edges if not any(b in reached(other) for other in below[a] - {b})}


def traced() -> dict[Edge, str]:
    """Calls from package to package of a small run, in their order: the first function called."""
    calls: dict[Edge, str] = {}

    def see(frame: FrameType, event: str, _arg: Any) -> None:
        here = _room(frame) if event == "call" else None
        if here is None:
            return
        caller = frame.f_back
        while caller is not None and _room(caller) is None:  # through torch
            caller = caller.f_back
        above = None if caller is None else _room(caller)
        if above not in (None, here) and not frame.f_code.co_name.startswith("<"):
            calls.setdefault((str(above), here), frame.f_code.co_qualname)

    config = uc.training.parse_config(
        {
            "data": {"name": "digits"},
            "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
            "batch": {"p": 4, "k": 3},
            "guard": {"every": 1},
            "evaluate": {"max_samples": 100},
            "train": {"steps": 3, "device": "cpu"},
        }
    )
    with tempfile.TemporaryDirectory() as folder, without_kernels():
        # Once before, untraced: what is imported or kept on first use is no flow.
        write_report(uc.train(config, Path(folder, "before"), console=quiet_console()))
        sys.setprofile(see)
        try:
            write_report(uc.train(config, Path(folder, "run"), console=quiet_console()))
        finally:
            sys.setprofile(None)
    return {edge: name for edge, name in calls.items() if "_base" not in edge}


def _room(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    parts = path.relative_to(SOURCES).parts if path.is_relative_to(SOURCES) else ()
    return parts[0] if len(parts) > 1 else None


def places() -> dict[str, tuple[float, float]]:
    """The middle of each box."""
    middles = {}
    for row, rooms in enumerate(FLOORS.values()):
        step = (WIDTH - LEFT) / len(rooms)
        for column, room in enumerate(rooms):
            middles[room] = (LEFT + (column + 0.5) * step, TOP + row * ROW + TALL / 2)
    return middles


def draw() -> str:
    """The picture as SVG."""
    packages = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    if packages != {room for rooms in FLOORS.values() for room in rooms}:
        raise SystemExit(f"FLOORS lacks or invents a package: {packages}")
    middles, calls = places(), traced()
    edges = {edge for edge in imports() if "_base" not in edge}
    parts = [_line(middles, edge, 'stroke="var(--line)"') for edge in sorted(reduced(edges))]
    arrow = 'stroke="var(--s0)" stroke-width="1.8" marker-end="url(#tip)"'
    parts += [_line(middles, edge, arrow) for edge in calls]
    parts += [_number(middles, edge, n) for n, edge in enumerate(calls, start=1)]
    for row, (floor, rooms) in enumerate(FLOORS.items()):
        y = TOP + row * ROW
        parts.append(f'<text x="4" y="{y + 22}" class="soft" font-size="14">{floor}</text>')
        for room in rooms:
            x, look = middles[room][0], "line"
            if any(room in edge for edge in calls):
                look = "s0"
            parts.append(
                f'<rect x="{x - BOX[0] / 2:.0f}" y="{y}" width="{BOX[0]}" height="{TALL}" rx="8" '
                f'fill="var(--card)" stroke="var(--{look})"/>'
                f'<text x="{x:.0f}" y="{y + 22}" text-anchor="middle" font-size="15" '
                f'font-weight="600">{room}</text>'
            )
    bottom = TOP + len(FLOORS) * ROW
    half = (len(calls) + 1) // 2
    for n, ((above, below), name) in enumerate(calls.items()):
        x, y = (8 if n < half else WIDTH / 2 + 8), bottom + 19 * (n % half)
        parts.append(
            f'<text x="{x:.0f}" y="{y}" font-size="12"><tspan class="soft">{n + 1:2}  {above} → '
            f"{below}:</tspan> {name.replace('<', '&lt;')}</text>"
        )
    height = bottom + 19 * half
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="t d"><title id="t">The packages by floor, '
        'their imports, and the calls of a run</title><desc id="d">'
        f"{'; '.join(f'{above} calls {below}' for above, below in calls)}</desc>"
        f"<style>{css_variables()} text {{ font-family: {FONT}; fill: var(--ink); }} "
        ".soft { fill: var(--soft); }</style><defs>"
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="var(--s0)"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{height}" fill="var(--card)"/>{"".join(parts)}</svg>\n'
    )


def _ends(middles: dict[str, tuple[float, float]], edge: Edge) -> tuple[float, ...]:
    (x, y), (u, v) = middles[edge[0]], middles[edge[1]]
    if y == v:  # on one floor: from side to side
        side = BOX[0] / 2 if u > x else -BOX[0] / 2
        return x + side, y, u - side, v
    side = TALL / 2 if v > y else -TALL / 2
    lean = max(-0.4, min(0.4, (u - x) / 600)) * BOX[0]
    return x + lean, y + side, u - lean, v - side


def _curve(middles: dict[str, tuple[float, float]], edge: Edge) -> tuple[float, ...]:
    """A cubic curve: around other boxes where they are on one floor and not neighbours."""
    x, y, u, v = _ends(middles, edge)
    if y == v and abs(u - x) > 100:
        side = BOX[0] / 2 if u > x else -BOX[0] / 2
        x, u, y, v = x - side / 2, u + side / 2, y - TALL / 2, v - TALL / 2
        return x, y, x, y - 26, u, v - 26, u, v
    bend = (v - y) * 0.45
    return x, y, x, y + bend, u, v - bend, u, v


def _line(middles: dict[str, tuple[float, float]], edge: Edge, look: str) -> str:
    x, y, *others = _curve(middles, edge)
    points = " ".join(f"{value:.0f}" for value in others)
    return f'<path d="M{x:.0f} {y:.0f}C{points}" fill="none" {look}/>'


def _number(middles: dict[str, tuple[float, float]], edge: Edge, number: int) -> str:
    x, y, a, b, c, d, u, v = _curve(middles, edge)
    t = 0.3 if number % 2 else 0.86 if v - y > ROW else 0.45  # beside other boxes
    weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
    across = sum(w * p for w, p in zip(weights, (x, a, c, u), strict=True))
    down = sum(w * p for w, p in zip(weights, (y, b, d, v), strict=True))
    return (
        f'<circle cx="{across:.0f}" cy="{down:.0f}" r="8" fill="var(--card)" stroke="var(--s0)"/>'
        f'<text x="{across:.0f}" y="{down + 4:.0f}" text-anchor="middle" font-size="10">'
        f"{number}</text>"
    )


def main() -> int:
    """Write the picture, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where the picture is another")
    check = parser.parse_args().check
    drawing = draw()
    if check:
        if PICTURE.read_text(encoding="utf-8") != drawing:
            print("docs/img/architecture.svg is not the code's; run python tools/architecture.py")
            return 1
        return 0
    write_text(PICTURE, drawing)
    print(f"wrote {PICTURE}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
