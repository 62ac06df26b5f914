"""What commands print: lines, warnings, tables of scores, and errors: one red line, an exit code.

Markup in foreign text is only shown.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.status import Status

import uncollapse as uc
from uncollapse._base.check import InputError, did_you_mean, visible
from uncollapse._base.files import write_json
from uncollapse._base.table import Table, wrapped_for

FEW_ROWS = 5_000  # up to so many there is no sample to draw, no bar to show, nothing to share
_PAIR, _COLUMN = 2.5e-9, 2.5e-11  # seconds of a core for a pair of rows, and for each column of it
_TITLES = {"fold_accuracy": "fold accuracy", "fold_standard_error": "±", "auc": "AUC", "eer": "EER"}
_TITLES |= {"map@r": "MAP@R", "nmi": "NMI", "nmi+": "NMI+", "r_precision": "R-precision"}
_TITLES |= {"mrr": "MRR"}


def say(text: str, *, whole: bool = False, style: str = "", console: Console | None = None) -> None:
    """Print a line without markup; control characters and marks are shown.

    On a terminal it is wrapped between words, for a person; elsewhere, and if it must stay `whole`
    because it will be copied, it is one line.
    """
    console = console or Console()
    shown = visible(text)
    if console.is_terminal and not whole:
        shown = wrapped_for(console.width, shown)
    console.print(shown, markup=False, highlight=False, soft_wrap=True, style=style)


def show(*things: object) -> None:
    """Print tables, or text of our own with markup."""
    Console(highlight=False).print(*things, sep="\n")


def status(text: str, rows: int = 0) -> Status | nullcontext[None]:
    """A line about the work in progress, removed when it is done.

    With many rows the work has bars of its own, and a terminal has no room for both.
    """
    return Console().status(text) if rows <= FEW_ROWS else nullcontext()


def say_cost(rows: int, others: int, dim: int) -> None:
    """Say how long comparing these rows with all others takes, where that is minutes."""
    seconds = rows * others * (_PAIR + dim * _COLUMN)
    if seconds > 60:
        pairs = f"each of {rows:,} rows is compared with {others:,}"
        say(f"note: {pairs}: about {duration(seconds)} of one core", console=Console(stderr=True))


def duration(seconds: float) -> str:
    """Seconds, minutes or hours.

    >>> duration(40), duration(1_500), duration(7_200)
    ('40 s', '25 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def write(json: Path | None, content: Mapping[str, Any]) -> None:
    """Write a JSON file where one was asked for, and say so."""
    if json is not None:
        write_json(json, content)
        say(f"wrote {json}")


def warn(text: str) -> None:
    """Print a warning as one yellow line; the command continues."""
    say(f"warning: {one_line(text)}", style="yellow", console=Console(stderr=True))


def warn_of_skipped(data: uc.data.LabelledImages, split: str) -> None:
    """Which files of a dataset were skipped: counts and the first names."""
    if data.report.skipped:
        warn(f"{split}: {data.report.skipped_summary()}")


def one_line(text: str) -> str:
    """The text without line breaks, control characters shown."""
    return visible(" ".join(text.split()))


@dataclass(frozen=True)
class ScoreLine:
    """One figure: its name to a program and to a reader, and which rows it is over.

    `interval` is None where a figure has none, `value` where it cannot be computed.
    """

    name: str
    title: str
    value: float | None
    over: str
    interval: uc.metrics.Interval | None = None
    by: str = "label"
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        named = {"by": self.by, "name": self.name, "value": self.value, "over": self.over}
        return named | {bound: getattr(self.interval, bound, None) for bound in ("low", "high")}

    def cells(self) -> list[str]:
        """Title, value and interval, in per cent."""
        i = self.interval
        between = "–" if i is None else f"{100 * i.low:.2f} – {100 * i.high:.2f}"
        known = self.value is not None and self.value == self.value
        return [self.title, f"{100 * (self.value or 0.0):.2f}" if known else "–", between]


def line_table(lines: Sequence[ScoreLine], threshold: str = "") -> Table:
    """One row per figure, in per cent; with `threshold`, a column of that name for the notes."""
    kinds = list(dict.fromkeys(line.by for line in lines))
    several = len(kinds) > 1
    heads = [*["by"] * several, "figure", "%", "95% interval", *[threshold] * bool(threshold)]
    table = Table([*heads, "over"], keys=1 + several)
    for line in sorted(lines, key=lambda line: kinds.index(line.by)):
        notes = [line.note or "–"] * bool(threshold)
        cells = [*[line.by] * several, *line.cells(), *notes, line.over]
        table.add(*map(visible, cells))
    return table


def split_tables(
    scores: Mapping[str, float], start: Mapping[str, float] | None = None
) -> list[Table]:
    """A table of what ranks rows, and one of what verifies pairs, where there is such.

    Rows are split and kind of label, columns the metrics; each under that before training.
    """
    tables = []
    for head, of_pairs in (("split", False), ("pairs of", True)):
        ends, begins = _by_group(scores, of_pairs), _by_group(start or {}, of_pairs)
        metrics = list(dict.fromkeys(metric for row in ends.values() for metric in row))
        both = any(set(begins.get(group, ())) & set(row) for group, row in ends.items())
        table = Table([head, *["training"] * both, *map(title, metrics)], keys=1 + both)
        for group, row in ends.items():
            moments = {"before": begins.get(group, {}), "after": row} if both else {"": row}
            for moment, values in moments.items():
                if any(metric in values for metric in metrics):
                    cells = (f"{100 * values[m]:.2f}" if m in values else "" for m in metrics)
                    table.add(visible(group), *[moment] * both, *cells)
        tables += [table] if ends else []
    return tables


def _by_group(scores: Mapping[str, float], of_pairs: bool) -> dict[str, dict[str, float]]:
    """Figures of pairs, or the others, by split and kind of label."""
    of_verification = uc.training.evaluation.VERIFICATION
    rows: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        if (of_verification in key) is of_pairs:
            group, _, metric = key.replace(of_verification, "").rpartition("/")
            rows.setdefault(group, {})[metric] = value
    return rows


def title(metric: str) -> str:
    """A metric as a reader knows it.

    >>> title("recall@1"), title("nmi+")
    ('R@1', 'NMI+')
    """
    short = metric.replace("recall@", "R@").replace("tar@", "TAR@").replace("cmc@", "CMC@")
    return _TITLES.get(metric, short)


# Gates: what `--fail-if` refuses.

_SIGNS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
_SIGNS |= {"<": operator.lt, ">": operator.gt}
_RULE = re.compile(r"\s*(.+?)\s*(<=|>=|==|!=|<|>)\s*([-+.\de]+)\s*(%?)\s*", re.IGNORECASE)


def parse_rule(rule: str) -> tuple[str, str, float]:
    """Figure, sign and limit of a rule of `--fail-if`: NAME SIGN NUMBER, or a number of per cent.

    >>> parse_rule("R@1 < 80%")
    ('R@1', '<', 0.8)
    """
    match = _RULE.fullmatch(rule)
    try:
        word, sign, text, per_cent = match.groups() if match else ("", "", "", "")
        return word, sign, float(text) / (100 if per_cent else 1)
    except ValueError:
        allowed = "a figure, a sign and a number, such as 'R@1<0.80'"
        raise InputError("--fail-if", repr(rule), allowed) from None


def failed_rules(rules: Sequence[str], figures: Mapping[str, float | None]) -> list[str]:
    """A sentence for each rule of `--fail-if` that holds; a figure that is not known fails too.

    Names may be in any case.

    >>> failed_rules(["r@1 < 80%", "R@1<0.7", "zero_rows>0"], {"R@1": 0.75, "zero_rows": None})
    ['R@1 is 0.75, and r@1 < 80% is refused', 'zero_rows is not known, and zero_rows>0 is refused']
    """
    names = {name.casefold(): name for name in figures}
    sentences = []
    for rule in rules:
        word, sign, limit = parse_rule(rule)
        if word.casefold() not in names:
            given = repr(word) + did_you_mean(word, names.values())
            raise InputError("--fail-if", given, f"one of {', '.join(names.values())}")
        name = names[word.casefold()]
        figure = figures[name]
        value = math.nan if figure is None else float(figure)
        if not math.isnan(value) and not _SIGNS[sign](value, limit):
            continue
        state = "not known" if math.isnan(value) else f"{value:.4g}"
        sentences.append(f"{name} is {state}, and {rule.strip()} is refused")
    return sentences


def fail_with(sentences: Sequence[str]) -> None:
    """End with code 1 and a red line for each sentence; go on where there is none."""
    for sentence in sentences:
        say(f"failed: {sentence}", style="red", console=Console(stderr=True))
    if sentences:
        raise typer.Exit(1)


# What a user sees when a command fails: no traceback; a line for each of several mistakes.

USER_ERROR, BUG, INTERRUPTED = 2, 1, 130

# Typer's base of usage errors: click's own or, in newer releases, a copy of it.
_UsageError = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run the app; return 0, 2 for a user's mistake, 130 for Ctrl-C, 1 for a bug of ours.

    `--debug`, anywhere in the line, lets the exception through with its traceback.
    """
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    try:
        code = typer.main.get_command(app).main(words, "uncollapse", standalone_mode=False)
    except Exception as error:
        if debug:
            raise
        code, line = _explain(error)
        if line:
            say(f"error: {line}", style="red", console=Console(stderr=True))
    except KeyboardInterrupt:
        code = INTERRUPTED
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> tuple[int, str]:
    if isinstance(error, typer.Abort):
        return INTERRUPTED, "interrupted"
    if type(error).__name__ == "NoArgsIsHelpError":  # the help page was asked for and is shown
        return 0, ""
    if isinstance(error, _UsageError):
        context = getattr(error, "ctx", None)
        hint = "" if context is None else f" (see: {context.command_path} --help)"
        return USER_ERROR, one_line(error.format_message()) + hint  # type: ignore[attr-defined]
    if type(error).__module__.startswith("uncollapse."):  # our own errors are written for people
        keys = getattr(error, "errors", ())  # training's WrongKeysError: a line for each key
        lines = str(error).splitlines()[0], *(f"- {one_line(str(key))}" for key in keys)
        return USER_ERROR, "\n".join(lines) if keys else one_line(str(error))
    # NumPy's error, or torch's on the CPU or a GPU.
    torchs = "allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and torchs):
        fewer = "try smaller batches (batch.p, batch.k, evaluate.batch), model.dim or data.size"
        return USER_ERROR, f"out of memory: {fewer} ({one_line(str(error))})"
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        return USER_ERROR, one_line(f"{named}{error.strerror or error}")
    hint = "in a part of your own, or a bug in uncollapse: run again with --debug to see where"
    return BUG, one_line(f"{type(error).__name__}: {error} ({hint})")
