import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from uncollapse.health.drifts import Probe, mode_drift, probe
from uncollapse.health.forecasts import embedded_batches, forecast
from uncollapse.losses import (
    ContrastiveLoss,
    IdentityLoss,
    ProxyNCALoss,
    TrimmedLoss,
    TripletLoss,
)
from uncollapse.mining import Miner


class Noise:
    """Samples that say nothing of their labels: the hardest data there is."""

    def __init__(self, classes: int = 12, each: int = 20, dim: int = 16) -> None:
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.arange(classes).repeat_interleave(each)
        self.samples = torch.randn(len(self.labels), dim, generator=generator)

    def __getitem__(self, rows):
        return self.samples[rows], self.labels[rows]


class Unit(nn.Module):
    def forward(self, x):
        return nn.functional.normalize(x, dim=1)


def network(dim: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, dim))


def test_drift_grows_with_the_batch_and_falls_with_the_dimension():
    found = forecast(network, Noise(), p=[2, 4, 8], k=[8], dim=[4, 16, 64], alternatives=False)
    drift = {(c.p, c.dim): c.drift for c in found.cells}
    assert drift[2, 16] < drift[4, 16] < drift[8, 16]
    assert drift[8, 4] > drift[8, 16] > drift[8, 64] > 0


def test_alternatives_that_do_not_shrink_are_found_and_recommended():
    found = forecast(network(8), Noise(), p=[8], k=[4, 8])
    assert all(cell.risk != "none" for cell in found.cells)
    by_name = {str(cell.strategy): cell for cell in found.alternatives if cell.k == 8}
    assert abs(by_name["hard x hard, scale-free"].drift) < 1e-5
    assert by_name["easy x semihard"].drift < 0
    assert found.recommended.risk == "none"
    assert found.recommended.k == 8  # what is mined is changed, not the batch
    assert "hard x hard shrinks the embedding (drift +" in found.reason
    assert "; try positives = inside with scale_free = true, or" in found.reason
    assert "forecast, not a guarantee" in str(found)


def test_the_loss_and_the_network_are_left_as_they_were():
    model, loss = network(8), TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    forecast(model, Noise(), p=[4], k=[4], loss_fn=loss, probe_steps=10)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert (loss.miner.positives, loss.scale_free) == ("hard", False)


def test_the_bound_is_diameter_minus_c_times_the_hardest_loss():
    (cell,) = forecast(network(8), Noise(), p=[4], k=[4], alternatives=False, c=0.5).cells
    assert cell.bound == pytest.approx(cell.diameter - 0.5 * cell.loss)
    (row,) = forecast(network(8), Noise(), p=[4], k=[4], alternatives=False).to_rows()
    assert {"p", "k", "dim", "drift", "bound", "risk", "strategy"} <= row.keys()


def test_shapes_the_data_cannot_fill_are_left_out():
    found = forecast(network(8), Noise(classes=4), p=[2, 4, 8], k=[2], alternatives=False)
    assert [cell.p for cell in found.cells] == [2, 4]
    with pytest.raises(ValueError, match="p: expected at least one P"):
        forecast(network(8), Noise(classes=4), p=[8], k=[2])


def test_more_samples_than_a_class_has_are_left_out_before_a_batch_is_drawn():
    small = Noise(classes=4, each=5)  # 20 samples
    found = forecast(network(8), small, p=[2, 4], k=[4, 8, 10**9], alternatives=False)
    assert [(cell.p, cell.k) for cell in found.cells] == [(2, 4), (2, 8), (4, 4)]
    with pytest.raises(ValueError, match=r"k: expected at least one K of at most 5, the samples"):
        forecast(network(8), small, p=[2], k=[10**9])


def test_a_probe_tells_learning_from_shrinking():
    def batches(learnable: bool):
        generator = torch.Generator().manual_seed(1)
        labels = torch.arange(8).repeat_interleave(4)
        centres = torch.randn(8, 16, generator=generator)
        while True:
            noise = torch.randn(32, 16, generator=generator)
            yield (3 * centres[labels] + noise if learnable else noise), labels

    loss = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    learns = probe(network(8), loss, batches(True), 60, lr=1e-2)
    shrinks = probe(network(8), loss, batches(False), 60, lr=1e-2)
    assert shrinks.predicted < 0.25 < learns.predicted
    assert shrinks.relative_loss_factor > 1 > learns.relative_loss_factor


def test_dimensions_need_a_function_and_a_function_needs_dimensions():
    with pytest.raises(ValueError, match="model: expected a function from a dimension"):
        forecast(network(8), Noise(), dim=[4])
    with pytest.raises(ValueError, match="dim: expected a list of dimensions"):
        forecast(network, Noise())


