"""Two embeddings of the same rows side by side: what changed, in words, tables and on a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, label_array
from uncollapse._base.check import check_choice
from uncollapse._base.table import Table, number, percent
from uncollapse.health.figures import measure
from uncollapse.health.verdict import Health, cosine_text
from uncollapse.metrics.comparison import EmbeddingComparison, compare_embeddings
from uncollapse.metrics.evaluation import sample_words
from uncollapse.report import parts
from uncollapse.report.neighbours import short_line
from uncollapse.report.page import Page

_NEAR = 5  # neighbours that a point of the map shows
_LISTED = 100  # classes and rows in a table of the page


@dataclass(frozen=True, eq=False)
class VersionComparison:
    """The old and the new embedding, their health, and `result`: what changed between them.

    `figures` has every figure by name; `save` writes the page.
    """

    titles: tuple[str, str]
    embeddings: tuple[Array, Array]
    healths: tuple[Health, Health]
    result: EmbeddingComparison
    joined: str
    metric: str
    labels: Array | None
    names: Array | None

    @property
    def figures(self) -> Mapping[str, float | None]:
        """Those of `metrics.EmbeddingComparison`."""
        return self.result.figures

    @property
    def about(self) -> str:
        """What was compared, and how."""
        rows = f"{self.result.n:,} rows, {self.joined}, compared by {self.metric}"
        sampled = sample_words(len(self.result.queries), self.result.n)
        return f"{rows}; neighbours and R@1 on {sampled}, searching all"

    def sentences(self) -> list[str]:
        """What changed, in words."""
        known = {name: value for name, value in self.figures.items() if value is not None}
        lines = []
        if (recall := self.result.recall) is not None:
            low, high = recall.difference.low, recall.difference.high
            word = "falls" if high < 0 else "rises" if low > 0 else "may be the same"
            lines.append(f"R@1 {word}: {recall}")
        kept = percent(known["kept_neighbours"])
        lines.append(f"{kept} of the {self.result.k} nearest neighbours are kept")
        if "cka" in known:
            unlike = percent(round(known["procrustes"], 6))
            shape = f"rotation and scaling leave {unlike} of the variance apart (Procrustes)"
            lines.append(f"{shape}; CKA {known['cka']:.3f}")
        if "threshold_old" in known:
            old = f"the old threshold, {self.metric} {number(known['threshold_old'], 4)}, accepts"
            pairs = f"{known['different_pairs']:,.0f} pairs of different labels that were drawn"
            lines.append(f"{old} {percent(known['far_old'])} of {pairs}")
        if "threshold" in known:
            tar = f"pairs of one label: {percent(known['tar_old'])} → {percent(known['tar'])}"
            lines[-1] += f"; the new one for that is {number(known['threshold'], 4)} ({tar})"
        return lines

    def verdict_table(self) -> Table:
        """The verdict of each, and a few of the figures behind it."""
        table = Table(["", "old", "new"])
        table.add("file", *self.titles)
        table.add("verdict", *(health.verdict for health in self.healths))
        table.add("dimensions", *(f"{health.dim:,}" for health in self.healths))
        table.add("diameter", *(number(health.diameter) for health in self.healths))
        table.add("effective rank", *(number(health.effective_rank) for health in self.healths))
        cosines = (h.cosines and cosine_text(h.cosines.mean) for h in self.healths)
        table.add("mean cosine", *cosines)
        return table

    def class_table(self, most: int = _LISTED) -> Table | None:
        """Classes that lost queries, most first; None where none did."""
        if self.result.recall is None:
            return None
        old, new = (side.per_class for side in self.result.recall[:2])
        rows: list[list[Any]] = []
        for label, figures in old.items():
            shares, count = (figures["recall@1"], new[label]["recall@1"]), int(figures["queries"])
            if shares[1] < shares[0]:
                lost = round(count * (shares[0] - shares[1]))
                rows.append([str(label), lost, count, *map(parts.share_cell, shares)])
        rows.sort(key=lambda row: -row[1])
        head = ["class", "lost", "queries", "R@1, old", "R@1, new"]
        return Table(head, rows[:most], first=12, sortable=True) if rows else None

    def row_table(self, most: int = _LISTED) -> Table | None:
        """Rows that changed most: those that lost R@1, then by the share of neighbours kept."""
        result = self.result
        table = Table(["row", "kept", "nearest, old", "nearest, new"], first=12)
        for at in result.most_changed()[:most].tolist():
            if result.kept[at] < 1.0:
                rows = [result.queries[at], *(near[at, 0] for near in result.near)]
                row, *nearest = map(self._row_text, rows)
                table.add(row, parts.share_cell(float(result.kept[at])), *nearest)
        return table if table.rows else None

    def _row_text(self, row: int) -> str:
        name = f"row {row}" if self.names is None else short_line(str(self.names[row]))
        return name if self.labels is None else f"{name} ({self.labels[row]})"

    def to_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        result, (old, new) = self.result, self.healths
        about = {"rows": result.n, "joined": self.joined, "metric": self.metric, "k": result.k}
        verdicts = {"old": old.verdict, "new": new.verdict}
        figures = {"queries": len(result.queries), "figures": dict(self.figures)}
        return about | {"verdicts": verdicts} | figures

    def page(self) -> Page:
        """The page, to render or to save."""
        content = {
            "title": " → ".join(self.titles),
            "lead": self.about,
            "sentences": self.sentences(),
            "verdicts": [parts.verdict_content(health) for health in self.healths],
            "table": self.verdict_table(),
            "map": self._map(),
            "classes": self.class_table(),
            "rows": self.row_table(),
            "labelled": self.result.recall is not None,
        }
        return Page("comparison.html.j2", content)

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file that needs no network."""
        return self.page().save(path)

    def _map(self) -> dict[str, Any]:
        """Both maps of the same rows and colours, the new one turned onto the old one."""
        result, views = self.result, []
        planes = [parts.project(z[result.queries]) for z in self.embeddings]
        planes[1] = aligned(planes[1], planes[0])
        for i, age in enumerate(("Old", "New")):
            note = parts.projection_name(self.healths[i].dim) + ", turned onto the old ones" * i
            view = planes[i], result.near[i][:, :_NEAR], self.labels, note
            views.append(parts.MapView(f"{age}: {self.titles[i]}", *view))
        flags = {}
        if result.recall is not None:
            flags["lost"] = result.queries[result.recall.changes < 0]
        return parts.pointed_map(views, result.queries, names=self.names, flags=flags)


