"""What a cone does: counted on rows where it is known, and said in the text and on the page."""

from __future__ import annotations

import numpy as np
import pytest

from uncollapse.metrics import retrieval
from uncollapse.report import diagnose
from uncollapse.report.diagnosis import cone_effects


def cone(offset: float, *, n: int = 300, dim: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 6
    z = rng.normal(size=(6, dim))[labels] + 0.8 * rng.normal(size=(n, dim)) + offset
    return z / np.linalg.norm(z, axis=1, keepdims=True), labels


def test_recall_is_that_of_the_metric_as_they_are_and_centred():
    z, labels = cone(20)
    found = cone_effects(z, labels)
    for one, rows in zip(found.treatments, (z, z - z.mean(0)), strict=False):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        assert one.recall == pytest.approx(retrieval(unit, labels, ks=(1,)).recall[1])
    assert [one.name for one in found.treatments] == ["as they are", "centred", "whitened"]


def test_float16_changes_neighbours_in_a_cone_and_not_once_centred():
    shares = [cone_effects(cone(offset)[0]).treatments[0].float16 for offset in (0, 10, 40)]
    assert shares[0] < 0.05 < shares[1] < shares[2]
    assert shares[2] > 0.5
    found = cone_effects(cone(40)[0])
    assert found.treatments[1].float16 < 0.05
    assert found.treatments[1].int8 < found.treatments[0].int8


def test_changed_neighbours_are_counted_by_hand():
    # In float16 all cosines of these are 1: each row's nearest is one of two by luck.
    angles = np.array([0.0, 0.001, 0.003])
    z = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert cone_effects(z).treatments[0].float16 == pytest.approx(0.5)


def test_without_labels_or_with_few_rows_only_what_is_known_is_said():
    z, labels = cone(20, n=20)
    found = cone_effects(z)
    assert "R@1" not in str(found)
    assert len(found.treatments) == 2  # whitening takes more rows than dimensions
    assert "whitened" not in str(cone_effects(z, labels))


def test_a_diagnosis_says_what_the_cone_does_and_is_silent_otherwise():
    z, labels = cone(20)
    found = diagnose(z, labels)
    assert found.verdict == "cone"
    text = str(found)
    for words in (
        "Of 300 rows: 80 % of cosines",
        "float16 (steps of 0.00049):",
        "int8 index:",
        "R@1 by label:",
    ):
        assert words in text
    page = found.page().render()
    assert "Cone: all embeddings point nearly the same way" in page
    assert "What the cone does to searches by cosine" in page
    assert "whitened" in page
    plain = diagnose(cone(0)[0], labels)
    assert plain.cone is None
    assert "What the cone does" not in plain.page().render()


def test_a_diagnosis_of_rows_compared_by_distance_says_no_cone():
    z, labels = cone(20)
    assert diagnose(5 * z, labels, cosine=False).verdict == "healthy"


def test_an_uninformative_embedding_is_said_in_text_and_page():
    rng = np.random.default_rng(0)
    found = diagnose(rng.normal(size=(400, 16)), rng.integers(5, size=400))
    assert found.verdict == "uninformative"
    assert "shuffled labels give" in str(found)
    page = found.page().render()
    assert "Uninformative: neighbours share labels no more often than chance" in page
    assert "nearest neighbour has the label" in page
