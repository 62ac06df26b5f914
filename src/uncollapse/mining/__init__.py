"""Mining: which triplets of a batch a loss sees (HNM §2.1, EPS §4.3)."""

from uncollapse.mining.miner import Miner
from uncollapse.mining.triplets import Triplets

__all__ = ["Miner", "Triplets"]
