"""From a config to loss, sampler, optimiser and device; `[loss]` against the losses it names."""

import inspect
import math
import re
from typing import get_args

import pytest
import torch
from pydantic import ValidationError

from support.errors import refused
from uncollapse import losses
from uncollapse._base.check import InputError
from uncollapse.data import LabelledImages, TensorSource
from uncollapse.losses import CrossBatchMemory, IdentityLoss, Loss, MultipleLosses, TrimmedLoss
from uncollapse.losses.base import Wrapper
from uncollapse.losses.combined import NECKS
from uncollapse.losses.memory import REFERENCES
from uncollapse.losses.regularizers import Regularizer
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler, UniformBatchSampler
from uncollapse.training import assemble
from uncollapse.training.config import parse_config
from uncollapse.training.sections import LOSSES, IdentityConfig, LossConfig, OneOf
from uncollapse.training.sections import RegularizerConfig as Regularizers


def samples(*counts):
    """Classes of these sizes; the labels are not 0, 1, 2, ..."""
    labels = torch.cat([torch.full((n,), 10 * i + 7) for i, n in enumerate(counts)])
    return LabelledImages(TensorSource(torch.rand(len(labels), 4)), labels=labels)


DATA = samples(6, 5, 4)
REGULARIZERS = get_args(Regularizers.model_fields["name"].annotation)
EVERY = pytest.mark.parametrize("name", LOSSES)
WITHOUT_MEMORY = ("n-pair", "soft-triple", "proxy", "arc", "cos")  # how their names begin


def built(name="triplet", *, seed=0, unit=False, mining=None, **keys):
    """The loss of a run with these keys in `[loss]`."""
    values = {"model": {"dim": 2, "normalize": unit}, "batch": {"p": 3, "k": 2}, "seed": seed}
    config = parse_config({**values, "mining": mining or {}, "loss": {"name": name, **keys}})
    return assemble.build_loss(config, DATA)


def own_keys(name):
    shared = LossConfig.model_fields.keys()
    return {k: f.default for k, f in LOSSES[name].model_fields.items() if k not in shared}


def sizes(kind):
    """The arguments of a loss that follow from the training data."""
    values = {"num_classes": 3, "dim": 2, "generator": torch.Generator(), "size": None}
    return {k: v for k, v in values.items() if k in inspect.signature(kind).parameters}


def test_every_loss_has_a_section():
    public = {getattr(losses, name) for name in losses.__all__}
    concrete = {x for x in public if isinstance(x, type) and issubclass(x, Loss)}
    added = {loss for loss in concrete if issubclass(loss, Wrapper | Regularizer)}
    # A run's batches have labels and no columns of pairs.
    elsewhere = {Loss, losses.TupleLoss, losses.MultipleNegativesRankingLoss}
    assert {section.kind for section in LOSSES.values()} == concrete - added - elsewhere
    made = {type(built(regularizer={"name": name}).others[0]) for name in REGULARIZERS}
    assert made == {loss for loss in added if issubclass(loss, Regularizer)}


@EVERY
def test_a_section_has_the_keywords_of_its_loss_and_their_defaults(name):
    kind = LOSSES[name].kind
    parameters, of_the_data = inspect.signature(kind).parameters, sizes(kind)
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
    made = kind(**of_the_data)
    assert own_keys(name) == {
        k: getattr(made, k) if p.default is None else p.default
        for k, p in parameters.items()
        if k not in {"miner", *of_the_data}
    }


@EVERY
def test_the_words_of_a_section_are_those_of_its_loss(name):
    kind = LOSSES[name].kind
    for key, field in LOSSES[name].model_fields.items():
        words = next((m.words for m in field.metadata if isinstance(m, OneOf)), ())
        words = words or tuple(w for w in get_args(field.annotation) if isinstance(w, str))
        if not words or key in ("name", "trim_on"):
            continue
        size = {k: v for k, v in sizes(kind).items() if k != key}
        size |= {"size": 3} if key == "beta_per" else {}
        with pytest.raises(InputError) as caught:
            kind(**{key: "nonsense"}, **size)
        assert set(re.findall(r"'([^']+)'", caught.value.allowed)) == set(words)
        assert all(isinstance(kind(**{key: word}, **size), Loss) for word in words)


