"""Keep the headline figures of README and docs those of docs/results: `python tools/headlines.py`.

Each sentence below stands in a page with figures in its braces. They are taken from the result
files and written into the pages; `--check` writes nothing and fails where a page has another one.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SENTENCES = {
    "README.md": [
        "Over {runs} runs on",
        "with an AUC of **{probe}**; the batch size reaches {batch}, "
        "the bound of the paper {bound}",
        "Of {collapsing} batch-hard runs that collapse, all end healthy with the guard, "
        "at a median of **{median} %** of the best R@1 reached by hand, "
        "without a false alarm in {healthy} healthy runs",
        "is **{easy}** with easy positives and {plain} without",
    ],
    "docs/forecast.md": [
        "Over {runs} runs on real data, drift with a probe predicted collapse with an AUC of "
        "{probe} ({probe_range}), drift alone with {drift}, the batch size with {batch} "
        "and the paper's bound with {bound}",
    ],
    "docs/guard.md": [
        "Of {collapsing} batch-hard runs that collapse, all end healthy with `rescue`, "
        "at a median of {median} % of the best R@1 reached by hand (smallest {smallest} %)",
        "without a false alarm in {healthy} healthy runs",
    ],
    "docs/watch.md": [
        "with an AUC of {probe} over {runs} runs, and all of {collapsing} collapsing batch-hard "
        "runs were rescued",
    ],
    "docs/measured.md": [
        "{easy} ± {easy_std} with easy positives, {plain} ± {plain_std} without "
        "(multi-similarity, 3 seeds; the paper: {easy_paper}, {plain_paper})",
        "collapse predicted before training, {runs} runs on real data",
        "AUC {probe} drift + probe ({probe_range}), {drift} drift, {batch} batch size, "
        "{bound} the bound (17); with batch norm {probe_norm}",
        "{collapsing} batch-hard runs that collapse, with `rescue` | all end healthy, at a median "
        "of {median} % of the best R@1 by hand (smallest {smallest} %); "
        "no false alarm in {healthy} runs",
    ],
}


def figures(results: Path) -> dict[str, str]:
    """The figures of the sentences, by the names in their braces."""
    forecast = (results / "forecast" / "summary.md").read_text(encoding="utf-8")
    rescue = (results / "rescue" / "summary.md").read_text(encoding="utf-8")
    everything, norm = table_row(forecast, "all"), table_row(forecast, "batch norm")
    healthy_ends = table_row(rescue, "end healthy with rescue")["found"]
    rescued, collapsing = re.findall(r"\((\d+) of (\d+)\)", healthy_ends)[0]
    alarms, healthy = table_row(rescue, "false alarms, of runs by hand that end healthy")[
        "found"
    ].split(" of ")
    if rescued != collapsing or alarms != "0":
        raise SystemExit("not all runs end healthy, or there are false alarms: reword the pages")
    with (results / "table3" / "table3.csv").open(encoding="utf-8") as file:
        recalls = {r["what"]: r for r in csv.DictReader(file) if r["metric"] == "letters R@1"}
    probe, probe_range = everything["drift + probe: AUC"].rstrip(")").split(" (")
    values = {
        "runs": everything["runs"],
        "probe": probe,
        "probe_range": probe_range,
        "probe_norm": norm["drift + probe: AUC"].split()[0],
        "drift": everything["drift at init: AUC"].split()[0],
        "batch": everything["batch size P x K: AUC"].split()[0],
        "bound": everything["bound (17), c = 2: AUC"].split()[0],
        "collapsing": collapsing,
        "healthy": healthy,
        "median": in_percent(table_row(rescue, "R@1 over the best by hand, median")["found"]),
        "smallest": in_percent(table_row(rescue, "the same, smallest")["found"]),
    }
    for name, method in (("easy", "EPS + MS"), ("plain", "MS")):
        row = recalls[method]
        values[name] = f"{float(row['ours']):.1f}"
        values[f"{name}_std"] = f"{float(row['std']):.1f}"
        values[f"{name}_paper"] = row["paper"]
    return values


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


def in_percent(share: str) -> str:
    """A share as whole percent, without the sign."""
    return f"{float(share):.0%}".rstrip("%")


def updated(page: str, sentence: str, values: Mapping[str, str]) -> str:
    """The page with the figures of one sentence; its line breaks stay."""
    pieces = re.split(r"\{(\w+)\}", sentence)
    plain = [re.escape(text).replace(r"\ ", r"\s+") for text in pieces[::2]]
    pattern = "(" + plain[0] + ")"
    for text in plain[1:]:
        pattern += r"[\d.,]+(?: to [\d.]+)?(" + text + ")"
    matches = list(re.finditer(pattern, page))
    if len(matches) != 1:
        raise SystemExit(f"expected once, found {len(matches)} times: {sentence}")
    texts = matches[0].groups()
    new = texts[0] + "".join(
        values[name] + text for name, text in zip(pieces[1::2], texts[1:], strict=True)
    )
    start, end = matches[0].span()
    return page[:start] + new + page[end:]


def main() -> None:
    """Write the figures into the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project")
    options = parser.parse_args()
    values = figures(options.root / "docs" / "results")
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
