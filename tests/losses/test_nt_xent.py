"""NT-Xent, its fast form, which `SupConLoss` shares, and multiple negatives ranking."""

import math
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import uncollapse as uc
from losses.loss_oracles import Definition, mean, measured
from uncollapse._base.extras import without_kernels
from uncollapse.distances.frame import device_path
from uncollapse.losses import ColumnLoss, MultipleNegativesRankingLoss, NTXentLoss, join_columns
from uncollapse.losses import nt_xent as module


def nt_xent(batch, temperature):
    """van den Oord et al., pair by pair."""
    e, each = torch.exp(batch.cosine / temperature), []
    for i, (own, other) in enumerate(batch.sets):
        for p in own:
            whole = e[i, p] + sum((e[i, n] for n in other), torch.zeros(()))
            each.append(-torch.log(e[i, p] / whole))
    return mean(each, batch.rows)


DEFINITIONS = {
    NTXentLoss: Definition(
        nt_xent,
        drawn={"temperature": [0.3]},
        refused={"temperature": 0},
        collapsed=[({}, math.log(10))],
    )
}


# ---- in one go: `SupConLoss` and `NTXentLoss` of all pairs, against the listed formula

KINDS = pytest.mark.parametrize("kind", [uc.SupConLoss, NTXentLoss])


