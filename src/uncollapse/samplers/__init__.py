"""Samplers: which samples share a batch (HNM §4, appendix D), and a linter for batches."""

from uncollapse.samplers.batch_check import BatchReport, check_batches, mode_chance
from uncollapse.samplers.batches import PKSampler, UniformBatchSampler

__all__ = ["BatchReport", "PKSampler", "UniformBatchSampler", "check_batches", "mode_chance"]
