import pytest
import torch

from losses.loss_oracles import (
    makers,
    measured,
)
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.losses import (
    ContrastiveLoss,
    MarginLoss,
    TrimmedLoss,
    TripletLoss,
)
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


LOSSES = [
    *(make() for make in makers(3, 4).values()),
    TripletLoss(margin=0.5, soft=True, scale_free=True, normalize=True, reduction="nonzero"),
    MarginLoss(nu=0.1),
]


def batch():
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, torch.arange(12) // 4


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("on", ["all", "positives"])
def test_keeping_everything_is_the_loss_itself(loss, on):
    x, labels = batch()
    a = measured(lambda z: loss(z, labels), x)
    b = measured(lambda z: TrimmedLoss(loss, fraction=1.0, on=on)(z, labels), x)
    assert a[0] == pytest.approx(b[0], rel=1e-9)
    torch.testing.assert_close(a[1], b[1], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
def test_trimming_on_all_keeps_the_smallest_losses(loss):
    x, labels = batch()
    elements = loss.elements(x, labels)
    kept = int(0.4 * len(elements.loss))
    smallest = elements.loss.detach().sort().values[:kept]
    trimmed = TrimmedLoss(loss, fraction=0.4)(x, labels)
    expected = loss.reduce(elements.take(elements.loss.detach() <= smallest[-1]))
    assert trimmed.item() == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize("loss", [ContrastiveLoss(margin=2.0), MarginLoss()])
def test_trimming_positives_keeps_every_negative_pair(loss):
    x, labels = batch()
    elements = loss.elements(x, labels)
    negative = elements.pull == -torch.inf
    near = elements.pull[~negative].sort().values[: int(0.5 * 36)]
    expected = loss.reduce(elements.take(negative | (elements.pull <= near[-1])))
    assert TrimmedLoss(loss, fraction=0.5, on="positives")(x, labels).item() == pytest.approx(
        expected.item()
    )


def test_trimming_positives_of_triplets_keeps_those_with_the_nearest_positives():
    x = torch.tensor([[0.0], [1.0], [5.0], [8.0]])
    loss = TrimmedLoss(TripletLoss(margin=20.0), fraction=0.5, on="positives")
    # Kept: anchors 0 and 1, whose positive is at 1; their losses 1 - d + 20.
    assert loss(x, [0, 0, 1, 1]).item() == pytest.approx(21 - (5 + 8 + 4 + 7) / 4)


def test_keeping_nothing_costs_a_differentiable_zero():
    x, labels = batch()
    for loss in LOSSES:
        if not getattr(loss, "nu", 0):
            value, gradient = measured(lambda z, f=loss: TrimmedLoss(f, fraction=0.0)(z, labels), x)
            assert value == 0.0
            assert not gradient.any()


def test_a_miner_or_a_tuple_names_what_is_trimmed():
    x, labels = batch()
    miner = Miner("random", "random", generator=torch.Generator().manual_seed(0))
    chosen = miner(x, labels)
    by_tuple = TrimmedLoss(TripletLoss(margin=0.5), fraction=0.5)(x, labels, chosen)
    miner.generator.manual_seed(0)
    by_miner = TrimmedLoss(TripletLoss(margin=0.5, miner=miner), fraction=0.5)(x, labels)
    assert by_tuple == by_miner


def test_impossible_settings_are_named():
    with refused("fraction"):
        TrimmedLoss(TripletLoss(), fraction=1.5)
    with pytest.raises(InputError, match="'all', 'positives'"):
        TrimmedLoss(TripletLoss(), fraction=0.5, on="negatives")
    with refused("loss"):
        TrimmedLoss(torch.nn.MSELoss(), fraction=0.5)


def test_a_beta_for_each_sample_can_be_trimmed():
    x, labels = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    margin = MarginLoss(beta_per="sample", size=20)
    rows = torch.arange(8) + 5
    whole = TrimmedLoss(margin, fraction=1.0)(x, labels, sample_ids=rows)
    torch.testing.assert_close(whole, margin(x, labels, sample_ids=rows))
