"""What a filter of false negatives promises: settings, copies, pools, losses, runs."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch

import uncollapse as uc
from losses.loss_oracles import every_loss
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.data import load
from uncollapse.health.strategy import Strategy, apply_strategy
from uncollapse.mining import FalseNegatives, Miner, NoTripletsWarning
from uncollapse.mining.miner import NEGATIVES, POSITIVES
from uncollapse.training import parse_config
from uncollapse.training.assemble import build_loss

LOSSES = every_loss(num_classes=6, dim=8)
RULES = FalseNegatives(quantile=0.2)


def points(n=60, dim=8, classes=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=g), torch.arange(n) % classes


def left(x, y, rules):
    """`[N, N]`: which negatives are left, by all x all."""
    mined = Miner("all", "all", false_negatives=rules)(x, y)
    mask = torch.zeros(len(x), len(x), dtype=torch.bool)
    mask[mined.anchor, mined.negative] = True
    return mask


def test_a_mislabelled_row_is_no_negative_of_its_own_class():
    """Agreement tells it from a hard negative at the same distance amid its own class."""
    own = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [0.1, 0.1]])
    other = own + torch.tensor([0.5, 0.0])
    x, y = torch.cat([own, other]), torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
    allowed = left(x, y, FalseNegatives(agreement=0.5))
    assert not allowed[:3, 3].any()
    assert allowed[:3, 4:].all()
    assert left(x, y, FalseNegatives(relative=0.9))[:3, 4:].all()


def test_the_relative_margin_is_of_the_nearest_positive_whichever_is_chosen():
    x = torch.tensor([[0.0], [1.0], [9.0], [0.85], [2.0]])
    y = torch.tensor([0, 0, 0, 1, 1])
    for positives in ("easy", "hard"):
        mined = Miner(positives, "hard", false_negatives=FalseNegatives(relative=0.9))(x, y)
        assert mined.negative[mined.anchor == 0].tolist() == [4]


@pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")
@pytest.mark.parametrize("positives", POSITIVES)
def test_no_strategy_with_a_pool_chooses_what_is_left_out(positives):
    x, y = points()
    for rules in (RULES, FalseNegatives(agreement=0.5, absolute=2.0)):
        allowed = left(x, y, rules)
        for negatives in NEGATIVES:
            mined = Miner(positives, negatives, pool=8, false_negatives=rules)(x, y)
            assert allowed[mined.anchor, mined.negative].all()
            assert (y[mined.anchor] == y[mined.positive]).all()


def test_a_pool_is_drawn_from_what_is_left():
    x, y = points()
    miner = Miner("easy", "all", pool=20, false_negatives=FalseNegatives(quantile=0.9))
    found = miner(x, y)
    counts = torch.bincount(found.anchor, minlength=60)
    assert counts.max() <= 5  # a tenth of 50 negatives, fewer than the pool would have
    assert counts.min() >= 1


def test_an_anchor_without_a_negative_left_has_no_triplet():
    x = torch.tensor([[0.0], [1.0], [1.2], [1.3], [9.0], [9.5]])
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    found = Miner("easy", "hard", false_negatives=FalseNegatives(absolute=8.6))(x, y)
    assert found.anchor.tolist() == [0, 4, 5]
    assert found.negative.tolist() == [4, 0, 0]


def test_nothing_left_at_all_is_said_once():
    x, y = points()
    miner = Miner("easy", "hard", false_negatives=FalseNegatives(absolute=1e6))
    with pytest.warns(NoTripletsWarning, match=r"no anchor has a negative left.*absolute=1000000"):
        assert len(miner(x, y).anchor) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        miner(x, y)
    loss = uc.TripletLoss(margin=0.2, miner=miner)(x.requires_grad_(), y)
    loss.backward()
    assert loss.item() == 0
    assert (x.grad == 0).all()


def test_all_rows_in_one_place_are_all_nearer_than_any_distance():
    x, y = torch.ones(12, 3), torch.arange(12) % 3
    assert not left(x, y, FalseNegatives(quantile=0.5)).all()
    with pytest.warns(NoTripletsWarning):
        assert not left(x, y, FalseNegatives(absolute=1e-6)).any()
    assert left(x, y, FalseNegatives(relative=0.9))[0, 1]  # no distance is below a share of 0


@pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")
@pytest.mark.parametrize("choice", [("all", "all"), ("easy", "hard"), ("easy", "multi_similarity")])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_takes_the_filtered_tuples_on_its_fast_way_too(name, choice):
    x, y = points()
    miner = Miner(*choice, false_negatives=RULES)
    loss, bare = LOSSES[name](miner), LOSSES[name]()
    seen = torch.nn.functional.normalize(x) if loss.normalize else x
    tuples = miner(seen, y)
    torch.testing.assert_close(loss(x, y), bare(x, y, tuples))
    assert not all(map(torch.equal, tuples, Miner(*choice)(seen, y)))


def test_copies_and_strategies_keep_the_filter():
    miner = Miner("hard", "hard", false_negatives=RULES)
    assert miner.changed(pool=8).false_negatives == RULES
    loss = uc.TripletLoss(margin=0.2, miner=miner)
    apply_strategy(loss, Strategy("easy", "hard", scale_free=True))
    assert loss.miner.false_negatives == RULES
    assert copy.deepcopy(loss).miner.false_negatives == RULES


def test_drift_sees_the_filter():
    x, y = points()
    drifts = [
        uc.drift(uc.TripletLoss(margin=9.0, miner=Miner("hard", "hard", false_negatives=f)), x, y)
        for f in (None, FalseNegatives(quantile=0.5))
    ]
    assert drifts[1].value < drifts[0].value  # farther negatives push more


def test_a_config_makes_the_filter():
    mining = {
        "positives": "easy",
        "false_negatives": {"quantile": 0.1, "agreement": 0.6, "neighbours": 5},
    }
    digits = load("digits", split="train")
    loss = build_loss(parse_config({"mining": mining}), digits)
    assert loss.miner.false_negatives == FalseNegatives(quantile=0.1, agreement=0.6, neighbours=5)
    assert build_loss(parse_config({}), digits).miner.false_negatives is None
    with pytest.raises(InputError, match=r"mining\.false_negatives\.agreement"):
        parse_config({"mining": {"false_negatives": {"agreement": 0.2}}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("absolute", 0.0),
        ("absolute", float("nan")),
        ("relative", -1.0),
        ("quantile", 1.0),
        ("agreement", 0.4),
        ("neighbours", 0),
    ],
)
def test_a_rule_out_of_range_is_refused(name, value):
    with refused(name):
        FalseNegatives(**{"agreement": 0.5, name: value})


def test_a_filter_has_a_rule_and_a_miner_takes_nothing_else_for_one():
    with pytest.raises(InputError, match="at least one"):
        FalseNegatives()
    with refused("false_negatives"):
        Miner("easy", "hard", false_negatives=0.1)


def test_the_settings_are_shown():
    miner = Miner("easy", "hard", false_negatives=FalseNegatives(agreement=0.5))
    assert "false_negatives=FalseNegatives(agreement=0.5, neighbours=3)" in repr(miner)
    assert repr(FalseNegatives(relative=0.9)) == "FalseNegatives(relative=0.9)"


@pytest.mark.parametrize("seed", range(3))
def test_agreement_leaves_out_mostly_wrong_labels(seed):
    rng = np.random.default_rng(seed)
    true = np.arange(96) % 12
    x = torch.from_numpy(8 * rng.normal(size=(12, 6))[true] + rng.normal(size=(96, 6)))
    noisy = true.copy()
    wrong = rng.permutation(96)[:14]
    noisy[wrong] = (true[wrong] + rng.integers(1, 12, 14)) % 12
    y = torch.from_numpy(noisy)
    out = ~left(x, y, FalseNegatives(agreement=0.5)) & (y[:, None] != y)
    same = torch.from_numpy(true[:, None] == true)
    right = torch.from_numpy(noisy == true)[:, None]  # anchors whose own label is right
    assert same[out & right].double().mean() > 0.75
    assert out[same & right & (y[:, None] != y)].double().mean() > 0.4
