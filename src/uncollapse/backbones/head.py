"""From features to embeddings: global average pooling and a linear layer, EPS appendix C."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError

__all__ = ["Embedder", "Front", "Head", "pooled"]


class Head(nn.Module):
    """Global average pooling of feature maps, a linear layer to `dim`, optionally the L2 norm.

    Vectors are not pooled. `dim=None` leaves out the linear layer.

    >>> head = Head(features=8, dim=2, normalize=True)
    >>> z = head(torch.randn(3, 8, 5, 5, generator=torch.Generator().manual_seed(0)))
    >>> tuple(z.shape), bool(torch.allclose(z.norm(dim=1), torch.ones(3)))
    ((3, 2), True)
    """

    def __init__(self, features: int, dim: int | None, *, normalize: bool = False) -> None:
        super().__init__()
        self.linear = nn.Identity() if dim is None else nn.Linear(features, dim)
        self.normalize = normalize

    def forward(self, x: Tensor) -> Tensor:
        """`[B, features]` or `[B, features, h, w]` to `[B, dim]`."""
        z: Tensor = self.linear(pooled(x))
        return nn.functional.normalize(z, dim=1) if self.normalize else z

    @torch.no_grad()
    def start_from_axes(self, features: Tensor) -> None:
        """Let the linear layer give the principal axes of these features, `[n, features]`.

        They are centred, so the embedding is the best of its dimension that is linear. Raises
        `InputError` where there are fewer axes than dimensions.

        >>> head = Head(3, 1)
        >>> head.start_from_axes(torch.tensor([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0]]))
        >>> head(torch.tensor([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0]])).flatten().abs().tolist()
        [1.0, 1.0]
        """
        if not isinstance(self.linear, nn.Linear):
            raise InputError("head", "'pca' without a linear layer", "a head with one")
        x = features.double()
        dim, most = self.linear.out_features, min(len(x) - 1, x.shape[1])
        if dim > most:
            raise InputError("dim", dim, f"at most {most}, the principal axes of these features")
        mean = x.mean(dim=0)
        axes = torch.linalg.eigh((x - mean).T @ (x - mean))[1].flip(1)[:, :dim].T
        self.linear.weight.copy_(axes)
        self.linear.bias.copy_(-axes @ mean)


class Front(nn.Module):
    """The part of a network that does not train: evaluation mode for ever, no gradients.

    `shape` is that of its features, by which an `Embedder` knows samples that went through it.
    """

    def __init__(self, stages: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.stages, self.shape = stages.requires_grad_(False), shape
        self.train()

    def train(self, mode: bool = True) -> Front:
        """Stay in evaluation mode, whatever is asked."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, samples: Tensor) -> Tensor:
        """`[B, ...]` samples to `[B, *shape]` features."""
        x = self.stages(samples)
        out: Tensor = pooled(x) if len(self.shape) == 1 else x
        return out

    def made(self, x: Tensor) -> bool:
        """Whether these are features already."""
        return x.is_floating_point() and tuple(x.shape[1:]) == self.shape


class Embedder(nn.Module):
    """A backbone and its head; `dim` is the embedding dimension.

    With a `front`, samples go through that first, or come as features that it has made before.

    >>> model = Embedder(nn.Flatten(), Head(4, 2), dim=2)
    >>> tuple(model(torch.zeros(3, 1, 2, 2)).shape)
    (3, 2)
    """

    def __init__(self, trunk: nn.Module, head: Head, dim: int, front: Front | None = None) -> None:
        super().__init__()
        self.front = front
        self.trunk = trunk
        self.head = head
        self.dim = dim

    def forward(self, samples: Tensor) -> Tensor:
        """`[B, ...]` samples, or features of the front, to `[B, dim]` embeddings."""
        z: Tensor = self.head(self.features(samples))
        return z

    def features(self, samples: Tensor) -> Tensor:
        """What the head is given."""
        if self.front is not None and not self.front.made(samples):
            samples = self.front(samples)
        x: Tensor = self.trunk(samples)
        return x


def pooled(x: Tensor) -> Tensor:
    """Feature maps as their means; vectors as they are."""
    return x.mean(dim=(2, 3)) if x.ndim == 4 else x
