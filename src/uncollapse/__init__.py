"""uncollapse: train embeddings that don't collapse."""

from uncollapse._version import __version__
from uncollapse.distances import paired_distances, pairwise_distances

__all__ = ["__version__", "paired_distances", "pairwise_distances"]