def compare(
    old: ArrayLike,
    new: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    names: ArrayLike | None = None,
    titles: tuple[str, str] = ("old", "new"),
    joined: str = "joined row by row",
    metric: str = "euclidean",
    **settings: Any,
) -> VersionComparison:
    """Compare two embeddings of the same rows: `metrics.compare_embeddings`, and health of each.

    `metric` is `euclidean` or `cosine`; `settings` are those of `compare_embeddings`, such as
    `threshold`.

    >>> z = np.random.default_rng(0).normal(size=(60, 8))
    >>> compare(z, -z).figures["kept_neighbours"]
    1.0
    """
    cosine = check_choice("metric", metric, ("euclidean", "cosine")) == "cosine"
    result = compare_embeddings(old, new, labels, normalize=cosine, **settings)
    sides = np.asarray(old), np.asarray(new)
    plain = (measure(side, labels, modes=False, names=names) for side in sides)
    before, after = map(_unreferenced, plain)
    known = None if labels is None else label_array(labels)
    called = None if names is None else np.asarray(names)
    return VersionComparison(titles, sides, (before, after), result, joined, metric, known, called)


def _unreferenced(health: Health) -> Health:
    """The same without advice to pass a reference, which a comparison does not take."""
    reasons = (reason.replace(": pass --reference", "") for reason in health.reasons)
    return replace(health, reasons=tuple(reasons))


def aligned(plane: Array, onto: Array) -> Array:
    """Points `[N, 2]` turned, or mirrored, about their mean so that they lie nearest to others.

    >>> aligned(np.array([[0.0, 1.0], [0.0, -1.0]]), np.array([[3.0, 0.0], [-3.0, 0.0]])).tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    centred = plane - plane.mean(axis=0)
    left, _, right = np.linalg.svd(centred.T @ (onto - onto.mean(axis=0)))
    return np.asarray(centred @ left @ right)
