"""Slow float64 answers written from the definitions, and the inputs they are asked about."""

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

Array = np.ndarray[Any, Any]


def distance_matrix(x, y=None):
    """|x_i - y_j| by direct differences in float64."""
    a = np.asarray(x, np.float64)
    b = a if y is None else np.asarray(y, np.float64)
    return np.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(-1))


def triplets(labels, *, self_positive=False):
    """Every (anchor, positive, negative)."""
    n = range(len(labels))
    return [
        (a, p, k)
        for a, p, k in itertools.product(n, n, n)
        if labels[a] == labels[p] != labels[k] and (a != p or self_positive)
    ]


def separation_margin(x, labels):
    """The largest alpha of HNM (5): the positive may be the anchor itself."""
    d = distance_matrix(x)
    return float(min(d[a, k] - d[a, p] for a, p, k in triplets(labels, self_positive=True)))


def hausdorff_distance(a, b):
    """The farthest that a point of one set is from the other set."""
    d = distance_matrix(a, b)
    return float(max(d.min(axis=1).max(), d.min(axis=0).max()))


# Coordinates on a coarse grid make ties, duplicates and zero distances common.
_GRID = st.integers(-4, 4).map(float)
_REAL = st.floats(-10, 10, allow_nan=False, width=32).map(float)


@st.composite
def point_sets(draw, min_rows=1, max_rows=9, max_dim=3):
    """Small point sets, many with ties and duplicates, some tiny, some far from the origin."""
    rows = draw(st.integers(min_rows, max_rows))
    dim = draw(st.integers(1, max_dim))
    x = draw(arrays(np.float64, (rows, dim), elements=draw(st.sampled_from([_GRID, _REAL]))))
    return x * draw(st.sampled_from([1.0, 1e-6])) + draw(st.sampled_from([0.0, 100.0]))


@st.composite
def labelled_sets(draw, min_classes=2, max_rows=9, max_dim=3):
    """Small labelled point sets with at least `min_classes` classes, singletons included."""
    x = draw(point_sets(min_rows=min_classes, max_rows=max_rows, max_dim=max_dim))
    labels = draw(arrays(np.int64, len(x), elements=st.integers(0, 3)))
    labels[:min_classes] = np.arange(min_classes)
    return x, labels
