"""`uncollapse verify`: are two samples the same? ROC, EER and TAR at FAR of pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import uncollapse as uc
from uncollapse._base.check import InputError
from uncollapse.cli import options
from uncollapse.cli.embed import open_rows
from uncollapse.cli.printing import ScoreLine, line_table, say, show, warn, write

if TYPE_CHECKING:
    from uncollapse.data.sources import Source

_ENDINGS = (".html", ".png", ".svg")


@options.grouped
def command(
    source: options.SourceArgument,
    columns: options.Columns,
    run_options: options.RunOptions,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Pairs to judge: a table with the columns first, second and same, or LFW's "
            "pairs.txt.  \\[default: all pairs of rows, by their labels]"
        ),
    ] = None,
    metric: options.MetricOption = "euclidean",
    far: Annotated[
        str, typer.Option(metavar="RATES", help="False accept rates, separated by commas.")
    ] = "1e-1,1e-2,1e-3,1e-4,1e-5,1e-6",
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Skip pairs with a missing sample.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The ROC curve: a page (.html) or a plot (.png, .svg).")
    ] = None,
    json: options.JsonOption = None,
) -> None:
    """Verification of pairs at every threshold: ROC, EER, TAR at FAR, LFW's accuracy.

    A file may also be a table of pairs with the columns score and same.
    """
    settings: dict[str, Any] = {"normalize": options.normalizes(metric), "far": _rates(far)}
    if out is not None and out.suffix not in _ENDINGS:
        raise InputError("--out", out.name, f"a file ending in {', '.join(_ENDINGS)}")
    from uncollapse.data.pair_lists import read_scored_pairs

    scored = None
    if not options.is_run(source) and pairs is None and not columns.labels:
        scored = read_scored_pairs(source)
    if scored is not None:
        listed: dict[str, Any] = {"same": scored.same, "folds": scored.folds}
        result = uc.verification(scores=scored.scores, **listed, far=settings["far"])
        about = f"{source.name}: {result.same + result.different:,} scored pairs"
    else:
        rows = open_rows(source, columns, run_options).source
        if pairs is not None:
            result, about = _listed_pairs(rows, pairs, skip_missing, settings)
        elif rows.labels is not None:
            result = uc.verification(rows.points, rows.labels, **settings)
            about = f"{rows.title}: all pairs of {len(rows):,} rows"
        else:
            allowed = "--pairs, or labels: name them with --labels COLUMN or FILE"
            raise InputError(rows.title, f"no labels among {', '.join(rows.held)}", allowed)
        about += f", {metric}"
    say(about)
    table = line_table(_lines(result), threshold=result.unit)
    show(table)
    say(_how(result, all_pairs=pairs is None and scored is None))
    write(json, _as_json(result))
    if out is not None:
        from uncollapse.report.verification_page import save_verification

        say(f"wrote {save_verification(result, table, out, source.name, about)}")


def _listed_pairs(
    rows: Source, file: Path, skip_missing: bool, settings: dict[str, Any]
) -> tuple[uc.metrics.VerificationResult, str]:
    from uncollapse.data.pair_lists import match_pairs, read_pairs

    pairs = read_pairs(file)
    if isinstance(pairs.first[0], tuple) and rows.names is None:
        warn(f"{rows.title} has no names: the n-th row of a label is taken for its n-th picture")
    numbers, there = match_pairs(pairs, rows, Path(rows.title))
    lost = int((~there).sum())
    if lost and not (skip_missing and there.any()):
        first = int((~there).argmax())
        names = (side[first] for side in (pairs.first, pairs.second))
        example = " and ".join(repr(n) if isinstance(n, str) else f"{n[0]} {n[1]}" for n in names)
        has = f"{len(rows):,} rows and no names"
        if rows.names is not None:
            has = f"names such as {str(rows.names[0])!r}"
        raise uc.data.DataError(
            f"--pairs {file}: {lost:,} of {len(pairs):,} pairs name samples that {rows.title} does "
            f"not have, the first {example}; it has {has}. --skip-missing leaves them out"
        )
    if pairs.same is None and rows.labels is None:
        allowed = "a column same (1 or 0), or labels in the file of embeddings"
        raise InputError("--pairs", f"{file.name} with neither", allowed)
    result = uc.verification(
        rows.points,
        rows.labels,
        pairs=numbers[there],
        same=None if pairs.same is None else pairs.same[there],
        folds=None if pairs.folds is None else pairs.folds[there],
        **settings,
    )
    left_out = f" ({lost:,} left out: samples missing)" if lost else ""
    return result, f"{rows.title}: {int(there.sum()):,} pairs of {file.name}{left_out}"


def _lines(result: uc.metrics.VerificationResult) -> list[ScoreLine]:
    def line(name: str, title: str, value: Any, over: str, threshold: float | None) -> ScoreLine:
        note = "" if threshold is None else f"{threshold:.4g}"
        return ScoreLine(name, title, value, over, result.intervals.get(name), note=note)

    pairs = f"{result.same + result.different:,} pairs"
    lines = [
        line("auc", "AUC", result.auc, pairs, None),
        line("eer", "EER", result.eer, pairs, result.eer_threshold),
        line("accuracy", "best accuracy", result.accuracy, pairs, result.accuracy_threshold),
    ]
    if result.folds:
        over = f"{len(result.folds)} folds, ± {100 * (result.fold_standard_error or 0.0):.2f}"
        lines.append(line("", "fold accuracy", result.fold_accuracy, over, None))
    for rate, tar in result.tar.items():
        over = f"only {result.different:,} different" if tar is None else f"{result.same:,} same"
        title = f"TAR at FAR {rate:.0e}".replace("e-0", "e-")
        lines.append(line(f"tar@{rate:g}", title, tar, over, result.thresholds[rate]))
    return lines


def _how(result: uc.metrics.VerificationResult, *, all_pairs: bool) -> str:
    up = "up to its distance" if result.unit == "distance" else f"from its {result.unit} up"
    drawn = "bootstrap over classes" if all_pairs else "pairs taken as independent"
    text = f"A pair is accepted {up}. Intervals: {drawn}."
    if not result.exact:
        text += f" Counts are exact at each of {result.thresholds_tried:,} thresholds."
    return text


def _as_json(result: uc.metrics.VerificationResult) -> dict[str, Any]:
    """Every figure by name; infinite thresholds, which JSON lacks, as None."""
    figures = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in result.to_dict().items()
    }
    folds = {"folds": list(result.folds)} if result.folds else {}
    intervals = {name: interval.to_dict() for name, interval in result.intervals.items()}
    return figures | folds | {"intervals": intervals}


def _rates(text: str) -> list[float]:
    try:
        return [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        allowed = "numbers between 0 and 1, such as 1e-2,1e-3"
        raise InputError("--far", repr(text), allowed) from None
