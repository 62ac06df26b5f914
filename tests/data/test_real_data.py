"""Counts of the real files, when UNCOLLAPSE_DATA has them."""

import numpy as np
import pytest

from uncollapse.data import DATASETS, check, describe, load
from uncollapse.data.pair_lists import read_pairs
from uncollapse.data.registry import find_pairs, list_split


@pytest.mark.parametrize("name", DATASETS)
def test_a_real_copy_has_the_official_counts(real_data, name):
    if not any((real_data / folder).is_dir() for folder in describe(name).folders):
        pytest.skip(f"UNCOLLAPSE_DATA has no copy of {name}")
    assert check(name).complete
    if name == "omniglot":
        data = load(name, split="test", size=28)
        assert data.report.clean
        assert 0.02 < float(data[[0, 13_179]][0].mean()) < 0.3  # ink is bright on dark
        assert data.fine_labels.bincount()[964:].unique().tolist() == [20]
    elif name == "clinc150":
        data = load(name, split="test")
        assert data.texts([0]) == ["how would you say fly in italian"]
        assert data.class_names[int(data.labels[0])] == "travel"
    elif name == "lfw":
        whole = list_split(name, None, "all")
        assert int((np.bincount(whole.labels) > 1).sum()) == 1_680
        assert len(read_pairs(find_pairs(name))) == 6_000
        assert whole.missing == ()
