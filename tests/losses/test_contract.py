"""The contract of every loss: arguments, settings, copies, dtypes, compilation."""

import copy
import pickle
from inspect import getattr_static
from itertools import product

import pytest
import torch
from pytorch_metric_learning import miners
from torch import nn

from losses.loss_oracles import every_loss
from support.errors import refused
from uncollapse.losses import IdentityLoss, MultipleNegativesRankingLoss, TrimmedLoss, TripletLoss
from uncollapse.losses.base import Choice, innermost
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.losses.registry import loss_settings
from uncollapse.mining import Miner
from uncollapse.mining.miner import NEGATIVES, POSITIVES

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")

LOSSES = every_loss()
EVERY = pytest.mark.parametrize("name", LOSSES)
NEEDS_LABELS = {name for name, make in LOSSES.items() if make().labels_needed or "class" in name}
# Whose positives and negatives are proxies, not rows.
PROXIES = {name for name, make in LOSSES.items() if isinstance(make(), ProxyLoss)}
LABELS = torch.arange(12) % 4


def rows(seed=0, n=12, dtype=torch.float32):
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed)).to(dtype)


def mined(seed=0):
    return Miner("random", "random", generator=torch.Generator().manual_seed(seed))


@EVERY
@pytest.mark.parametrize("miner", [None, Miner("easy", "hard"), miners.BatchHardMiner()])
def test_labels_of_the_wrong_length_are_refused(name, miner):
    loss, triplets = LOSSES[name](miner=miner), Miner("easy", "hard")(rows(), LABELS)
    references = {"ref_embeddings": rows(1), "ref_labels": LABELS}
    for wrong in (LABELS[:5], LABELS[:5].tolist(), torch.arange(13)):
        for args, more in (((), {}), ((triplets,), {}), ((), references)):
            with refused("labels"):
                loss(rows(), wrong, *args, **more)
        with refused("ref_labels"):
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
def test_references_go_by_either_name_and_by_place_and_have_gradients(name):
    loss, x, ref = LOSSES[name](), rows().requires_grad_(), rows(1).requires_grad_()
    values = [
        loss(x, LABELS, None, ref, LABELS),
        loss(x, LABELS, ref_embeddings=ref, ref_labels=LABELS),
        loss(x, LABELS, ref_emb=ref, ref_labels=LABELS),
    ]
    assert all(torch.equal(values[0], value) for value in values)
    assert torch.equal(values[0], loss(x, LABELS)) is (name in PROXIES)
    values[0].backward()
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
    assert not any(word in shown.lower() for word in ("tensor", "_warned", "training"))
    assert "miner" not in repr(LOSSES[name]())


@EVERY
def test_words_among_the_settings_and_the_miner_are_checked_when_set(name):
    loss = innermost(LOSSES[name]())
    choices = [
        k for k in loss_settings(type(loss)) if isinstance(getattr_static(loss, k, 0), Choice)
    ]
    for setting in {"reduction", "miner", *choices}:
        before = getattr(loss, setting)
        with refused(setting):
            setattr(loss, setting, "men")
        assert getattr(loss, setting) is before


def test_settings_belong_to_the_inner_loss_of_a_wrapper():
    loss = TrimmedLoss(TripletLoss(margin=0.2, miner=Miner("easy", "hard")), fraction=0.5)
    assert (loss.miner, loss.normalize, loss.reduction) == (loss.inner.miner, False, "mean")
    for name, value in {"normalize": True, "reduction": "max", "miner": None}.items():
        with pytest.raises(AttributeError):
            setattr(loss, name, value)
    loss.miner = Miner("hard", "hard")  # which torch takes as a module of its own
    with refused("miner"):
        loss(rows(), LABELS)


def test_settings_of_wrappers_and_miners_are_checked_when_set():
    triplet, miner = TripletLoss(miner=Miner("easy", "hard")), Miner("easy", "hard")
    identity = IdentityLoss(triplet, num_classes=2, dim=2)
    for module, name, value in (
        (miner, "negatives", "semi-hard"),
        (triplet.miner, "positives", "soft"),
        (miner, "pool", 1),
        (TrimmedLoss(triplet, fraction=0.5), "fraction", 2),
        (TrimmedLoss(triplet, fraction=0.5), "on", "negatives"),
        (identity, "weight", -1),
        (identity, "label_smoothing", 2),
        (identity, "neck", "bn"),
        (MultipleNegativesRankingLoss(), "scale", 0),
        (TripletLoss(scale_free=True), "distance", "squared"),
    ):
        with refused(name):
            setattr(module, name, value)
    with refused("distance"):
        TripletLoss(distance="cosine").scale_free = True


def test_a_distance_that_is_set_is_the_one_the_loss_was_made_with():
    triplet = TripletLoss(miner=Miner("easy", "hard"))
    triplet.distance = "cosine"
    assert triplet.normalize
    made = TripletLoss(distance="cosine", miner=Miner("easy", "hard"))
    torch.testing.assert_close(triplet(rows(), LABELS), made(rows(), LABELS))


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
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch.compile's own
def test_a_compiled_loss_with_a_miner_gives_the_same(name):
    torch.compiler.reset()
    loss, model = LOSSES[name](miner=Miner("easy", "semihard")), nn.Linear(6, 6)

    def step(x):
        return loss(model(x), LABELS)

    steps = []
    for taken in (step, torch.compile(step, backend="aot_eager")):
        model.zero_grad()
        value = taken(rows())
        value.backward()
        steps.append((value.detach(), model.weight.grad.clone()))
    torch.testing.assert_close(*steps)
    compiled = torch.compile(loss, backend="eager")
    torch.testing.assert_close(compiled(rows(), LABELS), loss(rows(), LABELS))


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_default_dtype_does_for_every_miner(dtype):
    x = rows(dtype=dtype).requires_grad_()
    for words in product(POSITIVES, NEGATIVES):
        values = []
        for default in (torch.float64, torch.float32):
            torch.set_default_dtype(default)
            miner = Miner(*words, generator=torch.Generator().manual_seed(0))
            values.append(TripletLoss(miner=miner)(x, LABELS))
            values[-1].backward()
        assert torch.equal(*values)
        torch.set_default_dtype(torch.float64)
        pooled = Miner(*words, pool=6, generator=torch.Generator().manual_seed(0))
        assert len(pooled(x.detach(), LABELS).anchor) > 0


@EVERY
@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_any_default_dtype_does_for_every_loss(name, dtype):
    x = rows(dtype=dtype).requires_grad_()
    for miner in (None, Miner("easy", "semihard")):
        loss = LOSSES[name](miner=miner)
        value = loss(x, LABELS)
        value.backward()
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert x.grad.dtype == dtype
        assert bool(torch.isfinite(x.grad).all())
