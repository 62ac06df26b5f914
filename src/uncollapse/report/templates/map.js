// Maps one can point into. Without this they are plain drawings and nothing else is missing.
for (const box of document.querySelectorAll(".pointed")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  const count = data.views[0].places.length, side = 340, reach = 12;
  const pictures = box.querySelector(".pictures"), told = box.querySelector(".told");
  const flags = Object.entries(data.flags).map(([name, points]) => [name, new Set(points)]);
  let seen = null, at = -1, kept = false;  // points of the filter, the one pointed at

  const make = (parent, tag, text = "", kind = "") => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (kind) element.className = kind;
    parent.append(element);
    return element;
  };
  const draw = (parent, tag, attributes) => {
    const element = document.createElementNS(parent.namespaceURI, tag);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    parent.append(element);
    return element;
  };
  const name = i => data.names[i] || `row ${data.rows[i]}`;
  const labels = (views, i) => [...new Set(views.filter(view => view.labels).map(view => view.classes[view.labels[i]]))].join(" / ");
  const same = (view, i, j) => !view.labels || view.labels[i] === view.labels[j];
  const color = (view, i) => `var(--${view.labels ? view.colors[view.labels[i]] : "s0"})`;
  const picture = (parent, i, size) => {
    if (!pictures || i >= count) return;  // only points of the map have one
    const tile = make(parent, "canvas"), from = Number(pictures.dataset.side);
    const across = Number(pictures.dataset.across);
    tile.width = tile.height = size;
    const place = [from * (i % across), from * Math.floor(i / across)];
    tile.getContext("2d").drawImage(pictures, ...place, from, from, 0, 0, size, size);
  };

  const maps = [...box.querySelectorAll("figure > svg")].map((svg, v) => {
    const found = draw(svg, "g", {class: "over"}), marks = draw(svg, "g", {class: "over"});
    return {svg, found, marks, view: data.views[v]};
  });

  const tools = make(told, "div", "", "tools"), card = make(told, "div", "", "asked");
  card.setAttribute("aria-live", "polite");
  told.hidden = false;

  // What is pointed at: a ring and lines to its neighbours on each map, and words beside it.
  function show(i) {
    at = i;
    box.classList.toggle("kept", kept);
    card.replaceChildren();
    for (const {view, marks} of maps) {
      marks.replaceChildren();
      if (i < 0) continue;
      const [x, y] = view.places[i];
      for (const j of view.near[i].filter(j => j < count)) {
        const [a, b] = view.places[j], look = same(view, i, j)
          ? {stroke: "var(--good)"} : {stroke: "var(--bad)", "stroke-dasharray": "4 3"};
        draw(marks, "path", {d: `M${x} ${y}L${a} ${b}`, "stroke-width": 1.5, ...look});
      }
      draw(marks, "circle", {cx: x, cy: y, r: 6, fill: color(view, i), stroke: "var(--ink)",
        "stroke-width": 2});
    }
    if (i < 0) {
      make(card, "p", "Point at the map, or tab to it and use the arrow keys. A click or Enter keeps a point, Escape releases it.", "note");
      return;
    }
    const head = make(card, "p");
    picture(head, i, 96);
    make(head, "span", name(i));
    const why = flags.filter(([_, points]) => points.has(i)).map(([flag]) => flag);
    make(head, "small", [labels(data.views, i), ...why].filter(Boolean).join(" · "));
    const lists = make(card, "div", "", "grid"), groups = {};  // views with the same neighbours
    for (const view of data.views) (groups[view.near[i]] ||= []).push(view);
    for (const views of Object.values(groups)) {
      const part = make(lists, "div"), near = views[0].near[i];
      for (const view of views) {
        const agree = near.filter(j => same(view, i, j)).length;
        const words = view.labels ? `${agree} of ${near.length} nearest neighbours share its label` : "Nearest neighbours";
        make(part, "small", maps.length > 1 ? `${view.title}: ${words}` : words);
      }
      const list = make(part, "ol");
      for (const j of near) {
        const item = make(list, "li");
        for (const view of views.filter(view => view.labels)) {
          make(item, "b", same(view, i, j) ? "✓" : "✗", same(view, i, j) ? "good" : "bad");
        }
        picture(item, j, 32);
        make(item, "span", name(j));
        make(item, "small", labels(views, j));
      }
    }
  }

  const nearest = (view, x, y, most) => {
    let best = -1, least = most * most;
    for (let i = 0; i < count; i++) {
      if (seen && !seen[i]) continue;
      const [a, b] = view.places[i], square = (a - x) ** 2 + (b - y) ** 2;
      if (square < least) [best, least] = [i, square];
    }
    return best;
  };
  const release = () => { kept = false; show(-1); };

  for (const {svg, view} of maps) {
    const under = event => {
      const frame = svg.getBoundingClientRect(), scale = side / frame.width;
      return nearest(view, (event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale, reach);
    };
    svg.tabIndex = 0;
    svg.addEventListener("pointermove", event => {
      const i = kept ? at : under(event);
      if (i !== at) show(i);
    });
    svg.addEventListener("pointerleave", () => { if (!kept && at >= 0) show(-1); });
    svg.addEventListener("click", event => {
      const i = under(event);
      kept = i >= 0;
      show(i);
    });
    svg.addEventListener("keydown", event => {
      const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
      if (event.key === "Enter" && at >= 0) { kept = true; show(at); }
      if (!step) return;
      event.preventDefault();
      if (at < 0) { show(nearest(view, side / 2, side / 2, 2 * side)); return; }
      // The nearest point that lies more in this direction than beside it.
      const [x, y] = view.places[at];
      let best = at, least = Infinity;
      for (let i = 0; i < count; i++) {
        if (seen && !seen[i]) continue;
        const right = view.places[i][0] - x, down = view.places[i][1] - y;
        const along = right * step[0] + down * step[1], beside = Math.abs(right * step[1] + down * step[0]);
        if (along > 0 && beside <= along && along + beside < least) [best, least] = [i, along + beside];
      }
      if (best !== at) show(best);
    });
  }
  document.addEventListener("keydown", event => { if (event.key === "Escape") release(); });
  document.addEventListener("click", event => { if (kept && !box.contains(event.target)) release(); });

  // Filters: of a class, and of rows for which there is a word.
  const first = data.views[0], choice = first.labels && make(tools, "select");
  if (choice) {
    choice.setAttribute("aria-label", "Show one class");
    make(choice, "option", "All classes").value = "";
    const sizes = first.classes.map(() => 0);
    for (let i = 0; i < count; i++) sizes[first.labels[i]]++;
    first.classes.forEach((text, k) => { if (sizes[k]) make(choice, "option", `${text} (${sizes[k]})`).value = k; });
  }
  const boxes = flags.map(([flag, points]) => {
    const line = make(tools, "label"), input = make(line, "input");
    input.type = "checkbox";
    line.append(` ${flag} (${points.size.toLocaleString("en")})`);
    return [input, points];
  });
  const total = make(tools, "output", "", "note");
  tools.addEventListener("change", () => {
    const wanted = boxes.filter(([input]) => input.checked).map(([_, points]) => points);
    const chosen = choice ? choice.value : "";
    seen = null;
    if (chosen !== "" || wanted.length) {
      seen = Array.from({length: count}, (_, i) => (chosen === "" || first.labels[i] === Number(chosen))
        && (!wanted.length || wanted.some(points => points.has(i))));
    }
    box.classList.toggle("filtered", seen !== null);
    total.textContent = seen ? `${seen.filter(Boolean).length.toLocaleString("en")} of ${count.toLocaleString("en")} points` : "";
    for (const {found, view} of maps) {
      found.replaceChildren();
      if (!seen) continue;
      const dots = {};  // by colour: one path of round strokes without length
      view.places.forEach(([x, y], i) => {
        if (seen[i]) dots[color(view, i)] = `${dots[color(view, i)] || ""}M${x} ${y}h0`;
      });
      for (const look in dots) draw(found, "path", {d: dots[look], stroke: look, "stroke-width": 7, "stroke-linecap": "round"});
    }
    release();
  });
  show(-1);
}
