"""The truth of HNM's claims, each recomputed on the example that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.files import write_csv
from uncollapse._base.table import Table
from uncollapse.distances import pairwise_distances
from uncollapse.geometry import (
    Claim,
    check_claims,
    class_diameters,
    diameter,
    diameter_lower_bound,
    gradient_descent_separated,
    hard_mined_loss,
    is_triplet_separated,
    nearest_separated,
    separation,
)
from uncollapse.papers.items import ItemPage, Made, Request, write_claims

# The points HNM draws, and the examples and counterexamples on which its claims are checked.

NAMES = ("class A", "class B")
_EQUIVALENCE = ("Thm 3.2, lower", "Thm 3.3, lower", "Thm 3.3, upper")
_HAUSDORFF = ("Cor. 3.4, lower", "Cor. 3.4, upper")
_DIAMETER = ("(16)", "(17)")


@dataclass(frozen=True, eq=False)
class Example:
    """Points, the claims they bear on, and where training ended if that matters."""

    title: str
    x: Array
    labels: Array
    shows: tuple[str, ...]
    alpha: float = 0.0
    end: Array | None = None
    starts: int | None = None


def worked_examples(seed: int) -> Iterator[Example]:
    """The counterexamples first, then the paper's own toys."""
    singles, upper = np.zeros((4, 1)), ("Thm 3.3, upper", "Thm 3.2, upper", *_HAUSDORFF)
    title = "4 classes of one point, all at 0 in R¹"
    yield Example(title, singles, np.arange(4), upper, alpha=1.0)
    both = (*_EQUIVALENCE, *_HAUSDORFF)
    line = np.array([[0.0], [3.0], [-1.0]])
    yield Example("A = {0, 3}, B = {-1} in R¹", line, np.array([0, 0, 1]), both)
    cross = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    ids = np.array([0, 0, 1, 1])
    yield Example("cross A = {(±1, 0)}, B = {(0, ±1)}", cross, ids, both)
    nearest, title = nearest_separated(cross, ids), "cross, ending at its nearest separated points"
    yield Example(title, cross, ids, _DIAMETER, end=nearest.points.numpy())
    for count in (3, 7):
        x, classes = concentric_simplices(count)
        title = f"2 simplices of {count} points, one centre, R{_superscript(x.shape[1])}"
        yield Example(title, x, classes, _HAUSDORFF, starts=2)
    apart = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0], [5.0, 1.0]])
    title = "separated at first, all at one point after"
    yield Example(title, apart, ids, _DIAMETER, end=np.zeros_like(apart))
    x, classes = five_points(seed)
    yield Example("5 points of Figs. 2 and 3", x, classes, (*both, *_DIAMETER))
    x, classes = twenty_points(seed)
    yield Example("20 points of Fig. 4", x, classes, (*both, "(16)"))
    after = gradient_descent_separated(x, classes).points.numpy()
    yield Example("20 points, after 50 gradient steps", x, classes, _DIAMETER, end=after)


def random_draws(seed: int) -> list[str]:
    """What held, and how often, in random draws: one sentence per statement."""
    draws = [np.random.default_rng([seed, k]).standard_normal((5, 2)) for k in range(8)]
    ids = np.array([0, 0, 0, 1, 1])
    losses = [hard_mined_loss(x, ids) for x in draws]
    iso = [nearest_separated(x, ids, objective="iso").value for x in draws]
    haus = [nearest_separated(x, ids).value for x in draws]
    open_ = [k for k in range(len(draws)) if losses[k] > 0.0]
    half = sum(iso[k] <= 0.5 * losses[k] * (1.0 + 1e-5) for k in open_)
    ratios = [haus[k] / iso[k] for k in open_]
    ends = _small_step_runs(seed)
    return [
        f"{len(open_)} random draws of 5 points in R², α = 0: d_iso = L/2, its least possible, "
        f"in {half}; d_haus / d_iso between {min(ratios):.2f} and {max(ratios):.2f} (the paper's "
        "example: 0.53).",
        f"Gradient descent with small steps on {sum(ends.values())} random sets: (17) with c = 2 "
        f"held in {ends['holds']}, said nothing in {ends['vacuous']}, failed in "
        f"{ends['violated']}. It is no theorem: see the rows above.",
    ]


