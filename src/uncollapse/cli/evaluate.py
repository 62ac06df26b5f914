"""`uncollapse evaluate`: how good a run's embedding is, or that of any file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli.embed import TrustOption
from uncollapse.cli.file_options import (
    FeaturesOption,
    IdOption,
    IgnoreOption,
    LabelOption,
    LabelsOption,
    is_run,
    only_for,
)
from uncollapse.cli.plain_lines import say
from uncollapse.cli.rerank_options import (
    K1Option,
    K2Option,
    LambdaOption,
    RerankOption,
    re_ranking_of,
    said,
)
from uncollapse.cli.score_tables import pair_table, score_pairs, split_tables

if TYPE_CHECKING:
    from uncollapse.metrics import ReRanking

__all__ = ["evaluate_command"]

_RUN, _FILE = "For a run directory", "For a file of embeddings"


def evaluate_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FILE",
            help="A run directory; or embeddings: .npz, .npy, .safetensors, .parquet or .csv.",
        ),
    ],
    clustering: Annotated[
        bool | None,
        typer.Option(
            "--clustering/--no-clustering",
            help="Also compute NMI of k-means.  \\[default: for a file searched in itself]",
        ),
    ] = None,
    multiplier: Annotated[
        int, typer.Option(help="Clusters per class: NMI+ of the EPS paper is 10.", min=1)
    ] = 1,
    split: Annotated[
        list[str] | None,
        typer.Option(
            help="Splits to evaluate.  \\[default: the config's]",
            rich_help_panel=_RUN,
        ),
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Where the dataset is.", rich_help_panel=_RUN)
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Use the best checkpoint.", rich_help_panel=_RUN)
    ] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure the run for reports, if it has no measures.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    trust: TrustOption = False,
    gallery: Annotated[
        Path | None,
        typer.Option(
            help="A file to search in.  \\[default: each row searches all others]",
            rich_help_panel=_FILE,
        ),
    ] = None,
    split_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="A column that says which rows are queries and which the gallery.",
            rich_help_panel=_FILE,
        ),
    ] = None,
    query_value: Annotated[
        str, typer.Option(help="Its value for queries.", rich_help_panel=_FILE)
    ] = "query",
    gallery_value: Annotated[
        str, typer.Option(help="Its value for the gallery.", rich_help_panel=_FILE)
    ] = "gallery",
    cameras: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="A column of cameras: use the Market-1501 re-identification protocol.",
            rich_help_panel=_FILE,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            metavar="cosine|euclidean", help="The distance to use.", rich_help_panel=_FILE
        ),
    ] = "euclidean",
    ks: Annotated[
        list[str] | None,
        typer.Option("-k", metavar="1,5,10", help="Ranks to report.", rich_help_panel=_FILE),
    ] = None,
    intervals: Annotated[
        str,
        typer.Option(
            metavar="queries|classes",
            help="What the bootstrap resamples: queries, or whole classes (wider).",
            rich_help_panel=_FILE,
        ),
    ] = "queries",
    max_rows: Annotated[
        int,
        typer.Option(
            help="Queries that are scored, and rows that are clustered; of more, so many are "
            "drawn. The gallery is searched whole.",
            min=8,
            rich_help_panel=_FILE,
        ),
    ] = 30_000,
    json: Annotated[
        Path | None, typer.Option(help="Write the figures to this file.", rich_help_panel=_FILE)
    ] = None,
    labels: LabelsOption = None,
    fine_labels: Annotated[
        Path | None,
        typer.Option(
            help="A third file, with finer labels to evaluate by as well.",
            rich_help_panel="Columns of a file",
        ),
    ] = None,
    features: FeaturesOption = None,
    label: LabelOption = None,
    id_: IdOption = None,
    ignore: IgnoreOption = None,
    rerank: RerankOption = False,
    k1: K1Option = None,
    k2: K2Option = None,
    lambda_value: LambdaOption = None,
) -> None:
    """Evaluate a run on any split, or a file of embeddings, by coarse and fine labels.

    A file: R@k, mAP, MAP@R, R-precision and NMI; with --cameras mAP, CMC and mINP. The queries of a
    run's dataset that has a gallery with cameras: R@k (CMC), mAP and mINP, as Market-1501 has it.
    Pairs of a run's dataset (lfw's, or data.pairs): accuracy over folds, AUC, EER and TAR at FAR.
    """
    re_ranking = re_ranking_of(rerank, k1, k2, lambda_value)
    of_runs = {
        "--split": split,
        "--data-root": data_root,
        "--best": best,
        "--measure": measure,
        "--trust": trust,
    }
    of_files = {
        "--gallery": gallery,
        "--split-column": split_column,
        "--cameras": cameras,
        "-k": ks,
        "--json": json,
        "--labels": labels,
        "--fine-labels": fine_labels,
        "--features": features,
        "--label": label,
        "--id": id_,
        "--ignore": ignore,
    }
    if is_run(source):
        way = "embed the run into a file, and evaluate that"
        only_for("a run directory", way, of_files)
        wanted: dict[str, object] = {"clustering": bool(clustering) or multiplier > 1}
        wanted |= {"multiplier": multiplier, "reid_share": 1.0}  # all of it: nothing is trained on
        _evaluate_run(source, split, data_root, best, wanted, measure, trust, re_ranking)
        return
    way = "--split-column says which rows of a file to take" if split else "it is of a run"
    only_for("a file of embeddings", way, of_runs)
    from uncollapse.cli.file_options import open_embeddings
    from uncollapse.data.sources import read_labels

    columns = {"--split-column": split_column, "--cameras": cameras}
    found = open_embeddings(source, labels, features, label, id_, ignore, columns)
    finer = None if fine_labels is None else read_labels(fine_labels)
    other = None
    if gallery is not None:
        other = open_embeddings(gallery, None, features, label, id_, ignore, {"--cameras": cameras})
    from uncollapse.cli.file_scores import evaluate_file
    from uncollapse.cli.file_sides import Question

    asked = Question(
        split_column=split_column,
        query_value=query_value,
        gallery_value=gallery_value,
        cameras=cameras,
        metric=metric,
        ks=ks,
        intervals=intervals,
        max_rows=max_rows,
        clustering=clustering,
        multiplier=multiplier,
        rerank=re_ranking,
    )
    evaluate_file(source, found, finer, gallery, other, asked, json)


def _evaluate_run(
    run: Path,
    split: list[str] | None,
    data_root: Path | None,
    best: bool,
    wanted: dict[str, object],
    measure: bool,
    trust: bool,
    rerank: ReRanking | None,
) -> None:
    from rich.console import Console
    from rich.status import Status

    from uncollapse import training
    from uncollapse._base.check import InputError
    from uncollapse.cli.before_training import scores_before
    from uncollapse.cli.errors import warn
    from uncollapse.cli.network_choice import choose
    from uncollapse.cli.network_choice import said as which
    from uncollapse.cli.skipped_files import tell_skipped
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.evaluation import evaluate_splits, find_checks, find_searches
    from uncollapse.training.run import ends_below

    found = training.Run.open(run, trust=trust)
    console = Console()
    if measure:
        with console.status("measuring the network before and after training"):
            training.measure_run(found, data_root=data_root, warn=warn)
    config = found.config.with_root(data_root)
    if config.train.keep_memory:
        training.keep_memory()
    settings = config.evaluate.model_copy(update=wanted)
    chosen = choose(found, best)
    scores: dict[str, float] = {}
    searched: list[str] = []
    for name in split or config.data.eval_splits:
        data = load_eval_data(config, name)
        tell_skipped(data, name)
        searches, unsearched = find_searches(config, {name: data})
        checks, unchecked = find_checks(config, {name: data}, searches)
        for text in [*unsearched, *unchecked]:
            warn(text)
        if rerank is not None and name not in searches:
            allowed = "splits of queries that search a gallery, both with cameras (--split)"
            raise InputError("--rerank", f"split {name!r}", allowed)
        for search in searches.values():
            tell_skipped(search.gallery, "gallery")
            searched.append(f"{name}: {search.describe(settings)}")
        searched += [f"{name}: {check.describe()}" for check in checks.values()]
        with console.status(f"embedding {len(data):,} samples of {name}") as status:

            def step(done: int, total: int, name: str = name, status: Status = status) -> None:
                status.update(f"re-ranking {name}: {done:,} of {total:,} rows")

            seen = evaluate_splits(
                chosen.model, {name: data}, settings, searches=searches, checks=checks,
                rerank=rerank, progress=step,
            )  # fmt: skip
        scores |= seen.flat()
    scores, pairs = score_pairs(scores)
    start = scores_before(found, config, settings, scores, console)
    console.print(*split_tables(scores, start))
    if rerank is not None:
        for name, (plain, reranked) in pairs.items():
            say(console, f"{name}: {said(rerank)}")
            console.print(pair_table(plain, reranked))
    for line in [*ends_below(start, scores), *searched]:
        say(console, line)
    say(console, f"{which(chosen)}: {found.path}")
