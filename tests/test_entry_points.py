"""Every public function that takes embeddings or labels, in every form users have them in.

The entry points come from the registry of losses and the public names of the packages; those that
need further arguments are listed. All run against the table of odd inputs.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import uncollapse as uc
from support import odd_inputs
from support.odd_inputs import BAD_EMBEDDINGS, BAD_LABELS, CLASSES, EMBEDDINGS, FINE, LABELS, ROWS
from uncollapse._base.check import InputError
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.losses.registry import LOSSES as REGISTERED
from uncollapse.losses.registry import make_loss
from uncollapse.mining import as_pairs, as_triplets
from uncollapse.noise import NoiseModel

Entry = Callable[[Any, Any], Any]  # of embeddings and labels
Z, Y = torch.tensor(ROWS), CLASSES.tolist()
OTHER = torch.tensor(ROWS[::-1].copy()) + 0.5
SEEN = (OTHER, CLASSES + 1, [1] * 12)  # by another camera
MODEL = NoiseModel(3, 0.8)


def _generator():
    return torch.Generator().manual_seed(0)


def _made(kind):
    return lambda: make_loss(kind, {}, num_classes=3, dim=3, generator=_generator())


LOSSES = {
    **{kind.__name__: _made(kind) for kind in REGISTERED.values()},
    "TripletLoss mined": lambda: uc.TripletLoss(miner=uc.Miner("hard", "hard")),
    "MarginLoss per class": lambda: uc.MarginLoss(beta_per="class", size=3, normalize=True),
    "TrimmedLoss": lambda: uc.losses.TrimmedLoss(uc.TripletLoss(margin=0.5), fraction=0.5),
    "IdentityLoss": lambda: uc.IdentityLoss(
        uc.TripletLoss(margin=0.5), num_classes=3, dim=3, generator=_generator()
    ),
    "as_pml": lambda: uc.as_pml(uc.TripletLoss(margin=0.5)),
}


def _losses():
    for name, make in LOSSES.items():
        yield name, lambda x, y, make=make: make()(x, y)
        if "pml" not in name and "Identity" not in name:  # which has none
            yield f"{name}.elements", lambda x, y, make=make: make().elements(x, y)
        if not isinstance(make(), ProxyLoss) and "as_pml" not in name:
            yield (
                f"{name}, references",
                lambda x, y, make=make: make()(OTHER, CLASSES, ref_embeddings=x, ref_labels=y),
            )


def _needing(*wanted):
    """Public functions whose required arguments are called so."""
    packages = [uc.metrics, uc.geometry, uc.noise, uc.mining]
    for package in packages:
        for name in package.__all__:
            if inspect.isfunction(function := getattr(package, name)):
                parameters = inspect.signature(function).parameters.values()
                needed = [
                    p.name for p in parameters if p.default is p.empty and p.kind < p.VAR_KEYWORD
                ]
                if len(needed) == len(wanted) and all(map(set.__contains__, wanted, needed)):
                    yield name, function


def plain_loss(z, labels):
    """A loss that is a function, as people write them."""
    return (z - z.mean(0)).square().mean()


def _guarded(x, y, loss):
    model = nn.Linear(3, 3)
    guard = uc.Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)
    guard.after_step(x, y, 1.0)
    return [guard.monitor.verdict, guard.monitor.health.diameter]  # type: ignore[union-attr]


def _health(health):
    return [health.verdict, health.diameter, health.separation, health.cdnv, health.axes]


def _diagnosed(x, y):
    result = uc.diagnose(x, y)
    return [*_health(result.health), [[*values.values()] for values in result.scores.values()]]


def _claims(x, y, **more):
    return [claim.status for claim in uc.geometry.check_claims(x, y, starts=1, **more)]


TRIPLETS = uc.TripletLoss(margin=0.5)
BOTH = {
    **dict(_needing({"x", "embeddings", "embedding", "queries"}, {"labels", "query_labels"})),
    "nearest_separated": lambda x, y: uc.geometry.nearest_separated(x, y, starts=1).value,
    "gradient_descent_separated": lambda x, y: (
        uc.geometry.gradient_descent_separated(x, y, 0.1, steps=2).points
    ),
    "check_claims": _claims,
    "suspect_labels": lambda x, y: uc.suspect_labels(x, y).wrong,
    "estimate_noise": lambda x, y: uc.noise.estimate_noise(x, y).p,
    "measure": lambda x, y: _health(uc.measure(x, y)),
    "CollapseMonitor.update": lambda x, y: _health(uc.CollapseMonitor().update(x, y)),
    "Guard.after_step": lambda x, y: _guarded(x, y, uc.TripletLoss(miner=uc.Miner())),
    "Guard.after_step, function": lambda x, y: _guarded(x, y, plain_loss),
    "drift": lambda x, y: uc.drift(TRIPLETS, x, y).value,
    "drift, function": lambda x, y: uc.drift(plain_loss, x, y).value,
    "drift, batches": lambda x, y: uc.drift(TRIPLETS, [(x, y)]).value,
    "mode_drift": lambda x, y: uc.mode_drift(TRIPLETS, x, y, k=1).value,
    "Miner": lambda x, y: uc.Miner("easy", "semihard")(x, y),
    "Miner all": lambda x, y: uc.Miner("all", "all")(x, y),
    "Miner, references": lambda x, y: uc.Miner("hard", "hard")(OTHER, CLASSES, x, y),
    "modes_per_class, fine": lambda x, y: uc.metrics.modes_per_class(x, y, FINE).modes,
    "retrieval, gallery": lambda x, y: uc.retrieval(OTHER, CLASSES, x, y),
    "reid": lambda x, y: uc.reid(x, y, [2] * 12, *SEEN),
    "reid, gallery": lambda x, y: uc.reid(*SEEN, x, y, [2] * 12),
    **{
        f"expected_{loss}": lambda x, y, loss=loss: uc.noise.expected_loss(
            loss, x, y, MODEL, **{"beta": 1.0} if "margin" in loss else {}
        )
        for loss in ("contrastive", "triplet", "margin", "eps-triplet", "eps-margin")
    },
    "hausdorff_like": lambda x, y: uc.geometry.hausdorff_like(x, OTHER, y),
    "diagnose": _diagnosed,
    **dict(_losses()),
}
POINTS = {
    **dict(_needing({"x"})),
    "kmeans": lambda x: uc.metrics.kmeans(x, 3).inertia,
    "kmeans, init": lambda x: uc.metrics.kmeans(Z, 12, init=x).inertia,
    "pairwise_distances": uc.pairwise_distances,
    "measure, no labels": lambda x: uc.measure(x).diameter,
    "diagnose, no labels": lambda x: uc.diagnose(x).health.diameter,
    "VarianceCovarianceLoss": lambda x: uc.losses.VarianceCovarianceLoss()(x),
    "CodingRateLoss": lambda x: uc.losses.CodingRateLoss()(x),
    "SIGRegLoss": lambda x: uc.losses.SIGRegLoss(generator=_generator())(x),
    "check_claims, end": lambda x: _claims(OTHER, Y, end=x),
    **{
        f"{name}, {place}": (lambda x, f=f: f(x, OTHER))
        if place == "first"
        else (lambda x, f=f: f(OTHER, x))
        for name, f in {
            "best_isometry": lambda a, b: uc.geometry.best_isometry(a, b, "l2").error,
            "hausdorff": uc.geometry.hausdorff,
            "hausdorff_like": lambda a, b: uc.geometry.hausdorff_like(a, b, Y),
            "isometric_error": uc.geometry.isometric_error,
            "set_distance": uc.geometry.set_distance,
            "paired_distances": uc.distances.paired_distances,
            "pairwise_distances": uc.pairwise_distances,
            "rerank": lambda a, b: uc.metrics.rerank(a, b).distances(),
        }.items()
        for place in ("first", "second")
    },
}
ONLY_LABELS = {
    "PKSampler": lambda y: list(uc.PKSampler(y, 2, 2, seed=0)),
    "UniformBatchSampler": lambda y: list(uc.samplers.UniformBatchSampler(y, 4, seed=0)),
    "check_batches": lambda y: uc.check_batches(uc.PKSampler(CLASSES, 2, 2, seed=0), y, n=3),
    "check_batches, fine": lambda y: uc.check_batches(
        uc.PKSampler(CLASSES, 2, 2, seed=0), CLASSES, n=3, fine_labels=y
    ),
    "mode_chance": lambda y: uc.samplers.mode_chance(CLASSES % 2, y, 2),
    "normalized_mutual_information": lambda y: uc.metrics.normalized_mutual_information(FINE, y),
    "pairwise_f1": lambda y: uc.metrics.pairwise_f1(y, FINE),
    "as_pairs": lambda y: as_pairs(None, y),
    "as_triplets": lambda y: as_triplets(None, y),
    "confidence, groups": lambda y: uc.confidence(ROWS[:, 0], groups=y, resamples=100),
    "modes_per_class, fine": lambda y: uc.metrics.modes_per_class(Z, CLASSES, y).fine_classes,
    "measure, fine": lambda y: uc.diagnose(Z, CLASSES, y).verdict,
}
VALUES = {
    "confidence": lambda v: uc.confidence(v, resamples=100),
    "over_seeds": uc.metrics.over_seeds,
    "compare_seeds, first": lambda v: uc.metrics.compare_seeds(v, ROWS[:, 1]),
    "compare_seeds, second": lambda v: uc.metrics.compare_seeds(ROWS[:, 1], v),
}
# A batch that is not finite is what these are there to tell: they say so, and do not raise.
TELL = ("measure", "CollapseMonitor", "Guard", "diagnose")
# Their classes are those of a model: names have no place in it.
NUMBERED = ("expected_",)
# The labels of a whole dataset: there is nothing their number must agree with.
ANY_LENGTH = ("PKSampler", "UniformBatchSampler", "check_batches", "as_pairs", "as_triplets")


def numbers(result):
    """Every number of a result, in order; words by their text."""
    if isinstance(result, Tensor):
        return numbers(result.detach().double().flatten().tolist())
    if isinstance(result, np.ndarray):
        return numbers(result.tolist())
    if result is None or isinstance(result, str):
        return [float(sum(map(ord, str(result))))]
    if isinstance(result, bool | int | float | np.number):
        return [float(result)]
    if hasattr(result, "to_dict"):
        return numbers(result.to_dict())
    if isinstance(result, Mapping):
        return numbers(list(result.values()))
    if dataclasses.is_dataclass(result):
        return numbers(list(vars(result).values()))
    return [number for part in result for number in numbers(part)]


def assert_alike(entry, plain, forms):
    """The entry gives the same for every form as for the plain one."""
    expected, wrong = numbers(entry(plain)), []
    for name, value in forms.items():
        try:
            result = numbers(entry(value))
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if not np.allclose(result, expected, rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong.append(f"{name}: {result[:4]} for {expected[:4]}")
    assert not wrong, "\n".join(wrong)


def assert_refused(entry, forms):
    """The entry refuses every form: a sentence with argument, what was given and allowed."""
    wrong = []
    for name, value in forms.items():
        try:
            result = entry(value)
        except InputError as error:
            if not error.name or len(str(error)) > 400:
                wrong.append(f"{name}: {error}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
        else:
            wrong.append(f"{name}: gave {str(result)[:60]}")
    assert not wrong, "\n".join(wrong)


def _only(names, *, without):
    return {k: v for k, v in names.items() if not any(word in k for word in without)}


SLOW = ("check_claims", "nearest_separated", "Guard", "diagnose", "measure, fine")
LOSS_NAMES = [name for name, _ in _losses()]


def _fewer(name, forms):
    """Some forms for what is slow, and for losses, which read in one function: others for each."""
    if name in LOSS_NAMES:
        return dict(list(forms.items())[LOSS_NAMES.index(name) % 5 :: 5])
    return dict(list(forms.items())[:: 9 if name.startswith(SLOW) else 1])


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", [*BOTH, *POINTS])
def test_embeddings_of_every_form_give_one_result(name):
    forms = {form: make(ROWS) for form, make in _fewer(name, EMBEDDINGS).items()}
    known = (CLASSES + 1).tolist() if name.startswith("reid") else Y
    entry = (lambda x: BOTH[name](x, known)) if name in BOTH else POINTS[name]
    assert_alike(entry, Z, forms)


@pytest.mark.parametrize("name", [*BOTH, *ONLY_LABELS])
def test_labels_of_every_form_give_one_result(name):
    known = LABELS
    if name.startswith(NUMBERED):
        known = _only(LABELS, without=("names", "bytes"))
    elif "references" in name or "gallery" in name or "reid" in name:  # two sets, of one kind
        known = _only(LABELS, without=("names", "name ", "bytes"))
    values = CLASSES + 1 if name.startswith("reid") else CLASSES
    forms = {form: make(values) for form, make in _fewer(name, known).items()}
    entry = (lambda y: BOTH[name](Z, y)) if name in BOTH else ONLY_LABELS[name]
    assert_alike(entry, values.tolist(), forms)


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_form_give_one_result(name):
    known = _only(EMBEDDINGS, without=("list", "tuple", "frame"))
    flat = {form: make(ROWS[:, :1]).flatten() for form, make in known.items()}
    frame = EMBEDDINGS["data frame"](ROWS[:, 0])
    assert_alike(VALUES[name], ROWS[:, 0], flat | {"list": ROWS[:, 0].tolist(), "frame": frame})


@pytest.mark.parametrize("name", [*BOTH, *POINTS])
def test_embeddings_that_nobody_can_use_are_refused_in_a_sentence(name):
    forms = dict(BAD_EMBEDDINGS)
    if name.endswith(("references", "gallery", "end", "distances, second", "kmeans, init")):
        del forms["None"]  # is the default there
    if not name.startswith(TELL):
        forms |= odd_inputs.NOT_FINITE
    entry = (lambda x: BOTH[name](x, Y)) if name in BOTH else POINTS[name]
    assert_refused(entry, _fewer(name, forms))


@pytest.mark.parametrize("name", [*(n for n in BOTH if n != "drift, function"), *ONLY_LABELS])
def test_labels_that_nobody_can_use_are_refused_in_a_sentence(name):
    forms = _only(BAD_LABELS, without=("few", "many") if name in ANY_LENGTH else ())
    entry = (lambda y: BOTH[name](Z, y)) if name in BOTH else ONLY_LABELS[name]
    assert_refused(entry, _fewer(name, forms))


@pytest.mark.parametrize("name", VALUES)
def test_values_that_are_no_list_of_numbers_are_refused_in_a_sentence(name):
    assert_refused(VALUES[name], _only(BAD_EMBEDDINGS, without=("labels", "one dimension")))


@pytest.mark.parametrize("name", BOTH)
def test_swapped_arguments_are_called_so(name):
    with pytest.raises(InputError, match=r"swapped|first"):
        BOTH[name](CLASSES, ROWS + 0.25)


QUICK = [name for name in (*BOTH, *POINTS) if not name.startswith((*SLOW, "clustering"))]


@given(data=st.data())
def test_a_random_view_of_random_numbers_is_read_as_its_values(data):
    """Any strides, offset, byte order and width: what counts is what the array says."""
    name, seed = data.draw(st.sampled_from(QUICK)), data.draw(st.integers(0, 999))
    dtype = data.draw(st.sampled_from(["<f8", ">f8", "<f4", ">f4", "<f2", ">f2", "<i2", ">i8"]))
    step, turned = data.draw(st.sampled_from([-2, -1, 1, 2, 3])), data.draw(st.booleans())
    values = np.random.default_rng(seed).permutation(64)[:36].reshape(12, 3).astype(np.float64)
    wide = np.zeros((12, 3 * abs(step)), dtype, order="F" if turned else "C")
    wide[:, ::step] = values
    known = (CLASSES + 1).tolist() if name.startswith("reid") else Y
    entry = (lambda x: BOTH[name](x, known)) if name in BOTH else POINTS[name]
    double = dtype[1] == "i" or "8" in dtype
    plain = torch.tensor(values, dtype=torch.float64 if double else torch.float32)
    expected = pytest.approx(numbers(entry(plain)), rel=1e-4, abs=1e-5, nan_ok=True)
    assert numbers(entry(wide[:, ::step])) == expected


@given(names=st.lists(st.text(max_size=6), min_size=12, max_size=12), as_objects=st.booleans())
def test_labels_are_what_they_are_called(names, as_objects):
    """Names of any text make the classes that equal names make."""
    ids = [sorted(set(names)).index(name) for name in names]
    labels = np.array(names, dtype=object) if as_objects else names
    assert numbers(uc.geometry.class_diameters(Z, labels)) == numbers(
        uc.geometry.class_diameters(Z, ids)
    )
    if len(set(names)) > 1:
        # As text, for NaN where none has a match.
        assert str(numbers(uc.retrieval(Z, labels))) == str(numbers(uc.retrieval(Z, ids)))
        mined = uc.Miner("all", "all")
        assert numbers(mined(Z, labels)) == numbers(mined(Z, ids))
