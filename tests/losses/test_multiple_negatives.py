import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from uncollapse.losses import (
    ColumnLoss,
    MultipleNegativesRankingLoss,
    NTXentLoss,
    join_columns,
)


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


@pytest.mark.parametrize("count", [2, 3])
def test_nt_xent_at_the_inverse_temperature_is_the_same(count):
    columns = join_columns(*drawn(count))
    value = ColumnLoss(MultipleNegativesRankingLoss(scale=20.0))(*columns)
    torch.testing.assert_close(value, ColumnLoss(NTXentLoss(temperature=1 / 20))(*columns))


def test_next_to_a_point_the_gradient_keeps_its_digits():
    a, p = (1.0 + 1e-4 * column.detach() for column in drawn(2))
    exact = [column.requires_grad_() for column in (a, p)]
    near = [column.detach().float().requires_grad_() for column in (a, p)]
    loss = ColumnLoss(MultipleNegativesRankingLoss())
    truth, ours = (
        torch.autograd.grad(f, x)
        for f, x in (
            (definition(exact, 20.0, False), exact),
            (loss(*join_columns(*near)), near),
        )
    )
    for one, other in zip(ours, truth, strict=True):
        assert (one - other).norm() < 2e-2 * other.norm()  # the input itself is rounded to 1e-3


def test_labels_say_which_pairs_are_no_negatives():
    z = torch.eye(4)[[0, 0, 1, 1]].double()
    labels = [0, 0, 1, 1]
    loss = MultipleNegativesRankingLoss(scale=1.0)(z, labels)
    torch.testing.assert_close(loss, NTXentLoss(temperature=1.0)(z, labels))
    both = MultipleNegativesRankingLoss(scale=1.0, symmetric=True)(z, labels)
    torch.testing.assert_close(both, loss)
