"""Slow float64 oracles of the expected losses, written from EPS §4.2 and appendix B."""

import itertools
import math

import torch


def direct_distances(z):
    return torch.linalg.vector_norm(z[:, None] - z[None], dim=-1)


def loss_by_loops(objective, z, ids, model, *, margin, diagonal, beta):
    """Any expected loss, term by term."""
    d, label = direct_distances(z), model.probabilities[ids]
    if objective == "triplet":
        return _triplets(d, label, margin, diagonal)
    if objective in ("contrastive", "margin"):
        return _pairs(objective, d, label, margin, diagonal, beta)
    return _labellings(objective, d, label, margin, diagonal, beta)


def _triplets(d, label, margin, diagonal):
    total = d.new_zeros(())
    for i, j, k in itertools.product(range(len(d)), repeat=3):
        weight = float((label[i] * label[j] * (1 - label[k])).sum())
        if diagonal == "distinct" and len({i, j, k}) < 3:
            weight = 0.0
        if diagonal == "true" and k in (i, j):
            weight = 0.0
        if diagonal == "true" and i == j != k:
            weight = 1 - float((label[i] * label[k]).sum())
        total = total + weight * (d[i, j] - d[i, k] + margin).relu()
    return total


def _pairs(objective, d, label, margin, diagonal, beta):
    total = d.new_zeros(())
    for i, j in itertools.product(range(len(d)), repeat=2):
        equal = float((label[i] * label[j]).sum())
        if i == j and diagonal == "distinct":
            continue
        if i == j and diagonal == "true":
            equal = 1.0
        if objective == "contrastive":
            total = total + equal * d[i, j] + (1 - equal) * (margin - d[i, j]).relu()
        else:
            pull, push = d[i, j] - beta[i] + margin, beta[i] - d[i, j] + margin
            total = total + equal * pull.relu() + (1 - equal) * push.relu()
    return total


def _labellings(objective, d, label, margin, diagonal, beta):
    """Every labelling of an anchor and the others, the easy positive found in each.

    With "independent" the anchor is among the others too, with a label of its own there.
    """
    total = d.new_zeros(())
    for i in range(len(d)):
        others = [j for j in range(len(d)) if j != i or diagonal == "independent"]
        for own, *theirs in itertools.product(range(label.shape[1]), repeat=len(others) + 1):
            chances = [
                float(label[j, r]) for j, r in zip([i, *others], [own, *theirs], strict=True)
            ]
            if not (chance := math.prod(chances)):
                continue
            near = [d[i, j] for j, r in zip(others, theirs, strict=True) if r == own]
            far = [d[i, j] for j, r in zip(others, theirs, strict=True) if r != own]
            if objective == "eps-triplet" and near:
                terms = [(min(near) - negative + margin).relu() for negative in far]
            else:
                terms = [(beta[i] - negative + margin).relu() for negative in far]
                terms += [(min(near) - beta[i] + margin).relu()] if near else []
            if near or objective == "eps-margin":
                total = total + chance * sum(terms)
    return total


def equidistant_classes(t, size, *, inside, between):
    """t classes in R^(n−1) with one distance inside classes and one between them."""
    n = t * size
    labels = torch.arange(n) // size
    squares = torch.where(labels[:, None] == labels, inside**2, between**2).to(torch.float64)
    squares.fill_diagonal_(0.0)
    centring = torch.eye(n, dtype=torch.float64) - 1 / n
    # classical scaling
    values, vectors = torch.linalg.eigh(-0.5 * centring @ squares @ centring)
    return vectors[:, 1:] * values[1:].clamp(min=0.0).sqrt()
