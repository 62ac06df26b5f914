"""`uncollapse verify`: are two samples the same? ROC, EER and TAR at FAR of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uncollapse.cli.file_options import (
    FeaturesOption,
    IdOption,
    IgnoreOption,
    LabelOption,
    LabelsOption,
    MetricOption,
    is_cosine,
    open_embeddings,
)
from uncollapse.cli.plain_lines import say
from uncollapse.cli.score_tables import ScoreLine, line_table

if TYPE_CHECKING:
    from uncollapse.data.sources import Embeddings
    from uncollapse.metrics import VerificationResult

__all__ = ["verify_command"]

_ENDINGS = (".html", ".png", ".svg")


def verify_command(
    file: Annotated[
        Path,
        typer.Argument(
            help="Embeddings: .npz, .npy, .safetensors, .parquet or .csv; or a table with the "
            "columns score and same."
        ),
    ],
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Pairs to judge: a table with the columns first, second and same, or LFW's "
            "pairs.txt.  \\[default: all pairs of rows, by their labels]"
        ),
    ] = None,
    metric: MetricOption = "cosine",
    far: Annotated[
        str, typer.Option(metavar="RATES", help="False accept rates, separated by commas.")
    ] = "1e-1,1e-2,1e-3,1e-4,1e-5,1e-6",
    folds: Annotated[
        int | None,
        typer.Option(
            help="Accuracy over this many folds, in the order listed.  \\[default: the "
            "list's own folds]",
            min=2,
        ),
    ] = None,
    skip_missing: Annotated[
        bool,
        typer.Option("--skip-missing", help="Skip pairs with a sample that is not in the file."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The ROC curve: a page (.html) or a plot (.png, .svg).")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    labels: LabelsOption = None,
    features: FeaturesOption = None,
    label: LabelOption = None,
    id_: IdOption = None,
    ignore: IgnoreOption = None,
) -> None:
    """Verification of pairs at every threshold: ROC, EER, TAR at FAR, LFW's accuracy."""
    from rich.console import Console

    from uncollapse._base.check import InputError
    from uncollapse.data.pair_lists import read_scored_pairs

    cosine = is_cosine(metric)
    if out is not None and out.suffix not in _ENDINGS:
        raise InputError("--out", out.name, f"a file ending in {', '.join(_ENDINGS)}")
    rates = _rates(far)
    scored = read_scored_pairs(file) if pairs is None and label is None else None
    console = Console()
    if scored is not None:
        from uncollapse.metrics import verification

        parts = scored.folds if folds is None else folds
        result = verification(scores=scored.scores, same=scored.same, folds=parts, far=rates)
        said = f"{file.name}: {len(scored.scores):,} scored pairs"
    else:
        found = open_embeddings(file, labels, features, label, id_, ignore)
        if pairs is None:
            if found.labels is None:
                allowed = "--pairs, or labels: say with --label which column holds them"
                raise InputError(file.name, f"no labels among {', '.join(found.held)}", allowed)
            if folds is not None:
                raise InputError("--folds", folds, "--pairs beside it, whose order makes the folds")
            from uncollapse.metrics import verification

            result = verification(found.points, found.labels, normalize=cosine, far=rates)
            said = f"{file.name}: all pairs of {len(found):,} rows, {metric}"
        else:
            result, said = _listed(file, found, pairs, cosine, rates, folds, skip_missing)
            said += f", {metric}"
    lines = _lines(result)
    say(console, said)
    console.print(line_table(lines, threshold=result.unit))
    say(console, _about(result, pairs is None and scored is None))
    if json is not None:
        from uncollapse._base.files import write_json

        intervals = {name: one.to_dict() for name, one in result.intervals.items()}
        folds_found = {"folds": list(result.fold_accuracy)} if result.fold_accuracy else {}
        write_json(json, _plain(result.to_dict()) | folds_found | {"intervals": intervals})
        say(console, f"wrote {json}")
    if out is not None:
        from uncollapse.report.page import Table
        from uncollapse.report.roc_charts import save_verification

        head = ["figure", "%", "95 % interval", result.unit, "over"]
        rows = [_cells(line) for line in lines]
        written = save_verification(result, Table(head, rows), out, file.name, said)
        say(console, f"wrote {written}")


