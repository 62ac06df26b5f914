"""Embedding and judging a split: the whole of it, or the samples asked for."""

import itertools

import pytest
import torch
from torch import nn

from uncollapse.data import LabelledImages, TensorSource, load
from uncollapse.metrics import clustering, retrieval
from uncollapse.training.assemble import as_evaluated
from uncollapse.training.config import parse_config
from uncollapse.training.evaluation import (
    NotFiniteError,
    embed,
    evaluate,
    evaluate_splits,
    evenly_spaced,
)
from uncollapse.training.sections import EvaluateConfig

POINTS = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 3
FINE = torch.arange(60) % 6
DATA = LabelledImages(TensorSource(POINTS), LABELS, FINE)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))


def test_embeddings_do_not_depend_on_the_batch_and_the_mode_is_given_back():
    model = network().train()
    model[1].eval()  # frozen
    seen = []
    z = embed(model, DATA, batch=7, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (60, 60)
    assert [m.training for m in model] == [True, False, True, True]
    torch.testing.assert_close(z, embed(model, DATA, batch=60))
    with torch.no_grad():
        torch.testing.assert_close(z, model.eval()(POINTS))


def test_scores_are_those_of_the_metrics_by_labels_and_by_fine_labels():
    scores = evaluate(POINTS, DATA, EvaluateConfig(ks=[1, 3]))
    assert scores.keys() == {
        *("recall@1", "recall@3", "map@r"),
        *("fine/recall@1", "fine/recall@3", "fine/map@r"),
    }
    for prefix, labels in (("", LABELS), ("fine/", FINE)):
        expected = retrieval(POINTS, labels, ks=(1, 3), progress=False)
        assert scores[f"{prefix}recall@3"] == expected.recall[3]
        assert scores[f"{prefix}map@r"] == expected.map_at_r


def test_nmi_and_nmi_plus_have_names_of_their_own():
    plain = evaluate(POINTS, DATA, EvaluateConfig(clustering=True))
    assert plain["nmi"] == clustering(POINTS, LABELS).nmi
    assert "nmi+" not in plain
    more = evaluate(POINTS, DATA, EvaluateConfig(clustering=True, multiplier=4))
    assert more["nmi"] == plain["nmi"]
    assert more["nmi+"] == clustering(POINTS, LABELS, multiplier=4).nmi
    assert more["fine/nmi+"] == clustering(POINTS, FINE, multiplier=4).nmi
    most = evaluate(POINTS, DATA, EvaluateConfig(clustering=True, multiplier=50))
    assert most["nmi+"] == clustering(POINTS, LABELS, multiplier=10).nmi  # one for two samples


def test_a_network_that_has_diverged_is_not_evaluated():
    z = POINTS.clone()
    z[3] = float("nan")
    with pytest.raises(NotFiniteError, match="1 of 60 embeddings are NaN or infinite"):
        evaluate(z, DATA)


def test_only_the_samples_that_are_judged_are_embedded():
    settings = EvaluateConfig(max_samples=10)
    model = network()
    found = evaluate_splits(model, {"a": DATA, "b": DATA.subset(range(5))}, settings)
    assert {name: len(z) for name, z in found.embeddings.items()} == {"a": 10, "b": 5}
    rows = evenly_spaced(60, 10)
    alone = evaluate(embed(model, DATA), DATA, settings)
    assert found.scores["a"] == alone
    torch.testing.assert_close(found.embeddings["a"], embed(model, DATA)[rows])


@pytest.mark.parametrize(("count", "most"), [(10, None), (10, 10), (10, 3), (7, 6), (1, 5)])
def test_rows_are_spaced_evenly_from_end_to_end(count, most):
    rows = evenly_spaced(count, most).tolist()
    assert len(rows) == len(set(rows)) == min(count, most or count)
    assert rows[0] == 0
    assert rows[-1] == count - 1
    gaps = {b - a for a, b in itertools.pairwise(rows)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_evaluation_crops_the_middle_where_training_crops_at_random():
    data = load("digits", split="test")
    assert as_evaluated(data, parse_config({"data": {"name": "digits"}})).transform is None
    config = parse_config({"data": {"name": "cub200", "augment": "paper"}})
    large = LabelledImages(TensorSource(torch.zeros(2, 3, 256, 256, dtype=torch.uint8)), LABELS[:2])
    cropped = as_evaluated(large, config)[:][0]
    assert max(cropped.shape[2:]) < 256
    assert torch.equal(cropped, as_evaluated(large, config)[:][0])
