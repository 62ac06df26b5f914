"""`uncollapse embed` and `uncollapse export`: a trained run put to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from uncollapse.data import LabelledImages
    from uncollapse.data.embeddings import Embeddings
    from uncollapse.data.origin import Origin
    from uncollapse.training import Run

__all__ = [
    "BestOption",
    "RootOption",
    "SplitOption",
    "TrustOption",
    "embed_command",
    "export_command",
    "sample_names",
    "split_images",
    "usual_split",
]

RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
SplitOption = Annotated[
    str | None,
    typer.Option(help="A split of the run's dataset; by default the last it is evaluated on."),
]
RootOption = Annotated[Path | None, typer.Option(help="Where the dataset is.")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Import code that the run's config names, whoever made it.")
]
BestOption = Annotated[bool, typer.Option("--best", help="Use the best checkpoint.")]


def embed_command(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="A .npz, .parquet or .safetensors file.")],
    images: Annotated[
        list[Path] | None, typer.Option(help="Image files or folders, instead of a split.")
    ] = None,
    split: SplitOption = None,
    data_root: RootOption = None,
    best: BestOption = False,
    trust: TrustOption = False,
) -> None:
    """Embed images, or a split of the run's dataset, into a file.

    The file keeps the names of the images, and for a split its labels, cameras where there are any,
    and the run's scale before training, which `uncollapse diagnose` compares with.
    """
    from rich.console import Console

    from uncollapse import training
    from uncollapse.cli.network_choice import choose, said
    from uncollapse.data.embeddings import write_embeddings

    found = training.Run.open(run, trust=trust)
    chosen = choose(found, best)
    split = split or usual_split(found)
    data = split_images(found, images, split, data_root)
    console = Console()
    with console.status(f"embedding {len(data):,} samples"):
        points = training.embed(chosen.model, data)
    origin = _origin(found, chosen.step, None if images else split)
    path = write_embeddings(_described(points.numpy(), data, origin), out)
    scale = f"; reference: {origin.start}" if origin.start is not None else ""
    say(console, f"wrote {len(data):,} embeddings to {path}: {said(chosen)}{scale}")


def export_command(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The ONNX file.")] = Path("model.onnx"),
    best: BestOption = False,
    trust: TrustOption = False,
) -> None:
    """Export the network to ONNX, and check that it computes the same."""
    from rich.console import Console

    from uncollapse.cli.network_choice import choose, said
    from uncollapse.training import Run
    from uncollapse.training.export import export_onnx

    chosen = choose(Run.open(run, trust=trust), best)
    result = export_onnx(chosen.model, chosen.checkpoint.state["shape"], out)
    same = f"its outputs differ from torch's by {result.difference:.1e}"
    say(Console(), f"wrote {result.path}: {said(chosen)}; {same}")


def usual_split(run: Run) -> str:
    """The last split the run is evaluated on, or the one it is trained on."""
    splits = run.config.data
    return [splits.train_split, *splits.eval_splits][-1]


def split_images(
    run: Run, files: list[Path] | None, split: str, root: Path | None
) -> LabelledImages:
    """The images of these files, or of a split of the run's dataset."""
    from uncollapse.cli.skipped_files import tell_skipped
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.lookup import images_of_files

    if files:
        return images_of_files(files, run)
    found = load_eval_data(run.config.with_root(root), split)
    tell_skipped(found, split)
    return found


def sample_names(data: LabelledImages, known: bool) -> list[str]:
    """How each sample is called in a table: its file, or its row and class."""
    if data.files is not None:
        return list(data.files)
    classes = [data.class_names.get(int(c), str(int(c))) for c in data.labels]
    return [f"{row} ({name})" if known else str(row) for row, name in enumerate(classes)]


def _origin(run: Run, step: int, split: str | None) -> Origin:
    """Where rows come from, with the run's first scale; a warning where that is not known.

    Images of one's own get none: few of them, or of another kind, are no smaller for being shrunk.
    """
    from uncollapse._base.files import DamagedFileError
    from uncollapse.cli.errors import warn
    from uncollapse.data.origin import Origin
    from uncollapse.training import NotMeasuredError

    start = None
    try:
        start = None if split is None else run.measures().start(split)
    except (DamagedFileError, NotMeasuredError) as error:
        warn(f"{error}. The file holds no scale to compare with")
    return Origin(run.path.resolve().name, step, split, start, run.config.loss.normalizes)


def _described(points: object, data: LabelledImages, origin: Origin) -> Embeddings:
    import numpy as np

    from uncollapse.data.embeddings import Embeddings

    array, known = np.asarray(points), origin.split is not None
    names = np.array(sample_names(data, known))
    if not known:
        return Embeddings(array, names=names, origin=origin)
    fine = None if data.fine_labels is None else data.fine_labels.numpy()
    beside = {} if data.cameras is None else {"cameras": data.cameras.numpy()}
    return Embeddings(array, data.labels.numpy(), fine, names, origin, columns=beside)