def accepts(work, *errors):
    try:
        work()
    except errors:
        return False
    return True


@EVERY
def test_what_a_section_accepts_its_loss_accepts_and_what_it_refuses_it_refuses(name):
    kind = LOSSES[name].kind
    tried = (-1e9, -1.0, -1e-9, 0.0, 1e-9, 1e-6, 0.5, 1.0, 3.0, float("inf"), float("nan"))
    for key, default in own_keys(name).items():
        if not isinstance(default, float | int) or isinstance(default, bool):
            continue
        for value in tried:
            number = int(value) if isinstance(default, int) and abs(value) < 1e9 else value
            section = accepts(lambda k=key, v=number: LOSSES[name](**{k: v}), ValidationError)
            loss = accepts(lambda k=key, v=number: kind(**{k: v}, **sizes(kind)), InputError)
            assert section == loss, (key, number)
            assert not section or type(built(name, **{key: number})) is kind


def test_the_keys_of_a_classifier_a_memory_and_trimming_are_those_of_their_losses():
    plain, tried = built(), (-1.0, -1e-9, 1e-9, 0.5, 1.0, 1.0 + 1e-9, 3.0, math.inf, math.nan)
    for key in ("weight", "label_smoothing"):
        for value in tried:
            given = {key: value}
            section = accepts(lambda given=given: IdentityConfig(**given), ValidationError)
            assert section == accepts(
                lambda given=given: IdentityLoss(plain, num_classes=3, dim=2, **given), InputError
            )
    for word in REFERENCES:
        assert built(memory={"size": 8, "references": word}).references == word
    for word in NECKS:
        assert built(identity={"neck": word}).neck == word
    for word in get_args(LossConfig.model_fields["trim_on"].annotation):
        assert built(trim=0.5, trim_on=word).on == word


@EVERY
def test_a_section_builds_its_loss_with_its_settings_and_miner(name):
    loss = built(name, mining={"negatives": "hard"})
    assert type(loss) is LOSSES[name].kind
    assert (loss.miner.positives, loss.miner.negatives) == ("easy", "hard")
    z, labels = torch.randn(6, 2, generator=torch.Generator().manual_seed(1)), [0, 0, 1, 1, 2, 2]
    plain = loss.__class__(**sizes(loss.__class__), miner=Miner("easy", "hard"))
    if list(plain.parameters()):
        plain.load_state_dict(loss.state_dict())
    assert torch.equal(loss(z, labels), plain(z, labels))
    assert (built(name).miner is None) == (name != "triplet")


@EVERY
def test_every_loss_can_be_trimmed_and_have_a_classifier_and_a_regulariser(name):
    kind, mining = LOSSES[name].kind, {"positives": "easy", "negatives": "hard"}
    identity = {"weight": 0.5, "label_smoothing": 0.1, "neck": "batch-norm"}
    trimmed = built(name, mining=mining, trim=0.5, trim_on="positives")
    assert (type(trimmed), type(trimmed.inner)) == (TrimmedLoss, kind)
    assert (trimmed.fraction, trimmed.on) == (0.5, "positives")
    for keys, inner in (({}, kind), ({"trim": 0.5}, TrimmedLoss)):
        loss = built(name, mining=mining, identity=identity, **keys)
        assert (type(loss), type(loss.inner)) == (IdentityLoss, inner)
        assert (loss.weight, loss.label_smoothing, loss.neck) == (0.5, 0.1, "batch-norm")
        assert tuple(loss.classifier.shape) == (3, 2)
        assert loss.miner.negatives == "hard"
    for other in REGULARIZERS:
        loss = built(name, mining=mining, regularizer={"name": other, "weight": 0.25})
        assert (type(loss), type(loss.inner)) == (MultipleLosses, kind)
        assert loss.weights == (1.0, 0.25)
        assert loss.miner.negatives == "hard"
        z = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), requires_grad=True)
        assert loss(z, torch.tensor([0, 0, 1, 1, 2, 2])).requires_grad


