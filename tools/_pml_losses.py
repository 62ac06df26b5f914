"""Our losses under PML's names, by constructors that take PML's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pytorch_metric_learning import distances, reducers
from torch import Tensor, nn

import uncollapse as uc
from _pml_aliases import LEFT, NotOffered

__all__ = ["LOSSES"]

EVERY = uc.Miner("all", "all")


class _Columns:
    """Learned class vectors as PML has them: a column each, or a row each."""

    def __init__(self, *, columns: bool) -> None:
        self.columns = columns

    def __get__(self, holder: Any, owner: type | None = None) -> Tensor:
        flat = holder.wrapped.proxies.flatten(0, 1)
        return flat.T if self.columns else flat

    def __set__(self, holder: Any, value: Tensor) -> None:
        proxies = holder.wrapped.proxies
        flat = value.detach().T if self.columns else value.detach()
        holder.wrapped.proxies = nn.Parameter(flat.reshape(proxies.shape).clone())


_PARTS = {
    "W": _Columns(columns=True),
    "fc": _Columns(columns=True),
    "proxies": _Columns(columns=False),
}


def _behind(name: str, loss: Any, part: str | None = None) -> nn.Module:
    """The loss behind `as_pml`, by PML's name, with PML's name for its class vectors."""
    made: Any = uc.as_pml(loss)
    plain = type(made).forward

    def forward(self: Any, embeddings: Tensor, *args: Any, **options: Any) -> Tensor:
        if part is not None:  # PML's vectors take the dtype of the embeddings
            loss.proxies.data = loss.proxies.data.to(embeddings.dtype)
        value: Tensor = plain(self, embeddings, *args, **options)
        return value.to(embeddings.dtype)  # ours is float32 where the embeddings are float16

    def assign(self: Any, asked: str, value: Any) -> None:
        (object if asked == part else nn.Module).__setattr__(self, asked, value)

    def missing(self: Any, asked: str) -> Any:
        if part is not None and asked in ("get_logits", "get_outliers"):
            LEFT.append(f"`{asked}`")
            peer = self.peer()
            setattr(peer, part, nn.Parameter(getattr(self, part).detach().clone()))
            return getattr(peer, asked)
        if asked == "beta":
            return loss.beta
        return nn.Module.__getattr__(self, asked)

    body: dict[str, Any] = {"forward": forward, "__getattr__": missing, "__setattr__": assign}
    if part is not None:
        body[part] = _PARTS[part]
    made.__class__ = type(name, (type(made),), body)
    return made  # type: ignore[no-any-return]


def _distance(given: Any, *, cosine: bool) -> dict[str, Any]:
    """`normalize` and `distance`; `cosine` for losses that have no other."""
    if given is None:
        return {} if cosine else {"normalize": True}
    if isinstance(given, distances.CosineSimilarity):
        return {} if cosine else {"distance": "cosine"}
    if cosine or not isinstance(given, distances.LpDistance) or given.p != 2:
        raise NotOffered(f"distance {type(given).__name__}")
    square = {"distance": "squared"} if given.power == 2 else {}
    return {"normalize": given.normalize_embeddings, **square}


def _reduction(given: Any, default: str = "nonzero") -> dict[str, str]:
    if given is None:
        return {"reduction": default}
    words = {reducers.MeanReducer: "mean", reducers.AvgNonZeroReducer: "nonzero"}
    if type(given) not in words:
        raise NotOffered(f"reducer {type(given).__name__}")
    return {"reduction": words[type(given)]}


def triplet(
    margin: float = 0.05,
    swap: bool = False,
    smooth_loss: bool = False,
    distance: Any = None,
    reducer: Any = None,
) -> nn.Module:
    options = _distance(distance, cosine=False) | _reduction(reducer)
    loss = uc.TripletLoss(margin=margin, swap=swap, soft=smooth_loss, **options)
    return _behind("TripletMarginLoss", loss)


def contrastive(
    pos_margin: float = 0.0, neg_margin: float = 1.0, distance: Any = None, reducer: Any = None
) -> nn.Module:
    options = _distance(distance, cosine=False) | _reduction(reducer)
    if options.get("distance") == "cosine":
        if (pos_margin, neg_margin) == (0.0, 1.0):  # its defaults, the same for either distance
            raise NotOffered("margins of a cosine outside [0, 1] of 1 - cosine")
        pos_margin, neg_margin = 1 - pos_margin, 1 - neg_margin
        if pos_margin < 0:
            raise NotOffered("a positive margin below 0: of a cosine, above 1")
    loss = uc.ContrastiveLoss(pos_margin=pos_margin, margin=neg_margin, **options)
    return _behind("ContrastiveLoss", loss)


def margin(
    margin: float = 0.2,
    nu: float = 0,
    beta: float = 1.2,
    triplets_per_anchor: Any = "all",
    learn_beta: bool = False,
    num_classes: int | None = None,
) -> nn.Module:
    per = {} if num_classes is None else {"beta_per": "class", "size": num_classes}
    loss = uc.MarginLoss(
        margin=margin, nu=nu, beta=beta, learn_beta=learn_beta, normalize=True, miner=EVERY, **per
    )
    return _behind("MarginLoss", loss)


def multi_similarity(alpha: float = 2, beta: float = 50, base: float = 0.5) -> nn.Module:
    return _behind("MultiSimilarityLoss", uc.MultiSimilarityLoss(alpha=alpha, beta=beta, base=base))


def n_pairs(embedding_regularizer: Any = None, embedding_reg_weight: float = 1.0) -> nn.Module:
    if embedding_regularizer is not None:
        raise NotOffered(f"{type(embedding_regularizer).__name__} of all embeddings")
    return _behind("NPairsLoss", uc.losses.NPairLoss(normalize=True))


def nt_xent(temperature: float = 0.07, distance: Any = None, reducer: Any = None) -> nn.Module:
    _distance(distance, cosine=True)
    if _reduction(reducer, "mean")["reduction"] != "mean":
        raise NotOffered("reducer AvgNonZeroReducer")
    return _behind("NTXentLoss", uc.NTXentLoss(temperature=temperature))


def sup_con(temperature: float = 0.1, distance: Any = None, reducer: Any = None) -> nn.Module:
    _distance(distance, cosine=True)
    _reduction(reducer)
    return _behind("SupConLoss", uc.SupConLoss(temperature=temperature))


def circle(m: float = 0.4, gamma: float = 80) -> nn.Module:
    return _behind("CircleLoss", uc.CircleLoss(margin=m, gamma=gamma, reduction="nonzero"))


def smooth_ap(temperature: float = 0.01) -> nn.Module:
    return _behind("SmoothAPLoss", uc.losses.SmoothAPLoss(temperature=temperature))


def _sizes(num_classes: int, embedding_size: int) -> dict[str, int]:
    return {"num_classes": num_classes, "dim": embedding_size}


def proxy_nca(num_classes: int, embedding_size: int, softmax_scale: float = 1) -> nn.Module:
    loss = uc.ProxyNCALoss(
        **_sizes(num_classes, embedding_size),
        scale=math.sqrt(softmax_scale),
        exclude_positive=False,
    )
    return _behind("ProxyNCALoss", loss, "proxies")


def proxy_anchor(
    num_classes: int, embedding_size: int, margin: float = 0.1, alpha: float = 32
) -> nn.Module:
    sizes = _sizes(num_classes, embedding_size)
    return _behind(
        "ProxyAnchorLoss", uc.ProxyAnchorLoss(**sizes, margin=margin, alpha=alpha), "proxies"
    )


def arcface(
    num_classes: int, embedding_size: int, margin: float = 28.6, scale: float = 64
) -> nn.Module:
    sizes = _sizes(num_classes, embedding_size)
    loss = uc.ArcFaceLoss(**sizes, margin=math.radians(margin), scale=scale)
    return _behind("ArcFaceLoss", loss, "W")


def sub_center_arcface(
    num_classes: int,
    embedding_size: int,
    margin: float = 28.6,
    scale: float = 64,
    sub_centers: int = 3,
) -> nn.Module:
    sizes = _sizes(num_classes, embedding_size)
    loss = uc.ArcFaceLoss(
        **sizes, margin=math.radians(margin), scale=scale, sub_centers=sub_centers
    )
    return _behind("SubCenterArcFaceLoss", loss, "W")


def cosface(
    num_classes: int, embedding_size: int, margin: float = 0.35, scale: float = 64
) -> nn.Module:
    sizes = _sizes(num_classes, embedding_size)
    return _behind("CosFaceLoss", uc.CosFaceLoss(**sizes, margin=margin, scale=scale), "W")


def soft_triple(
    num_classes: int,
    embedding_size: int,
    centers_per_class: int = 10,
    la: float = 20,
    gamma: float = 0.1,
    margin: float = 0.01,
    weight_regularizer: Any = None,
    weight_reg_weight: float = 1.0,
) -> nn.Module:
    loss = uc.losses.SoftTripleLoss(
        **_sizes(num_classes, embedding_size),
        centers_per_class=centers_per_class,
        la=la,
        gamma=gamma,
        margin=margin,
        tau=0.0 if weight_regularizer is None else weight_reg_weight,
    )
    return _behind("SoftTripleLoss", loss, "fc")


LOSSES: dict[str, Callable[..., nn.Module]] = {
    "ArcFaceLoss": arcface,
    "CircleLoss": circle,
    "ContrastiveLoss": contrastive,
    "CosFaceLoss": cosface,
    "MarginLoss": margin,
    "MultiSimilarityLoss": multi_similarity,
    "NPairsLoss": n_pairs,
    "NTXentLoss": nt_xent,
    "ProxyAnchorLoss": proxy_anchor,
    "ProxyNCALoss": proxy_nca,
    "SmoothAPLoss": smooth_ap,
    "SoftTripleLoss": soft_triple,
    "SubCenterArcFaceLoss": sub_center_arcface,
    "SupConLoss": sup_con,
    "TripletMarginLoss": triplet,
}
