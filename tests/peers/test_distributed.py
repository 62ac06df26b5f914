"""PML's wrappers for several processes, around our losses and miners: two processes, by gloo."""

from contextlib import contextmanager

import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.utils import distributed
from torch import multiprocessing

import uncollapse as uc
from peers.pml_page import step

pytestmark = pytest.mark.processes

WORLD = 2


def batch():
    g = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(24, 8, generator=g, dtype=torch.float64), dim=1)
    return x, torch.arange(24) % 4


def both(efficient):
    """`(name, ours, theirs, miner ours, miner theirs)` in the wrappers."""
    pairs = {
        "triplet": (
            uc.TripletLoss(margin=0.3, normalize=True, reduction="nonzero"),
            losses.TripletMarginLoss(0.3),
        ),
        "contrastive": (
            uc.ContrastiveLoss(normalize=True, reduction="nonzero"),
            losses.ContrastiveLoss(),
        ),
        "sup-con": (uc.SupConLoss(), losses.SupConLoss()),
    }
    for name, (loss, peer) in pairs.items():
        for_losses = (uc.as_pml(loss), peer)
        for_miners = (uc.as_pml(uc.Miner("hard", "hard")), miners.BatchHardMiner())
        yield (
            name,
            *(distributed.DistributedLossWrapper(f, efficient=efficient) for f in for_losses),
            *(distributed.DistributedMinerWrapper(f, efficient=efficient) for f in for_miners),
        )


@contextmanager
def group(rank, world, store):
    """A process group that meets in the file `store`: no port to lose to another process."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world
    )
    try:
        yield
        torch.distributed.barrier()  # no rank ends while another still talks to it
    finally:
        torch.distributed.destroy_process_group()


def compare(rank, world):
    x, y = (part.chunk(world)[rank] for part in batch())
    for efficient in (False, True):
        for name, ours, theirs, miner, peer in both(efficient):
            tuples = miner(x, y), peer(x, y)
            for a, b in zip(*tuples, strict=True):
                assert torch.equal(a, b), (name, efficient, "tuples")
            for given in (None, tuples[0]):
                steps = [step(loss, x, y, given) for loss in (ours, theirs)]
                for a, b in zip(*steps, strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
                assert steps[0][0] > 0


def work(rank, world, store):
    with group(rank, world, store):
        compare(rank, world)


@pytest.mark.filterwarnings("ignore")
def test_in_two_processes_losses_and_miners_give_what_pml_s_own_give(tmp_path):
    args = (WORLD, tmp_path / "store")
    multiprocessing.start_processes(work, args=args, nprocs=WORLD, start_method="fork")


@pytest.mark.filterwarnings("ignore")
def test_in_one_process_the_wrappers_change_nothing(tmp_path):
    work(0, 1, tmp_path / "store")


def test_the_wrappers_ask_for_pml_s_classes():
    """If this fails, PML takes any module now, and the page need not speak of `as_pml` there."""
    with pytest.raises(TypeError, match="must extend BaseMetricLossFunction"):
        distributed.DistributedLossWrapper(uc.SupConLoss())
    with pytest.raises(TypeError, match="must extend BaseMiner"):
        distributed.DistributedMinerWrapper(uc.Miner("easy", "hard"))
    with pytest.raises(Exception, match="CrossBatchMemory not supported for TripletLoss"):
        losses.CrossBatchMemory(uc.TripletLoss(), 8)
