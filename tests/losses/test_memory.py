"""A memory of earlier batches: against PML's, an oracle in float64, and what it must not do."""

import copy

import pytest
import torch
from pytorch_metric_learning import losses, miners

import uncollapse as uc
from losses.loss_oracles import makers
from peers.pml_page import LINES, lines, run, same, step
from support.errors import refused
from uncollapse.health import drift, mode_drift
from uncollapse.losses import ContrastiveLoss, CrossBatchMemory, TrimmedLoss, TripletLoss
from uncollapse.losses.memory import memories, reading, remembers
from uncollapse.losses.registry import LOSSES
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


def batches(count, n=18, dim=8, classes=5, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        z = torch.randn(n, dim, generator=g, dtype=dtype)
        yield z, torch.randint(0, classes, (n,), generator=g)


def beyond_the_wrap_around(ours, theirs, miner=None):
    a = CrossBatchMemory(ours, 50, references="fixed")
    b = losses.CrossBatchMemory(theirs, 8, 50, miner=miner)
    for z, labels in batches(5):  # 50 is no multiple of 18
        same(step(a, z, labels), step(b, z, labels), 1e-4)
    assert len(a.memory) == 50


@pytest.mark.parametrize(("theirs", "ours"), lines("losses.", "num_classes", "NPair", "swap"))
def test_values_and_gradients_are_those_of_pml(theirs, ours):
    beyond_the_wrap_around(run(ours), run(theirs))


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),  # our miner, and PML's inside our loss
    [
        ("losses.TripletMarginLoss(0.05)", Miner("hard", "hard"), miners.BatchHardMiner()),
        ("losses.TripletMarginLoss(0.05)", *[miners.TripletMarginMiner()] * 2),
        ("losses.MultiSimilarityLoss()", *[miners.MultiSimilarityMiner()] * 2),
    ],
)
def test_mined_values_and_gradients_are_those_of_pml(name, ours, theirs):
    peer, loss = next((run(a), run(b)) for a, b, _ in LINES if a == name)
    loss.miner = ours
    beyond_the_wrap_around(loss, peer, theirs)


def test_tuples_of_the_batch_are_added_as_in_pml_while_both_mean_the_batch():
    theirs, ours = (
        losses.TripletMarginLoss(0.3),
        TripletLoss(margin=0.3, normalize=True, reduction="nonzero"),
    )
    a, b = CrossBatchMemory(ours, 50, references="fixed"), losses.CrossBatchMemory(theirs, 8, 50)
    for number, (z, labels) in enumerate(batches(2)):
        tuples = Miner("hard", "hard")(z, labels)
        (value, gradient), (other, slope) = (step(m, z, labels, tuples) for m in (a, b))
        alike = bool(torch.isclose(value, other)) and torch.allclose(gradient, slope, atol=1e-6)
        assert alike is (number == 0)  # then PML reads the batch's rows as slots of its queue


def oracle(z, labels, kept, kept_labels, margin, positives, scale_free=False, moving=False):
    """Triplets of an anchor with all others that are not itself, by loops in float64."""
    every = torch.cat([z.detach(), kept]).double()
    if moving:
        wide = z.double()
        centre, mean = wide.mean(0), torch.pdist(wide).mean()
        old = centre + (kept.double() - centre.detach()) * mean / mean.detach()
        every = torch.cat([wide, old])
    theirs = torch.cat([labels, kept_labels])
    total, count = z.new_zeros((), dtype=torch.float64), 0
    distance = [[torch.linalg.vector_norm(row.double() - other) for other in every] for row in z]
    if scale_free:
        n, m = len(z), len(every)
        mean = sum(distance[i][j] for i in range(n) for j in range(m) if i != j) / (n * (m - 1))
        distance = [[d / mean for d in row] for row in distance]
    for i in range(len(z)):
        own = [j for j in range(len(every)) if theirs[j] == labels[i] and j != i]
        others = [j for j in range(len(every)) if theirs[j] != labels[i]]
        if own and others:
            pick = max if positives == "hard" else min
            p = pick(own, key=lambda j: distance[i][j].item())
            n = min(others, key=lambda j: distance[i][j].item())
            total = total + (distance[i][p] - distance[i][n] + margin).clamp(min=0.0)
            count += 1
    return total / max(count, 1)


@pytest.mark.parametrize("references", ["moving", "fixed"])
@pytest.mark.parametrize("positives", ["easy", "hard"])
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_miners_choose_over_batch_and_memory_and_never_the_row_itself(
    positives, spread, references
):
    inner = TripletLoss(margin=0.5, miner=Miner(positives, "hard"))
    loss = CrossBatchMemory(inner, 30, references=references)
    kept, names = torch.empty(0, 3), torch.empty(0, dtype=torch.int64)
    for z, labels in batches(4, n=10, dim=3, classes=4):
        z = 100 + spread * z  # float32 far from the origin, nearly a point
        value, gradient = step(loss, z, labels)
        leaf = z.clone().requires_grad_()
        moving = references == "moving"
        expected = oracle(leaf, labels, kept[-20:], names[-20:], 0.5, positives, moving=moving)
        (slope,) = torch.autograd.grad(expected, leaf)
        assert value.item() == pytest.approx(expected.item(), rel=1e-5)
        torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=1e-6)
        kept, names = torch.cat([kept, z]), torch.cat([names, labels])


