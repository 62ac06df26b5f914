"""Forecasts over batch shapes and dimensions, what they recommend, and probes."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from support.errors import refused
from uncollapse.health.drifts import Probe, Stepping, mode_drift, probe
from uncollapse.health.forecasts import embedded_batches, forecast
from uncollapse.losses import ContrastiveLoss, IdentityLoss, ProxyNCALoss, TrimmedLoss, TripletLoss
from uncollapse.mining import Miner


class Data:
    """Samples that can be drawn by row; fine labels where they are given."""

    def __init__(self, samples, labels, fine_labels=None):
        self.samples, self.labels = samples, labels
        if fine_labels is not None:
            self.fine_labels = fine_labels

    def __getitem__(self, rows):
        return self.samples[rows], self.labels[rows]


def noise(classes=12, each=20):
    """Samples that say nothing of their labels: the hardest data there is."""
    labels = torch.arange(classes).repeat_interleave(each)
    return Data(torch.randn(len(labels), 16, generator=torch.Generator().manual_seed(0)), labels)


def two_modes(*, fine):
    """Four classes of two modes each, far apart: easy positives keep them, random ones do not."""
    generator = torch.Generator().manual_seed(0)
    modes = torch.arange(8).repeat_interleave(20)
    samples = 4 * torch.randn(8, 16, generator=generator)[modes]
    samples += torch.randn(samples.shape, generator=generator)
    return Data(samples, modes // 2, modes if fine else None)


class Unit(nn.Module):
    def forward(self, x):
        return nn.functional.normalize(x, dim=1)


def network(dim):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, dim))


def hard_triplets(**options):
    return TripletLoss(margin=0.2, miner=Miner("hard", "hard"), **options)


def own_cells(model, data, **options):
    """The cells of the strategy asked about."""
    return forecast(model, data, **{"alternatives": False, "batches": 4} | options).cells


def test_drift_grows_with_the_batch_and_falls_with_the_dimension():
    cells = own_cells(network, noise(), p=[2, 4, 8], k=[8], dim=[4, 16, 64])
    drift = {(c.p, c.dim): c.drift for c in cells}
    assert drift[2, 16] < drift[4, 16] < drift[8, 16]
    assert drift[8, 4] > drift[8, 16] > drift[8, 64] > 0


def test_alternatives_that_do_not_shrink_are_found_and_recommended():
    result = forecast(network(8), noise(), p=[8], k=[4, 8], batches=4)
    assert all(cell.risk != "none" for cell in result.cells)
    by_name = {str(cell.strategy): cell for cell in result.alternatives if cell.k == 8}
    assert abs(by_name["hard x hard, scale-free"].drift) < 1e-5
    assert by_name["easy x semihard"].drift < 0
    assert result.recommended.risk == "none"
    assert result.recommended.k == 8  # what is mined is changed, not the batch
    assert "hard x hard shrinks the embedding (drift +" in result.reason
    assert "; try positives = inside with scale_free = true, or" in result.reason
    assert "forecast, not a guarantee" in str(result)


def test_the_loss_and_the_network_are_left_as_they_were():
    model, loss = network(8), hard_triplets()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    forecast(model, noise(), p=[4], k=[4], loss_fn=loss, probe_steps=10, batches=2)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert (loss.miner.positives, loss.scale_free) == ("hard", False)


def test_the_bound_is_diameter_minus_c_times_the_hardest_loss():
    (cell,) = own_cells(network(8), noise(), p=[4], k=[4], c=0.5)
    assert cell.bound == pytest.approx(cell.diameter - 0.5 * cell.loss)
    assert {"p", "k", "dim", "drift", "bound", "risk", "strategy"} <= cell.to_row().keys()


def test_shapes_the_data_cannot_fill_are_left_out_before_a_batch_is_drawn():
    small = noise(classes=4, each=5)  # 20 samples
    cells = own_cells(network(8), small, p=[2, 4, 8], k=[4, 8, 10**9])
    assert [(cell.p, cell.k) for cell in cells] == [(2, 4), (2, 8), (4, 4)]
    for name, shape in {"p": ([8], [2]), "k": ([2], [10**9])}.items():
        with refused(name):
            forecast(network(8), small, *shape)


def test_dimensions_need_a_function_and_a_function_needs_dimensions():
    with refused("model"):
        forecast(network(8), noise(), dim=[4])
    with refused("dim"):
        forecast(network, noise())


def test_a_probe_tells_learning_from_shrinking():
    def batches(learnable):
        generator = torch.Generator().manual_seed(1)
        labels = torch.arange(8).repeat_interleave(4)
        centres = torch.randn(8, 16, generator=generator)
        while True:
            samples = torch.randn(32, 16, generator=generator)
            yield (3 * centres[labels] + samples if learnable else samples), labels

    learns, shrinks = (
        probe(network(8), hard_triplets(), batches(learnable), 60, lr=1e-2)
        for learnable in (True, False)
    )
    assert shrinks.predicted < 0.25 < learns.predicted
    assert shrinks.relative_loss_factor > 1 > learns.relative_loss_factor


def test_a_probe_takes_the_steps_of_the_run():
    def probed(rates, lr=1e-2, max_norm=None):
        def optimizer(model, loss):
            return torch.optim.SGD(model.parameters(), lr)

        stepping = Stepping(optimizer, rates, max_norm)
        return probe(network(8), hard_triplets(), noise_batches(), 20, stepping=stepping)

    adam = probe(network(8), hard_triplets(), noise_batches(), 20, lr=1e-2)
    slow = probed([1.0])
    assert adam.scale_factor < 0.9 < slow.scale_factor  # SGD at Adam's rate takes tiny steps
    warm = probed([0.0] * 50 + [1.0] * 50, lr=3.0)
    assert warm.scales[:11] == pytest.approx(probed([0.0]).scales[:11])  # the rate is still 0
    assert warm.scales[-1] != pytest.approx(warm.scales[10], rel=0.05)  # then the run's highest
    clipped = probed([1.0], lr=3.0, max_norm=1e-6)
    assert clipped.scale_factor == pytest.approx(1.0, abs=0.05)


def test_a_fall_is_extrapolated_by_the_fall_of_its_drift():
    def predicted(left, drift):
        return Probe((1.0,) * 2 + (left,) * 8, (1.0,) * 10, (0.4,) * 2 + (drift,) * 8).predicted

    assert predicted(0.5, 0.2) == pytest.approx(0.25)  # half the drift: 0.5^(1 + 1/2 + ...)
    assert predicted(0.5, 0.01) == pytest.approx(0.5)  # no drift is left
    assert predicted(0.5, 0.5) == pytest.approx(0.5**5)  # it does not fall at all
    assert predicted(2.0, 0.4) == 2.0
    assert predicted(0.0, 0.4) < 1e-20


def test_a_probe_overrules_the_drift_at_the_start():
    (cell,) = own_cells(network(8), noise(), p=[4], k=[4], batches=2)
    steady, gone = (0.4,) * 10, (0.4,) * 5 + (0.0,) * 5
    scales = (1.0,) * 5 + (0.5,) * 5
    assert replace(cell, drift=0.3).risk == "high"
    assert replace(cell, drift=0.1).risk == "some"
    assert replace(cell, drift=0.3, probe=Probe(scales, scales, gone)).risk == "some"
    assert replace(cell, drift=-0.1, probe=Probe(scales, scales, steady)).risk == "high"
    assert replace(cell, drift=0.3, probe=Probe((1.0,) * 10, scales, gone)).risk == "none"


def test_networks_and_losses_that_normalise_are_asked_about_directions():
    model, shape = network(8), {"p": [8], "k": [4]}
    (ours,) = own_cells(nn.Sequential(model, Unit()), noise(), loss_fn=hard_triplets(), **shape)
    (theirs,) = own_cells(model, noise(), loss_fn=hard_triplets(normalize=True), **shape)
    assert ours.drift == pytest.approx(theirs.drift, rel=1e-3)
    assert ours.diameter == pytest.approx(theirs.diameter, rel=1e-4)
    assert ours.drift > 0


def asked_of(data, **options):
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "semihard"))
    return forecast(network(8), data, p=[4], k=[4, 16], loss_fn=loss, **options)


@pytest.fixture(scope="module")
def unknown():
    """The forecast for classes that may have several modes."""
    return asked_of(two_modes(fine=False))


@pytest.fixture(scope="module")
def known():
    """The forecast for classes that have several modes, by their fine labels."""
    return asked_of(two_modes(fine=True))


def test_cells_carry_the_mode_drift_of_their_own_strategy(unknown):
    by_name = {str(c.strategy): c for c in (*unknown.cells, *unknown.alternatives) if c.k == 16}
    assert by_name["hard x semihard"].mode_drift > 0.3
    assert by_name["easy x semihard"].mode_drift < 0
    assert math.isnan(unknown.cells[0].mode_drift)  # K = 4: a class is one neighbourhood
    rows = {(row["strategy"], row["k"]): row for row in unknown.to_rows()}
    cell = by_name["easy x semihard"]
    assert rows["easy x semihard", 16]["mode_drift"] == cell.modes.value
    loss = TripletLoss(margin=0.2, miner=Miner("easy", "semihard"))
    batches = list(embedded_batches(network(8), two_modes(fine=False), 4, 16, 8, 0))
    assert cell.modes.value == pytest.approx(mode_drift(loss, batches).value)


def test_classes_known_to_have_several_modes_get_a_strategy_that_keeps_them(unknown, known):
    assert unknown.several_modes is None
    assert str(unknown.recommended.strategy) == "hard x semihard"  # it does not shrink
    assert "easy x semihard keeps them" in unknown.reason
    assert "if your classes have several" in unknown.reason
    assert known.several_modes
    assert known.recommended.strategy.positives == "easy"
    assert "hard x semihard merges the modes of a class (mode drift +" in known.reason
    single = asked_of(two_modes(fine=True), several_modes=False)
    assert str(single.recommended.strategy) == "hard x semihard"
    assert "modes" not in single.reason


def test_a_smaller_batch_is_recommended_only_where_nothing_is_safe_at_the_largest(unknown):
    def risky(cells):
        return tuple(replace(cell, drift=0.5) if cell.k == 16 else cell for cell in cells)

    changed = replace(unknown, cells=risky(unknown.cells))
    assert (changed.recommended.k, changed.recommended.strategy.positives) == (16, "inside")
    changed = replace(changed, alternatives=risky(unknown.alternatives))
    assert (changed.recommended.k, str(changed.recommended.strategy)) == (4, "hard x semihard")
    assert "nan" not in changed.reason


def test_radial_risk_comes_before_modes(known):
    risky = [replace(cell, drift=0.5) if cell.keeps_modes else cell for cell in known.alternatives]
    recommended = replace(known, alternatives=tuple(risky)).recommended
    assert recommended.risk == "none"
    assert recommended == known.cells[1]


def test_a_probe_overrules_the_mode_drift_at_the_start():
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "semihard"))
    asked = {"p": [4], "k": [16], "loss_fn": loss, "probe_steps": 12}
    (cell,) = own_cells(network(8), two_modes(fine=False), **asked)
    assert len(cell.probe.modes) == 12
    assert cell.mode_drift == cell.probe.mode_drift != cell.modes.value
    none = replace(cell, probe=replace(cell.probe, modes=(math.nan,) * 12))
    assert none.mode_drift == cell.modes.value
    assert math.isnan(none.probe.mode_drift)


def with_identity(loss, **options):
    generator = torch.Generator().manual_seed(0)
    return IdentityLoss(loss, num_classes=12, dim=8, generator=generator, **options)


@pytest.mark.slow
def test_a_triplet_loss_may_be_asked_about_in_its_wrappers():
    asked = {"p": [4], "k": [4], "probe_steps": 10, "batches": 2}
    plain = forecast(network(8), noise(), loss_fn=hard_triplets(), **asked)
    whole = TrimmedLoss(hard_triplets(), fraction=1.0)
    alone = with_identity(hard_triplets(), weight=0.0)
    for loss in (whole, alone):
        wrapped = forecast(network(8), noise(), loss_fn=loss, **asked)
        for ours, theirs in zip(wrapped.to_rows(), plain.to_rows(), strict=True):
            numbers = {k: v for k, v in theirs.items() if not isinstance(v, str)}
            assert all(ours[key] == theirs[key] for key in theirs.keys() - numbers.keys())
            expected = pytest.approx(numbers, rel=1e-4, abs=1e-5, nan_ok=True)
            assert {key: ours[key] for key in numbers} == expected
    (both,) = own_cells(network(8), noise(), loss_fn=with_identity(hard_triplets()), **asked)
    assert both.bound == plain.cells[0].bound
    assert both.relative_loss > plain.cells[0].relative_loss + 1.0  # log 12 more
    with refused("loss_fn"):
        forecast(network(8), noise(), loss_fn=with_identity(ContrastiveLoss()))


def noise_batches():
    data, generator = noise(), torch.Generator().manual_seed(3)
    while True:
        yield data[torch.randint(0, len(data.labels), (24,), generator=generator)]


@pytest.mark.parametrize(
    "make",
    [lambda: with_identity(hard_triplets()), lambda: ProxyNCALoss(num_classes=12, dim=8)],
    ids=["identity", "proxies"],
)
def test_a_probe_trains_a_copy_of_what_the_loss_learns(make):
    loss = make()
    before = {k: v.clone() for k, v in loss.state_dict().items()}
    trained = probe(network(8), loss, noise_batches(), 10, lr=1e-2)
    assert all(torch.equal(before[k], v) for k, v in loss.state_dict().items())
    assert all(p.grad is None for p in loss.parameters())
    fixed = make()
    fixed.load_state_dict(before)
    fixed.requires_grad_(False)
    kept = probe(network(8), fixed, noise_batches(), 10, lr=1e-2)
    assert trained.relative_losses[0] == kept.relative_losses[0]
    assert trained.relative_losses[-1] != kept.relative_losses[-1]


def test_a_probe_moves_the_generator_of_a_loss_that_learns_nothing_and_takes_functions():
    loss = TripletLoss(miner=Miner("random", "random", generator=torch.Generator().manual_seed(0)))
    first, second = (probe(network(8), loss, noise_batches(), 10) for _ in range(2))
    assert first.relative_losses[0] != second.relative_losses[0]
    plain = hard_triplets()
    named = probe(network(8), lambda z, labels: plain(z, labels), noise_batches(), 10)
    assert named == probe(network(8), plain, noise_batches(), 10)
