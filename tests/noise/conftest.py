"""Slow float64 oracles of the expected losses, written from EPS §4.2 and appendix B."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from uncollapse.noise import NoiseModel


def direct_distances(z: Tensor) -> Tensor:
    return torch.linalg.vector_norm(z[:, None] - z[None], dim=-1)


def triplet_by_loops(z, ids, model, margin, diagonal) -> Tensor:
    d, label, n = direct_distances(z), model.probabilities[ids], len(z)
    total = z.new_zeros(())
    for i, j, k in itertools.product(range(n), repeat=3):
        weight = float((label[i] * label[j] * (1 - label[k])).sum())
        if diagonal == "distinct" and len({i, j, k}) < 3:
            weight = 0.0
        if diagonal == "true" and k in (i, j):
            weight = 0.0
        if diagonal == "true" and i == j != k:
            weight = 1 - float((label[i] * label[k]).sum())
        total = total + weight * (d[i, j] - d[i, k] + margin).relu()
    return total


def pairs_by_loops(kind, z, ids, model, margin, diagonal, beta=None) -> Tensor:
    d, label, n = direct_distances(z), model.probabilities[ids], len(z)
    total = z.new_zeros(())
    for i, j in itertools.product(range(n), repeat=2):
        equal = float((label[i] * label[j]).sum())
        if i == j and diagonal == "distinct":
            continue
        if i == j and diagonal == "true":
            equal = 1.0
        if kind == "contrastive":
            total = total + equal * d[i, j] + (1 - equal) * (margin - d[i, j]).relu()
        else:
            pull, push = d[i, j] - beta[i] + margin, beta[i] - d[i, j] + margin
            total = total + equal * pull.relu() + (1 - equal) * push.relu()
    return total


def easy_by_labellings(kind, z, ids, model, margin, beta=None) -> Tensor:
    """Every labelling with its probability, the easy positive found in each: "distinct"."""
    d, label, n = direct_distances(z), model.probabilities[ids], len(z)
    total = z.new_zeros(())
    for labels in itertools.product(range(model.classes), repeat=n):
        chance = float(torch.prod(label[range(n), list(labels)]))
        for i in range(n):
            positives = [j for j in range(n) if j != i and labels[j] == labels[i]]
            negatives = [k for k in range(n) if labels[k] != labels[i]]
            if positives:
                easy = min(positives, key=lambda j: d[i, j].item())
                if kind == "triplet":
                    terms = [(d[i, easy] - d[i, k] + margin).relu() for k in negatives]
                    total = total + chance * sum(terms)
                else:
                    total = total + chance * (d[i, easy] - beta[i] + margin).relu()
            if kind == "margin":
                terms = [(beta[i] - d[i, k] + margin).relu() for k in negatives]
                total = total + chance * sum(terms)
    return total


@pytest.fixture(scope="session")
def equidistant_classes() -> Callable[..., Tensor]:
    """t classes in R^(n−1) with one distance inside classes and one between them."""

    def build(t: int, size: int, *, inside: float, between: float) -> Tensor:
        n = t * size
        labels = torch.arange(n) // size
        squares = torch.where(labels[:, None] == labels, inside**2, between**2).to(torch.float64)
        squares.fill_diagonal_(0.0)
        centring = torch.eye(n, dtype=torch.float64) - 1 / n
        # classical scaling
        values, vectors = torch.linalg.eigh(-0.5 * centring @ squares @ centring)
        return vectors[:, 1:] * values[1:].clamp(min=0.0).sqrt()

    return build


@pytest.fixture(scope="session")
def oracle() -> dict[str, Callable[..., Tensor]]:
    return {
        "triplet": triplet_by_loops,
        "pairs": pairs_by_loops,
        "easy": easy_by_labellings,
        "distances": direct_distances,
    }


@pytest.fixture(scope="session")
def draw_labels() -> Callable[[NoiseModel, Tensor, int, int], Tensor]:
    def draw(model: NoiseModel, ids: Tensor, times: int, seed: int) -> Tensor:
        g = torch.Generator().manual_seed(seed)
        return model.sample(ids.repeat(times), g).view(times, len(ids))

    return draw
