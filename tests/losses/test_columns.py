import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import uncollapse as uc
from losses.loss_oracles import makers
from support.errors import refused
from uncollapse.health import CollapseMonitor, drift, mode_drift, probe
from uncollapse.health.drifts import predict_scale
from uncollapse.losses import ColumnLoss, MultipleNegativesRankingLoss, TripletLoss, join_columns
from uncollapse.losses.columns import split_columns
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.mining import Miner

LOSSES = [
    *(loss for make in makers().values() if not isinstance(loss := make(), ProxyLoss)),
    TripletLoss(margin=0.5, miner=Miner("hard", "hard")),
    TripletLoss(margin=0.5, scale_free=True),
    TripletLoss(margin=0.5, distance="cosine", miner=Miner("all", "semihard")),
    uc.losses.TrimmedLoss(TripletLoss(margin=5.0, miner=Miner("all", "all")), fraction=0.5),
    MultipleNegativesRankingLoss(symmetric=True),
]


def columns(count, n=6, dim=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(count, n, dim, generator=generator, dtype=dtype).unbind())


def beside_references(loss, columns):
    rows, labels = join_columns(*columns)
    n = len(columns[0])
    return loss(rows[:n], labels[:n], ref_embeddings=rows[n:], ref_labels=labels[n:])


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_loss_takes_columns_in_both_forms(loss, count):
    apart = [column.requires_grad_() for column in columns(count)]
    values = beside_references(loss, apart), ColumnLoss(loss)(*join_columns(*apart))
    assert values[0] > 0
    torch.testing.assert_close(*values)
    gradients = [torch.autograd.grad(value, apart, retain_graph=True) for value in values]
    torch.testing.assert_close(*gradients)


def test_triplets_of_columns_are_the_rows_and_what_the_batch_adds():
    a, p, n = columns(3, n=4)
    distance = torch.cdist(a, torch.cat([p, n]))
    each = []
    for i in range(4):
        far = [j for j in range(8) if j != i]
        each += [(distance[i, i] - distance[i, j] + 0.5).clamp(min=0) for j in far]
    ours = ColumnLoss(TripletLoss(margin=0.5))(*join_columns(a, p, n))
    torch.testing.assert_close(ours, torch.stack(each).mean())


@given(st.integers(1, 6), st.integers(2, 4), st.data())
def test_rows_that_are_left_keep_their_roles(n, count, data):
    rows, labels = join_columns(*columns(count, n))
    kept = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    index = [i for i, keep in enumerate(kept) if keep]
    anchors, others = split_columns(labels[index])
    # An anchor is one whose positive is left too.
    wanted = [i for i in index if i < n and i + n in index]
    assert [index[i] for i in anchors] == wanted
    assert [index[i] for i in others] == [i for i in index if i not in wanted]


def test_batches_count_on_so_that_no_pair_joins_another():
    _, first = join_columns(*columns(3, n=2))
    _, second = join_columns(*columns(3, n=2), first=int(first.max()) + 1)
    anchors, others = split_columns(torch.cat([first, second]))
    assert (anchors.tolist(), len(others)) == ([0, 1, 6, 7], 8)


def test_elements_name_the_rows_of_all_columns():
    rows, labels = join_columns(*columns(2, n=3), first=4)
    for order, anchors in (([1, 0, 2, 5, 4, 3], [0, 1, 2]), ([3, 0, 1, 4], [0, 2])):
        elements = ColumnLoss(uc.NTXentLoss()).elements(rows[order], labels[order])
        assert elements.anchor.tolist() == anchors


def test_the_drift_of_columns_is_over_all_of_them():
    apart = [column.requires_grad_() for column in columns(3)]
    loss = TripletLoss(margin=1.0)
    gradients = torch.autograd.grad(beside_references(loss, apart), apart)
    z, slope = torch.cat(apart).detach(), torch.cat(gradients)
    mean = torch.pdist(z).mean()
    expected = float(((z - z.mean(0)) * slope).sum() / mean)
    assert drift(ColumnLoss(loss), *join_columns(*apart)).value == pytest.approx(expected, rel=1e-9)
    free = ColumnLoss(TripletLoss(scale_free=True))
    assert drift(free, *join_columns(*apart)).value == pytest.approx(0.0, abs=1e-9)
    assert math.isnan(mode_drift(ColumnLoss(loss), *join_columns(*columns(2))).value)


def test_a_probe_and_a_monitor_take_columns():
    torch.manual_seed(0)
    loss = ColumnLoss(TripletLoss(margin=0.2, miner=Miner("hard", "hard")))
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
    batches = [join_columns(*columns(2, n=32, seed=i, dtype=torch.float32)) for i in range(20)]
    seen = probe(model, loss, iter(batches), steps=20, lr=1e-2)
    assert seen.drifts[0] > 0.1  # positives are no nearer than the hardest negative
    assert seen.predicted == predict_scale(seen.scale_factor, *seen._ends(seen.drifts))
    monitor = CollapseMonitor(loss)
    health = monitor.update(model(batches[0][0]), batches[0][1])
    assert (health.n, len(health.classes), monitor.settings.positives) == (64, 32, "hard")


def test_columns_of_different_shapes_and_rows_without_a_pair_are_refused():
    for shape in ((2, 2), (3, 3)):
        with refused("columns"):
            join_columns(torch.ones(3, 2), torch.ones(shape))
    with refused("labels"):
        ColumnLoss(uc.NTXentLoss())(torch.eye(3), [0, 1, 2])


def test_one_pair_and_copies_are_no_error():
    pair = torch.ones(1, 3, requires_grad=True)
    assert ColumnLoss(MultipleNegativesRankingLoss())(*join_columns(pair, pair)) == 0
    same = torch.ones(4, 3, requires_grad=True)
    loss = ColumnLoss(MultipleNegativesRankingLoss())(*join_columns(same, same))
    assert loss.item() == pytest.approx(math.log(4))
    assert torch.autograd.grad(loss, same)[0].abs().max() < 1e-6
