"""Regularizers: losses of a batch's rows as a whole, to add to any other loss."""

import math
from abc import abstractmethod
from functools import partial

import torch
from torch import Tensor

from uncollapse._base.check import Setting, check_int
from uncollapse.losses.base import Batch, Loss, Named, Number, attached
from uncollapse.losses.on_graph import graph_rows
from uncollapse.mining.random import SeededModule, check_generator


class Regularizer(Loss):
    """What the shape of a batch costs, whoever its rows are.

    Called as any loss is, `regularizer(embeddings)` or `regularizer(embeddings, labels, ...)`:
    labels, tuples and references are checked and then left aside, and there is no miner to have.
    It is of the batch's own rows: on several ranks, of the whole batch, or of each rank's share
    where those are mined apart. A subclass gives `cost`.
    """

    labels_used = False

    def __init__(self, *, normalize: bool) -> None:
        super().__init__()
        self.normalize = normalize

    @abstractmethod
    def cost(self, rows: Tensor) -> Tensor:
        """The cost of `[N, dim]` rows in float64, on the graph."""

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch."""
        rows = graph_rows(batch, self.normalize)[: batch.count]
        return self.cost(rows).to(batch.rows.dtype)


# Anti-Collapse loss, the coding rate of a batch: Jiang et al. 2024 (arXiv 2407.03106).


def rate_of(rows: Tensor, distortion: float = 0.5) -> Tensor:
    """R(Z) = 1/2 log det(I + d/(n ε²) ZᵀZ), ε² the `distortion`: nats to code n rows to it.

    After Yu et al. 2020 (maximal coding rate reduction). Of ZᵀZ and ZZᵀ, which have the same
    determinant here, the smaller.

    >>> rate_of(torch.eye(2), distortion=1.0)  # 1/2 log 2² = log 2
    tensor(0.6931)
    """
    n, dim = rows.shape
    gram = rows.T @ rows if dim <= n else rows @ rows.T
    unit = torch.eye(len(gram), dtype=rows.dtype, device=rows.device)
    # The matrix is positive definite; `cholesky` would make the host wait to ask a device whether.
    factor = torch.linalg.cholesky_ex(unit + dim / (n * distortion) * gram).L
    half: Tensor = factor.diagonal().log().sum()  # log det is twice that: the factor enters squared
    return half


class CodingRateLoss(Regularizer):
    """-R(Z), the coding rate of the batch: the more volume its rows take up, the cheaper.

    R grows with every direction that is used, and most for those that are used least: on the unit
    sphere, where rows are put unless `normalize=False`, it is largest where the singular values of
    the batch are all alike. Its scale is that of min(N, dim)/2 · log: weights are small.

    Needs one row; labels do not matter. The paper takes it of samples, as here, or of the class
    proxies of another loss; the authors' code minimises exp(-R), which for samples leaves no
    gradient once R is a few dozens.

    Siblings: `VarianceCovarianceLoss` stops charging once the spread is enough; this one never.

    Collapse: when all embeddings have one direction R is 1/2 log(1 + dim/distortion), its least on
    the sphere, and the gradient is 0 along the sphere; around it rows are pushed apart, so it keeps
    an embedding out of a cone and away from a few dimensions. To scale it is blind unless
    `normalize=False`: an embedding that shrinks to the origin and keeps its directions costs the
    same. It pushes all rows apart, those of one class too: it works against class collapse, and
    against the loss that wants a class together.

    Args:
        distortion: ε²; 0.5 in the authors' code.
        normalize: of unit rows, as published; else of the rows as they are, where R has no end.

    >>> loss = CodingRateLoss(distortion=1.0)
    >>> loss(torch.eye(2)), loss(torch.ones(2, 2))  # -log 2, -1/2 log 3
    (tensor(-0.6931), tensor(-0.5493))
    """

    distortion = Number(1e-6)

    def __init__(self, *, distortion: float = 0.5, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.distortion = distortion

    def cost(self, rows: Tensor) -> Tensor:
        """Minus the rate."""
        return -rate_of(rows, self.distortion)


# SIGReg, sketched isotropic Gaussian regularisation: Balestriero and LeCun 2025 (2511.08544).


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


class SIGRegLoss(SeededModule, Regularizer):
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

    slices = Setting(check_int)
    knots = Setting(partial(check_int, low=2))
    reach = Number(1e-6)

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
        self.generator = check_generator("generator", generator)

    def cost(self, rows: Tensor) -> Tensor:
        """The mean over fresh directions."""
        dim = rows.shape[1]
        seen = rows * math.sqrt(dim) if self.normalize else rows
        values = seen @ self._directions(dim, rows)
        points = (self.knots, self.reach)
        fused = _epps_pulley_slope(values, *points)
        return attached(values, *fused, lambda x: epps_pulley(x, *points)).mean()

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


@torch.no_grad()
def _epps_pulley_slope(values: Tensor, knots: int, reach: float) -> tuple[Tensor, Tensor]:
    """`epps_pulley` and its derivative, with one exponential for each value: the points are equal
    steps, so the others are its powers. Memory is a few `[N, M]`, not one for each knot.
    """
    t, normal, weight = _quadrature(values, knots, reach)
    turn = torch.polar(torch.ones_like(values), values * (reach / (knots - 1)))
    power, sums = torch.ones_like(turn), []
    for _ in range(knots):
        sums.append(power.mean(0))
        power = power * turn
    apart = torch.stack(sums) - normal[:, None]  # [knots, M]
    # d/dx_n of N w |apart|² is -2 w t Im(conj(apart) exp(i t x_n)): a polynomial in `turn`.
    factors = apart.conj() * (-2 * weight * t)[:, None]
    slope = factors[-1].expand_as(turn)
    for factor in reversed(factors[:-1].unbind()):
        slope = slope * turn + factor
    value = len(values) * (weight @ (apart.real.square() + apart.imag.square()))
    return value, slope.imag


# VICReg's variance and covariance terms: Bardes et al. 2022; beside labels, Zhu et al. 2023.


def variance_term(rows: Tensor, target: float = 1.0, eps: float = 1e-4) -> Tensor:
    """v(Z) = 1/d Σ_j max(0, γ - sqrt(Var(z_j) + ε)), over the d columns z_j; γ is `target`.

    >>> import torch
    >>> variance_term(torch.tensor([[0.0, 0.0], [0.0, 2.0]]))  # γ - sqrt(ε) = 0.99 for a flat one
    tensor(0.4950)
    """
    deviation = (rows.var(0) + eps).sqrt()  # ε keeps its gradient finite in a flat column
    return (target - deviation).relu().mean()


def covariance_term(rows: Tensor) -> Tensor:
    """c(Z) = 1/d Σ_{i≠j} C_ij², with C the covariance matrix of the d columns.

    >>> import torch
    >>> covariance_term(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))  # C is 2 everywhere
    tensor(4.)
    """
    centred = rows - rows.mean(0)
    covariance = centred.T @ centred / (len(rows) - 1)
    whole = covariance.square().sum() - covariance.diagonal().square().sum()
    return whole / rows.shape[1]


class VarianceCovarianceLoss(Regularizer):
    """`variance` · v(Z) + `covariance` · c(Z): each axis spread to `target`, no two axes alike.

    VICReg without its invariance term, whose place the loss it is added to takes: Zhu et al. 2023
    call that VCReg. v charges every axis whose standard deviation over the batch is below `target`,
    c the squared covariances between axes. Blind to where the embedding is.

    Needs two rows. `normalize` takes directions times sqrt(dim), which have standard deviation 1
    on each axis where they are spread evenly: for embeddings that are compared by cosine.

    Siblings: `SIGRegLoss` asks for a whole distribution, `CodingRateLoss` for volume.

    Collapse: when all embeddings coincide it costs `variance` · (target - sqrt(eps)) and its
    gradient is 0; around that point it pushes outwards, by -<Z_c, ∇v> = 1/d Σ_j Var_j /
    sqrt(Var_j + eps): in proportion to the spread as long as that is well above sqrt(eps) = 0.01,
    and then by ever less. Batch-hard pulls in proportion to the spread too, so which of them wins
    is decided by the weight, above 0.01, and below it batch-hard does: a collapse is prevented, not
    undone. c keeps axes from becoming one (dimensional collapse). Classes, and modes of a class,
    it does not know.

    Args:
        variance: factor of v; VICReg has 25.
        covariance: factor of c; VICReg has 1.
        target: γ, the standard deviation that an axis should have: 1 in the paper.
        eps: added to each variance.
        normalize: take directions times sqrt(dim) instead of the rows.

    >>> import torch
    >>> loss = VarianceCovarianceLoss()
    >>> round(loss(torch.ones(4, 8)).item(), 4)  # 25 · 0.99
    24.75
    """

    variance = Number(0.0)
    covariance = Number(0.0)
    target = Number(0.0)
    eps = Number(1e-12)

    def __init__(
        self,
        *,
        variance: float = 25.0,
        covariance: float = 1.0,
        target: float = 1.0,
        eps: float = 1e-4,
        normalize: bool = False,
    ) -> None:
        super().__init__(normalize=normalize)
        self.variance, self.covariance = variance, covariance
        self.target, self.eps = target, eps

    def cost(self, rows: Tensor) -> Tensor:
        """Both terms; 0 for fewer than two rows."""
        if len(rows) < 2:
            return rows.sum() * 0
        seen = rows * math.sqrt(rows.shape[1]) if self.normalize else rows
        spread = variance_term(seen, self.target, self.eps)
        return self.variance * spread + self.covariance * covariance_term(seen)
