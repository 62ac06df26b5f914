import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml_losses

from losses.loss_oracles import (
    MINERS,
    assert_same,
    batches,
    distances,
    sets,
    unit,
)
from losses.pml_tester import assert_is_pml_s, pml_batch
from support.errors import refused
from uncollapse.losses import (
    MarginLoss,
)
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches(), MINERS, st.booleans())
def test_margin_equals_the_definition(batch, miner, normalize):
    x, labels = batch
    beta = torch.linspace(0.7, 1.9, len(x), dtype=torch.float64)

    def truth(wide):
        y = unit(wide) if normalize else wide
        d = distances(y)
        if miner is None:
            pairs = sets(labels, len(x))
            ap = [(i, j) for i, (own, _) in enumerate(pairs) for j in own]
            an = [(i, j) for i, (_, other) in enumerate(pairs) for j in other]
        else:
            t = list(zip(*miner(y, labels), strict=True))
            ap, an = [(a, p) for a, p, _ in t], [(a, n) for a, _, n in t]
        each = [(d[i, j] - beta[i] + 0.2).clamp(min=0) for i, j in ap]
        each += [(beta[i] - d[i, j] + 0.2).clamp(min=0) for i, j in an]
        if not each:
            return wide.sum() * 0
        count = sum(float(e.detach()) > 0 for e in each)
        return torch.stack(each).sum() / max(count, 1)

    loss = MarginLoss(beta_per="sample", size=len(x), miner=miner, normalize=normalize)
    loss.beta.data = beta
    assert_same(lambda z: loss(z, labels, sample_ids=torch.arange(len(x))), truth, x, 1e-7)


def test_margin_learns_a_boundary_for_all_for_each_class_and_for_each_sample():
    x, labels = torch.tensor([[0.0], [1.5], [2.0], [2.2]]), torch.tensor([0, 0, 1, 1])
    one, by_class = MarginLoss(nu=0.1), MarginLoss(beta_per="class", size=2)
    by_sample = MarginLoss(beta_per="sample", size=9)
    assert one.beta.tolist() == pytest.approx([1.2])
    one(x, labels).backward()
    by_class(x, labels).backward()
    by_sample(x, labels, sample_ids=[4, 0, 8, 3]).backward()
    # Charged: (0, 1) both ways as positives; (1, 2), (1, 3) both ways as negatives.
    assert by_class.beta.grad.tolist() == pytest.approx([0.0, 2 / 6])
    assert one.beta.grad.tolist() == pytest.approx([2 / 6 + 0.1])
    expected = torch.zeros(9)
    expected[[4, 0, 8, 3]] = torch.tensor([-1.0, 1.0, 1.0, 1.0]) / 6
    torch.testing.assert_close(by_sample.beta.grad, expected)
    assert not MarginLoss(learn_beta=False).beta.requires_grad


def test_margin_names_what_it_needs_for_its_boundaries():
    with refused("size"):
        MarginLoss(beta_per="class")
    with refused("sample_ids"):
        MarginLoss(beta_per="sample", size=3)(torch.randn(2, 2), [0, 1])
    with refused("labels"):
        MarginLoss(beta_per="class", size=3)(torch.randn(2, 2), [0, 3])


def test_margin_over_all_triplets_equals_pml_when_its_triplets_are_given():
    ours, theirs = MarginLoss(normalize=True), pml_losses.MarginLoss()
    assert_is_pml_s(ours, theirs, pml_batch(16), Miner("all", "all"))
