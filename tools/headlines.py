"""Keep the measured figures of README and guides those of the studies: `python tools/headlines.py`.

Each sentence below stands in a page with figures in its braces. They are taken from the tables of
the studies and written into the pages; `--check` writes nothing and fails where a page has another
one. A test fails on a measured figure of README or a guide that is in none of these sentences.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_FORECAST = "AUC of {probe} ({probe_range}), drift alone with {drift}, the batch size with {batch} "
_COST = (
    "{conv_cost} % of a small convolutional network's step, "
    "{head_cost} % of that of a head on cached features"
)
SENTENCES = {
    "README.md": [
        _COST,
        "Over {runs} runs on",
        "with an AUC of **{probe}**; the batch size reaches {batch}, "
        "the bound of the paper {bound}",
        "Of {collapsing} batch-hard runs that collapse, all end healthy with the guard, "
        "at a median of **{median} %** of the best R@1 reached by hand, "
        "without a false alarm in {healthy} healthy runs",
        "and {harmed} of {sphere} runs was harmed",
        "is **{easy}** with easy positives and {plain} without",
    ],
    "docs/forecast.md": [
        "Over {runs} runs on real data, drift with a probe predicted collapse with an "
        + _FORECAST
        + "and the paper's bound with {bound}",
    ],
    "docs/guard.md": [
        "Of {collapsing} batch-hard runs that collapse, all end healthy with `rescue`, "
        "at a median of {median} % of the best R@1 reached by hand (smallest {smallest} %)",
        "without a false alarm in {healthy} healthy runs",
        "{harmed} of {sphere} runs was harmed",
        "It costs {slow_guard} % of a small ResNet's run, {slow_rescue} % if it rescues; "
        "where a step takes 4 ms, {fast_least} to {fast_most} %",
    ],
    "docs/watch.md": [
        _COST,
        "with an AUC of {probe} over {runs} runs, and all of {collapsing} collapsing batch-hard "
        "runs were rescued",
    ],
    "docs/files.md": [
        "takes {long_time} s of CPU and {long_memory} MB for 1,000,000 x 64 float32, "
        "{wide_time} s and {wide_memory} MB for 200,000 x 768 float16",
    ],
    "docs/self-supervised.md": [
        "found {spread_found} of {spread_lost} runs that lost their spread, with {spread_false} "
        "false alarms in {spread_kept}",
    ],
}


class Cell(NamedTuple):
    """Where a figure stands: a study's page, the first cell of its row, its column, and its form.

    The form's one group is the figure. `percent` writes a share as whole percent.
    """

    page: str
    row: str
    column: str
    form: str = r"([\d.,]+)"
    percent: bool = False


_RULE = "the rule: left < 0.5, or left < 0.75 and drift > 0.1"
_RESCUE, _HEALTHY, _PLUS = "results/rescue/rescue.md", "guard, healthy run", r"\+(\d+)"
_ALARMS = "false alarms, of runs by hand that end healthy"
CELLS = {
    "runs": Cell("results/forecast/summary.md", "all", "runs"),
    "probe": Cell("results/forecast/summary.md", "all", "drift + probe: AUC"),
    "probe_range": Cell("results/forecast/summary.md", "all", "drift + probe: AUC", r"\((.+)\)"),
    "drift": Cell("results/forecast/summary.md", "all", "drift at init: AUC"),
    "batch": Cell("results/forecast/summary.md", "all", "batch size P x K: AUC"),
    "bound": Cell("results/forecast/summary.md", "all", "bound (17), c = 2: AUC"),
    "rescued": Cell("results/rescue/summary.md", "end healthy with rescue", "found", r"\((\d+) of"),
    "collapsing": Cell(
        "results/rescue/summary.md", "end healthy with rescue", "found", r"of (\d+)\)"
    ),
    "alarms": Cell("results/rescue/summary.md", _ALARMS, "found", r"(\d+) of"),
    "healthy": Cell("results/rescue/summary.md", _ALARMS, "found", r"of (\d+)"),
    "median": Cell(
        "results/rescue/summary.md", "R@1 over the best by hand, median", "found", percent=True
    ),
    "smallest": Cell("results/rescue/summary.md", "the same, smallest", "found", percent=True),
    "sphere_seen": Cell(_RESCUE, "the same, present guard", "cases"),
    "harmed_seen": Cell(_RESCUE, "the same, present guard", "harmed"),
    "sphere_new": Cell(_RESCUE, "losses, judged", "cases"),
    "harmed_new": Cell(_RESCUE, "losses, judged", "harmed", r"(\d+)"),
    "conv_cost": Cell("measured.md", "two convolutions, 32 x 32", "`warn`"),
    "head_cost": Cell("measured.md", "head on 1,024 cached features", "`warn`", r"(\d+)"),
    "slow_guard": Cell(_RESCUE, "CIFAR-100, small ResNet", _HEALTHY, _PLUS),
    "slow_rescue": Cell(_RESCUE, "CIFAR-100, small ResNet", "guard, rescued run", _PLUS),
    "fast_least": Cell(_RESCUE, "intents, MLP", _HEALTHY, _PLUS),
    "fast_most": Cell(_RESCUE, "letters, MLP, `uc.watch`", _HEALTHY, _PLUS),
    "long_time": Cell("results/files/files.md", "1,000,000 x 64 float32", "CPU"),
    "long_memory": Cell("results/files/files.md", "1,000,000 x 64 float32", "peak memory"),
    "wide_time": Cell("results/files/files.md", "200,000 x 768 float16", "CPU"),
    "wide_memory": Cell("results/files/files.md", "200,000 x 768 float16", "peak memory"),
    "spread_found": Cell("results/label-free/label-free.md", _RULE, "hit"),
    "spread_missed": Cell("results/label-free/label-free.md", _RULE, "missed"),
    "spread_false": Cell("results/label-free/label-free.md", _RULE, "false alarm"),
    "spread_quiet": Cell("results/label-free/label-free.md", _RULE, "rightly quiet"),
}


def figures(docs: Path) -> dict[str, str]:
    """The figures of the sentences, by the names in their braces."""
    values = {name: figure(docs, cell) for name, cell in CELLS.items()}
    if values["rescued"] != values["collapsing"] or values["alarms"] != "0":
        raise SystemExit("not all runs end healthy, or there are false alarms: reword the pages")
    for total, parts in {
        "sphere": ("sphere_seen", "sphere_new"),
        "harmed": ("harmed_seen", "harmed_new"),
        "spread_lost": ("spread_found", "spread_missed"),
        "spread_kept": ("spread_false", "spread_quiet"),
    }.items():
        values[total] = str(sum(int(values[part]) for part in parts))
    with (docs / "results" / "table3" / "table3.csv").open(encoding="utf-8") as file:
        recalls = {r["what"]: r for r in csv.DictReader(file) if r["metric"] == "letters R@1"}
    for name, method in (("easy", "EPS + MS"), ("plain", "MS")):
        values[name] = f"{float(recalls[method]['ours']):.1f}"
    return values


def figure(docs: Path, cell: Cell) -> str:
    """The figure of a cell."""
    text = table_row((docs / cell.page).read_text(encoding="utf-8"), cell.row)[cell.column]
    found = re.search(cell.form, text)
    if found is None:
        raise SystemExit(f"{cell.page}, {cell.row!r}: no figure in {text!r}")
    return f"{float(found[1]):.0%}".rstrip("%") if cell.percent else found[1]


def table_row(page: str, name: str) -> dict[str, str]:
    """The first row of a page's tables that begins with `name`, by the heads of its columns."""
    heads: list[str] = []
    cells_before: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if set(line) <= set("|- ") and "|" in line:
            heads = cells_before
        elif cells[0] == name:
            return dict(zip(heads, cells, strict=True))
        cells_before = cells
    raise SystemExit(f"no row {name!r} in the result file")


