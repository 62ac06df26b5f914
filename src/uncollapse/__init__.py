"""uncollapse: train embeddings that don't collapse.

What a user types most is here (`uc.Miner`, `uc.TripletLoss`, `uc.diagnose`); everything else is in
its package (`uc.geometry.best_isometry`). Names are loaded when first used, so that the command
line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from uncollapse._base.extras import home_of, lazy_names
from uncollapse._version import __version__ as __version__

if TYPE_CHECKING:
    from uncollapse import papers as papers
    from uncollapse import sweep as sweep
    from uncollapse.data import load as load
    from uncollapse.distances import pairwise_distances as pairwise_distances
    from uncollapse.geometry import diameter as diameter
    from uncollapse.health import CollapseMonitor as CollapseMonitor
    from uncollapse.health import Guard as Guard
    from uncollapse.health import Health as Health
    from uncollapse.health import drift as drift
    from uncollapse.health import forecast as forecast
    from uncollapse.health import measure as measure
    from uncollapse.health import mode_drift as mode_drift
    from uncollapse.health import probe as probe
    from uncollapse.health import watch as watch
    from uncollapse.integrations import SentenceLoss as SentenceLoss
    from uncollapse.losses import ArcFaceLoss as ArcFaceLoss
    from uncollapse.losses import CircleLoss as CircleLoss
    from uncollapse.losses import ContrastiveLoss as ContrastiveLoss
    from uncollapse.losses import CosFaceLoss as CosFaceLoss
    from uncollapse.losses import CrossBatchMemory as CrossBatchMemory
    from uncollapse.losses import IdentityLoss as IdentityLoss
    from uncollapse.losses import Loss as Loss
    from uncollapse.losses import MarginLoss as MarginLoss
    from uncollapse.losses import MultipleNegativesRankingLoss as MultipleNegativesRankingLoss
    from uncollapse.losses import MultiSimilarityLoss as MultiSimilarityLoss
    from uncollapse.losses import NTXentLoss as NTXentLoss
    from uncollapse.losses import ProxyAnchorLoss as ProxyAnchorLoss
    from uncollapse.losses import ProxyNCALoss as ProxyNCALoss
    from uncollapse.losses import SupConLoss as SupConLoss
    from uncollapse.losses import TripletLoss as TripletLoss
    from uncollapse.losses import as_pml as as_pml
    from uncollapse.metrics import clustering as clustering
    from uncollapse.metrics import confidence as confidence
    from uncollapse.metrics import reid as reid
    from uncollapse.metrics import retrieval as retrieval
    from uncollapse.metrics import suspect_labels as suspect_labels
    from uncollapse.metrics import verification as verification
    from uncollapse.mining import Miner as Miner
    from uncollapse.report import diagnose as diagnose
    from uncollapse.samplers import PKSampler as PKSampler
    from uncollapse.samplers import check_batches as check_batches
    from uncollapse.training import Config as Config
    from uncollapse.training import Run as Run
    from uncollapse.training import embed as embed
    from uncollapse.training import evaluate as evaluate
    from uncollapse.training import load_config as load_config
    from uncollapse.training import train as train

_HOMES = {
    "data": "load",
    "distances": "pairwise_distances",
    "geometry": "diameter",
    "health": "CollapseMonitor Guard Health drift forecast measure mode_drift probe watch",
    "integrations": "SentenceLoss",
    "losses": "ArcFaceLoss CircleLoss ContrastiveLoss CosFaceLoss CrossBatchMemory IdentityLoss "
    "Loss MarginLoss MultiSimilarityLoss MultipleNegativesRankingLoss NTXentLoss "
    "ProxyAnchorLoss ProxyNCALoss SupConLoss TripletLoss as_pml",
    "metrics": "clustering confidence reid retrieval suspect_labels verification",
    "mining": "Miner",
    "report": "diagnose",
    "samplers": "PKSampler check_batches",
    "training": "Config Run embed evaluate load_config train",
}
_HOME_OF = home_of(_HOMES)
_load = lazy_names(__name__, _HOMES)
_PACKAGES = (*_HOMES, "backbones", "noise", "papers", "sweep")


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return import_module(f"uncollapse.{name}")
    if name == "__all__":
        return __dir__()
    if name not in _HOME_OF:
        raise AttributeError(f"module 'uncollapse' has no attribute {name!r}{_hint(name)}")
    return _load(name)


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOME_OF])


def _hint(name: str) -> str:
    """Where a public name is that is not at the top."""
    for package in _PACKAGES if not name.startswith("_") else ():
        if name in getattr(import_module(f"uncollapse.{package}"), "__all__", ()):
            return f"; it is uncollapse.{package}.{name}"
    return ""
