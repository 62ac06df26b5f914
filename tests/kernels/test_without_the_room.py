"""Without the folder of compiled kernels everything imports, and gives the same."""

import json
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.processes

PROGRAM = """
import importlib.abc, json, pkgutil, sys
class Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] == ["uncollapse", "_kernels"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Gone())
import uncollapse as uc
from uncollapse._base.extras import compiled
for module in pkgutil.walk_packages(uc.__path__, "uncollapse."):
    if not module.name.startswith(("uncollapse._kernels", "uncollapse.__main__")):
        try:
            __import__(module.name)
        except ImportError as error:  # an optional package, but never ours
            assert not (error.name or "").startswith("uncollapse"), error
assert compiled.kernels is None
"""
FIGURES = """
import torch
import uncollapse as uc
x = torch.randn(160, 8, generator=torch.Generator().manual_seed(0))
y = torch.arange(160) % 8
figures = []
for loss in (
    uc.TripletLoss(),
    uc.TripletLoss(miner=uc.Miner("easy", "semihard"), normalize=True),
    uc.TripletLoss(miner=uc.Miner("hard", "hard"), scale_free=True),
    uc.MultiSimilarityLoss(miner=uc.Miner("easy", "multi_similarity")),
    uc.MarginLoss(miner=uc.Miner("easy", "hard")),
    uc.SupConLoss(),
):
    leaf = x.clone().requires_grad_()
    value = loss(leaf, y)
    value.backward()
    figures += [value.item(), leaf.grad.norm().item()]
figures += [float(index.sum()) for index in uc.Miner("easy", "hard")(x, y)]
figures += [uc.diameter(x)]
"""


def test_without_the_folder_everything_imports_and_gives_the_same():
    program = PROGRAM + FIGURES + "print(json.dumps(figures))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names = {}
    exec(FIGURES, names)
    torch.testing.assert_close(json.loads(done.stdout), names["figures"], rtol=1e-5, atol=1e-7)
