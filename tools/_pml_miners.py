"""Our miners under PML's names, by constructors that take PML's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytorch_metric_learning import distances
from torch import Tensor, nn
from torch.nn import functional

import uncollapse as uc
from _pml_aliases import NotOffered
from uncollapse.mining import as_pairs

__all__ = ["MINERS"]


def _mined(miner: uc.Miner, distance: Any, *, ordered: bool, pairs: bool = False) -> nn.Module:
    """The miner behind `as_pml`; `ordered` if only the order of distances counts."""
    plain = distance is not None and not isinstance(distance, distances.CosineSimilarity)
    if plain and (not isinstance(distance, distances.LpDistance) or distance.p != 2):
        raise NotOffered(f"distance {type(distance).__name__}")
    if not ordered and distance is not None and (not plain or distance.power != 1):
        raise NotOffered("a margin of anything but Euclidean distances")
    normalized = not plain or distance.normalize_embeddings
    made: Any = uc.as_pml(miner)
    plain_forward = type(made).forward

    def forward(
        self: Any,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Any:
        given = [None if x is None else functional.normalize(x) for x in (embeddings, ref_emb)]
        x, ref = given if normalized else (embeddings, ref_emb)
        found = plain_forward(self, x, labels, ref, ref_labels)
        return as_pairs(found, unique=True) if pairs else found

    def mine(self: Any, x: Tensor, labels: Tensor, ref: Tensor, ref_labels: Tensor) -> Any:
        return self(x, labels) if ref is x else self(x, labels, ref, ref_labels)

    made.__class__ = type("Miner", (type(made),), {"forward": forward, "mine": mine})
    return made  # type: ignore[no-any-return]


def batch_hard(distance: Any = None) -> nn.Module:
    return _mined(uc.Miner("hard", "hard"), distance, ordered=True)


def batch_easy_hard(
    pos_strategy: str = "easy",
    neg_strategy: str = "semihard",
    allowed_pos_range: Any = None,
    allowed_neg_range: Any = None,
    distance: Any = None,
) -> nn.Module:
    if allowed_pos_range is not None or allowed_neg_range is not None:
        raise NotOffered("a range of allowed distances")
    if "semihard" in (pos_strategy, neg_strategy) and {pos_strategy, neg_strategy} & {"all"}:
        raise NotOffered("an error for semi-hard beside all")
    if pos_strategy == neg_strategy == "semihard":
        raise NotOffered("an error for semi-hard beside semi-hard")
    if pos_strategy == "semihard":
        miner = uc.Miner("inside", neg_strategy, keep="semihard", margin=4)
    else:
        miner = uc.Miner(pos_strategy, neg_strategy)
    return _mined(miner, distance, ordered=True, pairs=True)


def multi_similarity_miner(epsilon: float = 0.1, distance: Any = None) -> nn.Module:
    if distance is not None and not isinstance(distance, distances.CosineSimilarity):
        raise NotOffered(f"distance {type(distance).__name__}")
    miner = uc.Miner("multi_similarity", "multi_similarity", epsilon=epsilon)
    return _mined(miner, None, ordered=True, pairs=True)


def triplet_margin_miner(
    margin: float = 0.2, type_of_triplets: str = "all", distance: Any = None
) -> nn.Module:
    kept = {"all": "violating"}.get(type_of_triplets, type_of_triplets)
    if kept == "easy" or margin < 0:
        raise NotOffered("triplets outside the margin, or a margin below 0")
    return _mined(uc.Miner("all", "all", margin=margin, keep=kept), distance, ordered=False)


MINERS: dict[str, Callable[..., nn.Module]] = {
    "BatchHardMiner": batch_hard,
    "BatchEasyHardMiner": batch_easy_hard,
    "MultiSimilarityMiner": multi_similarity_miner,
    "TripletMarginMiner": triplet_margin_miner,
}