def batch(n=300, classes=40, dim=24, seed=0):
    """More rows than a block has; classes of many sizes, some of one row."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=g)
    labels[:3] = classes + torch.arange(3)
    return torch.randn(n, dim, generator=g) + 0.3 * torch.randn(2, dim, generator=g)[1], labels


def by_formula(loss, x, labels):
    """Value and gradient of the listed loss, in float64."""

    def plain(z):
        return loss.reduce(loss.elements(z, labels))

    return measured(plain, x.double())


def assert_as_formula(loss, x, labels, tolerance=2e-6, rel=1e-6):
    value, gradient = measured(lambda z: loss(z, labels), x)
    true_value, truth = by_formula(loss, x, labels)
    assert value == pytest.approx(true_value, rel=rel, abs=rel)
    assert float((gradient - truth).norm()) <= tolerance * float(truth.norm())


@pytest.fixture
def in_one_go(monkeypatch):
    """Counts the calls that took the fast way."""
    taken, fast = [], module.pair_softmax

    def counted(*args):
        taken.append(args)
        return fast(*args)

    monkeypatch.setattr(module, "pair_softmax", counted)
    return taken


SPOTS = torch.randint(60, (300,), generator=torch.Generator().manual_seed(3))


def at_spots(spots, noise):
    """Rows that share few places, to within the noise."""
    x, labels = batch()
    places = torch.randn(spots, x.shape[1], generator=torch.Generator().manual_seed(3))
    return places[SPOTS % spots] + noise * x, labels


@KINDS
@pytest.mark.parametrize("noise", [1e-1, 1e-3, 1e-5, 1e-7])
def test_float32_values_and_gradients_are_right_near_collapse(kind, noise, in_one_go):
    x, labels = batch()
    assert_as_formula(kind(), 1 + noise * x, labels)
    assert len(in_one_go) == 1


@KINDS
@pytest.mark.parametrize("noise", [1.0, 1e-3])
def test_float64_rows_keep_the_digits_of_float64(kind, noise):
    x, labels = batch()
    assert_as_formula(kind(), 1 + noise * x.double(), labels, tolerance=1e-11, rel=1e-12)


@KINDS
@pytest.mark.parametrize("spots", [2, 5, 60])
@pytest.mark.parametrize("noise", [0.0, 1e-2, 1e-5])
def test_float32_gradients_are_right_where_classes_share_tight_spots(kind, spots, noise):
    assert_as_formula(kind(), *at_spots(spots, noise))


@KINDS
@pytest.mark.parametrize("classes", [1, 2, 297])
def test_one_class_large_classes_and_single_rows_are_right(kind, classes):
    x, labels = batch(classes=classes)
    assert_as_formula(kind(), x, labels)
    assert_as_formula(kind(), x[3:], labels[3:])


@KINDS
@pytest.mark.parametrize("noise", [1.0, 1e-5])
@pytest.mark.parametrize("elsewhere", [device_path, without_kernels, "fewer rows kept at once"])
def test_elsewhere_they_are_the_same(elsewhere, kind, noise, monkeypatch):
    x, labels = batch()
    if isinstance(elsewhere, str):
        monkeypatch.setattr("uncollapse.distances.tiles._KEPT", 100)
        elsewhere = nullcontext
    with elsewhere():
        assert_as_formula(kind(), 1 + noise * x, labels)


@KINDS
def test_nobody_with_a_positive_costs_nothing(kind, in_one_go):
    value, gradient = measured(lambda z: kind()(z, torch.arange(9)), torch.randn(9, 4))
    assert len(in_one_go) == 1
    assert value == 0
    assert not gradient.any()


@KINDS
def test_a_low_temperature_takes_the_digits_of_float64(kind, in_one_go):
    x, labels = batch()
    assert_as_formula(kind(temperature=2e-3), x, labels, tolerance=5e-5)
    assert not in_one_go


# ---- columns of pairs


def drawn(count, n=8, dim=6, seed=0, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    rows = offset + torch.randn(count, n, dim, generator=generator, dtype=torch.float64)
    return [column.requires_grad_() for column in rows.unbind()]


def definition(columns, scale, symmetric):
    """Henderson et al. (5), row by row, and the same seen from the positives."""
    a, *others = (functional.normalize(column, dim=1) for column in columns)
    candidates = torch.cat(others)
    each = []
    for i in range(len(a)):
        own = scale * (a[i] * candidates[i]).sum()
        log_z = torch.stack([scale * (a[i] * c).sum() for c in candidates]).logsumexp(0)
        if symmetric:
            back = torch.stack([scale * (candidates[i] * b).sum() for b in a]).logsumexp(0)
            log_z = (log_z + back) / 2
        each.append(log_z - own)
    return torch.stack(each).mean()


@given(st.integers(2, 4), st.integers(1, 7), st.booleans(), st.integers(0, 99))
def test_it_equals_the_definition(count, n, symmetric, seed):
    columns = drawn(count, n, seed=seed)
    loss = MultipleNegativesRankingLoss(scale=7.0, symmetric=symmetric)
    value = ColumnLoss(loss)(*join_columns(*columns))
    expected = definition(columns, 7.0, symmetric)
    torch.testing.assert_close(value, expected)
    ours, truth = (torch.autograd.grad(v, columns) for v in (value, expected))
    torch.testing.assert_close(ours, truth)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_it_is_sentence_transformers_s(count, symmetric, offset):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    theirs = losses.MultipleNegativesRankingLoss(None, **(both if symmetric else {}))
    columns = [c.detach().float().requires_grad_() for c in drawn(count, 16, offset=offset)]
    a = ColumnLoss(MultipleNegativesRankingLoss(symmetric=symmetric))(*join_columns(*columns))
    b = theirs.compute_loss_from_embeddings(columns, None)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    ours, reference = (torch.autograd.grad(value, columns) for value in (a, b))
    torch.testing.assert_close(ours, reference, rtol=1e-5, atol=1e-5)


def test_next_to_a_point_the_gradient_keeps_its_digits():
    exact = [(1.0 + 1e-4 * column.detach()).requires_grad_() for column in drawn(2)]
    near = [column.detach().float().requires_grad_() for column in exact]
    value = ColumnLoss(MultipleNegativesRankingLoss())(*join_columns(*near))
    truth = torch.autograd.grad(definition(exact, 20.0, False), exact)
    for slope, other in zip(torch.autograd.grad(value, near), truth, strict=True):
        assert (slope - other).norm() < 2e-2 * other.norm()  # the input is rounded to 1e-3
