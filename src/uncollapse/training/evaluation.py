"""Embed a dataset and judge it: EPS §5 and what re-identification reports, in one flat dict."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from uncollapse.data import LabelledImages
from uncollapse.metrics import clustering
from uncollapse.training.distributed import ALONE, Ranks, gather, shared_retrieval
from uncollapse.training.run_sections import EvaluateConfig

__all__ = ["embed", "evaluate", "evenly_spaced"]


@torch.no_grad()
def embed(
    model: nn.Module,
    data: LabelledImages,
    *,
    batch: int = 256,
    progress: Callable[[int, int], None] | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Embeddings `[N, dim]` of all samples, on the CPU, with the network in evaluation mode.

    The network's mode is restored. `progress(done, total)` is called after each batch. On several
    ranks each embeds some of the batches, the same batches as one process, and all get the whole.
    """
    parameter = next(model.parameters(), torch.empty(0))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    starts = range(0, len(data), batch)
    if len(starts) < ranks.size:  # too little to share out
        ranks = ALONE
    parts = []
    try:
        for start in starts[ranks.share(len(starts))]:
            images, _ = data[start : start + batch]
            parts.append(model(images.to(parameter.device)).float().cpu())
            if progress is not None:
                progress(min(start + batch, len(data)), len(data))
    finally:
        for module, training in modes.items():
            module.training = training
    return gather(torch.cat(parts), ranks)


def evaluate(
    embeddings: Tensor,
    data: LabelledImages,
    settings: EvaluateConfig | None = None,
    *,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Recall@k, MAP@R and, if asked, NMI by labels; with fine labels the same again by those.

    Keys are `recall@1`, `map@r`, `nmi`, ... and `fine/recall@1`, ... for the fine labels. Several
    ranks, each with all embeddings, share the retrieval and get its result; NMI is rank 0's work.
    """
    settings = settings or EvaluateConfig()
    rows = evenly_spaced(len(data), settings.max_samples)
    z = embeddings[rows]
    kinds = {"": data.labels[rows]}
    if data.fine_labels is not None:
        kinds["fine/"] = data.fine_labels[rows]
    found: dict[str, float] = {}
    for prefix, labels in kinds.items():
        by_name = shared_retrieval(z, labels, ranks, ks=settings.ks).to_dict()
        names = [f"recall@{k}" for k in settings.ks] + ["map@r"]
        found |= {prefix + name: float(by_name[name]) for name in names}
        if settings.clustering:
            found[prefix + "nmi"] = ranks.on_first(partial(_nmi, z, labels, settings.multiplier))
    return found


def evenly_spaced(count: int, most: int | None) -> Tensor:
    """At most `most` rows of `count`, the same ones every time.

    >>> evenly_spaced(10, 4).tolist()
    [0, 3, 6, 9]
    """
    if most is None or count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most).round().long()


def _nmi(z: Tensor, labels: Tensor, multiplier: int) -> float:
    return float(clustering(z, labels, multiplier=multiplier).to_dict()["nmi"])
