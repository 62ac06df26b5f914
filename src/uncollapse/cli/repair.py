"""`uncollapse repair`: centre or whiten a file of embeddings, and say whether that helps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

import uncollapse as uc
from uncollapse._base.check import InputError
from uncollapse._base.extras import import_extra
from uncollapse._base.files import written_aside
from uncollapse._base.table import Table, percent
from uncollapse.cli import options
from uncollapse.cli.printing import say, show, status

if TYPE_CHECKING:
    from uncollapse.metrics.repair import Repair, Transform

_NAMES = {"centre": "centring", "whiten": "whitening", "remove-top": "removing the top {}"}
_ENDINGS = {"--out": (".npz", ".parquet", ".safetensors"), "--transform": (".safetensors", ".onnx")}
_WORTH = 0.01  # of nearest neighbours: a change by fewer bits that is worth a line
_GRAPH = """<ir_version: 8, opset_import: ["": 13]>
repair (float[rows, {}] embeddings) => (float[rows, {}] repaired) {{
    centred = Sub(embeddings, mean)
    repaired = MatMul(centred, matrix)
}}"""


@options.grouped
def command(
    file: options.FileArgument,
    columns: options.Columns,
    centre: Annotated[bool, typer.Option("--centre", help="Subtract the mean.")] = False,
    whiten: Annotated[
        bool, typer.Option("--whiten", help="Centre, and give all axes like variance.")
    ] = False,
    remove_top: Annotated[
        int | None,
        typer.Option(metavar="K", help="Centre, and remove the K principal axes.", min=1),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The new file: .npz, .parquet or .safetensors.")
    ] = None,
    transform: Annotated[
        list[Path] | None,
        typer.Option(help="Write mean and matrix: .safetensors or .onnx. Can be repeated."),
    ] = None,
) -> None:
    """Repair a cone: centre or whiten embeddings, fitted on one half and judged on the other.

    What is written is what was judged: (x - mean) @ matrix, of the half that it was fitted on.
    Apply the transform to queries too.
    """
    from uncollapse.data.sources import check_ending, write_embeddings

    kinds = {"centre": centre, "whiten": whiten, "remove-top": remove_top is not None}
    if sum(kinds.values()) != 1:
        raise InputError.conflict("choose one of --centre, --whiten and --remove-top K")
    how = next(kind for kind, chosen in kinds.items() if chosen)
    for option, paths in {"--out": [out] if out else [], "--transform": transform or []}.items():
        for path in paths:
            check_ending(option, path, _ENDINGS[option])
    source = options.open_file(file, columns, drops=("invalid", "zero"))
    with status(f"fitting and judging {len(source):,} embeddings", len(source)):
        repair = uc.metrics.fit_repair(source.points, source.labels, how=how, top=remove_top or 0)
    name = _NAMES[how].format("axis" if remove_top == 1 else f"{remove_top} axes")
    fitted = f"fitted on a random half, {len(source) // 2:,} rows, judged on the other"
    say(f"{source.title}: {len(source):,} rows x {source.points.shape[1]}; {name}, {fitted}")
    show(_table(repair))
    for line in _verdict(repair, name):
        say(line)
    if out is not None:
        moved = replace(source, points=repair.transform.apply(source.points), origin=None)
        roles = ("labels", "fine_labels", "names", "texts", "images")
        kept = [role for role in roles if getattr(moved, role) is not None]
        say(f"wrote {write_embeddings(moved, out)}: {', '.join(['rows', *kept, *moved.columns])}")
    for path in transform or []:
        _write_transform(repair.transform, path)
        say(f"wrote {path}: (x - mean) @ matrix")


def _table(repair: Repair) -> Table:
    table = Table(["on the other half", "before", "after", "difference"])
    for metric, recall in repair.recalls.items():
        shares = (f"{100 * side.recall[1]:.1f} %" for side in (recall.old, recall.new))
        table.add(f"R@1, {metric}", *shares, recall.difference.text)
    sides = repair.before, repair.after
    cosines = (uc.health.verdict.cosine_text(side.cosine) for side in sides)
    table.add("mean cosine", *cosines, "")
    for bits, old, new in _stored(repair):
        table.add(f"nearest neighbours changed by {bits}", percent(old), percent(new), "")
    table.add("10 nearest by cosine that stay", "", percent(repair.kept), "")
    return table


def _stored(repair: Repair) -> list[tuple[str, float, float]]:
    """The shares of nearest neighbours that rows of fewer bits lose, before and after."""
    sides = repair.before, repair.after
    return [(bits, *(getattr(side, bits) for side in sides)) for bits in ("float16", "int8")]


def _verdict(repair: Repair, name: str) -> list[str]:
    """Whether it helps R@1 by cosine, and rows that are kept in fewer bits."""
    lines = ["without labels R@1 cannot be judged: name them with --labels"]
    if recall := repair.recalls.get("cosine"):
        low, high = recall.difference.low, recall.difference.high
        word = "helps" if low > 0 else "does harm" if high < 0 else "does not help"
        lines = [f"{name} {word} here: R@1 by cosine {recall}"]
    for bits, old, new in _stored(repair):
        if abs(old - new) >= _WORTH:
            word = "helps" if new < old else "harms"
            change = f"{percent(old)} → {percent(new)} of nearest neighbours change"
            lines.append(f"{name} {word} rows kept in {bits}: {change}")
    return lines


def _write_transform(transform: Transform, path: Path) -> None:
    """A .safetensors file of mean and matrix, or an ONNX graph from `embeddings` to `repaired`."""
    arrays = {"mean": transform.mean, "matrix": transform.matrix}
    arrays = {name: np.ascontiguousarray(a, np.float32) for name, a in arrays.items()}
    with written_aside(path) as aside:
        if path.suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file(arrays, aside)
            return
        onnx = import_extra("onnx", extra="onnx")
        model = onnx.parser.parse_model(_GRAPH.format(*transform.matrix.shape))
        tensors = [onnx.numpy_helper.from_array(values, name) for name, values in arrays.items()]
        model.graph.initializer.extend(tensors)
        onnx.save(model, aside)
