"""PML's own tests of the losses and miners we share, run against ours: a table of what fails, why.

python tools/pml_tests.py CHECKOUT            a checkout of pytorch-metric-learning with its tests
python tools/pml_tests.py CHECKOUT --verbose  every failing test with its reason

`pytorch_metric_learning.losses.X` is replaced by ours behind `as_pml`, with the arguments of the
constructor translated as docs/pml-names.md has it. Where these have no translation the object is
PML's own, and the test is passed in part. A failure without a known reason ends in an exit code of
1. PML itself is the installed one, not the checkout's.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
import traceback
import unittest
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parent))
from _pml_aliases import LEFT, or_else
from _pml_losses import LOSSES
from _pml_miners import MINERS

FILES = {
    "losses": {
        "ArcFaceLoss": "arcface_loss",
        "SubCenterArcFaceLoss": "subcenter_arcface_loss",
        "CosFaceLoss": "cosface_loss",
        "CircleLoss": "circle_loss",
        "ContrastiveLoss": "contrastive_loss",
        "MarginLoss": "margin_loss",
        "MultiSimilarityLoss": "multi_similarity_loss",
        "NPairsLoss": "npairs_loss",
        "NTXentLoss, SupConLoss": "ntxent_loss",
        "ProxyAnchorLoss": "proxy_anchor_loss",
        "ProxyNCALoss": "proxy_nca_loss",
        "SmoothAPLoss": "smooth_ap_loss",
        "SoftTripleLoss": "soft_triple_loss",
        "TripletMarginLoss": "triplet_margin_loss",
        "all, without labels": "losses_without_labels",
        "in MultipleLosses": "multiple_losses",
        "in SelfSupervisedLoss": "self_supervised_loss",
    },
    "miners": {
        "BatchHardMiner": "batch_hard_miner",
        "BatchEasyHardMiner": "batch_easy_hard_miner",
        "BatchEasyHardMiner, labels": "batch_easy_hard_miner_labels",
        "MultiSimilarityMiner": "multi_similarity_miner",
        "TripletMarginMiner": "triplet_margin_miner",
    },
}
_NU = "`nu` weighs the mean of the β's here, and there their sum over triplets (see Names)"
REASONS = {  # of tests that fail by design
    "TestMarginLoss.test_margin_loss": _NU,
    "TestMarginLoss.test_margin_loss_with_ref": _NU,
    "TestNTXentLoss.test_with_no_valid_pairs": "`SupConLoss` of one class alone is log |P|, the "
    "paper's formula, and 0 in PML",
    "TestBatchEasyHardMiner.test_dist_mining": 'with `"all"` PML also names pairs of anchors that '
    "have none of the other kind; ours are triplets",
}


class Outcome(NamedTuple):
    """One test: its name, why it failed if it did, whether by a known reason, what was PML's."""

    test: str
    why: str = ""
    known: bool = True
    left: tuple[str, ...] = ()


@contextlib.contextmanager
def aliased(replacements: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Replace names of PML's packages; test modules are imported anew, and forgotten after."""
    saved = []
    for package, names in replacements.items():
        module = importlib.import_module(f"pytorch_metric_learning.{package}")
        for name, made in names.items():
            saved.append((module, name, getattr(module, name)))
            setattr(module, name, or_else(made, saved[-1][2]))
    try:
        yield
    finally:
        for module, name, was in saved:
            setattr(module, name, was)
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]


def outcomes(package: str, file: str) -> list[Outcome]:
    """Run the tests of one file of the checkout, each from the same random state."""
    with contextlib.redirect_stdout(io.StringIO()):
        module = importlib.import_module(f"tests.{package}.test_{file}")
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    found = []
    for test in _flat(suite):
        torch.manual_seed(0)
        LEFT.clear()
        result = unittest.TestResult()
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _Recording(result).run(test)
        one = _judged(".".join(test.id().split(".")[-2:]), result)
        found.append(one._replace(left=tuple(dict.fromkeys(LEFT))))
    return found


class _Recording:
    """Runs a test and keeps the exception itself beside the text that unittest makes of it."""

    def __init__(self, result: unittest.TestResult) -> None:
        self.result = result

    def run(self, test: unittest.TestSuite | unittest.TestCase) -> None:
        errors: list[BaseException] = []
        add = self.result.addError, self.result.addFailure

        def keep(index: int) -> Any:
            def added(test: Any, err: Any) -> None:
                errors.append(err[1])
                add[index](test, err)

            return added

        self.result.addError, self.result.addFailure = keep(0), keep(1)  # type: ignore[method-assign]
        unittest.TestSuite([test]).run(self.result)
        self.result.raised = errors  # type: ignore[attr-defined]


def _judged(name: str, result: unittest.TestResult) -> Outcome:
    raised: list[BaseException] = result.raised  # type: ignore[attr-defined]
    if not raised:
        return Outcome(name)
    error = raised[0]
    if name in REASONS:
        return Outcome(name, REASONS[name])
    frame = traceback.extract_tb(error.__traceback__)
    own = [f for f in frame if "/tests/" in f.filename]
    place = own[-1] if own else frame[-1]
    said = f"{type(error).__name__} at line {place.lineno}: {place.line or error} {error}"
    return Outcome(name, said, known=False)


def _flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for one in suite:
        yield from _flat(one) if isinstance(one, unittest.TestSuite) else [one]  # type: ignore[misc]


def main() -> int:
    """Run both, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="*", help="some of the files, by a part of their name")
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    if not (chosen.checkout / "tests" / "losses").is_dir():
        parser.error(f"{chosen.checkout} has no tests/losses: give a checkout of PML's repository")
    os.environ.setdefault("TEST_DEVICE", "cpu")
    os.environ.setdefault("TEST_DTYPES", "float32,float64")  # float16 rounds in the tests' own sums
    torch.set_num_threads(1)
    sys.path.insert(0, str(chosen.checkout.resolve()))
    print(
        "| PML's tests of | tests | PML passes | ours pass | in part | fails, or is left to PML |"
    )
    print("|---" * 6 + "|")
    explained = True
    for package, files in FILES.items():
        for name, file in files.items():
            if chosen.only and not any(part in file for part in chosen.only):
                continue
            if not (chosen.checkout / "tests" / package / f"test_{file}.py").is_file():
                print(f"| {name} | 0 | | | | the checkout has no test of it |")
                continue
            with aliased({}):
                peer = outcomes(package, file)
            with aliased({"losses": LOSSES, "miners": MINERS}):
                ours = outcomes(package, file)
            explained &= all(one.known for one in ours)
            print(_line(name, peer, ours), flush=True)
            for one in ours if chosen.verbose else ():
                print(f"    {one.test}: {one.why or 'passes'} {one.left or ''}", flush=True)
    return 0 if explained else 1


def _line(name: str, peer: list[Outcome], ours: list[Outcome]) -> str:
    whys = [one.why for one in ours if one.why]
    whys += [f"left to PML: {part}" for one in ours for part in one.left if not one.why]
    passed, fine = ([one for one in some if not one.why] for some in (ours, peer))
    part = sum(bool(one.left) for one in passed)
    told = "; ".join(dict.fromkeys(whys))
    return f"| {name} | {len(ours)} | {len(fine)} | {len(passed)} | {part or ''} | {told} |"


if __name__ == "__main__":
    sys.exit(main())
