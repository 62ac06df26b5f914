"""Runs with a frozen network: features once, the head from principal axes, rates of their own."""

import pytest
import torch

from uncollapse._base.check import InputError
from uncollapse.training import parse_config, train
from uncollapse.training.assemble import build_optimizer, load_data, load_eval_data
from uncollapse.training.measurer import start_network
from uncollapse.training.session import Session

VALUES = {
    "data": {"name": "digits"},
    "model": {"backbone": "conv2", "dim": 8, "freeze": True, "head": "pca"},
    "batch": {"p": 4, "k": 3},
    "train": {"steps": 6, "log_every": 3, "evaluate_every": 6},
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "cache"))


def config(**changes):
    return parse_config({**VALUES, **{k: {**VALUES.get(k, {}), **v} for k, v in changes.items()}})


def test_a_run_trains_its_head_on_features_and_its_network_takes_images(tmp_path):
    run = train(config(), tmp_path / "run")
    assert len(list((tmp_path / "cache").glob("features-*.bin"))) == 2  # train and test
    data = load_eval_data(run.config, "test")
    assert data.features is not None
    model = run.load_model()
    images = data.pixels(slice(5)).float() / 255
    assert torch.allclose(model(images), model(data[:5][0]), atol=1e-5)
    front = start_network(run).front.state_dict()
    assert all(torch.equal(front[k], v) for k, v in model.front.state_dict().items())


def test_a_resumed_run_ends_where_the_whole_one_does(tmp_path):
    whole = train(config(), tmp_path / "whole").load_model().state_dict()
    train(config(train={"steps": 3}), tmp_path / "parts")
    again = train(config(), tmp_path / "parts", resume=True).load_model().state_dict()
    assert all(torch.equal(again[k], v) for k, v in whole.items())


def test_frozen_or_computed_anew_a_step_is_the_same():
    cached = Session(config(), load_data(config(), "train"))
    plain = config(data={"augment": "flip"})  # augmented samples go through the network each time
    assert load_data(plain, "train").features is None
    assert cached.data.features is not None
    before = cached.model(cached.data[:3][0])
    images = cached.data.pixels(slice(3)).float() / 255
    assert torch.allclose(cached.model(images), before, atol=1e-5)
    assert Session(plain, load_data(plain, "train")).advance()["loss"] >= 0.0


def test_the_head_starts_at_the_principal_axes_of_the_training_features():
    one = Session(config(), load_data(config(), "train"))
    x = one.data[:][0].double()
    z = one.model(one.data[:][0]).detach().double()
    share = z.var(0).sum() / x.var(0).sum()
    values = torch.linalg.svdvals(x - x.mean(0)) ** 2
    assert float(share) == pytest.approx(float(values[:8].sum() / values.sum()), rel=1e-2)


def test_the_trunk_has_its_own_rate_and_what_is_frozen_none():
    values = config(
        model={"backbone": "resnet18", "freeze": "layer3", "head": "linear"},
        optimizer={"lr": 1e-2, "trunk_lr": 1e-4, "schedule": "step", "decay_every": 1},
    )
    one = Session(values, load_data(values, "train"))
    rates = [group["lr"] for group in one.optimizer.param_groups]
    assert rates == [1e-2, 1e-4]
    tuned = {id(p) for group in one.optimizer.param_groups for p in group["params"]}
    assert tuned == {id(p) for part in (one.model.head, one.model.trunk) for p in part.parameters()}
    one.advance()
    one.advance()
    assert [group["lr"] for group in one.optimizer.param_groups] == pytest.approx([1e-3, 1e-5])


def test_pretrained_statistics_of_batch_norm_stay_as_they_were_loaded(tmp_path):
    from uncollapse.backbones.networks import ResNet
    from uncollapse.training.measurer import settled_copy

    trained = ResNet("resnet18", 1)
    for layer in trained.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean += 0.5
    torch.save(trained.state_dict(), tmp_path / "weights.pth")
    weights = str(tmp_path / "weights.pth")
    model = {"backbone": "resnet18", "freeze": False, "head": "linear", "weights": weights}
    values = config(model=model)
    one = Session(values, load_data(values, "train"))
    network = settled_copy(one.model, one.loss, values, load_eval_data(values, "train"))[0]
    assert torch.equal(network.trunk.bn1.running_mean, trained.bn1.running_mean)


def test_mean_and_std_beside_a_network_that_scales_pixels_itself_are_refused():
    model = {"backbone": "mobilenet-v2", "freeze": False, "head": "linear"}
    values = config(model=model, data={"mean": [0.5]})
    with pytest.raises(InputError, match="mobilenet-v2 scales pixels itself"):
        Session(values, load_data(values, "train"))


def test_groups_without_a_trunk_to_train_are_the_heads_alone():
    values = config(optimizer={"trunk_lr": 1e-5})
    one = Session(values, load_data(values, "train"))
    assert len(build_optimizer(values, one.model, one.loss).param_groups) == 1
