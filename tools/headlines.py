"""Fill the headline figures of README and docs from docs/results: `python tools/headlines.py`.

A figure stands between `<!--=NAME-->` and `<!--/-->`; the names are the keys of `figures()`.
"""

from __future__ import annotations

import re
from pathlib import Path

from uncollapse._base.files import read_csv, write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = [
    ROOT / "README.md",
    *(ROOT / f"docs/{name}.md" for name in ("forecast", "guard", "measured")),
]
MARK = re.compile(r"(<!--=([\w.-]+)-->)(.*?)(<!--/-->)")


def main() -> None:
    """Write the pages whose figures have changed, and say which."""
    known = figures()
    for page in PAGES:
        text = page.read_text("utf-8")
        new = filled(text, known)
        if new != text:
            write_text(page, new)
            print(f"{page.relative_to(ROOT)}: figures written")


def filled(text: str, known: dict[str, str]) -> str:
    """A page with its figures.

    >>> filled("AUC <!--=forecast.drift-->0.9<!--/-->", {"forecast.drift": "0.968"})
    'AUC <!--=forecast.drift-->0.968<!--/-->'
    """
    return MARK.sub(lambda mark: f"{mark[1]}{known[mark[2]]}{mark[4]}", text)


def figures() -> dict[str, str]:
    """The figures by name, as the recorded results have them."""
    forecast, rescue = (rows_of(RESULTS / name / "summary.md") for name in ("forecast", "rescue"))
    every, batch_norm = forecast["all"], forecast["batch norm"]
    auc = {name: first_number(every[f"{heading}: AUC"]) for name, heading in _PREDICTORS.items()}
    values = {f"forecast.{name}": value for name, value in auc.items()}
    values["forecast.runs"] = every["runs"]
    values["forecast.interval"] = every["drift + probe: AUC"].partition("(")[2].rstrip(")")
    values["forecast.batch-norm"] = first_number(batch_norm["drift + probe: AUC"])
    healthy, alarms = (
        re.findall(r"\d+", rescue[row]["found"])[-1]
        for row in ("end healthy with rescue", "false alarms, of runs by hand that end healthy")
    )
    values |= {"rescue.collapsed": healthy, "rescue.healthy": alarms}
    for name, row in (
        ("median", "R@1 over the best by hand, median"),
        ("least", "the same, smallest"),
    ):
        values[f"rescue.{name}"] = f"{100 * float(rescue[row]['found']):.0f} %"
    header, rows = read_csv(RESULTS / "table3" / "table3.csv")
    for name, method in (("easy", "EPS + MS"), ("plain", "MS")):
        row = next(
            dict(zip(header, r, strict=True)) for r in rows if r[:2] == [method, "letters R@1"]
        )
        mean, std = float(row["ours"]), float(row["std"])
        values[f"letters.{name}"] = f"{mean:.1f}"
        values[f"letters.{name}-std"] = f"{mean:.1f} ± {std:.1f}"
    return values


_PREDICTORS = {
    "drift": "drift at init",
    "probe": "drift + probe",
    "bound": "bound (17), c = 2",
    "batch": "batch size P x K",
}


def rows_of(page: Path) -> dict[str, dict[str, str]]:
    """The rows of a page's tables by first cell, each by heading; the first of a name counts."""
    rows: dict[str, dict[str, str]] = {}
    heading: list[str] = []
    for line in page.read_text("utf-8").splitlines():
        if not line.startswith("|"):
            heading = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not heading:
            heading = cells
        else:
            rows.setdefault(cells[0], dict(zip(heading, cells, strict=True)))
    return rows


def first_number(cell: str) -> str:
    """The number a cell begins with.

    >>> first_number("0.968 (0.946 to 0.986)")
    '0.968'
    """
    return re.findall(r"[\d.]+", cell)[0]


if __name__ == "__main__":
    main()