@EVERY
def test_losses_that_compare_rows_have_a_memory_and_others_are_refused_one(name):
    if name.startswith(WITHOUT_MEMORY):
        with refused("loss"):
            built(name, memory={"size": 64})
    else:
        loss = built(name, memory={"size": 64})
        assert isinstance(loss, CrossBatchMemory)
        assert torch.isfinite(loss(torch.randn(6, 2), [0, 0, 1, 1, 2, 2]))


def test_the_memory_is_between_trimming_and_a_classifier_and_holds_a_batch():
    memory = {"size": 50, "after": 3, "references": "fixed"}
    loss = built(trim=0.5, identity={}, memory=memory)
    kinds = (type(loss), type(loss.inner), type(loss.inner.inner))
    assert kinds == (IdentityLoss, CrossBatchMemory, TrimmedLoss)
    assert {key: getattr(loss.inner, key) for key in memory} == memory
    with refused("loss.memory.size"):
        built(memory={"size": 5})  # of batches of 6


@pytest.mark.parametrize("name", ["variance-covariance", "sigreg"])
def test_a_regulariser_sees_directions_where_the_loss_or_the_network_has_no_others(name):
    added = {"regularizer": {"name": name}}
    assert not built(**added).others[0].normalize
    assert built(unit=True, **added).others[0].normalize
    assert built("sup-con", **added).others[0].normalize
    assert name != "sigreg" or built(**added).others[0].generator is not None


def test_what_a_loss_learns_is_sized_by_the_data_and_drawn_from_the_seed():
    for per, count in (("global", 1), ("class", 3), ("sample", 15)):
        assert len(built("margin", beta_per=per).beta) == count
        assert LOSSES["margin"](beta_per=per).wants_sample_ids == (per == "sample")
    assert built("proxy-nca", per_class=2).proxies.shape == (3, 2, 2)
    for keys, drawn in (({"name": "proxy-nca"}, "proxies"), ({"identity": {}}, "classifier")):
        first, again, other = (getattr(built(seed=s, **keys), drawn) for s in (7, 7, 8))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_options_arrive_at_the_loss():
    options = {"margin": 0.5, "distance": "squared", "swap": True, "reduction": "max"}
    loss = built(**options)
    assert {key: getattr(loss, key) for key in options} == options


@EVERY
def test_a_miner_takes_the_margin_of_a_loss_of_distances(name):
    own = name in ("triplet", "margin", "contrastive")
    assert LOSSES[name]().mining_margin == (own_keys(name)["margin"] if own else 0.2)


def test_the_miners_margin_is_its_own_or_the_losss():
    assert built(margin=0.0).miner.margin == 0.0
    assert built(margin=0.7, mining={"margin": 0.1}).miner.margin == 0.1
    assert built("sup-con", mining={"positives": "easy"}).miner.margin == 0.2
    assert built("contrastive", margin=0.5, mining={"positives": "easy"}).miner.margin == 0.5


def test_only_the_plain_triplet_hinge_has_a_hinge_margin():
    triplet = LOSSES["triplet"]
    assert triplet(margin=0.3, reduction="nonzero").hinge_margin == 0.3
    for change in ("soft", "scale_free", "normalize", "swap"):
        assert triplet(**{change: True}).hinge_margin is None
    assert triplet(distance="squared").hinge_margin is None
    assert all(s().hinge_margin is None for name, s in LOSSES.items() if name != "triplet")


