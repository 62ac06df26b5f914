"""Every public function that takes embeddings or labels, in every form users have them in.

One table of entry points, run against the table of odd inputs; the last test prints how many
combinations that is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import uncollapse as uc
from odd_inputs import (
    BAD_EMBEDDINGS,
    BAD_LABELS,
    CLASSES,
    EMBEDDINGS,
    FINE,
    LABELS,
    NOT_FINITE,
    ROWS,
)
from uncollapse._base.check import InputError
from uncollapse.health.drifts import LOSSES as DRIFT_LOSSES
from uncollapse.losses import TupleLoss
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.losses.registry import LOSSES as REGISTERED
from uncollapse.losses.registry import make_loss
from uncollapse.mining import as_pairs, as_triplets, hardest_triplet
from uncollapse.noise import NoiseModel

Entry = Callable[[Any, Any], Any]  # of embeddings and labels
Z, Y = torch.tensor(ROWS), CLASSES.tolist()
OTHER = torch.tensor(ROWS[::-1].copy()) + 0.5
MODEL = NoiseModel(3, 0.8)
COUNTED: dict[str, int] = {}


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _proxies(**settings: Any) -> uc.ProxyNCALoss:
    return uc.ProxyNCALoss(num_classes=3, dim=3, generator=_generator(), **settings)


def _made(kind: type[TupleLoss]) -> Callable[[], nn.Module]:
    return lambda: make_loss(kind, {}, num_classes=3, dim=3, generator=_generator())


LOSSES: Mapping[str, Callable[[], nn.Module]] = {
    **{kind.__name__: _made(kind) for kind in REGISTERED.values()},
    "TripletLoss": lambda: uc.TripletLoss(margin=0.5),
    "TripletLoss soft": lambda: uc.TripletLoss(soft=True, reduction="nonzero"),
    "TripletLoss scale-free": lambda: uc.TripletLoss(margin=0.5, scale_free=True),
    "TripletLoss hardest negatives": lambda: uc.TripletLoss(scale_free="hardest-negative"),
    "TripletLoss squared": lambda: uc.TripletLoss(distance="squared"),
    "TripletLoss mined": lambda: uc.TripletLoss(miner=uc.Miner("hard", "hard")),
    "ContrastiveLoss": lambda: uc.ContrastiveLoss(margin=3.0),
    "MarginLoss": lambda: uc.MarginLoss(normalize=True),
    "MarginLoss per class": lambda: uc.MarginLoss(beta_per="class", size=3, normalize=True),
    "NPairLoss": lambda: uc.losses.NPairLoss(normalize=True),
    "TrimmedLoss": lambda: uc.losses.TrimmedLoss(uc.TripletLoss(margin=0.5), fraction=0.5),
    "TrimmedLoss of proxies": lambda: uc.losses.TrimmedLoss(_proxies(), fraction=0.5),
    "IdentityLoss": lambda: uc.IdentityLoss(
        uc.TripletLoss(margin=0.5), num_classes=3, dim=3, generator=_generator()
    ),
    "as_pml": lambda: uc.as_pml(uc.TripletLoss(margin=0.5)),
}


def _losses() -> Iterator[tuple[str, Entry]]:
    for name, make in LOSSES.items():
        yield name, lambda x, y, make=make: make()(x, y)
        if "pml" not in name and "Identity" not in name:  # which has none
            yield f"{name}.elements", lambda x, y, make=make: make().elements(x, y)
        if not isinstance(make(), ProxyLoss) and "proxies" not in name and "as_pml" not in name:
            yield (
                f"{name}, references",
                lambda x, y, make=make: make()(OTHER, CLASSES, ref_embeddings=x, ref_labels=y),
            )


def plain_loss(z: Tensor, labels: Any) -> Tensor:
    """A loss that is a function, as people write them."""
    return (z - z.mean(0)).square().mean()


def _guarded(x: Any, y: Any, loss: Any) -> list[Any]:
    model = nn.Linear(3, 3)
    guard = uc.Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)
    guard.after_step(x, y, 1.0)
    return [guard.monitor.verdict, guard.monitor.health.diameter]  # type: ignore[union-attr]


def _monitored(x: Any, y: Any) -> list[Any]:
    found = uc.CollapseMonitor().update(x, y)
    return [found.verdict, found.diameter, found.cdnv, found.norms.mean]


def _measured(x: Any, y: Any) -> list[Any]:
    found = uc.measure(x, y)
    return [found.verdict, found.diameter, found.separation, found.axes]


def _diagnosed(x: Any, y: Any) -> list[Any]:
    found = uc.diagnose(x, y)
    scores = [[*values.values()] for values in found.scores.values()]
    return [found.verdict, found.health.diameter, scores]


def _reid(first: bool) -> Entry:
    plain = (OTHER, CLASSES + 1, [1] * 12)

    def call(x: Any, y: Any) -> Any:
        mine = (x, y, [2] * 12)
        both = (*mine, *plain) if first else (*plain, *mine)
        return uc.reid(*both).to_dict()

    return call


def _descended(x: Any, y: Any) -> Tensor:
    return uc.geometry.gradient_descent_separated(x, y, 0.1, steps=2).points


def _drifts(x: Any, y: Any) -> list[float]:
    losses = {name: DRIFT_LOSSES[name] for name in ("triplet, margin 0.2", "contrastive")}
    found = uc.health.drift_table(x, y, losses=losses, positives=["easy"], negatives=["hard"], k=1)
    return [value for row in found for value in (row.drift.value, row.modes.value)]


def _claims(x: Any, y: Any, **more: Any) -> list[str]:
    return [claim.status for claim in uc.geometry.check_claims(x, y, starts=1, **more)]


BOTH: dict[str, Entry] = {
    "class_diameters": lambda x, y: list(uc.geometry.class_diameters(x, y).values()),
    "hard_mined_loss": uc.geometry.hard_mined_loss,
    "is_triplet_separated": uc.geometry.is_triplet_separated,
    "separation": uc.geometry.separation,
    "nearest_separated": lambda x, y: uc.geometry.nearest_separated(x, y, starts=1).value,
    "gradient_descent_separated": _descended,
    "check_claims": _claims,
    "cdnv": uc.metrics.cdnv,
    "nc1": uc.metrics.nc1,
    "nc2": uc.metrics.nc2,
    "nc3": lambda x, y: uc.metrics.nc3(x, y, np.eye(3)),
    "nc4": lambda x, y: uc.metrics.nc4(x, y, y),
    "lidar": uc.metrics.lidar,
    "pi_ratio": uc.metrics.pi_ratio,
    "alignment": uc.metrics.alignment,
    "field_figures": uc.metrics.field_figures,
    "measure": _measured,
    "CollapseMonitor.update": _monitored,
    "Guard.after_step": lambda x, y: _guarded(x, y, uc.TripletLoss(miner=uc.Miner())),
    "Guard.after_step, function": lambda x, y: _guarded(x, y, plain_loss),
    "drift": lambda x, y: uc.drift(uc.TripletLoss(margin=0.5), x, y).value,
    "drift, function": lambda x, y: uc.drift(plain_loss, x, y).value,
    "drift, batches": lambda x, y: uc.drift(uc.TripletLoss(margin=0.5), [(x, y)]).value,
    "mode_drift": lambda x, y: uc.mode_drift(uc.TripletLoss(margin=0.5), x, y, k=1).value,
    "mode_drift, function": lambda x, y: uc.mode_drift(plain_loss, x, y, k=1).exact,
    "mode_drift, batches": lambda x, y: uc.mode_drift(uc.TripletLoss(), [(x, y)], k=1).inside,
    "drift_table": _drifts,
    "Miner": lambda x, y: uc.Miner("easy", "semihard")(x, y),
    "Miner all": lambda x, y: uc.Miner("all", "all")(x, y),
    "Miner, references": lambda x, y: uc.Miner("hard", "hard")(OTHER, CLASSES, x, y),
    "hardest_triplet": hardest_triplet,
    "clustering": lambda x, y: uc.clustering(x, y).to_dict(),
    "modes_per_class, fine": lambda x, y: uc.metrics.modes_per_class(x, y, FINE).modes,
    "modes_per_class": lambda x, y: uc.metrics.modes_per_class(x, y).modes,
    "retrieval": lambda x, y: uc.retrieval(x, y).to_dict(),
    "retrieval, gallery": lambda x, y: uc.retrieval(OTHER, CLASSES, x, y).to_dict(),
    "reid": _reid(first=True),
    "reid, gallery": _reid(first=False),
    "estimate_noise": lambda x, y: uc.noise.estimate_noise(x, y).p,
    "zero_triplet_margin": uc.noise.zero_triplet_margin,
    "zero_margin_boundaries": uc.noise.zero_margin_boundaries,
    "expected_contrastive": lambda x, y: uc.noise.expected_loss("contrastive", x, y, MODEL),
    "expected_triplet": lambda x, y: uc.noise.expected_loss("triplet", x, y, MODEL),
    "expected_margin": lambda x, y: uc.noise.expected_loss("margin", x, y, MODEL, beta=1.0),
    "expected_eps_triplet": lambda x, y: uc.noise.expected_loss("eps-triplet", x, y, MODEL),
    "expected_eps_margin": lambda x, y: uc.noise.expected_loss("eps-margin", x, y, MODEL, beta=1.0),
    "hausdorff_like": lambda x, y: uc.geometry.hausdorff_like(x, OTHER, y),
    "diagnose": _diagnosed,
    **dict(_losses()),
}
POINTS: dict[str, Callable[[Any], Any]] = {
    "diameter": uc.diameter,
    "thickness": lambda x: uc.geometry.thickness(x).upper,
    "iap_constant": uc.geometry.iap_constant,
    "effective_rank": uc.metrics.effective_rank,
    "principal_axes": uc.metrics.principal_axes,
    "rankme": uc.metrics.rankme,
    "rho_spectrum": uc.metrics.rho_spectrum,
    "alpha_req": lambda x: uc.metrics.alpha_req(x, ranks=(1, 3)),
    "pcf": uc.metrics.pcf,
    "uniformity": uc.metrics.uniformity,
    "anisotropy": uc.metrics.anisotropy,
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
        }.items()
        for place in ("first", "second")
    },
}
ONLY_LABELS: dict[str, Callable[[Any], Any]] = {
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
VALUES: dict[str, Callable[[Any], Any]] = {
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


def numbers(found: Any) -> list[float]:
    """Every number of a result, in order; words by their text."""
    if isinstance(found, Tensor):
        return numbers(found.detach().double().flatten().tolist())
    if isinstance(found, np.ndarray):
        return numbers(found.tolist())
    if found is None or isinstance(found, str):
        return [float(sum(map(ord, str(found))))]
    if isinstance(found, bool | int | float | np.number):
        return [float(found)]
    if isinstance(found, Mapping):
        return numbers(list(found.values()))
    if dataclasses.is_dataclass(found):
        return numbers(list(vars(found).values()))
    return [number for part in found for number in numbers(part)]


def assert_alike(entry: Callable[[Any], Any], plain: Any, forms: Mapping[str, Any]) -> None:
    """The entry gives the same for every form as for the plain one."""
    expected, wrong = numbers(entry(plain)), []
    for name, value in forms.items():
        try:
            found = numbers(entry(value))
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if not np.allclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong.append(f"{name}: {found[:4]} for {expected[:4]}")
    assert not wrong, "\n".join(wrong)


def assert_refused(entry: Callable[[Any], Any], forms: Mapping[str, Any]) -> None:
    """The entry refuses every form: a sentence with argument, what was given and allowed."""
    wrong = []
    for name, value in forms.items():
        try:
            found = entry(value)
        except InputError as error:
            text = str(error)
            if ": expected " not in text or ", got " not in text or len(text) > 400:
                wrong.append(f"{name}: {text}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
        else:
            wrong.append(f"{name}: gave {str(found)[:60]}")
    assert not wrong, "\n".join(wrong)


def counted(kind: str, entry: str, forms: int) -> None:
    COUNTED[f"{kind}: {entry}"] = forms


def _only(names: Mapping[str, Any], *, without: tuple[str, ...]) -> dict[str, Any]:
    return {k: v for k, v in names.items() if not any(word in k for word in without)}


def _fewer(name: str, forms: Mapping[str, Any]) -> dict[str, Any]:
    """Every fifth form for what takes half a second a call: all of them meet in one function."""
    slow = name.startswith(("check_claims", "nearest_separated"))
    return dict(list(forms.items())[:: 5 if slow else 1])


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", [*BOTH, *POINTS])
def test_embeddings_of_every_form_give_one_result(name: str):
    forms = {form: make(ROWS) for form, make in _fewer(name, EMBEDDINGS).items()}
    known = (CLASSES + 1).tolist() if name.startswith("reid") else Y
    entry = (lambda x: BOTH[name](x, known)) if name in BOTH else POINTS[name]
    counted("embeddings", name, len(forms))
    assert_alike(entry, Z, forms)


@pytest.mark.parametrize("name", [*BOTH, *ONLY_LABELS])
def test_labels_of_every_form_give_one_result(name: str):
    known = LABELS
    if name.startswith(NUMBERED):
        known = _only(LABELS, without=("names", "bytes"))
    elif (
        "references" in name or "gallery" in name or "reid" in name
    ):  # both sets of labels must be of one kind
        known = _only(LABELS, without=("names", "name ", "bytes"))
    known = _fewer(name, known)
    values = CLASSES + 1 if name.startswith("reid") else CLASSES
    forms = {form: make(values) for form, make in known.items()}
    entry = (lambda y: BOTH[name](Z, y)) if name in BOTH else ONLY_LABELS[name]
    counted("labels", name, len(forms))
    assert_alike(entry, values.tolist(), forms)


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_form_give_one_result(name: str):
    forms = {
        form: make(ROWS[:, :1])
        for form, make in _only(EMBEDDINGS, without=("list", "tuple")).items()
    }
    flat = {k: v.flatten() if hasattr(v, "flatten") else Flat(v) for k, v in forms.items()}
    flat["list"] = ROWS[:, 0].tolist()
    counted("values", name, len(flat))
    assert_alike(VALUES[name], ROWS[:, 0], flat)


class Flat:
    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.frame).ravel()


@pytest.mark.parametrize("name", [*BOTH, *POINTS])
def test_embeddings_that_nobody_can_use_are_refused_in_a_sentence(name: str):
    forms = dict(BAD_EMBEDDINGS)
    if name.endswith(("references", "gallery", "end", "distances, second", "kmeans, init")):
        del forms["None"]  # is the default there
    if not name.startswith(TELL):
        forms |= NOT_FINITE
    entry = (lambda x: BOTH[name](x, Y)) if name in BOTH else POINTS[name]
    counted("bad embeddings", name, len(forms))
    assert_refused(entry, forms)


@pytest.mark.parametrize("name", [*(n for n in BOTH if n != "drift, function"), *ONLY_LABELS])
def test_labels_that_nobody_can_use_are_refused_in_a_sentence(name: str):
    forms = _only(BAD_LABELS, without=("few", "many") if name in ANY_LENGTH else ())
    entry = (lambda y: BOTH[name](Z, y)) if name in BOTH else ONLY_LABELS[name]
    counted("bad labels", name, len(forms))
    assert_refused(entry, forms)


@pytest.mark.parametrize("name", VALUES)
def test_values_that_are_no_list_of_numbers_are_refused_in_a_sentence(name: str):
    forms = _only(BAD_EMBEDDINGS, without=("labels", "one dimension"))
    counted("bad values", name, len(forms))
    assert_refused(VALUES[name], forms)


@pytest.mark.parametrize("name", BOTH)
def test_swapped_arguments_are_called_so(name: str):
    counted("swapped", name, 1)
    with pytest.raises(InputError, match=r"swapped|first"):
        BOTH[name](CLASSES, ROWS + 0.25)


@pytest.mark.parametrize("name", [*BOTH, *POINTS])
@settings(max_examples=8)
@given(data=st.data())
def test_a_random_view_of_random_numbers_is_read_as_its_values(name: str, data: st.DataObject):
    """Any strides, offset, byte order and width: what counts is what the array says."""
    if name.startswith(("check_claims", "nearest_separated", "diagnose", "fine_", "clustering")):
        return  # slow, and their way in is the others'
    seed = data.draw(st.integers(0, 999))
    dtype = data.draw(st.sampled_from(["<f8", ">f8", "<f4", ">f4", "<f2", ">f2", "<i2", ">i8"]))
    step = data.draw(st.sampled_from([-2, -1, 1, 2, 3]))
    turned = data.draw(st.booleans())
    values = np.random.default_rng(seed).permutation(64)[:36].reshape(12, 3).astype(np.float64)
    wide = np.zeros((12, 3 * abs(step)), dtype, order="F" if turned else "C")
    wide[:, ::step] = values
    odd = wide[:, ::step]
    known = (CLASSES + 1).tolist() if name.startswith("reid") else Y
    entry = (lambda x: BOTH[name](x, known)) if name in BOTH else POINTS[name]
    precise = torch.tensor(
        values, dtype=torch.float64 if dtype[1] == "i" or "8" in dtype else torch.float32
    )
    COUNTED[f"random: {name}"] = COUNTED.get(f"random: {name}", 0) + 1
    assert numbers(entry(odd)) == pytest.approx(
        numbers(entry(precise)), rel=1e-4, abs=1e-5, nan_ok=True
    )


@given(
    names=st.lists(st.text(max_size=6), min_size=12, max_size=12),
    numbered=st.booleans(),
)
def test_labels_are_what_they_are_called(names: list[str], numbered: bool):
    """Names of any text make the classes that equal names make."""
    ids = [sorted(set(names)).index(name) for name in names]
    given_labels: Any = np.array(names, dtype=object) if numbered else names
    found = uc.geometry.class_diameters(Z, given_labels)
    assert list(found.values()) == list(uc.geometry.class_diameters(Z, ids).values())
    if len(set(names)) > 1:
        found_ranks, ranks = uc.retrieval(Z, given_labels), uc.retrieval(Z, ids)
        assert str(found_ranks.to_dict()) == str(ranks.to_dict())  # NaN where none has a match
        mined = uc.Miner("all", "all")
        assert numbers(mined(Z, given_labels)) == numbers(mined(Z, ids))


def test_the_table_is_counted(request: pytest.FixtureRequest):
    """Last in the file: prints how many combinations of entry point and input were run."""
    total = sum(COUNTED.values())
    kinds: dict[str, int] = {}
    for name, number in COUNTED.items():
        kind = name.partition(":")[0]
        kinds[kind] = kinds.get(kind, 0) + number
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        print(
            f"\n{len(BOTH) + len(POINTS) + len(ONLY_LABELS) + len(VALUES)} entry points, "
            f"{total} combinations: {listed}"
        )
    if len(kinds) == 8:  # the whole file ran
        assert total > 6000
