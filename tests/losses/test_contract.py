"""The contract of every loss: arguments, settings, copies, dtypes, compilation."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from itertools import product

import pytest
import torch
from pytorch_metric_learning import miners
from torch import Tensor, nn

from losses.loss_oracles import makers
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.losses import (
    ArcFaceLoss,
    CircleLoss,
    ContrastiveLoss,
    CosFaceLoss,
    IdentityLoss,
    Loss,
    MarginLoss,
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
)
from uncollapse.losses.base import innermost
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.mining import Miner
from uncollapse.mining.miner import NEGATIVES, POSITIVES

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")

MAKE = makers()
LOSSES = {
    **MAKE,
    "margin per class": partial(MAKE["margin"], beta_per="class"),
    "arcface, sub-centres": partial(MAKE["arcface"], sub_centers=2),
    "cosface, sub-centres": partial(MAKE["cosface"], sub_centers=2),
    "soft-triple, tau": partial(MAKE["soft-triple"], tau=0.1),
    "spread, from itself": partial(MAKE["spread"], stand_in="self"),
    "trimmed": lambda **k: TrimmedLoss(TripletLoss(**k), fraction=0.5),
    "identity": lambda **k: IdentityLoss(TripletLoss(**k), num_classes=4, dim=6),
    "identity, neck": lambda **k: IdentityLoss(
        TripletLoss(**k), num_classes=4, dim=6, neck="batch-norm"
    ),
}
EVERY = pytest.mark.parametrize("name", LOSSES)
NEEDS_LABELS = {name for name, make in LOSSES.items() if make().labels_needed}
NEEDS_LABELS |= {"margin per class"}
# Whose positives and negatives are proxies, not rows.
PROXIES = {name for name, make in LOSSES.items() if isinstance(make(), ProxyLoss)}
LABELS = torch.arange(12) % 4


def rows(seed=0, n=12, dtype=torch.float32):
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed)).to(dtype)


def mined(seed=0):
    return Miner("random", "random", generator=torch.Generator().manual_seed(seed))


@EVERY
@pytest.mark.parametrize("miner", [None, Miner("easy", "hard"), miners.BatchHardMiner()])
@pytest.mark.parametrize("wrong", [LABELS[:5], LABELS[:5].tolist(), torch.arange(13)])
def test_labels_of_the_wrong_length_are_refused(name, miner, wrong):
    loss, triplets = LOSSES[name](miner=miner), Miner("easy", "hard")(rows(), LABELS)
    message = f"labels: expected 12, one for each row, got {len(wrong)} labels"
    with pytest.raises(InputError, match=message):
        loss(rows(), wrong)
    with pytest.raises(InputError, match=message):
        loss(rows(), wrong, triplets)
    with pytest.raises(InputError, match=message):
        loss(rows(), wrong, ref_embeddings=rows(1), ref_labels=LABELS)
    with pytest.raises(InputError, match=f"ref_{message}"):
        loss(rows(), LABELS, ref_embeddings=rows(1), ref_labels=wrong)


@EVERY
def test_labels_are_needed_where_there_are_no_tuples_only(name):
    loss, triplets = LOSSES[name](), Miner("easy", "hard")(rows(), LABELS)
    with refused("labels"):
        loss(rows())
    if name in NEEDS_LABELS:
        with refused("labels"):
            loss(rows(), None, triplets)
    else:
        assert torch.equal(loss(rows(), None, triplets), loss(rows(), LABELS, triplets))


@EVERY
def test_references_go_by_either_name_and_by_place(name):
    loss = LOSSES[name]()
    ways = [
        loss(rows(), LABELS, None, rows(1), LABELS),
        loss(rows(), LABELS, ref_embeddings=rows(1), ref_labels=LABELS),
        loss(rows(), LABELS, ref_emb=rows(1), ref_labels=LABELS),
    ]
    assert all(torch.equal(ways[0], way) for way in ways)
    if name not in PROXIES:
        assert not torch.equal(ways[0], loss(rows(), LABELS))


@EVERY
def test_references_take_part_in_the_gradient(name):
    loss, x, ref = LOSSES[name](), rows().requires_grad_(), rows(1).requires_grad_()
    loss(x, LABELS, ref_embeddings=ref, ref_labels=LABELS).backward()
    assert float(x.grad.norm()) > 0
    assert (float(ref.grad.norm()) > 0) is (name not in PROXIES)


@EVERY
def test_sample_ids_are_taken_by_every_loss_and_checked(name):
    loss = LOSSES[name]()
    assert torch.equal(loss(rows(), LABELS, sample_ids=torch.arange(12)), loss(rows(), LABELS))
    with refused("sample_ids"):
        loss(rows(), LABELS, sample_ids=torch.arange(5))


@EVERY
def test_the_representation_shows_settings_and_nothing_else(name):
    shown = repr(LOSSES[name](miner=Miner("easy", "hard")))
    assert "(miner): Miner(positives='easy', negatives='hard')" in shown
    assert "tensor" not in shown.lower()
    assert "_warned" not in shown
    assert "training" not in shown
    assert "margin=0.2" in repr(TripletLoss(margin=0.2))
    assert "miner" not in repr(TripletLoss(margin=0.2))


@EVERY
@pytest.mark.parametrize("setting", ["reduction", "miner"])
def test_settings_are_checked_when_set(name, setting):
    loss = innermost(LOSSES[name]())
    before = getattr(loss, setting)
    with pytest.raises(InputError, match=f"{setting}: expected"):
        setattr(loss, setting, "men")
    assert getattr(loss, setting) is before


def test_settings_belong_to_the_inner_loss_of_a_wrapper():
    loss = TrimmedLoss(TripletLoss(margin=0.2, miner=Miner("easy", "hard")), fraction=0.5)
    assert (loss.miner, loss.normalize, loss.reduction) == (loss.inner.miner, False, "mean")
    for name, value in {"normalize": True, "reduction": "max", "miner": None}.items():
        with pytest.raises(AttributeError):
            setattr(loss, name, value)
    loss.miner = Miner("hard", "hard")  # which torch takes as a module of its own
    with pytest.raises(InputError, match=r"\.inner\.miner") as caught:
        loss(rows(), LABELS)
    assert caught.value.name == "miner"


def test_words_and_numbers_of_losses_and_miners_are_checked_when_set():
    triplet, miner = TripletLoss(miner=Miner("easy", "hard")), Miner("easy", "hard")
    wrong = [
        (miner, "negatives", "semi-hard", "'hard', 'semihard'"),
        (triplet.miner, "positives", "soft", "'easy', 'hard'"),
        (miner, "pool", 1, "at least 2"),
        (triplet, "margin", -1.0, "a finite number"),
        (triplet, "margin", "wide", "a finite number"),
        (triplet, "distance", "cosin", "'euclidean', 'squared', 'cosine'"),
        (TrimmedLoss(triplet, fraction=0.5), "fraction", 2, r"in \[0, 1\]"),
        (triplet, "reduction", "men", "'mean', 'nonzero', 'max'"),
        (IdentityLoss(triplet, num_classes=2, dim=2), "weight", -1, "a finite number"),
        (IdentityLoss(triplet, num_classes=2, dim=2), "label_smoothing", 2, r"in \[0, 1\]"),
        (IdentityLoss(triplet, num_classes=2, dim=2), "neck", "bn", "'none', 'batch-norm'"),
        (SupConLoss(), "temperature", 0, "a finite number"),
        (MarginLoss(), "nu", -1, "a finite number"),
        (MultiSimilarityLoss(), "beta", 0, "a finite number"),
        (ContrastiveLoss(), "pos_margin", float("nan"), "a finite number"),
        (NPairLoss(), "l2", -1, "a finite number"),
        (ProxyNCALoss(num_classes=2, dim=2), "scale", 0, "a finite number"),
        (ProxyAnchorLoss(num_classes=2, dim=2), "alpha", 0, "a finite number"),
        (CircleLoss(), "gamma", 0, "a finite number"),
        (CircleLoss(), "margin", 1.5, "in"),
        (NTXentLoss(), "temperature", 0, "a finite number"),
        (ArcFaceLoss(num_classes=2, dim=2), "margin", 28.6, "in"),
        (CosFaceLoss(num_classes=2, dim=2), "margin", 28.6, "in"),
        (SoftTripleLoss(num_classes=2, dim=2), "gamma", 0, "a finite number"),
        (SmoothAPLoss(), "temperature", 0, "a finite number"),
        (SpreadLoss(), "alpha", 1.5, "in"),
        (SpreadLoss(), "stand_in", "other", "'nearest', 'self'"),
    ]
    for module, name, value, allowed in wrong:
        with pytest.raises(InputError, match=f"{name}: expected .*{allowed}"):
            setattr(module, name, value)
    with pytest.raises(InputError, match="'euclidean' where scale_free is set"):
        TripletLoss(distance="cosine").scale_free = True
    with pytest.raises(InputError, match="'euclidean' where scale_free is set"):
        TripletLoss(scale_free=True).distance = "squared"
    triplet.distance = "cosine"
    assert triplet.normalize
    torch.testing.assert_close(
        triplet(rows(), LABELS),
        TripletLoss(distance="cosine", miner=Miner("easy", "hard"))(rows(), LABELS),
    )


@EVERY
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_gives_the_same(name, copied):
    loss = LOSSES[name](miner=Miner("easy", "semihard"))
    again = copied(loss)
    assert torch.equal(again(rows(), LABELS), loss(rows(), LABELS))
    assert repr(again) == repr(loss)
    assert not {id(p) for p in again.parameters()} & {id(p) for p in loss.parameters()}


@EVERY
def test_a_state_goes_on_with_the_same_draws_and_parameters(name):
    loss = LOSSES[name](miner=mined())
    for _ in range(3):
        loss(rows(), LABELS)
    state = copy.deepcopy(loss.state_dict())
    expected = [loss(rows(), LABELS) for _ in range(3)]
    again = LOSSES[name](miner=mined(7))
    again.load_state_dict(state)
    assert all(torch.equal(a, again(rows(), LABELS)) for a in expected)


@EVERY
def test_a_loss_moves_as_modules_do(name):
    loss = LOSSES[name](miner=mined()).to("cpu").double()
    assert all(p.dtype == torch.float64 for p in loss.parameters())
    assert loss(rows(dtype=torch.float64), LABELS).dtype == torch.float64
    moved = LOSSES[name](miner=Miner("easy", "hard")).to("meta")
    assert all(p.device.type == "meta" for p in moved.parameters())
    assert isinstance(moved.miner, Miner)
    holder = nn.ModuleDict({"loss": loss})
    assert loss.miner in list(holder.modules())


@EVERY
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch.compile's own
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_loss_with_a_miner_gives_the_same(name, backend):
    torch.compiler.reset()
    loss, model = LOSSES[name](miner=Miner("easy", "semihard")), nn.Linear(6, 6)

    def step(x):
        return loss(model(x), LABELS)

    steps = []
    for way in (step, torch.compile(step, backend=backend)):
        model.zero_grad()
        value = way(rows())
        value.backward()
        steps.append((value.detach(), model.weight.grad.clone()))
    torch.testing.assert_close(*steps)
    torch.testing.assert_close(
        torch.compile(loss, backend=backend)(rows(), LABELS), loss(rows(), LABELS)
    )


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("positives", "negatives"), list(product(POSITIVES, NEGATIVES)))
def test_any_default_dtype_does_for_every_miner(positives, negatives, dtype):
    x = rows(dtype=dtype).requires_grad_()
    miner = Miner(positives, negatives, generator=torch.Generator().manual_seed(0))
    loss = TripletLoss(miner=miner)(x, LABELS)
    loss.backward()
    torch.set_default_dtype(torch.float32)
    miner = Miner(positives, negatives, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loss, TripletLoss(miner=miner)(x, LABELS))
    pooled = Miner(positives, negatives, pool=6, generator=torch.Generator().manual_seed(0))
    torch.set_default_dtype(torch.float64)
    assert len(pooled(x.detach(), LABELS).anchor) > 0


@EVERY
@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_any_default_dtype_does_for_every_loss(name, dtype):
    x: Tensor = rows(dtype=dtype).requires_grad_()
    for miner in (None, Miner("easy", "semihard")):
        loss = LOSSES[name](miner=miner)
        value = loss(x, LABELS)
        value.backward()
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert x.grad.dtype == dtype
        assert bool(torch.isfinite(x.grad).all())
        assert isinstance(loss, Loss)
