"""One run in several processes: `torchrun --nproc-per-node N -m uncollapse train run.toml`.

N ranks that hold a share of the batch each give the loss and gradients of one process that holds
it whole; what of a run is not exact is in `docs/scaling.md`.
"""

from uncollapse.training.distributed.gathering import (
    gather,
    share_gradients,
    shared_retrieval,
    sum_gradients,
)
from uncollapse.training.distributed.ranks import (
    ALONE,
    FirstRankError,
    LostRankError,
    Ranks,
    is_first,
    join,
)
from uncollapse.training.distributed.shared_batchnorm import synchronise_batch_norm

__all__ = [
    "ALONE",
    "FirstRankError",
    "LostRankError",
    "Ranks",
    "gather",
    "is_first",
    "join",
    "share_gradients",
    "shared_retrieval",
    "sum_gradients",
    "synchronise_batch_norm",
]
