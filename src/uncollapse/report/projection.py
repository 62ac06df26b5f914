"""Embeddings of any dimension as a map in the plane: principal axes, or t-SNE on request."""

from __future__ import annotations

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, points64

__all__ = ["project", "projection_name"]


def project(embeddings: ArrayLike, *, tsne: bool = False, seed: int = 0) -> Array:
    """Points `[N, 2]`. Two dimensions stay as they are; more go on the two principal axes.

    The sign of an axis is chosen so that its largest weight is positive: the same rows give the
    same map. t-SNE (scikit-learn) starts from the principal axes; with fewer than 8 rows there is
    nothing for it to do.

    >>> project([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    rows = points64(embeddings, "embeddings")
    if tsne and len(rows) >= 8:
        return _tsne(rows, seed)
    if rows.shape[1] <= 2:
        return np.hstack([rows, np.zeros((len(rows), 2 - rows.shape[1]))])
    return _principal(rows)


def projection_name(dim: int, *, tsne: bool = False) -> str:
    """What the map's axes are.

    >>> projection_name(2), projection_name(64)
    ('the two dimensions as they are', 'two principal axes of 64')
    """
    if tsne:
        return f"t-SNE of {dim} dimensions: neighbourhoods count, distances do not"
    return f"two principal axes of {dim}" if dim > 2 else "the two dimensions as they are"


def _principal(rows: Array) -> Array:
    centred = rows - rows[0]
    centred -= centred.mean(axis=0)
    largest = float(np.abs(centred).max()) or 1.0
    _, _, axes = np.linalg.svd(centred / largest, full_matrices=False)
    axes = axes[:2]
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    placed = centred @ (axes * signs[:, None]).T
    return np.hstack([placed, np.zeros((len(placed), 2 - placed.shape[1]))])


def _tsne(rows: Array, seed: int) -> Array:
    from sklearn.manifold import TSNE

    start = _principal(rows) if rows.shape[1] > 2 else project(rows)
    start = start / (start[:, 0].std() or 1.0) * 1e-4
    scaled = (rows - rows.mean(axis=0)) / (float(rows.std()) or 1.0)
    perplexity = min(30.0, (len(rows) - 1) / 3)
    found = TSNE(2, perplexity=perplexity, init=start, random_state=seed).fit_transform(scaled)
    return np.asarray(found, np.float64)
