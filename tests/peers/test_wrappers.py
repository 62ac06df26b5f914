"""Our losses and miners inside PML's wrappers and trainers, beside PML's own in the same place."""

import copy
import pickle

import pytest
import torch
from pytorch_metric_learning import losses, miners, trainers
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import uncollapse as uc
from peers.pml_page import DIM, lines, pml_batch, run, same, step
from support.errors import refused

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")

# Ours and PML's that give the same value on the same tuples: MarginLoss counts pairs otherwise.
PAIRS = pytest.mark.parametrize(
    ("theirs", "ours"), lines("losses.", "num_classes", "NPair", "MarginLoss()", "swap", "nu=")
)


@PAIRS
def test_a_cross_batch_memory_gives_the_value_of_pml_s_own_loss(theirs, ours):
    a = losses.CrossBatchMemory(uc.as_pml(run(ours)), DIM, memory_size=80)
    b = losses.CrossBatchMemory(run(theirs), DIM, memory_size=80)
    for seed in range(3):  # the memory fills up, and then goes round
        x, y = pml_batch(seed=seed)
        same(step(a, x, y), step(b, x, y))


def test_margin_in_a_cross_batch_memory_is_pml_s_where_triplets_are_given():
    """PML makes triplets of the pairs the memory names, so there each pair counts many times."""
    miner = uc.Miner("hard", "hard")
    a = losses.CrossBatchMemory(uc.MarginLoss(normalize=True), DIM, memory_size=80, miner=miner)
    b = losses.CrossBatchMemory(losses.MarginLoss(), DIM, memory_size=80, miner=miner)
    for seed in range(3):
        x, y = pml_batch(seed=seed)
        same(step(a, x, y), step(b, x, y))


def test_a_loss_of_pml_s_name_needs_no_adapter_in_a_memory():
    a, b = (losses.CrossBatchMemory(kind.SupConLoss(), DIM, 80) for kind in (uc, losses))
    same(step(a, *pml_batch()), step(b, *pml_batch()))


def test_our_miner_in_a_cross_batch_memory_chooses_as_pml_s_does():
    x, y = nn.functional.normalize(pml_batch()[0], dim=1), pml_batch()[1]
    a, b = (
        losses.CrossBatchMemory(losses.TripletMarginLoss(0.3), DIM, memory_size=80, miner=miner)
        for miner in (uc.Miner("hard", "hard"), miners.BatchHardMiner())
    )
    for _ in range(3):
        x = nn.functional.normalize(x.roll(1, 0) + 0.1, dim=1)
        same(step(a, x, y), step(b, x, y))


def test_an_easy_positive_in_a_memory_is_the_anchor_itself_for_pml_too():
    """The memory holds the batch; what both miners then name is taken out by the memory."""
    x, y = pml_batch()
    queued = torch.arange(len(x)) % 2 == 0  # with a mask the queue and the anchors are apart
    for miner in (uc.Miner("easy", "hard"), miners.BatchEasyHardMiner("easy", "hard")):
        memory = losses.CrossBatchMemory(losses.TripletMarginLoss(), DIM, 80, miner=miner)
        assert float(memory(x, y)) == 0
        memory = losses.CrossBatchMemory(losses.TripletMarginLoss(2.0), DIM, 80, miner=miner)
        assert float(memory(x, y, enqueue_mask=queued)) > 0


@PAIRS
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_self_supervised_loss_gives_the_value_of_pml_s_own_loss(theirs, ours, symmetric):
    x, again = pml_batch(seed=0)[0], pml_batch()[0]
    a = losses.SelfSupervisedLoss(uc.as_pml(run(ours)), symmetric=symmetric)
    b = losses.SelfSupervisedLoss(run(theirs), symmetric=symmetric)
    same(step(a, x, again), step(b, x, again))


@pytest.mark.parametrize("reduction", ["mean", "nonzero", "max"])
@pytest.mark.parametrize("soft", [False, True])
def test_all_triplets_against_references_are_all_of_them(reduction, soft):
    (x, y), (z, labels) = pml_batch(), pml_batch(16, seed=2)
    loss = uc.TripletLoss(margin=0.3, reduction=reduction, soft=soft)
    every = uc.mining.as_triplets(None, y, labels)
    same(step(loss, x, y, None, z, labels), step(loss, x, y, every, z, labels))