def test_a_fall_is_extrapolated_by_the_fall_of_its_drift():
    def seen(left: float, drift: float) -> Probe:
        return Probe((1.0,) * 2 + (left,) * 8, (1.0,) * 10, (0.4,) * 2 + (drift,) * 8)

    assert seen(0.5, 0.2).predicted == pytest.approx(0.25)  # half the drift: 0.5^(1 + 1/2 + ...)
    assert seen(0.5, 0.01).predicted == pytest.approx(0.5)  # no drift is left
    assert seen(0.5, 0.5).predicted == pytest.approx(0.5**5)  # it does not fall at all
    assert seen(2.0, 0.4).predicted == 2.0
    assert seen(0.0, 0.4).predicted < 1e-20


def test_a_probe_overrules_the_drift_at_the_start():
    cell = forecast(network(8), Noise(), p=[4], k=[4], alternatives=False).cells[0]
    steady, gone = (0.4,) * 10, (0.4,) * 5 + (0.0,) * 5
    scales = (1.0,) * 5 + (0.5,) * 5
    assert replace(cell, drift=0.3).risk == "high"
    assert replace(cell, drift=0.3, probe=Probe(scales, scales, gone)).risk == "some"
    assert replace(cell, drift=-0.1, probe=Probe(scales, scales, steady)).risk == "high"
    assert replace(cell, drift=0.3, probe=Probe((1.0,) * 10, scales, gone)).risk == "none"


def test_networks_and_losses_that_normalise_are_asked_about_directions():
    model = network(8)
    on_sphere = nn.Sequential(model, Unit())
    ends = (
        (on_sphere, TripletLoss(margin=0.2, miner=Miner("hard", "hard"))),
        (
            model,
            TripletLoss(margin=0.2, miner=Miner("hard", "hard"), normalize=True),
        ),
    )
    found = [
        forecast(m, Noise(), p=[8], k=[4], loss_fn=loss, alternatives=False).cells[0]
        for m, loss in ends
    ]
    assert found[0].drift == pytest.approx(found[1].drift, rel=1e-3)
    assert found[0].diameter == pytest.approx(found[1].diameter, rel=1e-4)
    assert found[0].drift > 0


class TwoModes:
    """Four classes of two modes each, far apart: easy positives keep them, random ones do not."""

    def __init__(self, *, fine: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        modes = torch.arange(8).repeat_interleave(20)
        self.labels = modes // 2
        self.samples = 4 * torch.randn(8, 16, generator=generator)[modes]
        self.samples += torch.randn(self.samples.shape, generator=generator)
        if fine:
            self.fine_labels = modes

    def __getitem__(self, rows):
        return self.samples[rows], self.labels[rows]


def asked_of(data, **options):
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "semihard"))
    return forecast(network(8), data, p=[4], k=[4, 16], loss_fn=loss, **options)


def test_cells_carry_the_mode_drift_of_their_own_strategy():
    found = asked_of(TwoModes(fine=False))
    by_name = {str(c.strategy): c for c in (*found.cells, *found.alternatives) if c.k == 16}
    assert by_name["hard x semihard"].mode_drift > 0.3
    assert by_name["easy x semihard"].mode_drift < 0
    assert math.isnan(found.cells[0].mode_drift)  # K = 4: a class is one neighbourhood
    rows = {(row["strategy"], row["k"]): row for row in found.to_rows()}
    cell = by_name["easy x semihard"]
    assert rows["easy x semihard", 16]["mode_drift"] == cell.modes.value
    z, labels = zip(*embedded_batches(network(8), TwoModes(fine=False), 4, 16, 8, 0), strict=True)
    loss = TripletLoss(margin=0.2, miner=Miner("easy", "semihard"))
    again = mode_drift(loss, list(zip(z, labels, strict=True)))
    assert cell.modes.value == pytest.approx(again.value)


def test_classes_known_to_have_several_modes_get_a_strategy_that_keeps_them():
    own = asked_of(TwoModes(fine=False))
    assert own.several_modes is None
    assert str(own.recommended.strategy) == "hard x semihard"  # it does not shrink
    assert "easy x semihard keeps them" in own.reason
    assert "if your classes have several" in own.reason
    known = asked_of(TwoModes(fine=True))
    assert known.several_modes
    assert known.recommended.strategy.positives == "easy"
    assert "hard x semihard merges the modes of a class (mode drift +" in known.reason
    one = asked_of(TwoModes(fine=True), several_modes=False)
    assert str(one.recommended.strategy) == "hard x semihard"
    assert "modes" not in one.reason


