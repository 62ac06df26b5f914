"""The adviser's order of strategies: what to try instead of one that shrinks the embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uncollapse.health.run_settings import RunSettings
from uncollapse.health.strategy import Strategy

__all__ = ["GENTLE", "contenders", "rank_strategies"]

GENTLE = ("inside", "easy")  # positives that do not pull to a point, best first
_MARGIN = 0.2
_SLOWER = 1.0 / 3.0


def rank_strategies(own: Strategy, settings: RunSettings | None = None) -> list[Strategy]:
    """The alternatives to a strategy that shrinks the embedding, best first.

    The order is that of the study on real data (docs/choosing.md). A loss without margin, or a soft
    one, gets the margin 0.2 as well: it charges nothing, or everything, once classes are apart.
    Last comes the same strategy at a third of the learning rate.

    >>> first = Strategy("hard", "hard", scale_free=False, margin=0.0, soft=False)
    >>> [str(one) for one in rank_strategies(first)][:3]
    ['inside x hard, scale-free', 'inside x hard', 'easy x hard, scale-free']
    """
    known = settings or RunSettings()
    slower = replace(own, lr_factor=own.lr_factor * _SLOWER)
    base = own if own.scale_free is None else _with_margin(own)
    free = [] if own.scale_free is None else [replace(base, scale_free=base.scale_free or True)]
    if own.positives is None:
        return [one for one in (*free, slower) if one != own]
    # With two samples of a class there is one positive, whatever it is called.
    gentle = list(GENTLE) if known.k != 2 else []
    if own.scale_free is None:
        gentle = gentle[-1:]  # other packages have no inside positives
    elif known.several_modes:
        gentle = gentle[::-1]
    found = [replace(one, positives=p) for p in gentle for one in (*free, base)]
    calm = [own.positives, *["easy"] * ("easy" in gentle)]
    found += [replace(base, positives=p, negatives="semihard") for p in calm]
    return [one for one in dict.fromkeys([*found, *free, slower]) if one != own]


def contenders(own: Strategy, ranked: Sequence[Strategy]) -> list[Strategy]:
    """Of ranked strategies those that a short race may choose from: other positives, no more.

    Semi-hard negatives, and hard positives made scale-free, can look best after a few steps and end
    far behind; they are for runs that have nothing else.

    >>> first = Strategy("hard", "hard", scale_free=False, margin=0.2, soft=False)
    >>> len(contenders(first, rank_strategies(first)))
    4
    """
    plain = [one for one in ranked if one.lr_factor == own.lr_factor]
    mined = [one for one in plain if one.positives != own.positives]
    return [one for one in mined if one.negatives == own.negatives] or plain


def _with_margin(own: Strategy) -> Strategy:
    return replace(own, margin=_MARGIN, soft=False) if own.soft or own.margin == 0 else own