def _listed(
    file: Path,
    found: Embeddings,
    pairs: Path,
    cosine: bool,
    rates: list[float],
    folds: int | None,
    skip_missing: bool,
) -> tuple[VerificationResult, str]:
    from uncollapse._base.check import InputError
    from uncollapse.cli.errors import warn
    from uncollapse.data.listing import DataError
    from uncollapse.data.pair_lists import match_pairs, read_pairs
    from uncollapse.metrics import verification

    asked = read_pairs(pairs)
    if isinstance(asked.first[0], tuple) and found.names is None:
        warn(f"{file.name} has no names: the n-th row of a label is taken for its n-th picture")
    rows, there = match_pairs(asked, found, file)
    lost = int((~there).sum())
    if lost and not (skip_missing and there.any()):
        place = int((~there).argmax())
        example = " and ".join(_shown(one[place]) for one in (asked.first, asked.second))
        has = f"{len(found):,} rows and no names"
        if found.names is not None:
            has = f"names such as {str(found.names[0])!r}"
        raise DataError(
            f"--pairs {pairs}: {lost:,} of {len(asked):,} pairs name samples that {file.name} does "
            f"not have, the first {example}; it has {has}. --skip-missing leaves them out"
        )
    if asked.same is None and found.labels is None:
        allowed = "a column same (1 or 0), or labels in the file of embeddings"
        raise InputError("--pairs", f"{pairs.name} with neither", allowed)
    parts: Any = folds
    if folds is None and asked.folds is not None:
        parts = asked.folds[there]
    result = verification(
        found.points,
        found.labels,
        pairs=rows[there],
        same=None if asked.same is None else asked.same[there],
        folds=parts,
        normalize=cosine,
        far=rates,
    )
    said = f"{file.name}: {int(there.sum()):,} pairs of {pairs.name}"
    return result, said + (f" ({lost:,} left out: samples missing)" if lost else "")


def _lines(result: VerificationResult) -> list[ScoreLine]:
    whole = f"{result.same + result.different:,} pairs"
    same, different = f"{result.same:,} same", f"{result.different:,} different"
    figures: list[tuple[str, str, float | None, str, float | None]] = [
        ("auc", "AUC", result.auc, whole, None),
        ("eer", "EER", result.eer, whole, result.eer_threshold),
        ("accuracy", "best accuracy", result.accuracy, whole, result.accuracy_threshold),
    ]
    lines = [_line(result, *figure) for figure in figures]
    if result.fold_accuracy:
        mean, error = result.mean_fold_accuracy, result.fold_standard_error
        over = f"{len(result.fold_accuracy)} folds, ± {100 * error:.2f}"
        lines.append(ScoreLine("fold_accuracy", "fold accuracy", mean, over))
    for rate, tar in result.tar.items():
        over = same if tar is not None else f"only {different}"
        title = f"TAR at FAR {rate:.0e}".replace("e-0", "e-")
        lines.append(_line(result, f"tar@{rate:g}", title, tar, over, result.thresholds[rate]))
    return lines


def _line(
    result: VerificationResult,
    name: str,
    title: str,
    value: float | None,
    over: str,
    threshold: float | None,
) -> ScoreLine:
    interval = result.intervals.get(name)
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    note = "" if threshold is None else f"{threshold:.4g}"
    return ScoreLine(name, title, value, over, low, high, note=note)


def _about(result: VerificationResult, all_pairs: bool) -> str:
    up = "up to its distance" if result.unit == "distance" else f"from its {result.unit} up"
    drawn = "classes drawn again" if all_pairs else "pairs taken as independent"
    text = f"A pair is accepted {up}. Intervals: {drawn}."
    if not result.exact:
        text += f" Counts are exact at each of {result.thresholds_tried:,} thresholds."
    return text


def _cells(line: ScoreLine) -> list[object]:
    from uncollapse.report.page import Cell

    between = "–"
    if line.low is not None and line.high is not None:
        between = f"{100 * line.low:.2f} – {100 * line.high:.2f}"
    value = "–" if line.value is None else f"{100 * line.value:.2f}"
    return [Cell(line.title, style="whole"), value, between, line.note or "–", line.over]


def _plain(numbers: dict[str, Any]) -> dict[str, Any]:
    """Infinite thresholds, which JSON has not, as None."""
    import math

    return {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in numbers.items()
    }


def _shown(name: str | tuple[str, int]) -> str:
    return repr(name) if isinstance(name, str) else f"{name[0]} {name[1]}"


def _rates(text: str) -> list[float]:
    from uncollapse._base.check import InputError

    allowed = "numbers between 0 and 1, such as 1e-2,1e-3"
    try:
        rates = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise InputError("--far", repr(text), allowed) from None
    if not rates or not all(0 < rate < 1 for rate in rates):
        raise InputError("--far", repr(text), allowed)
    return rates
