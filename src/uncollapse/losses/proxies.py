"""What losses with learned proxies share: the parameter, whose row is which, the cosines."""

import json
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse._base.arrays import ArrayLike, label_array
from uncollapse._base.check import InputError, check_int
from uncollapse.distances import on_host, squared_norms, unit_rows, working_dtype
from uncollapse.losses.base import Batch, Named, TupleLoss
from uncollapse.losses.on_graph import log_sum
from uncollapse.mining.random import check_generator
from uncollapse.mining.tuples import as_pairs

_CLOSE = 0.04  # squared distances below it are measured by differences


class Compared(NamedTuple):
    """Samples and proxies, on the graph.

    `anchor` and `own` `[n]` are the samples' rows and classes, `cosine` is `[n, per_class,
    num_classes]` in the rows' dtype; `rows` and `proxies` are what was compared, the latter the
    first proxies of all classes, then their second. `real` are the samples that count: on a device,
    with tuples, those of all that are named.
    """

    anchor: Tensor
    own: Tensor
    cosine: Tensor
    rows: Tensor
    proxies: Tensor
    real: Tensor

    @property
    def columns(self) -> Tensor:
        """`[n, per_class]`: the columns of each sample's own proxies, once they are flattened."""
        _, per_class, classes = self.cosine.shape
        return self.own[:, None] + classes * torch.arange(per_class, device=self.own.device)

    def own_squares(self, cosine: Tensor) -> Tensor:
        """2 - 2 cos θ to the own class's nearest proxy, whose cosines are known: to all digits."""
        square = 2.0 - 2.0 * cosine
        close = torch.arange(len(square), device=square.device)
        if on_host(square):
            close = (square < _CLOSE).nonzero().flatten()
        if len(close) == 0:
            return square
        own, classes = self.own[close], self.cosine.shape[2]
        nearest = own + classes * self.cosine.detach()[close, :, own].argmax(1)
        wide = working_dtype(self.rows)
        gap = unit_rows(self.rows[close].to(wide)) - unit_rows(self.proxies[nearest].to(wide))
        exact = gap.square().sum(1).to(square.dtype)
        return square.index_put((close,), torch.where(square[close] < _CLOSE, exact, square[close]))


