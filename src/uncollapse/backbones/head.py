"""From features to embeddings: global average pooling and a linear layer, EPS appendix C."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["Embedder", "Head"]


class Head(nn.Module):
    """Global average pooling of feature maps, a linear layer to `dim`, optionally the L2 norm.

    Vectors are not pooled. `dim=None` leaves out the linear layer.

    >>> import torch
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
        if x.ndim == 4:
            x = x.mean(dim=(2, 3))
        z: Tensor = self.linear(x)
        return nn.functional.normalize(z, dim=1) if self.normalize else z


class Embedder(nn.Module):
    """A backbone and its head; `dim` is the embedding dimension.

    >>> import torch
    >>> model = Embedder(nn.Flatten(), Head(4, 2), dim=2)
    >>> tuple(model(torch.zeros(3, 1, 2, 2)).shape)
    (3, 2)
    """

    def __init__(self, trunk: nn.Module, head: Head, dim: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.dim = dim

    def forward(self, images: Tensor) -> Tensor:
        """`[B, ...]` samples to `[B, dim]` embeddings."""
        z: Tensor = self.head(self.trunk(images))
        return z
