"""The look of every page: light and dark, phone and desktop, screen and paper."""

from __future__ import annotations

__all__ = ["CSS", "SCRIPT", "SERIES"]

SERIES = 8  # colours --s0 to --s7; what is drawn also differs by dash, mark or label

# Colours are told apart with any colour vision and have a contrast of 3 or more on the card.
CSS = """
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --ink: #1a1f29; --soft: #596273; --line: #d5d9e0;
  --grid: #e9ebef; --link: #0b5cad;
  --good: #11734b; --warn: #8a5a00; --bad: #b3261e;
  --s0: #0b6cb3; --s1: #c8500a; --s2: #0b7f5f; --s3: #a4468a;
  --s4: #8a6d00; --s5: #1f8fa8; --s6: #7a2f4a; --s7: #6b7280;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #12151b; --card: #1b2029; --ink: #e8ebf0; --soft: #a5aebd; --line: #39414f;
    --grid: #2a313d; --link: #7fb8f0;
    --good: #4fc38f; --warn: #e6b450; --bad: #ff8a80;
    --s0: #5aaef0; --s1: #ff9256; --s2: #3fcf9f; --s3: #e58bc9;
    --s4: #e0bd3f; --s5: #62d0e6; --s6: #d9829f; --s7: #a3acba;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main, header, footer { max-width: 70rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .25rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; overflow-wrap: anywhere; }
p, ul, ol { margin: .4rem 0; } ul, ol { padding-left: 1.25rem; }
p, li { max-width: 46rem; overflow-wrap: break-word; }
.lead, .note, figcaption small { color: var(--soft); }
.note { font-size: .9rem; }
a { color: var(--link); }
code { font: .9em ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
  padding: 1rem; margin: 1rem 0;
}
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 3px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--card); padding: .5rem; z-index: 1; }
nav ul { list-style: none; padding: 0; margin: .75rem 0 0; display: flex; flex-wrap: wrap;
  gap: .25rem 1rem; font-size: .95rem; }
nav a { display: inline-block; padding: .25rem 0; }

.verdict { border-left: .5rem solid var(--tone); }
.verdict.good { --tone: var(--good); } .verdict.warn { --tone: var(--warn); }
.verdict.bad { --tone: var(--bad); } .verdict.none { --tone: var(--soft); }
.verdict h2 { font-size: 1.35rem; display: flex; gap: .6rem; align-items: flex-start; }
.verdict h2 .glyph, td .glyph { color: var(--tone); }
.badge { white-space: nowrap; font-weight: 600; color: var(--tone); }
.badge.good { --tone: var(--good); } .badge.warn { --tone: var(--warn); }
.badge.bad { --tone: var(--bad); } .badge.none { --tone: var(--soft); }

.figures { display: grid; gap: .75rem; margin: .75rem 0 0; padding: 0;
  grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.figures div { border-top: 2px solid var(--line); padding-top: .4rem; }
.figures dt { color: var(--soft); font-size: .85rem; line-height: 1.3; }
.figures dd { margin: 0; font-size: 1.25rem; font-weight: 600; }

.grid { display: grid; gap: 1.25rem; margin-top: .75rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); }
.grid.wide { grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; min-width: 0; max-width: 32rem; } figure.chart { max-width: 26rem; }
figcaption { font-weight: 600; line-height: 1.3; margin-bottom: .25rem; overflow-wrap: anywhere; }
figcaption small { display: block; font-weight: 400; font-size: .85rem; }
figure > svg, figure > img { display: block; width: 100%; height: auto; }
figure > img { max-width: 30rem; image-rendering: auto; }
svg text { font-family: inherit; fill: var(--soft); font-size: 12px; }
svg .grid-line { stroke: var(--grid); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .event { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 2 3; }
svg .flag { fill: var(--ink); } svg text.flag-text { fill: var(--card); font-weight: 700;
  font-size: 11px; }
svg text.on { fill: var(--ink); font-weight: 700; font-size: 12px; paint-order: stroke;
  stroke: var(--card); stroke-width: 3px; stroke-linejoin: round; }
svg text.cell { fill: var(--ink); }
.legend { list-style: none; margin: .25rem 0 0; padding: 0; display: flex; flex-wrap: wrap;
  gap: .1rem .9rem; font-size: .85rem; }
.legend li { display: flex; align-items: center; gap: .35rem; overflow-wrap: anywhere; }
.legend svg { width: 30px; height: 14px; flex: none; }

.rows { display: flex; flex-direction: column; margin-top: .5rem; }
.scroll { overflow-x: auto; order: 1; min-width: 0; max-width: 100%; }
.rows label { order: 2; cursor: pointer; color: var(--link); padding: .6rem 0; }
.rows input { position: absolute; opacity: 0; }
.rows input:focus-visible ~ label { outline: 3px solid var(--link); outline-offset: 2px; }
.rows input:not(:checked) ~ .scroll tr.more { display: none; }
.rows input:checked ~ label .closed, .rows input:not(:checked) ~ label .open { display: none; }
table { border-collapse: collapse; font-size: .95rem; min-width: min(100%, 20rem); }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding-bottom: .35rem; }
th, td { text-align: left; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n { white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
thead button { font: inherit; color: inherit; background: none; border: 0; padding: .2rem 0;
  cursor: pointer; text-align: inherit; }
thead button::after { content: " ↕"; opacity: .5; }
th[aria-sort=ascending] button::after { content: " ↑"; opacity: 1; }
th[aria-sort=descending] button::after { content: " ↓"; opacity: 1; }
tbody th { font-weight: 600; overflow-wrap: break-word; }
tbody small { display: block; font-weight: 400; color: var(--soft); font-size: .85rem; }
td b { font-weight: 700; } .keep { white-space: nowrap; }
thead .w { min-width: 8rem; }
details { margin-top: .5rem; } summary { cursor: pointer; color: var(--link); padding: .35rem 0; }
footer { color: var(--soft); font-size: .85rem; padding-bottom: 2rem; }

@media (min-width: 48rem) { section { padding: 1.25rem 1.5rem; } h1 { font-size: 2rem; } }
@media print {
  body { background: none; font-size: 10.5pt; }
  main, header, footer { max-width: none; padding: 0; }
  nav, .skip, .rows label { display: none; }
  section { border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: .5rem 0; }
  .verdict { border-left: .5rem solid var(--tone); padding-left: 1rem; }
  figure, tr, .figures div { break-inside: avoid; }
  h2, h3, figcaption { break-after: avoid; }
  .grid { grid-template-columns: 1fr 1fr; }
  thead button::after { content: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

# Sorting is an extra: without it the headings are plain text and nothing is missing.
SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0], rows = [...body.rows];
      const hidden = rows.map(row => row.className);
      const key = row => row.cells[i].dataset.v ?? row.cells[i].textContent;
      rows.sort((a, b) => {
        const [x, y] = [key(a), key(b)], d = Number(x) - Number(y);
        return (up ? 1 : -1) * (Number.isNaN(d) ? x.localeCompare(y) : d);
      });
      rows.forEach((row, j) => { row.className = hidden[j]; body.append(row); });
    });
  });
}
"""
