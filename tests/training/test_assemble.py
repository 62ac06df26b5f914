import math

import pytest
import torch

from uncollapse.data import LabelledImages, TensorSource
from uncollapse.losses import ContrastiveLoss, TrimmedLoss, TripletLoss
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler, UniformBatchSampler
from uncollapse.training import assemble
from uncollapse.training.config import parse_config
from uncollapse.training.sections import LOSSES


def samples(*counts: int) -> LabelledImages:
    """Classes of these sizes; the labels are not 0, 1, 2, ..."""
    labels = torch.cat([torch.full((n,), 10 * i + 7) for i, n in enumerate(counts)])
    return LabelledImages(TensorSource(torch.rand(len(labels), 4)), labels=labels)


DATA = samples(6, 5, 4)
PARTS = ("model", "loss", "miner", "augment")


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_built_and_measures_a_batch(name):
    config = parse_config({"loss": {"name": name}, "model": {"dim": 4}})
    loss = assemble.build_loss(config, DATA)
    assert type(loss) is LOSSES[name].kind
    images, _ = DATA[:]
    assert torch.isfinite(loss(images, DATA.label_index))


def test_the_triplet_loss_mines_easy_positives_and_semi_hard_negatives_unless_told():
    miner = assemble.build_loss(parse_config({}), DATA).miner
    assert isinstance(miner, Miner)
    assert (miner.positives, miner.negatives, miner.margin) == ("easy", "semihard", 0.2)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "triplet"])
def test_other_losses_are_mined_when_a_side_is_named(name):
    assert assemble.build_loss(parse_config({"loss": {"name": name}}), DATA).miner is None
    named = {"loss": {"name": name}, "mining": {"negatives": "hard"}}
    miner = assemble.build_loss(parse_config(named), DATA).miner
    assert (miner.positives, miner.negatives) == ("easy", "hard")


def test_every_setting_of_the_miner_arrives():
    settings = {
        "positives": "random",
        "negatives": "distance",
        "pool": 7,
        "margin": 0.3,
        "epsilon": 0.2,
        "fallback": "skip",
        "cutoffs": (0.4, 1.2),
        "keep": "violating",
    }
    given = settings | {"cutoffs": [0.4, 1.2]}
    miner = assemble.build_loss(parse_config({"mining": given}), DATA).miner
    assert {key: getattr(miner, key) for key in settings} == settings


@pytest.mark.parametrize(
    ("loss", "mining", "margin"),
    [
        ({"margin": 0.0}, {}, 0.0),
        ({"margin": 0.7}, {}, 0.7),
        ({"margin": 0.7}, {"margin": 0.1}, 0.1),
        ({"name": "sup-con"}, {"positives": "easy"}, 0.2),
        ({"name": "contrastive", "margin": 0.5}, {"positives": "easy"}, 0.5),
    ],
)
def test_the_miners_margin_is_its_own_or_the_losss(loss, mining, margin):
    config = parse_config({"loss": loss, "mining": mining})
    assert assemble.build_loss(config, DATA).miner.margin == margin


def test_trimming_wraps_the_loss_and_its_miner():
    loss = assemble.build_loss(parse_config({"loss": {"trim": 0.5}}), DATA)
    assert isinstance(loss, TrimmedLoss)
    assert isinstance(loss.inner, TripletLoss)
    assert isinstance(loss.miner, Miner)


def test_a_config_can_ask_for_all_that_a_pml_user_has():
    values = {"name": "contrastive", "pos_margin": 0.1, "distance": "squared", "reduction": "pairs"}
    loss = assemble.build_loss(parse_config({"loss": values}), DATA)
    assert isinstance(loss, ContrastiveLoss)
    assert (loss.pos_margin, loss.distance, loss.reduction) == (0.1, "squared", "pairs")


def test_the_parts_of_a_run_draw_different_numbers_and_the_same_again():
    config = parse_config({"seed": 3})
    draws = {s: torch.rand(1, generator=assemble.seeded(config, s)).item() for s in PARTS}
    assert len(set(draws.values())) == len(draws)
    again = {s: torch.rand(1, generator=assemble.seeded(config, s)).item() for s in PARTS}
    assert again == draws


def test_the_sampler_is_the_one_asked_for():
    sampler = assemble.build_sampler(parse_config({"batch": {"p": 3, "k": 4}}), DATA)
    assert isinstance(sampler, PKSampler)
    assert len(next(iter(sampler))) == 12
    uniform = parse_config({"batch": {"sampler": "uniform", "size": 15}})
    assert isinstance(assemble.build_sampler(uniform, DATA), UniformBatchSampler)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"p": 2, "k": 100_000}, r"batch\.k: expected at most 6, .*largest class, got 100000"),
        ({"p": 4, "k": 2}, r"batch\.p: expected at most the 3 classes of two samples .*got 4"),
        ({"sampler": "uniform", "size": 16}, r"batch\.size: expected at most the 15 samples"),
        ({"p": 10**30, "k": 10**30}, r"batch\.p: expected at most the 3 classes"),
    ],
)
def test_a_batch_that_the_data_cannot_fill_is_refused_by_its_key(batch, message, monkeypatch):
    monkeypatch.setattr(PKSampler, "__init__", None)  # nothing is drawn, nothing allocated
    with pytest.raises(ValueError, match=message):
        assemble.build_sampler(parse_config({"batch": batch}), DATA)


def test_a_class_smaller_than_k_is_repeated_as_long_as_one_is_large_enough():
    sampler = assemble.build_sampler(parse_config({"batch": {"p": 3, "k": 6}}), DATA)
    assert len(next(iter(sampler))) == 18


def test_classes_of_one_sample_do_not_count():
    with pytest.raises(ValueError, match=r"batch\.p: expected at most the 2 classes"):
        assemble.build_sampler(parse_config({"batch": {"p": 3, "k": 2}}), samples(4, 1, 4))


@pytest.mark.parametrize("name", ["meta", "nonsense", "", "cuda:99", "cpu:x"])
def test_a_device_that_cannot_compute_here_is_refused_with_those_that_can(name):
    with pytest.raises(ValueError, match=r"^train\.device: expected 'auto' or 'cpu'.*, got '"):
        assemble.pick_device(name)


def test_a_device_is_found():
    assert assemble.pick_device("cpu") == torch.device("cpu")
    assert assemble.pick_device("auto").type in ("cpu", "cuda", "mps")


def test_the_losss_own_parameters_have_a_rate_and_no_weight_decay():
    values = {"optimizer": {"name": "sgd", "lr": 0.1, "loss_lr": 0.5, "weight_decay": 0.01}}
    config = parse_config({**values, "loss": {"name": "margin"}})
    loss = assemble.build_loss(config, DATA)
    optimizer = assemble.build_optimizer(config, torch.nn.Linear(4, 2), loss)
    assert [(g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [(0.1, 0.01), (0.5, 0)]
    fixed = parse_config({**values, "loss": {"name": "margin", "learn_beta": False}})
    plain = assemble.build_optimizer(fixed, torch.nn.Linear(4, 2), assemble.build_loss(fixed, DATA))
    assert len(plain.param_groups) == 1


def test_the_rate_warms_up_and_falls_along_a_cosine():
    values = {"schedule": "cosine", "warmup": 10}
    config = parse_config({"optimizer": values, "train": {"steps": 110}})
    rates = [assemble.learning_rate(config, step) for step in (0, 9, 10, 60, 110, 200)]
    middle = 0.5 * (1 + math.cos(math.pi / 2))
    assert rates == pytest.approx([0.1, 1.0, 1.0, middle, 0.0, 0.0], abs=1e-12)
