"""What a filter of false negatives promises: settings, copies, pools, losses, runs."""

import copy
import warnings

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
