"""How many modes each class keeps: the number that class collapse (EPS §3) drives to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points, points64
from uncollapse._base.check import check_int
from uncollapse._base.classes import ClassLayout
from uncollapse._base.extras import import_extra
from uncollapse.metrics._lumps import count_lumps
from uncollapse.metrics.result_table import Result, text_table
from uncollapse.metrics.retrieval_scores import retrieval

__all__ = ["ModesResult", "modes_per_class"]

_SMALLEST = 8  # samples below which the modes of a class cannot be counted


@dataclass(frozen=True)
class ModesResult(Result):
    """Modes of each class, NaN where they cannot be counted.

    With fine labels `fine_classes` counts those with at least two samples, and `separation` is in
    [0, 1]: 0 for fine classes mixed as by chance, 1 for fine classes wholly apart.
    """

    classes: Array
    sizes: Array
    modes: Array
    fine_classes: Array | None = None
    separation: Array | None = None

    @property
    def mean(self) -> float:
        """Mean number of modes over the classes where it is known."""
        known = self.modes[~np.isnan(self.modes)]
        return float(known.mean()) if len(known) else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Mean modes, fine classes and separation; how many classes are unknown."""
        known = ~np.isnan(self.modes)
        numbers: dict[str, Any] = {
            "modes_per_class": self.mean,
            "classes": len(self.classes),
            "classes_unknown": int((~known).sum()),
        }
        if self.fine_classes is not None and self.separation is not None:
            some = known.any()
            numbers["fine_classes_per_class"] = float(
                self.fine_classes[known].mean() if some else np.nan
            )
            numbers["separation"] = float(self.separation[known].mean() if some else np.nan)
        return numbers

    def to_frame(self) -> Any:
        """One row a class, as a `pandas.DataFrame`."""
        return import_extra("pandas", extra="frames").DataFrame(self._columns())

    def __str__(self) -> str:
        columns = self._columns()
        rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
        more = [f"... {len(rows) - 20} more classes"] if len(rows) > 20 else []
        table = text_table(rows[:20], header=tuple(columns))
        return "\n".join([table, *more, f"modes per class: {self.mean:.2f}"])

    def _columns(self) -> dict[str, Array]:
        columns = {"class": self.classes, "size": self.sizes, "modes": self.modes}
        if self.fine_classes is not None and self.separation is not None:
            columns |= {"fine_classes": self.fine_classes, "separation": self.separation}
        return columns


def modes_per_class(
    x: ArrayLike,
    labels: ArrayLike,
    fine_labels: ArrayLike | None = None,
    *,
    normalize: bool = False,
    max_points: int = 300,
    seed: int = 0,
) -> ModesResult:
    """Count the modes that each class keeps in the embedding (of rows of norm 1 if `normalize`).

    **With `fine_labels`**: the fine classes still apart. The purity of a fine class is the share of
    its samples whose nearest neighbour inside the class has the same fine label (a tie counts as
    another); corrected for chance it is (purity - c)/(1 - c), c = (size - 1)/(class size - 1). A
    fine class with a corrected purity of at least 1/2 is kept. The number of modes is that of
    kept fine classes, plus one if some are not kept: those are taken as merged. `separation` is
    the mean corrected purity, at least 0. A fine label names a fine class inside its class only.

    **Without**: an estimate, `_lumps.count_lumps`. k-means with 2, 3, ... clusters has to beat
    Gaussian samples of the same covariance, and clusters with no valley in the density between them
    are joined. One lump of any usual shape gives 1, in any dimension; lumps that are apart are
    counted if they hold 5 % of the class (and 3 samples); lumps that overlap are not seen, and in
    high dimension few samples show only lumps that are far apart. Needs 8 samples a class; above
    `max_points` a random sample of the class is used.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = np.r_[rng.normal(0, 1, (50, 4)), rng.normal(9, 1, (50, 4)), rng.normal(0, 1, (50, 4))]
    >>> modes_per_class(x, [0] * 100 + [1] * 50).modes.tolist()
    [2.0, 1.0]
    """
    check_int("max_points", max_points, _SMALLEST)
    n = len(points(x))
    layout = ClassLayout.of(labels, n)
    modes = np.full(len(layout.classes), np.nan)
    if fine_labels is None:
        values = points64(x)
        if normalize:
            values = values / np.linalg.norm(values, axis=1, keepdims=True)
        for c in range(len(modes)):
            if layout.counts[c] >= _SMALLEST:
                generator = np.random.default_rng((seed, c))
                rows = layout.members(c)
                if len(rows) > max_points:
                    rows = np.sort(generator.choice(rows, max_points, replace=False))
                modes[c] = count_lumps(values[rows], generator)
        return ModesResult(layout.classes, layout.counts, modes)
    fine, _ = class_ids(fine_labels, n, "fine_labels")
    tensor = points(x).detach()
    fine_classes, separation = np.zeros(len(modes), np.int64), np.full(len(modes), np.nan)
    for c in range(len(modes)):
        rows = layout.members(c)
        purity = _corrected_purity(tensor[rows], fine[rows], normalize)
        fine_classes[c] = len(purity)
        if len(purity):
            kept = purity >= 0.5
            modes[c] = kept.sum() + (not kept.all())
            separation[c] = max(float(purity.mean()), 0.0)
    return ModesResult(layout.classes, layout.counts, modes, fine_classes, separation)


def _corrected_purity(x: Any, fine: Array, normalize: bool) -> Array:
    """Corrected nearest-neighbour purity of each fine class with two samples or more."""
    kinds, ids, sizes = np.unique(fine, return_inverse=True, return_counts=True)
    if sizes.max() < 2:
        return np.empty(0)
    if len(kinds) == 1:
        return np.ones(1)
    hit = retrieval(x, ids, ks=(1,), normalize=normalize, progress=False).per_query["recall@1"]
    told = sizes >= 2
    purity = np.bincount(ids, np.nan_to_num(hit))[told] / sizes[told]
    chance = (sizes[told] - 1) / (len(fine) - 1)
    return np.asarray((purity - chance) / (1 - chance))
