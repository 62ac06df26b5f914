import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given

from support.errors import refuses
from support.oracles import distance_matrix, point_sets
from uncollapse import pairwise_distances
from uncollapse.distances import Frame, centre, exact_squares, paired_distances, short_squares

SPREADS = [10.0**-e for e in range(1, 8)]


def cloud(spread, norm, rows=64, dim=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    middle = torch.randn(dim, generator=generator)
    middle = middle / middle.norm() * norm
    return middle + spread * torch.randn(rows, dim, generator=generator)


def worst_relative_error(x, y=None):
    ours = pairwise_distances(x, y).double().numpy()
    truth = distance_matrix(x.numpy(), None if y is None else y.numpy())
    assert (ours[truth == 0] == 0).all()
    apart = truth > 0
    return float((np.abs(ours - truth)[apart] / truth[apart]).max(initial=0.0))


@given(point_sets())
def test_distances_equal_the_definition(x):
    ours = pairwise_distances(x).numpy()
    np.testing.assert_allclose(ours, distance_matrix(x), rtol=1e-9, atol=0)
    squares = pairwise_distances(x, squared=True).numpy()
    np.testing.assert_allclose(squares, distance_matrix(x) ** 2, rtol=2e-9, atol=0)
    np.testing.assert_array_equal(ours, ours.T)
    np.testing.assert_array_equal(np.diag(ours), 0)


@pytest.mark.parametrize("spread", SPREADS)
def test_float32_distances_are_right_at_every_spread_around_every_centre(spread):
    for norm in (0.0, 1.0, 1e3):
        assert worst_relative_error(cloud(spread, norm)) <= 1e-6
    # Two tight groups far apart keep their inner distances.
    x = torch.cat([cloud(spread, 1.0, seed=1), cloud(spread, 1.0, seed=2) + 1.0])
    assert worst_relative_error(x) <= 1e-6
    assert worst_relative_error(x[:70], x[40:]) <= 1e-6


def test_extreme_scales_are_right_and_small_and_large_batches_are_measured_alike():
    # Their squares vanish or overflow in float32.
    assert max(worst_relative_error(cloud(scale, 0.0)) for scale in (1e-30, 1e30)) <= 1e-6
    x = cloud(1e-4, 10.0, rows=200)
    assert torch.equal(pairwise_distances(x)[:20, :20], pairwise_distances(x[:20]))


def test_gradients_equal_finite_differences():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pairwise_distances, (x, y))
    assert torch.autograd.gradcheck(pairwise_distances, (x,))
    assert torch.autograd.gradcheck(lambda a: pairwise_distances(a, squared=True), (x,))
    assert torch.autograd.gradcheck(paired_distances, (x[:4].detach().requires_grad_(), y))


@pytest.mark.parametrize("squared", [False, True])
def test_gradient_at_distance_zero_is_zero(squared):
    x = torch.ones(4, 3, requires_grad=True)
    pairwise_distances(x, squared=squared).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    x.grad = None
    paired_distances(x, torch.ones(4, 3), squared=squared).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-6])
def test_batch_hard_gradient_survives_off_the_origin(spread):
    labels = torch.arange(64) // 4
    same = labels[:, None] == labels

    def gradient(x):
        x = x.clone().requires_grad_()
        d = pairwise_distances(x)
        hardest = d.masked_fill(~same, -1).amax(1) - d.masked_fill(same, float("inf")).amin(1)
        (hardest + 0.2).relu().mean().backward()
        return x.grad

    x = cloud(spread, 10.0, dim=128)
    ours, truth = gradient(x), gradient(x.double())
    assert abs(float(ours.norm()) / float(truth.norm()) - 1) <= 0.02
    assert float((ours - truth).norm() / truth.norm()) <= 1e-4
    assert float(truth.norm()) > 0.1


def test_paired_distances_are_the_diagonal_of_all_pairs():
    x, y = cloud(1e-5, 100.0, seed=1), cloud(1e-5, 100.0, seed=2)
    diagonal = np.diag(distance_matrix(x.numpy(), y.numpy()))
    np.testing.assert_allclose(paired_distances(x, y).numpy(), diagonal, rtol=1e-6)


def test_centre_removes_the_mean_exactly_and_bad_points_are_refused_by_name():
    assert float(centre(cloud(1e-6, 1e3)).mean(0).abs().max()) < 1e-12
    refuses(pairwise_distances, {"y": None}, x=[[1.0, 2.0], [[float("nan")], [1.0]]])
    refuses(pairwise_distances, {"x": [[1.0]]}, y=[[[1.0, 2.0]], [[float("inf")]]])
    refuses(paired_distances, {"x": [[1.0], [2.0]]}, y=[[[1.0]], [[1.0, 2.0], [1.0, 2.0]]])


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("resident", [False, True])
def test_a_frame_in_another_order_is_the_frame_of_the_rows_in_that_order(normalize, resident):
    x, y = cloud(1e-3, 5.0, rows=50), cloud(1.0, 5.0, rows=9, seed=1)
    orders = [torch.randperm(50, generator=torch.Generator().manual_seed(0))[:40], torch.arange(9)]
    some, other = Frame.of_sets([x, y], normalize=normalize, resident=resident, orders=orders)
    plain = Frame.of_sets([x, y], normalize=normalize)[0].at(orders[0])
    assert len(some) == 40
    torch.testing.assert_close(some.norms, plain.norms)
    torch.testing.assert_close(some.block(slice(3, 7)), plain.block(slice(3, 7)))
    i, j = torch.tensor([0, 5, 39]), torch.tensor([2, 2, 8])
    gap = some.squares(i, j, other)
    torch.testing.assert_close(gap, exact_squares(some, i, other, j).diagonal())
    torch.testing.assert_close(gap, plain.squares(i, j, other), rtol=1e-12, atol=0)
    torch.testing.assert_close(some.at(i).squares(torch.arange(3), j, other), gap, rtol=0, atol=0)
    kept = some.at(slice(5, 15)).kept()
    torch.testing.assert_close(kept.z, some.block(slice(5, 15)), rtol=0, atol=0)
    assert kept.given is some.given


def test_points_in_a_frames_coordinates_are_compared_with_its_rows():
    frame = Frame.of(cloud(1e-4, 100.0, rows=30))
    there = frame.beside(frame.block(slice(4, 6)) + 0.25)
    squares = short_squares(frame, slice(None), there) + frame.norms[:, None]
    truth = torch.cdist(frame.z.double(), there.z.double()).square()
    torch.testing.assert_close(squares.double(), truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("resident", [False, True])
def test_rows_of_length_one_that_differ_by_rounding_are_one_point(resident):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=7))
    frame = Frame.of(
        torch.stack([x * (1 + i / 7) for i in range(9)]), normalize=True, resident=resident
    )
    assert frame.collapsed
    assert not frame.block(slice(None)).any()
    assert not frame.squares(torch.tensor([0, 1]), torch.tensor([5, 6])).any()
    assert not exact_squares(frame, slice(0, 3), frame, slice(4, 9)).any()


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_frame_of_many_rows_takes_no_copy_of_them():
    code = """
        import torch
        from uncollapse.distances import Frame
        def megabytes():
            return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status")
                        if line.startswith("VmHWM"))
        rows = torch.zeros(200_000, 128).normal_()
        Frame.of(rows[:1_000], resident=False)
        before = megabytes()
        Frame.of(rows, resident=False)
        print(megabytes() - before)
    """
    run = [sys.executable, "-c", textwrap.dedent(code)]
    grown = int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert grown < 50  # a copy in float64 is 205 MB
