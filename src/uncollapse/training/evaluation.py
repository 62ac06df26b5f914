"""Embed a dataset and judge it: EPS §5 and what re-identification reports, in one flat dict."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from uncollapse.data import LabelledImages
from uncollapse.metrics import clustering, retrieval
from uncollapse.training.config import EvaluateConfig

__all__ = ["embed", "evaluate", "evenly_spaced"]


@torch.no_grad()
def embed(
    model: nn.Module,
    data: LabelledImages,
    *,
    batch: int = 256,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Embeddings `[N, dim]` of all samples, on the CPU, with the network in evaluation mode.

    The network's mode is restored. `progress(done, total)` is called after each batch.
    """
    parameter = next(model.parameters(), torch.empty(0))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    parts = []
    try:
        for start in range(0, len(data), batch):
            images, _ = data[start : start + batch]
            parts.append(model(images.to(parameter.device)).float().cpu())
            if progress is not None:
                progress(min(start + batch, len(data)), len(data))
    finally:
        for module, training in modes.items():
            module.training = training
    return torch.cat(parts)


def evaluate(
    embeddings: Tensor, data: LabelledImages, settings: EvaluateConfig | None = None
) -> dict[str, float]:
    """Recall@k, MAP@R and, if asked, NMI by labels; with fine labels the same again by those.

    Keys are `recall@1`, `map@r`, `nmi`, ... and `fine/recall@1`, ... for the fine labels.
    """
    settings = settings or EvaluateConfig()
    rows = evenly_spaced(len(data), settings.max_samples)
    z = embeddings[rows]
    kinds = {"": data.labels[rows]}
    if data.fine_labels is not None:
        kinds["fine/"] = data.fine_labels[rows]
    found: dict[str, float] = {}
    for prefix, labels in kinds.items():
        by_name = retrieval(z, labels, ks=settings.ks, progress=False).to_dict()
        names = [f"recall@{k}" for k in settings.ks] + ["map@r"]
        found |= {prefix + name: float(by_name[name]) for name in names}
        if settings.clustering:
            result = clustering(z, labels, multiplier=settings.multiplier).to_dict()
            found[prefix + "nmi"] = float(result["nmi"])
    return found


def evenly_spaced(count: int, most: int | None) -> Tensor:
    """At most `most` rows of `count`, the same ones every time.

    >>> evenly_spaced(10, 4).tolist()
    [0, 3, 6, 9]
    """
    if most is None or count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most).round().long()
