"""Mining: which triplets of a batch a loss sees (HNM §2.1, EPS §4.3)."""

from uncollapse.mining.false_negatives import FalseNegatives
from uncollapse.mining.miner import Miner, NoTripletsWarning
from uncollapse.mining.tuples import Pairs, Triplets, as_pairs, as_triplets, hardest_triplet

__all__ = [
    "FalseNegatives",
    "Miner",
    "NoTripletsWarning",
    "Pairs",
    "Triplets",
    "as_pairs",
    "as_triplets",
    "hardest_triplet",
]
