"""SIGReg, sketched isotropic Gaussian regularisation: Balestriero and LeCun 2025 (2511.08544)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from uncollapse._base.check import InputError, check_int
from uncollapse.losses._regulariser import Regulariser
from uncollapse.mining.random_state import Draws

__all__ = ["SIGRegLoss", "epps_pulley"]


def epps_pulley(values: Tensor, knots: int = 17, reach: float = 3.0) -> Tensor:
    """Epps and Pulley's distance of each column of `[N, M]` values to the standard normal.

    N ∫ |1/N Σ_n exp(i t x_n) - exp(-t²/2)|² exp(-t²/2) dt over [-reach, reach], by the trapezium
    rule: the integrand is even, so `knots` points on [0, reach] count twice.

    >>> far = epps_pulley(torch.full((8, 1), 2.0))
    >>> near = epps_pulley(torch.linspace(-2, 2, 8)[:, None])
    >>> round(far.item(), 3), round(near.item(), 3)
    (21.143, 0.995)
    """
    t, normal, weight = _quadrature(values, knots, reach)
    angle = values[:, :, None] * t
    apart = (angle.cos().mean(0) - normal).square() + angle.sin().mean(0).square()
    return len(values) * (apart @ weight)


class SIGRegLoss(Draws, Regulariser):
    """How far the batch is from N(0, I): the mean Epps-Pulley distance of random projections.

    Each call draws `slices` directions on the unit sphere; the batch's projections on each should
    be standard normal. As the sample's characteristic function is compared at all of `knots` points
    no moment is left out, and gradients are bounded. Place and scale are both decided: mean 0,
    standard deviation 1 in every direction.

    Takes any number of rows. `normalize` takes directions
    times sqrt(dim), whose projections are about normal where they are spread evenly.

    Siblings: `VarianceCovarianceLoss` asks for two moments alone, axis by axis.

    Collapse: when all embeddings are the origin it costs 0.402 N and its gradient
    is 0; around it, it pushes outwards in proportion to the **square** of the spread, so that
    batch-hard, whose pull is in proportion to the spread, wins close to a point: it prevents a
    collapse from far enough and does not undo one. A point elsewhere is pulled to the
    origin as a whole. It charges cones, lost dimensions and wrong scales alike. What is further
    than π (knots - 1) / reach = 17 from the origin is mistaken for something nearer: the sum over
    knots is periodic. Classes are lumps, and lumps are not Gaussian: it works against class
    collapse, and against the loss that wants classes apart.

    Args:
        slices: directions drawn for each batch; 256 in the authors' small example.
        knots: points of the integral, 2 or more; theirs has 17.
        reach: where it ends; 3 there.
        normalize: take directions times sqrt(dim) instead of the rows.
        generator: source of the directions, saved with the loss; None is torch's default generator.

    >>> generator = torch.Generator().manual_seed(0)
    >>> loss = SIGRegLoss(generator=generator)
    >>> z = torch.randn(64, 8, generator=generator)
    >>> round(loss(torch.zeros(64, 8)).item(), 2), loss(z).item() < loss(0.1 * z).item()
    (25.73, True)
    """

    numbers: ClassVar = {"reach": (1e-6, math.inf)}

    def __init__(
        self,
        *,
        slices: int = 256,
        knots: int = 17,
        reach: float = 3.0,
        normalize: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(normalize=normalize)
        self.slices, self.knots, self.reach = slices, knots, reach
        self.generator = generator

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("slices", "knots"):
            value = check_int(name, value, 1 + (name == "knots"))
        elif name == "generator" and not isinstance(value, torch.Generator | None):
            raise InputError(name, repr(value), "a torch.Generator or None")
        super().__setattr__(name, value)

    def cost(self, rows: Tensor) -> Tensor:
        """The mean over fresh directions."""
        dim = rows.shape[1]
        seen = rows * math.sqrt(dim) if self.normalize else rows
        values = seen @ self._directions(dim, rows)
        found: Tensor = _EppsPulley.apply(values, self.knots, self.reach)  # type: ignore[no-untyped-call]
        return found.mean()

    def _directions(self, dim: int, like: Tensor) -> Tensor:
        """`[dim, slices]` unit columns; drawn on the host, so that every device has the same."""
        drawn = torch.randn(dim, self.slices, generator=self.generator, dtype=torch.float64)
        unit: Tensor = drawn / drawn.norm(dim=0)
        return unit.to(like.device, like.dtype, non_blocking=True)


def _quadrature(values: Tensor, knots: int, reach: float) -> tuple[Tensor, Tensor, Tensor]:
    """Points t, the normal's characteristic function there, and the weights of the integral."""
    t = torch.linspace(0.0, reach, knots, dtype=values.dtype, device=values.device)
    normal = (-t.square() / 2).exp()
    weight = 2 * reach / (knots - 1) * normal
    weight[0] /= 2
    weight[-1] /= 2
    return t, normal, weight


class _EppsPulley(torch.autograd.Function):
    """`epps_pulley` and its gradient with one exponential for each value: the points are equal
    steps, so the others are its powers. Memory is a few `[N, M]`, not one for each knot.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, knots: int, reach: float) -> Tensor:
        t, normal, weight = _quadrature(values, knots, reach)
        turn = torch.polar(torch.ones_like(values), values * (reach / (knots - 1)))
        power, sums = torch.ones_like(turn), []
        for _ in range(knots):
            sums.append(power.mean(0))
            power = power * turn
        apart = torch.stack(sums) - normal[:, None]  # [knots, M]
        # d/dx_n of N w |apart|² is -2 w t Im(conj(apart) exp(i t x_n)): a polynomial in `turn`.
        factor = apart.conj() * (-2 * weight * t)[:, None]
        slope = factor[-1].expand_as(turn)
        for one in reversed(factor[:-1].unbind()):
            slope = slope * turn + one
        ctx.save_for_backward(values, slope.imag)
        ctx.settings = knots, reach
        return len(values) * (weight @ (apart.real.square() + apart.imag.square()))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        values, slope = ctx.saved_tensors
        if torch.is_grad_enabled() and (values.requires_grad or upstream.requires_grad):
            with torch.enable_grad():  # its own derivative is wanted: by the plain formula
                plain = epps_pulley(values, *ctx.settings)
                (given,) = torch.autograd.grad(plain, values, upstream, create_graph=True)
            return given, None, None
        return slope * upstream, None, None