def place(page: str, sentence: str) -> re.Match[str]:
    """Where a sentence stands in a page, whatever its line breaks and figures; once, or an error.

    The groups are the texts between the figures.
    """
    plain = [re.escape(text).replace(r"\ ", r"\s+") for text in re.split(r"\{\w+\}", sentence)]
    pattern = "(" + plain[0] + ")"
    for text in plain[1:]:
        pattern += r"[\d.,]+(?: to [\d.]+)?(" + text + ")"
    matches = list(re.finditer(pattern, page))
    if len(matches) != 1:
        raise SystemExit(f"expected once, found {len(matches)} times: {sentence}")
    return matches[0]


def updated(page: str, sentence: str, values: Mapping[str, str]) -> str:
    """The page with the figures of one sentence; its line breaks stay."""
    match = place(page, sentence)
    texts = match.groups()
    new = texts[0] + "".join(
        values[name] + text
        for name, text in zip(re.findall(r"\{(\w+)\}", sentence), texts[1:], strict=True)
    )
    return page[: match.start()] + new + page[match.end() :]


def main() -> None:
    """Write the figures into the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project")
    options = parser.parse_args()
    values = figures(options.root / "docs")
    stale = []
    for name, sentences in SENTENCES.items():
        path = options.root / name
        page = new = path.read_text(encoding="utf-8")
        for sentence in sentences:
            new = updated(new, sentence, values)
        if new != page:
            stale.append(name)
            if not options.check:
                path.write_text(new, encoding="utf-8")
    if options.check and stale:
        sys.exit(f"not the figures of docs/results: {', '.join(stale)}; run tools/headlines.py")
    print(f"changed: {', '.join(stale) or 'nothing'}")


if __name__ == "__main__":
    main()
