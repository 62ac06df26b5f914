import pytest
import torch
from torch import nn

from uncollapse._base.check import InputError
from uncollapse.health.noisy_labels import noise_probe

pytestmark = pytest.mark.slow


def modes(n=240, seed=0):
    """Two classes, the halves of a hexagon: three modes each, with noise in eight dimensions."""
    g = torch.Generator().manual_seed(seed)
    fine = torch.arange(n) % 6
    angle = fine * (torch.pi / 3)
    x = 0.15 * torch.randn(n, 8, generator=g)
    x[:, 0] += angle.cos()
    x[:, 1] += angle.sin()
    return x, fine // 3, fine


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))


@pytest.mark.parametrize("seed", [0, 1])
def test_easy_positives_keep_modes_that_regular_ones_merge_at_every_noise_level(seed):
    x, labels, fine = modes(seed=seed)
    probe = noise_probe(
        network, x, labels, [1.0, 0.8], fine_labels=fine, steps=60, k=24, lr=1e-2, seed=seed
    )
    for regular, easy in zip(probe.rows[::2], probe.rows[1::2], strict=True):
        assert (regular.positives, easy.positives) == ("random", "easy")
        assert regular.p == easy.p
        assert easy.class_diameter > regular.class_diameter
        assert easy.within > regular.within + 0.05
        assert min(regular.recall, easy.recall) > 0.9
    noisy_regular, noisy_easy = probe.rows[2:]
    assert noisy_easy.within > 1.5 * noisy_regular.within
    assert noisy_easy.fine_recall > noisy_regular.fine_recall
    assert noisy_easy.modes == 3.0  # each class keeps its three
    assert noisy_easy.modes >= noisy_regular.modes


def test_a_probe_repeats_itself_and_leaves_the_global_state_alone():
    x, labels, _ = modes(60)
    before = torch.get_rng_state()
    a, b = (noise_probe(network, x, labels, [0.9], steps=3, k=4) for _ in range(2))
    assert a == b
    assert torch.equal(before, torch.get_rng_state())
    assert a.rows[0].fine_recall is None


def test_a_probe_prints_as_a_table():
    x, labels, fine = modes(60)
    text = str(noise_probe(network, x, labels, [1.0], fine_labels=fine, steps=1, k=4))
    lines = text.splitlines()
    assert lines[0].split()[:5] == ["p", "positives", "class/whole", "within", "modes"]
    assert [line.split()[:2] for line in lines[1:]] == [["1", "random"], ["1", "easy"]]
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": []}, "p: expected at least one, got no noise level"),
        ({"p": [1.5]}, "p: expected a finite number in"),
        ({"labels": [0] * 60}, "labels: expected at least 2 classes"),
        ({"steps": 0}, "steps: expected a whole number"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    x, labels, _ = modes(60)
    arguments = {"labels": labels, "p": [1.0], "steps": 1, "k": 4} | change
    with pytest.raises(InputError, match=message):
        noise_probe(network, x, **arguments)