def test_every_setting_of_the_miner_arrives():
    settings = {"positives": "random", "negatives": "distance", "pool": 7, "margin": 0.3}
    settings |= {"epsilon": 0.2, "fallback": "skip", "cutoffs": (0.4, 1.2), "keep": "violating"}
    miner = built(mining=settings).miner
    assert {key: getattr(miner, key) for key in settings} == settings
    plain = built().miner
    assert (plain.positives, plain.negatives, plain.margin) == ("easy", "semihard", 0.2)


def test_the_parts_of_a_run_draw_different_numbers_and_the_same_again():
    config, parts = parse_config({"seed": 3}), ("model", "loss", "miner", "augment")
    first, again = (
        [torch.rand(1, generator=assemble.seeded(config, part)).item() for part in parts]
        for _ in range(2)
    )
    assert len(set(first)) == len(parts)
    assert again == first


def test_the_sampler_is_the_one_asked_for():
    for batch, kind, size in (
        ({"p": 3, "k": 4}, PKSampler, 12),
        ({"p": 3, "k": 6}, PKSampler, 18),  # smaller classes are repeated
        ({"sampler": "uniform", "size": 15}, UniformBatchSampler, 15),
    ):
        sampler = assemble.build_sampler(parse_config({"batch": batch}), DATA)
        assert (type(sampler), len(next(iter(sampler)))) == (kind, size)


@pytest.mark.parametrize(
    ("batch", "key", "data"),
    [
        ({"p": 2, "k": 8}, "batch.k", DATA),
        ({"p": 4, "k": 2}, "batch.p", DATA),
        ({"sampler": "uniform", "size": 16}, "batch.size", DATA),
        ({"p": 10**30, "k": 10**30}, "batch.p", DATA),
        ({"p": 3, "k": 2}, "batch.p", samples(4, 1, 4)),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_batch_that_the_data_cannot_fill_is_refused_by_its_key(batch, key, data, monkeypatch):
    monkeypatch.setattr(PKSampler, "__init__", None)  # nothing is drawn, nothing allocated
    with refused(key):
        assemble.build_sampler(parse_config({"batch": batch}), data)


@pytest.mark.parametrize("name", ["meta", "nonsense", "", "cuda:99", "cpu:x"])
def test_a_device_that_cannot_compute_here_is_refused(name):
    with refused("train.device"):
        assemble.pick_device(name)


def test_the_losss_own_parameters_have_a_rate_and_no_weight_decay():
    optimizer = {"name": "sgd", "lr": 0.1, "loss_lr": 0.5, "weight_decay": 0.01}
    for learned, expected in ((True, [(0.1, 0.01), (0.5, 0)]), (False, [(0.1, 0.01)])):
        loss = {"name": "margin", "learn_beta": learned}
        config = parse_config({"optimizer": optimizer, "loss": loss})
        parts = torch.nn.Linear(4, 2), assemble.build_loss(config, DATA)
        groups = assemble.build_optimizer(config, *parts).param_groups
        assert [(group["lr"], group["weight_decay"]) for group in groups] == expected
    assert {id(p) for p in groups[0]["params"]} == {id(p) for p in parts[0].parameters()}


def test_the_rate_warms_up_and_falls_along_a_cosine_or_by_steps():
    values = {"schedule": "cosine", "warmup": 10}
    config = parse_config({"optimizer": values, "train": {"steps": 110}})
    rates = [assemble.learning_rate(config, step) for step in (0, 9, 10, 60, 110, 200)]
    middle = 0.5 * (1 + math.cos(math.pi / 2))
    assert rates == pytest.approx([0.1, 1.0, 1.0, middle, 0.0, 0.0], abs=1e-12)
    config = parse_config({"optimizer": {"schedule": "step", "decay_every": 2}})
    rates = [assemble.learning_rate(config, step) for step in range(5)]
    assert rates == pytest.approx([1.0, 1.0, 0.1, 0.1, 0.01])
