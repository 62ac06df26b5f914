"""Letters of random strokes in an unsteady hand: drawn here, always there, no download."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse.data.listing import DatasetInfo, Listing

SIDE = 20  # pixels
_STROKES, _JOINTS = 3, 3  # three strokes of two lines each
_LETTERS = 12  # of an alphabet
_ALPHABETS = {"train": 10, "val": 10, "test": 4}
_DRAWINGS = {"train": 20, "val": 8, "test": 12}
_SPLITS = tuple(_ALPHABETS)


def listing(info: DatasetInfo, root: object, split: str) -> Listing:
    """Label = alphabet, fine label = letter, of which an alphabet has twelve.

    `train`, and other drawings of the same letters (`val`); `test`: alphabets of other letters.
    """
    new, alphabets = split == "test", _ALPHABETS[split]
    shapes = letter_shapes(alphabets * _LETTERS, _seeded(100 + new))
    images = draw_letters(shapes, _DRAWINGS[split], _seeded(_SPLITS.index(split)))
    first = _ALPHABETS["train"] if new else 0
    letters = torch.arange(first * _LETTERS, (first + alphabets) * _LETTERS)
    fine = letters.repeat_interleave(_DRAWINGS[split])
    return Listing(
        images=(255 * images).round().to(torch.uint8).numpy(),
        labels=(fine // _LETTERS).numpy(),
        fine_labels=fine.numpy(),
        class_names={i: _name(i) for i in range(first, first + alphabets)},
        fine_names={i: f"{_name(i // _LETTERS)}{i % _LETTERS + 1}" for i in letters.tolist()},
        origin=info.comes_with,
    )


def letter_shapes(count: int, generator: torch.Generator) -> Tensor:
    """Joints of the strokes of new letters, `[count, strokes, joints, 2]` in [-0.7, 0.7]."""
    return 1.4 * torch.rand(count, _STROKES, _JOINTS, 2, generator=generator) - 0.7


def draw_letters(shapes: Tensor, drawings: int, generator: torch.Generator) -> Tensor:
    """Each letter `drawings` times, `[letters * drawings, 1, SIDE, SIDE]`, ink in [0, 1].

    Each drawing moves the joints of the strokes, then turns, scales and shifts the letter.
    """
    g, count = generator, len(shapes)
    points = shapes[:, None] + 0.09 * torch.randn(count, drawings, *shapes.shape[1:], generator=g)
    angle, size = torch.randn(2, count, drawings, generator=g) * torch.tensor([[[0.25]], [[0.12]]])
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1)
    turn = turn.view(count, drawings, 1, 1, 2, 2) * size.exp().view(count, drawings, 1, 1, 1, 1)
    points = (turn @ points[..., None])[..., 0]
    points = points + 0.12 * torch.randn(count, drawings, 1, 1, 2, generator=g)
    start, end = points[..., :-1, :].flatten(2, 3), points[..., 1:, :].flatten(2, 3)
    images = torch.cat([_ink(s, e) for s, e in zip(start, end, strict=True)])
    return images.view(-1, 1, SIDE, SIDE)


def _ink(start: Tensor, end: Tensor) -> Tensor:
    """Darkness of each pixel, `[drawings, pixels]`: how near it is to the nearest line."""
    axis = torch.linspace(-1, 1, SIDE)
    pixels = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2)
    along = (end - start)[:, :, None]
    offset = pixels - start[:, :, None]
    share = (offset * along).sum(-1) / along.square().sum(-1).clamp(min=1e-6)
    distance = torch.linalg.vector_norm(offset - share.clamp(0, 1)[..., None] * along, dim=-1)
    ink: Tensor = 1.5 - distance.amin(1) * SIDE / 2.5
    return ink.clamp(0, 1)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _name(alphabet: int) -> str:
    return chr(ord("A") + alphabet)
