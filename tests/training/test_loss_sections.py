import inspect
import re
from typing import get_args

import pytest
import torch
from pydantic import ValidationError

from uncollapse import losses
from uncollapse._base.check import InputError
from uncollapse.losses import CrossBatchMemory, IdentityLoss, Loss, MultipleLosses, TrimmedLoss
from uncollapse.losses.base import Wrapper
from uncollapse.losses.combined import NECKS
from uncollapse.losses.memory import REFERENCES
from uncollapse.losses.regularizers import Regularizer
from uncollapse.mining import Miner
from uncollapse.training.assemble import build_loss
from uncollapse.training.config import parse_config, with_new_names
from uncollapse.training.sections import (
    LOSSES,
    LossConfig,
    OneOf,
    RegularizerConfig,
    TrainingSize,
)

SIZE = TrainingSize(classes=3, samples=12, dim=2, generator=torch.Generator().manual_seed(0))
REGULARIZERS = get_args(RegularizerConfig.model_fields["name"].annotation)
EVERY = pytest.mark.parametrize("section", LOSSES.values(), ids=LOSSES.keys())


def own_keys(section: type[LossConfig]) -> dict[str, object]:
    shared = LossConfig.model_fields.keys()
    return {k: f.default for k, f in section.model_fields.items() if k not in shared}


def sized(section: type[LossConfig]) -> dict[str, object]:
    """The arguments of its loss that follow from the training data."""
    sizes = {"num_classes": 3, "dim": 2, "generator": SIZE.generator, "size": None}
    return {k: v for k, v in sizes.items() if k in inspect.signature(section.kind).parameters}


def test_every_loss_has_a_section():
    built_on = {section.kind for section in LOSSES.values()}
    public = {getattr(losses, name) for name in losses.__all__}
    concrete = {x for x in public if isinstance(x, type) and issubclass(x, Loss)}
    added = {loss for loss in concrete if issubclass(loss, Wrapper | Regularizer)}
    # A run's batches have labels and no columns of pairs.
    assert built_on == concrete - added - {
        Loss,
        losses.TupleLoss,
        losses.MultipleNegativesRankingLoss,
    }
    made = {type(RegularizerConfig(name=name).build(False, SIZE)) for name in REGULARIZERS}
    assert made == {loss for loss in added if issubclass(loss, Regularizer)}


@EVERY
def test_a_section_has_the_keywords_of_its_loss_and_their_defaults(section):
    parameters = inspect.signature(section.kind).parameters
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
    of_the_data = sized(section)
    made = section.kind(**of_the_data)
    wanted = {
        k: getattr(made, k) if p.default is None else p.default
        for k, p in parameters.items()
        if k not in {"miner", *of_the_data}
    }
    assert own_keys(section) == wanted


@EVERY
def test_the_words_of_a_section_are_those_of_its_loss(section):
    for key, field in section.model_fields.items():
        words = next((m.words for m in field.metadata if isinstance(m, OneOf)), ())
        words = words or tuple(w for w in get_args(field.annotation) if isinstance(w, str))
        if not words or key == "name":
            continue
        name = "on" if key == "trim_on" else key
        size = {k: v for k, v in sized(section).items() if k != name}
        if key == "beta_per":
            size["size"] = 3

        def made(word, key=key, name=name, size=size, section=section):
            if key == "trim_on":
                return TrimmedLoss(section.kind(**size), fraction=0.5, on=word)
            return section.kind(**{name: word}, **size)

        with pytest.raises(InputError) as caught:
            made("nonsense")
        allowed = str(caught.value).split(", got")[0]
        assert set(re.findall(r"'([^']+)'", allowed)) == set(words)
        assert all(isinstance(made(word), Loss) for word in words)


def test_the_words_of_a_memory_and_a_classifier_are_those_of_their_losses():
    plain = LOSSES["triplet"]().build(None, SIZE)
    for word in REFERENCES:
        assert isinstance(CrossBatchMemory(plain, 8, references=word), Loss)
    for word in NECKS:
        assert isinstance(IdentityLoss(plain, num_classes=3, dim=2, neck=word), Loss)