def _small_step_runs(seed: int) -> dict[str, int]:
    """Verdicts of (17) over descents of sets of several sizes."""
    verdicts = {"holds": 0, "violated": 0, "vacuous": 0}
    for n, dim, classes in ((6, 2, 2), (8, 8, 4), (12, 3, 3), (20, 16, 5)):
        for k in range(3):
            x = np.random.default_rng([seed, n, k]).standard_normal((n, dim))
            ids = np.arange(n) % classes
            end = gradient_descent_separated(x, ids, steps=400, lr=0.01).points
            bound = diameter_lower_bound(diameter(x), hard_mined_loss(x, ids))
            held = "holds" if diameter(end) >= bound else "violated"
            verdicts["vacuous" if bound <= 0.0 else held] += 1
    return verdicts


def concentric_simplices(count: int) -> tuple[Array, Array]:
    """Two regular simplices of `count` points in orthogonal spaces, with one centre.

    Points are almost as far from the other class as from their own, yet the classes must move by
    about sqrt(n/2) times the loss to part, n = 2 (count - 1).
    """
    centred = np.eye(count) - 1.0 / count
    simplex = centred @ np.linalg.svd(centred)[0][:, : count - 1]
    empty = np.zeros_like(simplex)
    x = np.block([[simplex, empty], [empty, simplex]])
    return x, np.repeat([0, 1], count)


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def separated_pair(seed: int, margin: float) -> tuple[Array, Array]:
    """Two triplet-separated classes of four points: HNM Fig. 1."""
    rng = np.random.default_rng(seed)
    ids = np.repeat([0, 1], 4)
    x = np.vstack([_scattered(rng, 4, 0.9), _scattered(rng, 4, 0.9)])
    while not is_triplet_separated(x, ids, margin):
        x[4:, 0] += 0.1
    return x, ids


def five_points(seed: int) -> tuple[Array, Array]:
    """Three and two points that clearly are not separated: HNM Figs. 2 and 3."""
    rng = np.random.default_rng(seed)
    ids = np.array([0, 0, 0, 1, 1])
    while True:
        x = _scattered(rng, 5, 0.9)
        hardest = separation(x, ids)
        sides = x[[hardest.positive, hardest.negative]] - x[hardest.anchor]
        cosine = sides[0] @ sides[1] / np.linalg.norm(sides, axis=1).prod()
        sizes = sorted(class_diameters(x, ids).values())
        # A triplet whose sides can be told apart, and classes of about the same size.
        if (
            0.3 < -hardest.margin / diameter(x) < 0.6
            and abs(cosine) < 0.7
            and sizes[1] < 1.5 * sizes[0]
        ):
            return x, ids


def twenty_points(seed: int) -> tuple[Array, Array]:
    """Two classes of ten, all from one normal distribution: HNM Fig. 4."""
    return np.random.default_rng(seed).standard_normal((20, 2)), np.repeat([0, 1], 10)


def hardest_triplet(x: Array, ids: Array, of_class: int | None = None) -> tuple[int, int, int]:
    """Anchor, farthest positive and nearest negative of the hardest anchor (of one class)."""
    distance = pairwise_distances(x).numpy()
    mates = ids[:, None] == ids
    positive = np.where(mates, distance, -1.0).argmax(axis=1)
    negative = np.where(mates, np.inf, distance).argmin(axis=1)
    rows = np.arange(len(x))
    loss = distance[rows, positive] - distance[rows, negative]
    if of_class is not None:
        loss = np.where(ids == of_class, loss, -np.inf)
    anchor = int(loss.argmax())
    return anchor, int(positive[anchor]), int(negative[anchor])


def _scattered(rng: np.random.Generator, count: int, apart: float) -> Array:
    """Points of the plane, no two of them nearer than `apart`, so that markers do not overlap."""
    points: list[Array] = []
    while len(points) < count:
        candidate = 1.4 * rng.standard_normal(2)
        if all(np.linalg.norm(candidate - point) >= apart for point in points):
            points.append(candidate)
    return np.array(points)


