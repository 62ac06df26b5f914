"""Other packages' trainers and experiment trackers: each is loaded when first used."""

from typing import TYPE_CHECKING

from uncollapse._base.extras import lazy_names

if TYPE_CHECKING:
    from uncollapse.integrations.huggingface import SentenceLoss
    from uncollapse.integrations.loggers import MlflowLogger, TensorBoardLogger, WandbLogger
else:
    _LOGGERS = "MlflowLogger TensorBoardLogger WandbLogger"
    __getattr__ = lazy_names(__name__, {"huggingface": "SentenceLoss", "loggers": _LOGGERS})

__all__ = ["MlflowLogger", "SentenceLoss", "TensorBoardLogger", "WandbLogger"]