@EVERY
def test_what_a_section_accepts_its_loss_accepts_and_what_it_refuses_it_refuses(section):
    tried = (-1e9, -1.0, -1e-9, 0.0, 1e-9, 1e-6, 0.5, 1.0, 3.0, float("inf"), float("nan"))
    for key, default in own_keys(section).items():
        if not isinstance(default, float | int) or isinstance(default, bool):
            continue
        for value in tried:
            number = int(value) if isinstance(default, int) and abs(value) < 1e9 else value
            given = {key: number}
            accepted = True
            try:
                made = section(**given)
            except ValidationError:
                accepted = False
            try:
                section.kind(**given, **sized(section))
            except InputError:
                assert not accepted, given
            else:
                assert accepted, given
                assert isinstance(made.build(None, SIZE), section.kind)


@EVERY
def test_a_section_builds_its_loss_with_its_settings_and_miner(section):
    miner = Miner("easy", "hard")
    loss = section().build(miner, SIZE)
    assert type(loss) is section.kind
    assert loss.miner is miner
    z = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    plain = section.kind(**sized(section), miner=miner)
    if list(plain.parameters()):
        plain.load_state_dict(loss.state_dict())
    assert torch.equal(loss(z, labels), plain(z, labels))


@EVERY
def test_every_loss_can_be_trimmed(section):
    loss = section(trim=0.5, trim_on="positives").build(None, SIZE)
    assert isinstance(loss, TrimmedLoss)
    assert type(loss.inner) is section.kind
    assert (loss.fraction, loss.on) == (0.5, "positives")


@EVERY
def test_every_loss_can_have_a_classifier_beside_it_trimmed_or_not(section):
    keys = {"identity": {"weight": 0.5, "label_smoothing": 0.1, "neck": "batch-norm"}}
    for trim in ({}, {"trim": 0.5}):
        miner = Miner("easy", "hard")
        loss = section(**keys, **trim).build(miner, SIZE)
        assert type(loss) is IdentityLoss
        assert (loss.weight, loss.label_smoothing, loss.neck) == (0.5, 0.1, "batch-norm")
        assert tuple(loss.classifier.shape) == (3, 2)
        assert type(loss.inner) is (TrimmedLoss if trim else section.kind)
        assert loss.miner is miner


@EVERY
@pytest.mark.parametrize("name", REGULARIZERS)
def test_every_loss_can_have_a_regulariser_beside_it(section, name):
    miner = Miner("easy", "hard")
    for more in ({}, {"trim": 0.5}, {"identity": {"weight": 0.5}}):
        added = {"name": name, "weight": 0.25}
        loss = section(regularizer=added, **more).build(miner, SIZE)
        assert type(loss) is MultipleLosses
        assert loss.weights == (1.0, 0.25)
        assert type(loss.inner) is type(section(**more).build(miner, SIZE))
        assert isinstance(loss.others[0], Regularizer)
        assert loss.miner is miner
        z = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
        assert loss(z, torch.tensor([0, 0, 1, 1, 2, 2])).requires_grad or not list(
            loss.parameters()
        )


@pytest.mark.parametrize("name", ["variance-covariance", "sigreg"])
def test_a_regulariser_sees_directions_where_the_loss_or_the_network_has_no_others(name):
    def sees(section, unit=False):
        size = TrainingSize(3, 12, 2, unit=unit)
        return section(regularizer={"name": name}).build(None, size).others[0].normalize

    assert not sees(LOSSES["triplet"])
    assert sees(LOSSES["triplet"], unit=True)
    assert sees(LOSSES["sup-con"])


def test_a_run_s_regulariser_knows_that_its_network_ends_in_a_normalisation():
    from uncollapse.data import load

    for unit in (False, True):
        config = parse_config(
            {
                "data": {"name": "digits"},
                "model": {"normalize": unit},
                "loss": {"regularizer": {"name": "sigreg", "weight": 0.02}},
            }
        )
        loss = build_loss(config, load("digits"))
        assert loss.others[0].normalize is unit
        assert loss.others[0].generator is not None


