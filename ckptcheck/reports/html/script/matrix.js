// Rows by steps on a canvas, of which only what is in view is drawn: 20,000 rows cost what thirty do. Names are
// elements, so that they can be selected, read aloud and unfolded; one cell is looked at, by pointer or by keys.

function matrix(options) {
  const { rowHeight = 20, most = 420, nameWidth = 260 } = options;
  const readout = el("p", { class: "readout" }, options.hint ?? "");
  const canvas = el("canvas", { "aria-hidden": "true" });
  const names = el("div", { class: "names" });
  const axis = el("canvas", { class: "axis", "aria-hidden": "true" });
  const pane = el("div", { class: "pane" }, names, canvas);
  const tall = el("div", { class: "tall" }, pane);
  const frame = el("div", { class: "frame", role: "treegrid", tabindex: 0, "aria-label": options.label }, tall);
  const host = el("div", { class: "matrix" }, readout, frame, axis);
  const view = { rows: [], width: 0, name: 0, height: 0, at: null, fills: new Map() };

  function measure(width) {
    view.width = width;
    view.name = Math.min(nameWidth, Math.floor(width * 0.42));
    refresh();
  }

  function refresh() {
    view.rows = options.rows();
    view.height = Math.min(most, Math.max(1, view.rows.length) * rowHeight);
    frame.style.setProperty("height", `${view.height}px`);
    tall.style.setProperty("height", `${view.rows.length * rowHeight}px`);
    pane.style.setProperty("height", `${view.height}px`);
    frame.setAttribute("aria-rowcount", view.rows.length);
    paint();
    paintAxis();
  }

  // As wide as what is left beside the names, the scroll bar taken off.
  function field() { return Math.max(20, frame.clientWidth - view.name); }

  function sized(target, width, height) {
    const ratio = window.devicePixelRatio || 1;
    target.width = Math.round(width * ratio);
    target.height = Math.round(height * ratio);
    target.style.setProperty("width", `${width}px`);
    target.style.setProperty("height", `${height}px`);
    const pen = target.getContext("2d");
    pen.scale(ratio, ratio);
    return pen;
  }

  function paint() {
    if (!view.width || !view.rows.length) return;
    const pen = sized(canvas, field(), view.height);
    const first = Math.floor(frame.scrollTop / rowHeight);
    const offset = frame.scrollTop - first * rowHeight;
    const shownRows = view.rows.slice(first, first + Math.ceil(view.height / rowHeight) + 1);
    const gap = rowHeight > 8 ? 1 : 0;
    shownRows.forEach((one, place) => paintRow(pen, one, place * rowHeight - offset, rowHeight - gap));
    paintCursor(pen, first, offset);
    names.replaceChildren(...shownRows.map((one, place) => nameOf(one, first + place, place * rowHeight - offset)));
    names.style.setProperty("width", `${view.name}px`);
  }

  // Where there are more steps than pixels, a pixel shows the weightiest of its steps.
  function paintRow(pen, one, top, height) {
    const width = field();
    const many = options.columns.length;
    const pixels = Math.min(many, width);
    const gap = width / many > 6 ? 1 : 0;
    for (let pixel = 0; pixel < pixels; pixel += 1) {
      const begin = Math.floor((pixel * many) / pixels);
      const end = Math.max(begin + 1, Math.floor(((pixel + 1) * many) / pixels));
      let best = options.cell(one, begin);
      for (let column = begin + 1; column < end; column += 1) {
        const other = options.cell(one, column);
        if (other && (!best || other[1] > best[1])) best = other;
      }
      if (!best) continue;
      const left = (begin * width) / many;
      const right = (end * width) / many;
      pen.fillStyle = best[0];
      pen.fillRect(left, top, Math.max(0.5, right - left - gap), height);
      if (best[2]) best[2](pen, left, top, Math.max(0.5, right - left - gap), height);
    }
  }

  function paintCursor(pen, first, offset) {
    if (!view.at) return;
    const [row, column] = view.at;
    const width = field() / options.columns.length;
    pen.strokeStyle = colour("text");
    pen.lineWidth = 1.5;
    pen.strokeRect(column * width + 0.75, (row - first) * rowHeight - offset + 0.75, Math.max(width, 3) - 1.5,
      rowHeight - 2);
  }

  function nameOf(one, row, top) {
    const opens = one.opens === true;
    const made = el("div", { role: "row", id: rowId(row), class: `name${opens ? " opens" : ""}${
      view.at && view.at[0] === row ? " here" : ""}${one.mark ? ` ${one.mark}` : ""}`,
      "aria-level": (one.depth ?? 0) + 1, "aria-rowindex": row + 1, "aria-expanded": opens ? String(one.open) : null,
      title: one.full ?? null, style: { top: `${top}px`, height: `${rowHeight}px`, "line-height": `${rowHeight}px`,
        "padding-left": `${(one.depth ?? 0) * 12}px` } },
      el("span", { class: "twist", "aria-hidden": "true" }, opens ? (one.open ? "▾" : "▸") : ""),
      el("span", { role: "gridcell" }, one.name), one.aside && el("span", { class: "aside" }, one.aside));
    made.addEventListener("click", () => { at(row, view.at ? view.at[1] : 0); if (opens) toggle(row); });
    return made;
  }

  const prefix = `matrix-${(matrix.made = (matrix.made ?? 0) + 1)}`;
  function rowId(row) { return `${prefix}-${row}`; }

  function toggle(row) {
    if (view.rows[row] && view.rows[row].opens) { options.toggle(view.rows[row]); refresh(); at(row, view.at[1]); }
  }

  function at(row, column) {
    if (!view.rows.length) return;
    view.at = [Math.max(0, Math.min(view.rows.length - 1, row)),
      Math.max(0, Math.min(options.columns.length - 1, column))];
    const top = view.at[0] * rowHeight;
    if (top < frame.scrollTop) frame.scrollTop = top;
    if (top + rowHeight > frame.scrollTop + view.height) frame.scrollTop = top + rowHeight - view.height;
    readout.textContent = options.readout(view.rows[view.at[0]], view.at[1]);
    frame.setAttribute("aria-activedescendant", rowId(view.at[0]));
    paint();
  }

  function paintAxis() {
    if (!view.width) return;
    const width = field();
    const pen = sized(axis, view.name + width, 22);
    pen.fillStyle = colour("quiet");
    pen.font = `11px ${getComputedStyle(host).fontFamily}`;
    pen.textBaseline = "top";
    const many = options.columns.length;
    const apart = Math.ceil(many / Math.max(2, Math.floor(width / 56)));
    for (let column = 0; column < many; column += apart) {
      const middle = view.name + ((column + 0.5) * width) / many;
      pen.textAlign = "center";
      pen.fillRect(middle, 0, 1, 4);
      pen.fillText(String(options.columns[column]), Math.min(middle, view.name + width - 12), 7);
    }
    pen.textAlign = "left";
    pen.fillText("step", 0, 7);
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top + frame.scrollTop) / rowHeight);
    const column = Math.floor(((event.clientX - box.left) / box.width) * options.columns.length);
    if (view.rows[row]) at(row, column);
  });
  canvas.addEventListener("click", () => { if (view.at) toggle(view.at[0]); });
  frame.addEventListener("scroll", paint, { passive: true });
  frame.addEventListener("keydown", (event) => {
    const [row, column] = view.at ?? [0, 0];
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const moves = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1], Home: [row, 0], End: [row, options.columns.length - 1],
      PageUp: [row - page, column], PageDown: [row + page, column] };
    if (moves[event.key]) at(...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") toggle(row);
    else return;
    event.preventDefault();
  });
  onWidth(host, measure);
  onColours(() => { paint(); paintAxis(); });
  // Once it stands in the page: who waits for the observer above paints a frame later, which is too late for paper.
  host.settle = () => { if (host.clientWidth) measure(host.clientWidth); };
  return host;
}