def test_a_scale_free_loss_is_over_the_mean_distance_to_its_references_and_has_no_drift():
    inner = TripletLoss(margin=0.5, scale_free=True, miner=Miner("hard", "hard"))
    loss = CrossBatchMemory(inner, 40)
    *earlier, (z, labels) = batches(4, n=10, dim=3, classes=3, dtype=torch.float64)
    for x, y in earlier:
        loss(x, y)
    kept, names = loss.memory, loss.memory_labels
    for scale in (1.0, 1e-4, 50.0):  # of the batch beside what it is compared with
        expected = oracle(scale * z, labels, kept, names, 0.5, "hard", scale_free=True)
        with reading(loss):
            assert float(loss(scale * z, labels)) == pytest.approx(float(expected), rel=1e-5)
        assert drift(loss, scale * z, labels).value == pytest.approx(0.0, abs=1e-6)
    _, gradient = step(loss, z, labels)
    assert float(gradient.abs().max()) > 0


# In a batch Smooth-AP counts the query among its own positives; a reference is never the query.
REMEMBERING = [
    make()
    for name, make in makers(dim=8).items()
    if remembers(LOSSES[name]) and name != "smooth-ap"
]


@pytest.mark.parametrize(
    "loss",
    [
        *REMEMBERING,
        TripletLoss(margin=0.4, miner=Miner("easy", "hard")),
        TripletLoss(margin=0.4, scale_free=True, miner=Miner("inside", "hard")),
    ],
)
def test_a_memory_as_small_as_the_batch_changes_nothing(loss):
    z, labels = next(batches(1))
    memory = CrossBatchMemory(loss, 18)
    memory(z + 1.0, labels)
    for a, b in zip(step(loss, z, labels), step(memory, z, labels), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_until_after_the_loss_is_the_inner_one_and_rows_are_kept():
    inner = TripletLoss(margin=0.4, miner=Miner("hard", "hard"))
    loss = CrossBatchMemory(inner, 40, after=2)
    for number, (z, labels) in enumerate(batches(3)):
        plain, with_memory = inner(z, labels), loss(z, labels)
        assert bool(plain == with_memory) is (number < 2)
    assert len(loss.memory) == 40


def test_older_copies_of_a_sample_in_the_batch_are_left_out():
    z = torch.tensor([[0.0], [4.0], [9.0]])
    loss = CrossBatchMemory(TripletLoss(margin=10.0, miner=Miner("easy", "hard")), 9)
    labels, ids = torch.tensor([0, 0, 1]), torch.tensor([5, 6, 7])
    plain = float(loss(z, labels, sample_ids=ids))
    assert float(loss(z, labels, sample_ids=ids)) == plain  # all that is kept is here again
    assert float(loss(z, labels, sample_ids=ids + 100)) < plain  # samples at distance 0


def test_what_is_kept_is_first_in_first_out_and_forgotten_by_reset():
    loss = CrossBatchMemory(ContrastiveLoss(), 5)
    for start in (0.0, 10.0, 20.0):
        loss(torch.tensor([[start], [start + 1]]), [0, 1], sample_ids=[int(start), int(start) + 1])
    assert loss.memory.flatten().tolist() == [1.0, 10.0, 11.0, 20.0, 21.0]
    assert loss.memory_ids.tolist() == [1, 10, 11, 20, 21]
    assert loss.memory_labels.tolist() == [1, 0, 1, 0, 1]
    loss.reset()
    assert (len(loss.memory), int(loss.calls)) == (0, 0)
    leaf = torch.zeros(2, 7, dtype=torch.float16, requires_grad=True)
    loss(leaf, [0, 1])  # of another dimension
    assert loss.memory.shape == (2, 7)
    assert loss.memory.dtype == torch.float32  # what losses work in
    assert not loss.memory.requires_grad
    loss(torch.ones(2, 7, dtype=torch.float64).tolist(), [0, 1])
    assert loss.memory.dtype == torch.float64


def test_a_pool_bounds_what_is_mined_over_with_the_memory():
    generator = torch.Generator().manual_seed(0)
    z, labels = next(batches(1, n=400, classes=4))
    values = []
    for pool in (None, 16):
        miner = Miner("hard", "hard", pool=pool, generator=generator)
        loss = CrossBatchMemory(TripletLoss(margin=1.0, miner=miner), 400)
        loss.enqueue(z, labels)
        with reading(loss):
            values.append(float(loss(z[:12] + 0.01, labels[:12])))
    assert values[1] < 0.8 * values[0]  # hardest of 16, not of 400


def test_nothing_is_enqueued_in_eval_mode_or_where_a_drift_is_measured():
    loss = CrossBatchMemory(TripletLoss(margin=0.3, miner=Miner("hard", "hard")), 40)
    (first, labels), (z, names) = batches(2)
    loss(first, labels)
    before = copy.deepcopy(loss.state_dict())
    drift(loss, z, names), mode_drift(loss, z, names)
    assert loss.training
    loss.eval()(z, names)
    assert all(torch.equal(before[k], v) for k, v in loss.state_dict().items())
    loss.train()(z, names)
    assert len(loss.memory) == 36


def test_rows_that_are_measured_again_are_not_their_own_neighbours():
    z, labels = next(batches(1))
    plain = TripletLoss(margin=0.3, miner=Miner("easy", "hard"))
    loss = CrossBatchMemory(plain, 40)
    loss(z, labels)
    empty = CrossBatchMemory(plain, 40)
    assert drift(loss, z, labels).value == drift(empty, z, labels).value


def test_the_drift_of_a_hinge_is_the_mean_of_its_active_triplets_and_no_net_force_is_left():
    loss = CrossBatchMemory(TripletLoss(margin=0.3, miner=Miner("hard", "hard")), 40)
    (first, labels), (z, names) = batches(2, dtype=torch.float64)
    loss(first, labels)
    rows, theirs = torch.cat([z, first]), torch.cat([names, labels])
    hinges = []
    for i in range(len(z)):
        distance = (rows - z[i]).norm(dim=1)
        own = theirs == names[i]
        hinges.append(distance[own].max() - distance[~own].min())  # d_ap - d_an
    active = [gap for gap in hinges if gap > -0.3]
    expected = float(sum(active)) / len(hinges) / float(torch.pdist(z).mean())
    assert drift(loss, z, names).value == pytest.approx(expected, rel=1e-6)
    _, gradient = step(loss.eval(), z, names)
    assert float(gradient.sum(0).abs().max()) < 1e-9 < float(gradient.abs().max())
    loss.references = "fixed"
    _, gradient = step(loss, z, names)
    assert float(gradient.sum(0).abs().max()) > 1e-3
    assert drift(loss, z, names).value < 0.8 * expected


def test_a_state_of_any_length_is_loaded_and_goes_on_the_same():
    def made():
        return CrossBatchMemory(TripletLoss(miner=Miner("hard", "hard")), 30)

    first, *rest = batches(4)
    whole, again = made(), made()
    whole(*first)
    again.load_state_dict(copy.deepcopy(whole.state_dict()))
    for z, labels in rest:
        assert torch.equal(whole(z, labels), again(z, labels))
    whole.load_state_dict(made().state_dict())
    assert len(whole.memory) == 0


def test_wrappers_nest():
    inner = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    memory = CrossBatchMemory(TrimmedLoss(inner, fraction=0.5), 40)
    assert memory.miner is inner.miner
    outer = uc.IdentityLoss(memory, num_classes=5, dim=8)
    both = uc.losses.MultipleLosses([memory, ContrastiveLoss()])
    for loss in (memory, outer, both):
        memory.reset()
        for z, labels in batches(2):
            assert all(0 < float(part.norm()) < torch.inf for part in step(loss, z, labels))
        assert (len(memory.memory), memories(loss)) == (36, [memory])


def test_one_class_and_singletons_cost_nothing_and_coinciding_rows_the_margin():
    loss = CrossBatchMemory(TripletLoss(margin=0.2, miner=Miner("hard", "hard")), 12)
    for labels in ([0, 0, 0], [0, 1, 2]):
        assert float(loss(torch.randn(3, 2), labels)) == 0.0
        loss.reset()
    for _ in range(2):
        value, gradient = step(loss, torch.ones(4, 2), torch.tensor([0, 0, 1, 1]))
        assert float(value) == pytest.approx(0.2)
        assert not gradient.any()


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("size", lambda m, z, y: CrossBatchMemory(m.inner, 0)),
        ("after", lambda m, z, y: CrossBatchMemory(m.inner, 8, after=-1)),
        ("references", lambda m, z, y: CrossBatchMemory(m.inner, 8, references="old")),
        ("loss", lambda m, z, y: CrossBatchMemory(uc.losses.NPairLoss(), 8)),
        ("loss", lambda m, z, y: CrossBatchMemory(m, 8)),
        ("loss", lambda m, z, y: CrossBatchMemory(uc.ProxyNCALoss(num_classes=2, dim=2), 8)),
        ("loss", lambda m, z, y: CrossBatchMemory("triplet", 8)),
        ("loss", lambda m, z, y: TrimmedLoss(m, fraction=0.5)),  # trimming belongs inside
        ("labels", lambda m, z, y: m(z)),
        ("labels", lambda m, z, y: m(z, ["a", "a", "b", "b"])),
        ("embeddings", lambda m, z, y: m(z[:, :1], y)),
        ("size", lambda m, z, y: m(torch.ones(9, 2), [0] * 9)),
        (None, lambda m, z, y: m(z, y, ref_embeddings=z, ref_labels=y)),
    ],
)
def test_what_cannot_be_is_refused(name, act):
    loss = CrossBatchMemory(TripletLoss(), 8)
    z, labels = torch.arange(8.0).reshape(4, 2), torch.tensor([0, 0, 1, 1])
    loss(z, labels)
    with refused(name):
        act(loss, z, labels)