_TITLE = "Claims of the hard-negative-mining paper, recomputed"
_HEADINGS = ("example", "α", "claim", "statement", "left", "right", "ratio", "verdict")
_SIDES = ("left_low", "left_high", "right_low", "right_high")
_CSV_HEADER = (*_HEADINGS[:4], *_SIDES, "ratio", "verdict", "sentence")  # at full precision
_LINE = ("claim", "status", "examples")
_LEGEND = (
    "A bracket [low, high] is certified: the value lies in it. The ratio is between the values "
    "found. holds / violated: decided by the brackets, or proved for every margin. vacuous: the "
    "statement says nothing here. undecided: the brackets overlap. Thm 3.2, upper is tried "
    "with c_n = 1, which the literature leaves open; Cor. 3.4, upper with the c = 2 of (17)."
)


def truth_table(seed: int = 0) -> Iterator[tuple[Example, Claim]]:
    """Every claim that an example has something to say about, example by example.

    >>> example, claim = next(truth_table())
    >>> example.title, claim.name, claim.status
    ('1. 4 classes of one point, all at 0 in R¹', 'Thm 3.3, upper', 'violated')
    """
    for number, unnumbered in enumerate(worked_examples(seed), 1):
        example = replace(unnumbered, title=f"{number}. {unnumbered.title}")
        x, ids = example.x, example.labels
        claims = check_claims(
            x, ids, example.alpha, end=example.end, starts=example.starts, seed=seed
        )
        by_name = {claim.name: claim for claim in claims}
        yield from ((example, by_name[name]) for name in example.shows)


def make(request: Request) -> Made:
    """The truth table, in one piece as files and by example to show; then a line per claim."""
    full, cells = [], []
    by_example: dict[str, list[list[str]]] = {}
    by_claim: dict[str, dict[str, list[Example]]] = {}
    for example, claim in truth_table(request.seed):
        start = [example.title, f"{example.alpha:g}", claim.name, claim.statement]
        numbers = [*claim.left, *claim.right, claim.ratio]
        full.append([*start, *numbers, claim.status, claim.sentence])
        sides = [_text(*claim.left), _text(*claim.right), f"{claim.ratio:.3f}"]
        cells.append([*start, *sides, claim.status])
        group = by_example.setdefault(f"{example.title}, α = {example.alpha:g}", [])
        group.append([claim.status, *start[2:], *sides])
        by_claim.setdefault(claim.name, {}).setdefault(claim.status, []).append(example)
    notes = [*random_draws(request.seed), _LEGEND]
    names = sorted(by_claim, key=lambda name: (-ord(name[0]), name))  # Theorem, corollary, (16)
    lines = [_line(name, by_claim[name]) for name in names]
    verdicts = Table(_LINE, lines, "Claim by claim", verdict=1)
    page = ItemPage(_TITLE, [Table(_HEADINGS, cells), verdicts], notes=notes)
    # To show: one small table per example, so that it can be read in a narrow terminal.
    heading = ("verdict", *_HEADINGS[2:-1])
    small = [Table(heading, group, title, verdict=0) for title, group in by_example.items()]
    files = write_claims(request, page, _CSV_HEADER, full)
    files.append(request.out / "claims-hnm-lines.csv")
    write_csv(files[-1], _LINE, lines)
    return Made(files, [replace(page, tables=[*small, verdicts])])


def _line(name: str, statuses: Mapping[str, Sequence[Example]]) -> list[str]:
    """A claim, what it is found to be, and on which examples."""
    full = name.replace("Thm", "Theorem").replace("Cor.", "Corollary") + " bound" * ("," in name)
    against = statuses.get("violated", ())
    status = "false" if against else "true" if "holds" in statuses else "not judged"
    if against and all(example.alpha > 0.0 for example in against):
        status += " for α > 0"
    parts = [
        f"{word} in {', '.join(example.title.partition('.')[0] for example in statuses[word])}"
        for word in ("violated", "holds", "undecided", "vacuous")
        if word in statuses
    ]
    return [full, status, "; ".join(parts)]


def _text(low: float, high: float) -> str:
    known = low == high or high - low <= 1e-4 * abs(high)
    return f"{high:.4g}" if known else f"[{low:.3g}, {high:.3g}]"
