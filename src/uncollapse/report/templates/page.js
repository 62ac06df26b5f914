// Sorting is an extra: without it the headings are plain text and nothing is missing.
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
{% include "map.js" %}