@EVERY
def test_a_regulariser_without_a_name_or_with_an_unknown_one_is_refused(section):
    name = section.model_fields["name"].default
    for given in ({"weight": 0.5}, {"name": "vicreg"}):
        with pytest.raises(InputError) as refused:
            parse_config({"loss": {"name": name, "regularizer": given}})
        assert refused.value.name == "loss.regularizer.name"


def test_the_classifier_is_drawn_from_the_generator():
    def drawn() -> torch.Tensor:
        size = TrainingSize(3, 12, 2, torch.Generator().manual_seed(7))
        return LOSSES["triplet"](identity={}).build(None, size).classifier

    assert torch.equal(drawn(), drawn())


def test_what_the_sections_accept_of_a_classifier_the_loss_accepts():
    plain = LOSSES["triplet"]().build(None, SIZE)
    tried = (-1.0, -1e-9, 1e-9, 0.5, 1.0, 1.0 + 1e-9, 3.0, float("inf"), float("nan"))
    for key in ("weight", "label_smoothing"):
        for value in tried:
            accepted = True
            try:
                LOSSES["triplet"](identity={key: value})
            except ValidationError:
                accepted = False
            try:
                IdentityLoss(plain, num_classes=3, dim=2, **{key: value})
            except InputError:
                assert not accepted, (key, value)
            else:
                assert accepted, (key, value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"memory": 64}, "loss.memory.size"),
        ({"memory_after": 3}, "loss.memory.after"),
        ({"memory_references": "fixed"}, "loss.memory.references"),
        ({"id_weight": 1.0}, "loss.identity.weight"),
        ({"id_neck": "batch-norm"}, "loss.identity.neck"),
        ({"label_smoothing": 0.1}, "loss.identity.label_smoothing"),
        ({"regularizer": "sigreg"}, "loss.regularizer.name"),
        ({"regularizer_weight": 0.2}, "loss.regularizer.weight"),
    ],
    ids=str,
)
def test_a_key_of_an_earlier_version_is_refused_with_its_new_place(old, new):
    with pytest.raises(InputError) as refused:
        parse_config({"loss": old})
    assert refused.value.allowed == f"{new}, its new place"
    section, _, key = new.removeprefix("loss.").partition(".")
    moved = with_new_names({"loss": old})["loss"]
    assert moved == {section: {key: next(iter(old.values()))}}


def test_options_arrive_at_the_loss():
    triplet = LOSSES["triplet"](margin=0.5, distance="squared", swap=True, reduction="max")
    loss = triplet.build(None, SIZE)
    assert (loss.margin, loss.distance, loss.swap, loss.reduction) == (0.5, "squared", True, "max")
    pairs = LOSSES["contrastive"](pos_margin=0.3, reduction="pairs").build(None, SIZE)
    assert (pairs.pos_margin, pairs.reduction) == (0.3, "pairs")


@pytest.mark.parametrize(("per", "count"), [("global", 1), ("class", 3), ("sample", 12)])
def test_betas_are_counted_by_the_data(per, count):
    section = LOSSES["margin"](beta_per=per)
    assert len(section.build(None, SIZE).beta) == count
    assert section.wants_sample_ids == (per == "sample")


def test_proxies_are_sized_by_the_data_and_drawn_from_the_generator():
    def proxies() -> torch.Tensor:
        size = TrainingSize(3, 12, 2, torch.Generator().manual_seed(7))
        return LOSSES["proxy-nca"](per_class=2).build(None, size).proxies

    assert proxies().shape == (3, 2, 2)
    assert torch.equal(proxies(), proxies())


@EVERY
def test_a_miner_takes_the_margin_of_a_loss_of_distances(section):
    name = section.model_fields["name"].default
    own = name in ("triplet", "margin", "contrastive")
    assert section().mining_margin == (own_keys(section)["margin"] if own else 0.2)


def test_only_the_plain_triplet_hinge_has_a_hinge_margin():
    triplet = LOSSES["triplet"]
    assert triplet(margin=0.3, reduction="nonzero").hinge_margin == 0.3
    for change in ("soft", "scale_free", "normalize", "swap"):
        assert triplet(**{change: True}).hinge_margin is None
    assert triplet(distance="squared").hinge_margin is None
    assert all(s().hinge_margin is None for name, s in LOSSES.items() if name != "triplet")
