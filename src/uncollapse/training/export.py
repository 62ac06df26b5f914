"""A trained network as an ONNX file, checked against the outputs of torch."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from uncollapse._base.extras import import_extra
from uncollapse._base.files import written_aside

_TOLERANCE = 1e-4  # of the largest output


class ExportError(RuntimeError):
    """A network that cannot be exported, or whose export computes something else."""


def export_onnx(model: nn.Module, shape: Sequence[int], path: str | Path) -> float:
    """Write `model` for samples of `shape` (any batch size), run it, and compare with torch.

    The input is `images`, the output `embeddings`. Returns the largest difference from torch,
    relative to the largest output; nothing is left behind when it is too large.
    """
    if any(getattr(part, "reads_texts", False) for part in model.modules()):
        raise ExportError("only networks for images are exported to ONNX: this one reads texts")
    for package in ("onnx", "onnxscript"):
        import_extra(package, extra="onnx")
    runtime = import_extra("onnxruntime", extra="onnx")
    model = model.eval()
    samples = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    with written_aside(Path(path)) as aside:
        _write(model, samples[:2], aside)
        session = runtime.InferenceSession(str(aside), providers=["CPUExecutionProvider"])
        (output,) = session.run(["embeddings"], {"images": samples.numpy()})
        with torch.no_grad():
            truth = model(samples)
        size = float(truth.abs().max()) or 1.0
        difference = float((torch.from_numpy(output) - truth).abs().max()) / size
        if not difference <= _TOLERANCE:
            raise ExportError(f"the exported network differs from torch by {difference:.2g}")
    return difference


def _write(model: nn.Module, samples: torch.Tensor, path: Path) -> None:
    # The exporter prints its stages and warns about its own internals.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                model,
                (samples,),
                str(path),
                input_names=["images"],
                output_names=["embeddings"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                external_data=False,
            )
        except Exception as error:  # the exporter's errors have many types
            reason = str(error).strip().splitlines()[0]
            raise ExportError(f"this network cannot be exported to ONNX: {reason}") from error
