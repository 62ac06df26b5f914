"""uncollapse: train embeddings that don't collapse.

What a user types most is here (`uc.Miner`, `uc.TripletLoss`, `uc.diagnose`); everything else is in
its package (`uc.geometry.best_isometry`). Names are loaded when first used, so that the command
line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from uncollapse._base.extras import home_of
from uncollapse._version import __version__

if TYPE_CHECKING:
    from uncollapse.data import LabelledImages, load
    from uncollapse.distances import paired_distances, pairwise_distances
    from uncollapse.geometry import (
        class_diameters,
        diameter,
        diameter_lower_bound,
        hard_mined_loss,
        hausdorff_like,
        isometric_error,
        nearest_separated,
        separation,
        thickness,
    )
    from uncollapse.health import (
        CollapseMonitor,
        Guard,
        Health,
        RunSettings,
        SentenceLoss,
        Thresholds,
        drift,
        drift_table,
        forecast,
        measure,
        mode_drift,
        noise_probe,
        probe,
    )
    from uncollapse.losses import (
        ArcFaceLoss,
        CircleLoss,
        ColumnLoss,
        Columns,
        ContrastiveLoss,
        CosFaceLoss,
        CrossBatchMemory,
        IdentityLoss,
        Loss,
        MarginLoss,
        MultipleNegativesRankingLoss,
        MultiSimilarityLoss,
        NPairLoss,
        NTXentLoss,
        ProxyAnchorLoss,
        ProxyNCALoss,
        SmoothAPLoss,
        SoftTripleLoss,
        SpreadLoss,
        SupConLoss,
        TrimmedLoss,
        TripletLoss,
        as_pml,
        join_columns,
    )
    from uncollapse.metrics import (
        clustering,
        confidence,
        kmeans,
        modes_per_class,
        reid,
        retrieval,
        suspect_labels,
        verification,
    )
    from uncollapse.mining import FalseNegatives, Miner
    from uncollapse.report import Diagnosis, diagnose
    from uncollapse.samplers import PKSampler, UniformBatchSampler, check_batches
    from uncollapse.training import (
        Config,
        Run,
        embed,
        evaluate,
        keep_memory,
        load_config,
        parse_config,
        train,
    )

_HOMES = {
    "data": "LabelledImages load",
    "distances": "paired_distances pairwise_distances",
    "geometry": "class_diameters diameter diameter_lower_bound hard_mined_loss hausdorff_like "
    "isometric_error nearest_separated separation thickness",
    "health": "CollapseMonitor Guard Health RunSettings SentenceLoss Thresholds drift drift_table "
    "forecast measure mode_drift noise_probe probe",
    "losses": "ArcFaceLoss CircleLoss ColumnLoss Columns ContrastiveLoss CosFaceLoss "
    "CrossBatchMemory IdentityLoss Loss MarginLoss MultiSimilarityLoss "
    "MultipleNegativesRankingLoss NPairLoss NTXentLoss ProxyAnchorLoss ProxyNCALoss SmoothAPLoss "
    "SoftTripleLoss SpreadLoss SupConLoss TrimmedLoss TripletLoss as_pml join_columns",
    "metrics": "clustering confidence kmeans modes_per_class reid retrieval suspect_labels "
    "verification",
    "mining": "FalseNegatives Miner",
    "report": "Diagnosis diagnose",
    "samplers": "PKSampler UniformBatchSampler check_batches",
    "training": "Config Run embed evaluate keep_memory load_config parse_config train",
}
_HOME_OF = home_of(_HOMES)
_PACKAGES = (*_HOMES, "backbones", "noise", "papers", "sweep")


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return import_module(f"uncollapse.{name}")
    if name == "__all__":
        return __dir__()
    if name not in _HOME_OF:
        raise AttributeError(f"module 'uncollapse' has no attribute {name!r}{_hint(name)}")
    value: object = getattr(import_module(f"uncollapse.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOME_OF])


def _hint(name: str) -> str:
    """Where a public name is that is not at the top."""
    for package in _PACKAGES if not name.startswith("_") else ():
        if name in getattr(import_module(f"uncollapse.{package}"), "__all__", ()):
            return f"; it is uncollapse.{package}.{name}"
    return ""
