"""Class collapse is said soon after its onset, and looking for it costs little."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from uncollapse.health import CollapseMonitor
from uncollapse.health.figures import health_figures
from uncollapse.health.monitor import tight_share

SOON = 30  # updates from the onset to the warning


def _batch(p: int, k: int, inside: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.randperm(40, generator=generator)[:p].repeat_interleave(k)
    means = torch.randn(40, 16, generator=torch.Generator().manual_seed(0))
    return means[labels] + inside * torch.randn(p * k, 16, generator=generator), labels


@pytest.mark.parametrize(("p", "k"), [(18, 8), (2, 2), (2, 60), (40, 2)])
@pytest.mark.parametrize("onset", [102, 151, 203])
def test_class_collapse_is_said_within_30_updates_of_its_onset(p: int, k: int, onset: int) -> None:
    monitor = CollapseMonitor()
    generator = torch.Generator().manual_seed(onset)
    for step in range(onset + SOON + 1):
        monitor.update(*_batch(p, k, 0.5 if step < onset else 1e-3, generator), step=step)
    assert [verdict for _, verdict in monitor.changes] == ["class-collapse"]
    assert onset <= monitor.changes[0][0] <= onset + SOON


def test_classes_that_shrink_slowly_are_said_within_30_updates_of_the_threshold() -> None:
    monitor = CollapseMonitor()
    generator = torch.Generator().manual_seed(0)
    onset = None
    for step in range(400):
        z, labels = _batch(8, 8, 0.5 * 0.98**step, generator)
        if onset is None and _collapsed(z, labels):
            onset = step
        monitor.update(z, labels, step=step)
        if monitor.changes:
            break
    assert onset is not None
    assert monitor.changes[0][1] == "class-collapse"
    assert monitor.changes[0][0] <= onset + SOON


@pytest.mark.slow
def test_a_real_run_is_warned_of_within_30_updates() -> None:
    """A contrastive loss on three classes, each of two modes: the network makes them points."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 8))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    monitor, generator, onset = CollapseMonitor(), torch.Generator().manual_seed(0), 0
    places = 3 * torch.randn(6, 6, generator=generator)
    labels = (torch.arange(60) % 6) // 2
    for step in range(1500):
        rows = places[torch.arange(60) % 6] + 0.3 * torch.randn(60, 6, generator=generator)
        z = model(rows)
        far = torch.cdist(z, z)
        same = labels[:, None] == labels
        loss = far[same].square().mean() + (2 - far[~same]).clamp(min=0).square().mean()
        if not _collapsed(z.detach(), labels):
            onset = step + 1
        monitor.update(z, labels, step=step)
        if monitor.changes:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert monitor.verdict == "class-collapse"
    assert monitor.changes[0][0] <= onset + SOON


def test_a_healthy_run_makes_no_more_full_measures_than_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = _counted(monkeypatch)
    monitor, generator = CollapseMonitor(), torch.Generator().manual_seed(0)
    for step in range(501):
        monitor.update(*_batch(18, 8, 0.5, generator), step=step)
    assert monitor.changes == []
    assert len(made) <= 12  # every 50, the first, and the reference's classes


def test_classes_that_only_look_tight_are_looked_at_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = _counted(monkeypatch)
    monitor, generator = CollapseMonitor(), torch.Generator().manual_seed(0)
    monkeypatch.setattr("uncollapse.health.monitor.tight_share", lambda *_: 1.0)
    for step in range(401):
        monitor.update(*_batch(18, 8, 0.5, generator), step=step)
    assert monitor.changes == []
    assert len(made) <= 2 + 6 + 400 / 15 + 8


def test_the_look_at_a_batch_agrees_with_the_full_measure() -> None:
    generator = torch.Generator().manual_seed(0)
    for inside, expected in ((1.0, 0.0), (1e-3, 1.0)):
        z, labels = _batch(10, 6, inside, generator)
        assert tight_share(z, labels, 0.05) == expected
    z, labels = _batch(10, 6, 1.0, generator)
    few = labels.unique()[:3]
    for c in few:
        z[labels == c] = z[labels == c].mean(0) + 1e-4 * torch.randn(6, 16, generator=generator)
    assert tight_share(z, labels, 0.05) == pytest.approx(0.3)
    assert tight_share(1e-30 * z.double(), labels, 0.05) == pytest.approx(0.3)


def test_a_batch_of_one_class_or_of_single_rows_says_nothing() -> None:
    z = torch.zeros(4, 2)
    assert tight_share(z, [0, 0, 0, 0], 0.05) == 0.0
    assert tight_share(z, [0, 1, 2, 3], 0.05) == 0.0
    assert tight_share(z[:1], [0], 0.05) == 0.0
    assert tight_share(z, ["a", "a", "b", "b"], 0.05) == 1.0


def _collapsed(z: Tensor, labels: Tensor) -> bool:
    """Three quarters of the pairs of a tenth of the classes within 5 % of the distance between."""
    far, same = torch.cdist(z.double(), z.double()), labels[:, None] == labels
    apart = far[~same].median()
    pairs = [torch.pdist(z[labels == c].double()) for c in labels.unique()]
    tight = [bool(one.quantile(0.75) <= 0.05 * apart) for one in pairs]
    return bool(np.mean(tight) >= 0.1)


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []

    def counting(*args: object, **kwargs: object) -> object:
        made.append(1)
        return health_figures(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("uncollapse.health.monitor.health_figures", counting)
    return made
