"""ONNX: the file computes what torch computes, for any batch; otherwise nothing is left behind."""

import numpy as np
import pytest
import torch
from torch import nn

from uncollapse.training.export import ExportError, export_onnx

onnxruntime = pytest.importorskip("onnxruntime")


def outputs(path, images):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["embeddings"], {"images": images.numpy()})[0]


def test_the_file_computes_the_same_for_any_batch_size(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(model, nn.Linear(3 * 36, 4)).train()
    path = tmp_path / "new" / "model.onnx"
    assert export_onnx(model, (1, 8, 8), path) < 1e-5
    assert not model.training
    images = torch.randn(5, 1, 8, 8)
    with torch.no_grad():
        expected = model(images).numpy()
    np.testing.assert_allclose(outputs(path, images), expected, rtol=1e-4, atol=1e-5)
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]


class Twofold(nn.Module):
    """Exports twice what it computes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x):
        return self.linear(x) * (2 if torch.compiler.is_exporting() else 1)


def test_a_file_that_computes_something_else_is_refused_and_the_old_one_kept(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with pytest.raises(ExportError, match="differs from torch by"):
        export_onnx(Twofold(), (4,), path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


class Branching(nn.Module):
    """Decides by its values: there is no one graph of it."""

    def forward(self, x):
        return x if x.sum() > 0 else x * 2


def test_a_network_that_cannot_be_exported_is_a_clear_error(tmp_path):
    with pytest.raises(ExportError, match="cannot be exported to ONNX"):
        export_onnx(Branching(), (4,), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