class ProxyLoss(TupleLoss):
    """A loss of samples and learned class vectors, `proxies`, `[num_classes, per_class, dim]`.

    Both are divided by their norms. Labels are 0 to `num_classes` - 1, or at most so many names. A
    miner, or tuples, restrict the samples to those they name as anchors, once each.
    """

    labels_needed = True

    def __init__(
        self,
        num_classes: int,
        dim: int,
        miner: nn.Module | None,
        generator: torch.Generator | None,
        per_class: int = 1,
        name: str = "per_class",
    ) -> None:
        super().__init__(miner=miner, normalize=True)
        shape = (
            check_int("num_classes", num_classes, 2),
            check_int(name, per_class),
            check_int("dim", dim),
        )
        drawn = torch.randn(shape, generator=check_generator("generator", generator))
        self.proxies = nn.Parameter(drawn)
        self.names = NamedClasses(shape[0])

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as rows of the proxies."""
        return self.names.numbers(labels)

    def compared(self, batch: Batch, tuples: Named) -> Compared:
        """The samples that count, and their cosines with all proxies."""
        classes, per_class, dim = self.proxies.shape
        check_columns(batch.frame.dim, dim, classes, "the proxies have")
        own = parameter_rows(batch.labels, batch.label_range, classes, "labels")
        named = self.mined(batch) if tuples is None else tuples
        anchor, rows = torch.arange(len(own), device=own.device), batch.rows[: batch.count]
        real = torch.full_like(own, named is None, dtype=torch.bool)
        if named is not None:
            pairs = as_pairs(named)
            real.index_fill_(0, torch.cat([pairs.anchor, pairs.other]), True)
        if named is not None and on_host(real):
            anchor = real.nonzero().flatten()
            rows, own, real = rows[anchor], own[anchor], real[anchor]
        if rows.is_inference():  # autograd keeps no such tensor for the proxies' gradient
            rows = rows.clone()
        proxies = self.proxies.transpose(0, 1).reshape(-1, dim).to(rows.device, rows.dtype)
        cosine = unit_cosines(rows, proxies).view(len(rows), per_class, classes)
        return Compared(anchor, own, cosine, rows, proxies, real)


def unit_cosines(rows: Tensor, others: Tensor) -> Tensor:
    """Cosines of rows with other rows, on the graph and in their dtype, as 1 - d²/2; 0 of zeros.

    The unit rows are centred in float64 first, so that gradients, which are sums of differences,
    keep their digits where rows and others nearly coincide.

    >>> unit_cosines(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    tensor([[1., 0.]])
    """
    if len(rows) == 0:
        return rows @ others.T
    cosine: Tensor = _UnitCosines.apply(rows, others)  # type: ignore[no-untyped-call]
    return cosine


class _UnitCosines(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, others: Tensor) -> Tensor:
        (a, of_rows), (b, of_others) = _units(rows), _units(others)
        centre = a.mean(0)
        kept = (a - centre, of_rows, b - centre, of_others, centre)
        a, of_rows, b, of_others, centre = (x.to(rows.dtype) for x in kept)
        ctx.save_for_backward(rows, a, of_rows, others, b, of_others, centre)
        # Of a zero row d² = 1 to every unit row: one more makes its cosine 0.
        near = 0.5 * (squared_norms(a) + (of_rows[:, 0] == 0))
        far = 0.5 * (squared_norms(b) + (of_others[:, 0] == 0))
        return torch.addmm(-far, a, b.T).add_(1.0 - near[:, None])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, a, of_rows, others, b, of_others, centre = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            wide = working_dtype(rows)
            again = (unit_rows(rows.to(wide)) @ unit_rows(others.to(wide)).T).to(rows.dtype)
            wanted = [x for x in (rows, others) if x.requires_grad]
            grads = iter(torch.autograd.grad(again, wanted, slope, create_graph=True))
            by_rows, by_others = (next(grads) if x.requires_grad else None for x in (rows, others))
            return by_rows, by_others
        with torch.autocast(slope.device.type, enabled=False):
            of_a = (slope @ b).addcmul_(slope.sum(1, keepdim=True), a, value=-1.0)
            of_b = (slope.T @ a).addcmul_(slope.sum(0)[:, None], b, value=-1.0)
            return _along(of_a, a, centre, of_rows), _along(of_b, b, centre, of_others)


def _units(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows over their norms in the working dtype, and the norms' inverses."""
    wide = rows.to(working_dtype(rows))
    norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    inverse = torch.where(norm > 0, 1.0 / norm, 0.0)  # a zero row stays 0
    return wide * inverse, inverse


def _along(slope: Tensor, centred: Tensor, centre: Tensor, inverse: Tensor) -> Tensor:
    """A gradient by rows `centred + centre` of length 1 as one by the rows given; overwrites it."""
    radial = (slope * centred).sum(1).addmv_(slope, centre)
    slope.addcmul_(radial[:, None], centred, value=-1.0).addr_(radial, centre, alpha=-1.0)
    return slope.mul_(inverse)


def softmax_loss(
    cosine: Tensor, own: Tensor, logit: Tensor, scale: float, *, among: bool = True
) -> Tensor:
    """-log softmax of the own class's `logit` among `scale` times the other classes' cosines.

    `cosine` `[n, m]`, `own` `[n, k]` the columns that are the own class's, `logit` `[n]`. Without
    `among` the sum is over the other classes alone.

    >>> softmax_loss(torch.zeros(1, 3), torch.tensor([[0]]), torch.zeros(1), 1.0)  # log 3
    tensor([1.0986])
    """
    logits = scale * cosine
    if own.shape[1] > 1 or not among:
        logits.scatter_(1, own, -torch.inf)
    if not among:
        return log_sum(logits) - logit
    logits.scatter_(1, own[:, :1], logit[:, None])
    return functional.cross_entropy(logits, own[:, 0], reduction="none")


class NamedClasses(nn.Module):
    """Numbers names 0 to `size` - 1 as they first come; numbers stay what they are.

    The names of one batch are numbered in their order, so that its rows may come in any. What was
    numbered is part of the state, so that a restored loss finds the same rows again. Processes that
    train together see different batches first: there names are refused.

    >>> classes = NamedClasses(3)
    >>> classes.numbers(["b", "a", "b"]), classes.numbers(["c", "a"]), classes.numbers([7])
    (tensor([1, 0, 1]), tensor([2, 0]), [7])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.known: dict[str | int, int] = {}

    def numbers(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as the rows of the parameter."""
        if labels is None or isinstance(labels, Tensor):
            return labels
        array = label_array(labels)
        if array.dtype.kind in "iufb":
            return labels
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            given = "names, in one of several processes"
            raise InputError("labels", given, f"whole numbers in 0..{self.size - 1}")
        names = [n if isinstance(n, str | int) else str(n) for n in array.tolist()]
        fresh = sorted(set(names) - set(self.known), key=lambda name: (str(type(name)), name))
        if len(self.known) + len(fresh) > self.size:
            given = f"{len(self.known) + len(fresh)} names so far, {fresh[-1]!r} among them"
            raise InputError("labels", given, f"at most {self.size} classes, as the loss has")
        self.known |= {name: number for number, name in enumerate(fresh, len(self.known))}
        return torch.tensor([self.known[name] for name in names])

    def get_extra_state(self) -> Tensor:
        """The names in their order, as the bytes of JSON: a state of tensors goes everywhere."""
        text = json.dumps(list(self.known)) if self.known else ""
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Take over the names of a saved loss."""
        names = json.loads(bytes(state.tolist())) if len(state) else []
        self.known = {name: number for number, name in enumerate(names)}


def check_columns(given: int, dim: int, classes: int, of: str) -> None:
    """Raise unless embeddings have as many columns as the parameter.

    >>> check_columns(10, 4, 10, "the proxies have")
    Traceback (most recent call last):
    uncollapse._base.check.InputError: embeddings: expected 4 as the proxies have (dim), got 10
    columns (logits, one per class? the loss takes what comes before them)
    """
    if given != dim:
        hint = " (logits, one per class? the loss takes what comes before them)" * (
            given == classes
        )
        raise InputError("embeddings", f"{given} columns{hint}", f"{dim} as {of} (dim)")


def parameter_rows(
    numbers: Tensor | None, span: tuple[int, int] | None, size: int, name: str
) -> Tensor:
    """Numbers that index a parameter, all in 0 to `size` - 1, or raise."""
    allowed = f"whole numbers in 0..{size - 1}, one for each row"
    if numbers is None or span is None:
        raise InputError(name, None if numbers is None else "names", allowed)
    if not 0 <= span[0] <= span[1] < size:
        raise InputError(name, f"{span[0]}..{span[1]}", allowed)
    return numbers