def test_multiple_losses_takes_our_losses_and_miners_with_theirs():
    x, y = nn.functional.normalize(pml_batch()[0], dim=1), pml_batch()[1]
    both = losses.MultipleLosses(
        {"ours": uc.TripletLoss(margin=0.3), "theirs": losses.ContrastiveLoss()},
        miners={"ours": miners.BatchHardMiner(), "theirs": uc.Miner("hard", "hard")},
        weights={"ours": 1.0, "theirs": 0.5},
    )
    hard = miners.BatchHardMiner()(x, y)
    expected = uc.TripletLoss(margin=0.3)(x, y, hard) + 0.5 * losses.ContrastiveLoss()(x, y, hard)
    torch.testing.assert_close(both(x, y), expected)
    listed = losses.MultipleLosses(
        [uc.MarginLoss(), uc.SupConLoss()], miners=[uc.Miner("easy", "hard"), None]
    )
    expected = uc.MarginLoss(miner=uc.Miner("easy", "hard"))(x, y) + uc.SupConLoss()(x, y)
    torch.testing.assert_close(listed(x, y), expected)


class Rows(Dataset):
    """Answers to a list of rows as well, as image datasets may: the worst case for `sampler=`."""

    def __init__(self, labels):
        self.labels = torch.as_tensor(labels)
        self.x = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(0))
        self.asked = []

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        self.asked.append(row)
        return self.x[row], self.labels[row]


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
@pytest.mark.parametrize("ours", [True, False])
def test_their_trainer_draws_the_batches_of_a_pk_sampler(ours):
    data = Rows([i // 10 for i in range(80)])
    model = nn.Linear(6, 4)
    before = model.weight.detach().clone()
    sampler = uc.PKSampler(data.labels, p=4, k=3, seed=0, batches=3)
    loss = uc.TripletLoss(margin=0.5) if ours else losses.TripletMarginLoss(0.5)
    miner = uc.Miner("easy", "hard") if ours else miners.BatchHardMiner()
    trainer = trainers.MetricLossOnly(
        models={"trunk": model},
        optimizers={"trunk_optimizer": torch.optim.SGD(model.parameters(), 0.1)},
        batch_size=12,
        loss_funcs={"metric_loss": loss},
        mining_funcs={"tuple_miner": miner},
        dataset=data,
        data_device=torch.device("cpu"),
        sampler=sampler,
        dataloader_num_workers=0,
    )
    trainer.train(num_epochs=2)
    again = uc.PKSampler(data.labels, p=4, k=3, seed=0, batches=3)
    assert data.asked == [row for _ in range(2) for rows in again for row in rows]
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_sampler_given_as_sampler_says_what_to_write(drop_last, workers):
    labels = [0, 0, 1, 1, 2, 2]
    for sampler in (
        uc.PKSampler(labels, 2, 2, seed=0),
        uc.samplers.UniformBatchSampler(6, 2, seed=0),
    ):
        wrong = DataLoader(
            Rows(labels), sampler=sampler, batch_size=2, drop_last=drop_last, num_workers=workers
        )
        with refused("sampler"):
            next(iter(wrong))


def test_the_right_ways_to_load_batches_are_left_alone():
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    sampler, data = uc.PKSampler(labels, 2, 2, seed=0), TensorDataset(labels)
    rows = list(uc.PKSampler(labels, 2, 2, seed=0))
    found = [y.tolist() for (y,) in DataLoader(data, batch_sampler=sampler)]
    assert found == [labels[r].tolist() for r in rows]
    sampler.set_epoch(0)  # torch's way to fetch a batch in one go
    found = [y.tolist() for (y,) in DataLoader(data, sampler=sampler, batch_size=None)]
    assert found == [labels[r].tolist() for r in rows]


@pytest.mark.parametrize("module", [uc.TripletLoss(margin=0.4), uc.Miner("easy", "hard")])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_an_adapter_is_copied_with_what_it_wraps(module, copied):
    x, y = pml_batch()
    made = copied(uc.as_pml(module))
    assert made.wrapped is not module
    torch.testing.assert_close(made(x, y), module(x, y), rtol=0.0, atol=0.0)


def test_an_adapter_has_the_parameters_and_the_state_of_what_it_wraps():
    loss = uc.MarginLoss(beta_per="class", size=5, miner=uc.Miner("easy", "hard"))
    made = uc.as_pml(loss)
    assert [id(p) for p in made.parameters()] == [id(loss.beta)]
    parts = ("beta", "miner._extra_state", "names._extra_state")
    assert set(made.state_dict()) == {f"wrapped.{part}" for part in parts}
    trimmed = uc.as_pml(uc.losses.TrimmedLoss(uc.TripletLoss(), fraction=0.5))
    losses.CrossBatchMemory(trimmed, 8)
    with refused("module"):
        uc.as_pml(nn.MSELoss())
