"""`uncollapse embed` and `uncollapse export`: a trained run put to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli.file_options import must_exist, only_for
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from uncollapse.data import LabelledImages
    from uncollapse.data.sources import Embeddings
    from uncollapse.data.readers import Origin
    from uncollapse.training import Run

__all__ = [
    "BestOption",
    "RootOption",
    "SplitOption",
    "TrustOption",
    "check_kind",
    "embed_command",
    "export_command",
    "sample_names",
    "split_images",
    "usual_split",
]

RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
SplitOption = Annotated[
    str | None,
    typer.Option(help="A split of the run's dataset; by default the last one it is evaluated on."),
]
RootOption = Annotated[Path | None, typer.Option(help="Where the dataset is.")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Import code that the run's config names, whoever wrote it.")
]
BestOption = Annotated[bool, typer.Option("--best", help="Use the best checkpoint.")]


def embed_command(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|BACKBONE",
            help="A run directory, or an untrained text backbone, sentence:NAME.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="A .npz, .parquet or .safetensors file.")],
    images: Annotated[
        list[Path] | None, typer.Option(help="Image files or folders, instead of a split.")
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DATASET",
            help="Texts, instead of a split: a .csv, .jsonl, .parquet or .txt file.",
        ),
    ] = None,
    split: SplitOption = None,
    data_root: RootOption = None,
    best: BestOption = False,
    trust: TrustOption = False,
) -> None:
    """Embed images or texts, or a split of the run's dataset, into a file.

    The file keeps the names of the images or the texts, and for a split its labels, cameras where
    there are any, and the run's scale before training, which `uncollapse diagnose` compares with.
    """
    from uncollapse.cli.text_choice import GivenTexts, given_texts, is_text_backbone

    if not is_text_backbone(run):
        must_exist(run)
    from rich.console import Console

    from uncollapse import training
    from uncollapse.cli.network_choice import choose, said
    from uncollapse.data.sources import write_embeddings

    if is_text_backbone(run):
        only_for("a backbone", "it is of a run", {"--images": images, "--best": best})
        _embed_plainly(run, texts, split, data_root, out)
        return
    found = training.Run.open(run, trust=trust)
    check_kind(found, images, texts)
    chosen = choose(found, best)
    words = None if texts is None else given_texts([texts], split, data_root)
    name = split or usual_split(found)
    data = split_images(found, images, name, data_root) if words is None else words.data
    console = Console()
    with console.status(f"embedding {len(data):,} samples"):
        points = training.embed(chosen.model, data).numpy()
    origin = _origin(found, chosen.step, None if images or words else name)
    if data.holds_texts:
        described = (words or GivenTexts(data, known=True)).described(points, origin)
    else:
        described = _described(points, data, origin)
    path = write_embeddings(described, out)
    scale = f"; reference: {origin.start}" if origin.start is not None else ""
    say(console, f"wrote {len(data):,} embeddings to {path}: {said(chosen)}{scale}")


def export_command(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The ONNX file.")] = Path("model.onnx"),
    best: BestOption = False,
    trust: TrustOption = False,
) -> None:
    """Export the network to ONNX, and check that it computes the same."""
    must_exist(run)
    from rich.console import Console

    from uncollapse.cli.network_choice import choose, said
    from uncollapse.training import Run
    from uncollapse.training.assemble import trains_on_texts
    from uncollapse.training.export import ExportError, export_onnx

    found = Run.open(run, trust=trust)
    if trains_on_texts(found.config):
        raise ExportError(f"{run} is a run on texts: only networks for images are exported to ONNX")
    chosen = choose(found, best)
    result = export_onnx(chosen.model, chosen.checkpoint.state["shape"], out)
    same = f"its outputs differ from torch's by {result.difference:.1e}"
    say(Console(), f"wrote {result.path}: {said(chosen)}; {same}")


def usual_split(run: Run) -> str:
    """The last split the run is evaluated on, or the one it is trained on."""
    splits = run.config.data
    return [splits.train_split, *splits.eval_splits][-1]


def check_kind(run: Run, images: object, texts: object) -> None:
    """Refuse images for a run on texts, and texts for one on images."""
    from uncollapse.training.assemble import trains_on_texts

    if trains_on_texts(run.config):
        only_for("a run on texts", "name texts with --texts", {"--images": images})
    else:
        only_for("a run on images", "name images with --images", {"--texts": texts})


def split_images(
    run: Run, files: list[Path] | None, split: str, root: Path | None
) -> LabelledImages:
    """The images of these files, or of a split of the run's dataset."""
    from uncollapse.cli.skipped_files import tell_skipped
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.evaluation import images_of_files

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


def _embed_plainly(
    backbone: Path, texts: str | None, split: str | None, root: Path | None, out: Path
) -> None:
    """Texts through a backbone that nobody has trained further."""
    from rich.console import Console

    from uncollapse import training
    from uncollapse._base.check import InputError
    from uncollapse.cli.text_choice import given_texts, text_backbone
    from uncollapse.data.sources import write_embeddings

    if texts is None:
        raise InputError("--texts", "nothing", "a file or dataset of texts for this backbone")
    words, console = given_texts([texts], split, root), Console()
    with console.status(f"embedding {len(words.data):,} texts"):
        points = training.embed(text_backbone(backbone), words.data).numpy()
    path = write_embeddings(words.described(points), out)
    say(console, f"wrote {len(words.data):,} embeddings to {path}: {backbone} as it comes")


def _origin(run: Run, step: int, split: str | None) -> Origin:
    """Where rows come from, with the run's first scale; a warning where that is not known.

    Images of one's own get none: few of them, or of another kind, are no smaller for being shrunk.
    """
    from uncollapse._base.files import DamagedFileError
    from uncollapse.cli.errors import warn
    from uncollapse.data.readers import Origin
    from uncollapse.training import NotMeasuredError

    start = None
    try:
        start = None if split is None else run.measures().start(split)
    except (DamagedFileError, NotMeasuredError) as error:
        warn(f"{error}. The file holds no scale to compare with")
    return Origin(run.path.resolve().name, step, split, start, run.config.loss.normalizes)


def _described(points: object, data: LabelledImages, origin: Origin) -> Embeddings:
    import numpy as np

    from uncollapse.data.sources import Embeddings

    array, known = np.asarray(points), origin.split is not None
    names = np.array(sample_names(data, known))
    if not known:
        return Embeddings(array, names=names, origin=origin)
    fine = None if data.fine_labels is None else data.fine_labels.numpy()
    beside = {} if data.cameras is None else {"cameras": data.cameras.numpy()}
    return Embeddings(array, data.labels.numpy(), fine, names, origin, columns=beside)
