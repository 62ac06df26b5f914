from __future__ import annotations

import numpy as np

from uncollapse.metrics import fine_evaluation, retrieval


def test_fine_evaluation_scores_both_label_sets_and_tells_letters_of_two_alphabets_apart():
    rng = np.random.default_rng(0)
    labels, fine = np.repeat([0, 1], 40), np.tile(np.repeat([0, 1], 20), 2)
    x = np.zeros((80, 2))
    x[:, 0] = 9 * labels
    x += 0.1 * rng.normal(size=x.shape)
    result = fine_evaluation(x, labels, fine, ks=(1, 2), cluster=True)
    assert result.coarse == retrieval(x, labels, ks=(1, 2))
    assert result.fine == retrieval(x, 2 * labels + fine, ks=(1, 2))
    assert result.coarse.map_at_r == 1.0
    assert result.fine.map_at_r < 0.6
    assert result.modes.modes.tolist() == [1.0, 1.0]
    assert (result.coarse_clustering.clusters, result.fine_clustering.clusters) == (2, 4)
    assert result.to_dict()["fine_recall@1"] == result.fine.recall[1]
    assert "fine_labels" in str(result)
