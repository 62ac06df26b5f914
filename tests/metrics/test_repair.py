"""What a cone does to searches by cosine, counted on rows where it is known."""

import numpy as np
import pytest

from uncollapse.metrics import retrieval
from uncollapse.metrics.repair import cone_effects


def cone(offset, *, n=300, dim=24):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 6
    z = rng.normal(size=(6, dim))[labels] + 0.8 * rng.normal(size=(n, dim)) + offset
    return z / np.linalg.norm(z, axis=1, keepdims=True), labels


def test_recall_is_that_of_the_metric_as_they_are_and_centred():
    z, labels = cone(20)
    result = cone_effects(z, labels)
    for treated, rows in zip(result.treatments, (z, z - z.mean(0)), strict=False):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        assert treated.recall == pytest.approx(retrieval(unit, labels, ks=(1,)).recall[1])
    assert [each.name for each in result.treatments] == ["as they are", "centred", "whitened"]


def test_float16_changes_neighbours_in_a_cone_and_not_once_centred():
    shares = [cone_effects(cone(offset)[0]).treatments[0].float16 for offset in (0, 10, 40)]
    assert shares[0] < 0.05 < shares[1] < shares[2]
    assert shares[2] > 0.5
    result = cone_effects(cone(40)[0])
    assert result.treatments[1].float16 < 0.05
    assert result.treatments[1].int8 < result.treatments[0].int8
    # In float16 all cosines of these are 1: each row's nearest is one of two by luck.
    angles = np.array([0.0, 0.001, 0.003])
    z = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert cone_effects(z).treatments[0].float16 == pytest.approx(0.5)
