"""Runs with a frozen network: features once, the head from principal axes, rates of their own."""

import pytest
import torch

from support.configs import small_config
from uncollapse._base.check import InputError
from uncollapse.backbones.networks import ResNet
from uncollapse.training import train
from uncollapse.training.assemble import build_optimizer, load_data, load_eval_data
from uncollapse.training.measurer import settled_copy, start_network
from uncollapse.training.session import Session

pytestmark = pytest.mark.slow

FROZEN = {"backbone": "conv2", "dim": 8, "hidden": None, "freeze": True, "head": "pca"}


def config(model=FROZEN, train=None, **changes):
    return small_config(model=FROZEN | model, train=train or {"steps": 6}, **changes)


def session(**changes):
    values = config(**changes)
    return Session(values, load_data(values, "train"))


def test_a_run_trains_its_head_on_features_and_its_network_takes_images(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "cache"))
    run = train(config(), tmp_path / "run")
    assert len(list((tmp_path / "cache").glob("features-*.bin"))) == 2  # train and test
    data = load_eval_data(run.config, "test")
    assert data.features is not None
    model = run.load_model()
    images = data.pixels(slice(5)).float() / 255
    assert torch.allclose(model(images), model(data[:5][0]), atol=1e-5)
    front = start_network(run).front.state_dict()
    assert all(torch.equal(front[k], v) for k, v in model.front.state_dict().items())
    train(config(train={"steps": 3}), tmp_path / "parts")
    again = train(config(), tmp_path / "parts", resume=True).load_model().state_dict()
    assert all(torch.equal(again[k], v) for k, v in model.state_dict().items())


def test_augmented_samples_go_through_a_frozen_network_each_time():
    assert load_data(config(data={"augment": "flip"}), "train").features is None
    assert session().data.features is not None
    assert session(data={"augment": "flip"}).advance()["loss"] >= 0.0


def test_the_head_starts_at_the_principal_axes_of_the_training_features():
    run = session()
    x = run.data[:][0].double()
    z = run.model(run.data[:][0]).detach().double()
    share = z.var(0).sum() / x.var(0).sum()
    values = torch.linalg.svdvals(x - x.mean(0)) ** 2
    assert float(share) == pytest.approx(float(values[:8].sum() / values.sum()), rel=1e-2)


def test_the_trunk_has_its_own_rate_and_what_is_frozen_none():
    schedule = {"lr": 1e-2, "trunk_lr": 1e-4, "schedule": "step", "decay_every": 1}
    model = {"backbone": "resnet18", "freeze": "layer3", "head": "linear"}
    run = session(model=model, optimizer=schedule)
    groups = run.optimizer.param_groups
    assert [group["lr"] for group in groups] == [1e-2, 1e-4]
    tuned = {id(p) for group in groups for p in group["params"]}
    assert tuned == {id(p) for part in (run.model.head, run.model.trunk) for p in part.parameters()}
    run.advance()
    run.advance()
    assert [group["lr"] for group in groups] == pytest.approx([1e-3, 1e-5])
    head_only = session(optimizer={"trunk_lr": 1e-5})  # no trunk is left to train
    parts = head_only.model, head_only.loss
    assert len(build_optimizer(head_only.config, *parts).param_groups) == 1


def test_pretrained_statistics_of_batch_norm_stay_as_they_were_loaded(tmp_path):
    trained = ResNet("resnet18", 1)
    for layer in trained.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean += 0.5
    torch.save(trained.state_dict(), tmp_path / "weights.pth")
    plain = {"backbone": "resnet18", "freeze": False, "head": "linear"}
    run = session(model=plain | {"weights": str(tmp_path / "weights.pth")})
    data = load_eval_data(run.config, "train")
    network = settled_copy(run.model, run.loss, run.config, data)[0]
    assert torch.equal(network.trunk.bn1.running_mean, trained.bn1.running_mean)


def test_mean_and_std_beside_a_network_that_scales_pixels_itself_are_refused():
    model = {"backbone": "mobilenet-v2", "freeze": False, "head": "linear"}
    with pytest.raises(InputError, match="mobilenet-v2 scales pixels itself"):
        session(model=model, data={"mean": [0.5]})