def test_a_smaller_batch_is_recommended_only_where_nothing_is_safe_at_the_largest():
    known = asked_of(TwoModes(fine=False))
    risky = [replace(cell, drift=0.5) if cell.k == 16 else cell for cell in known.cells]
    found = replace(known, cells=tuple(risky))
    assert (found.recommended.k, found.recommended.strategy.positives) == (16, "inside")
    none = [replace(cell, drift=0.5) if cell.k == 16 else cell for cell in known.alternatives]
    found = replace(found, alternatives=tuple(none))
    assert (found.recommended.k, str(found.recommended.strategy)) == (4, "hard x semihard")
    assert "nan" not in found.reason


def test_radial_risk_comes_before_modes():
    found = asked_of(TwoModes(fine=True))
    risky = [replace(cell, drift=0.5) if cell.keeps_modes else cell for cell in found.alternatives]
    assert replace(found, alternatives=tuple(risky)).recommended.risk == "none"
    assert found.cells[1] == replace(found, alternatives=tuple(risky)).recommended


def test_a_probe_overrules_the_mode_drift_at_the_start():
    (cell,) = [c for c in asked_of(TwoModes(fine=False), probe_steps=12).cells if c.k == 16]
    assert len(cell.probe.modes) == 12
    assert cell.mode_drift == cell.probe.mode_drift != cell.modes.value
    none = replace(cell, probe=replace(cell.probe, modes=(math.nan,) * 12))
    assert none.mode_drift == cell.modes.value
    assert math.isnan(none.probe.mode_drift)


def hard_triplets():
    return TripletLoss(margin=0.2, miner=Miner("hard", "hard"))


def with_identity(loss, **options):
    generator = torch.Generator().manual_seed(0)
    return IdentityLoss(loss, num_classes=12, dim=8, generator=generator, **options)


def noise_batches():
    data, generator = Noise(), torch.Generator().manual_seed(3)
    while True:
        yield data[torch.randint(0, len(data.labels), (24,), generator=generator)]


def test_a_triplet_loss_may_be_asked_about_in_its_wrappers():
    asked = {"p": [4], "k": [4], "probe_steps": 10}
    plain = forecast(network(8), Noise(), loss_fn=hard_triplets(), **asked)
    whole = TrimmedLoss(hard_triplets(), fraction=1.0)
    alone = with_identity(hard_triplets(), weight=0.0)
    for loss in (whole, alone):
        found = forecast(network(8), Noise(), loss_fn=loss, **asked)
        assert [str(c.strategy) for c in found.alternatives] == [
            str(c.strategy) for c in plain.alternatives
        ]
        for one, other in zip(found.to_rows(), plain.to_rows(), strict=True):
            words = {key for key, value in other.items() if isinstance(value, str)}
            assert all(one[key] == other[key] for key in words)
            numbers = {key: value for key, value in other.items() if key not in words}
            ours = {key: one[key] for key in numbers}
            assert ours == pytest.approx(numbers, rel=1e-4, abs=1e-5, nan_ok=True)
    both = forecast(network(8), Noise(), loss_fn=with_identity(hard_triplets()), **asked)
    assert both.cells[0].bound == plain.cells[0].bound
    assert both.cells[0].relative_loss > plain.cells[0].relative_loss + 1.0  # log 12 more
    with pytest.raises(ValueError, match="loss_fn: expected a TripletLoss, also in an Identity"):
        forecast(network(8), Noise(), loss_fn=with_identity(ContrastiveLoss()))


@pytest.mark.parametrize(
    "make",
    [lambda: with_identity(hard_triplets()), lambda: ProxyNCALoss(num_classes=12, dim=8)],
    ids=["identity", "proxies"],
)
def test_a_probe_trains_a_copy_of_what_the_loss_learns(make):
    loss = make()
    before = {k: v.clone() for k, v in loss.state_dict().items()}
    found = probe(network(8), loss, noise_batches(), 20, lr=1e-2)
    assert all(torch.equal(before[k], v) for k, v in loss.state_dict().items())
    assert all(p.grad is None for p in loss.parameters())
    fixed = make()
    fixed.load_state_dict(before)
    fixed.requires_grad_(False)
    kept = probe(network(8), fixed, noise_batches(), 20, lr=1e-2)
    assert found.relative_losses[0] == kept.relative_losses[0]
    assert found.relative_losses[-1] != kept.relative_losses[-1]


def test_a_probe_moves_the_generator_of_a_loss_that_learns_nothing_and_takes_functions():
    loss = TripletLoss(miner=Miner("random", "random", generator=torch.Generator().manual_seed(0)))
    first, second = (probe(network(8), loss, noise_batches(), 10) for _ in range(2))
    assert first.relative_losses[0] != second.relative_losses[0]
    plain = hard_triplets()
    named = probe(network(8), lambda z, labels: plain(z, labels), noise_batches(), 10)
    assert named == probe(network(8), plain, noise_batches(), 10)
