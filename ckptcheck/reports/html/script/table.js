// Long tables: searched, sorted by a click on a head, and made some rows at a time.

const ROWS_AT_ONCE = 40;

// `columns`: {name, label, get(row) for sorting, show(row) for the cell, number}; `text(row)` is what a search sees.
function dataTable({ label, rows, columns, text, filters = [], sorted = null, down = true }) {
  const state = { sorted, down, most: ROWS_AT_ONCE, words: [], picked: {} };
  const count = el("output", { class: "count" });
  const head = el("tr", {});
  const body = el("tbody", {});
  const more = el("button", { type: "button", class: "more", onclick: () => { state.most += 5 * ROWS_AT_ONCE; draw(); } });
  const search = searchBox(`Search ${label}`, (words) => { state.words = words; state.most = ROWS_AT_ONCE; draw(); });
  const pickers = filters.filter((one) => one.options.length > 1).map((one) => picker(one.label,
    [["", "all"], ...one.options.map((option) => [option, spelled(option)])], "", (value) => {
      state.picked[one.label] = value && ((row) => one.get(row) === value);
      draw();
    }));
  const seen = new Map();
  const textOf = (one) => {
    if (!seen.has(one)) seen.set(one, text(one).toLowerCase());
    return seen.get(one);
  };

  function draw() {
    head.replaceChildren(...columns.map(headCell));
    let found = rows.filter((one) => Object.values(state.picked).every((holds) => !holds || holds(one)) &&
      state.words.every((word) => textOf(one).includes(word)));
    const column = columns.find((one) => one.name === state.sorted);
    if (column) found = found.slice().sort((one, other) => byOrder(column.get(one), column.get(other), state.down));
    body.replaceChildren(...found.slice(0, state.most).map((one) => el("tr", {}, columns.map((each) =>
      el("td", { class: each.number ? "number" : null }, each.show ? each.show(one) : number(each.get(one)))))));
    count.textContent = found.length === rows.length ? `${integer(rows.length)}` : `${integer(found.length)} of ${integer(rows.length)}`;
    const rest = found.length - state.most;
    more.textContent = `Show ${integer(Math.min(rest, 5 * ROWS_AT_ONCE))} more of ${integer(rest)}`;
    more.hidden = rest <= 0;
  }

  function headCell(column) {
    const here = state.sorted === column.name;
    return el("th", { class: column.number ? "number" : null, scope: "col",
      "aria-sort": here ? (state.down ? "descending" : "ascending") : null },
    column.get ? el("button", { type: "button", onclick: () => {
      state.down = here ? !state.down : Boolean(column.number);
      state.sorted = column.name;
      draw();
    } }, column.label, el("span", { class: "arrow", "aria-hidden": "true" }, here ? (state.down ? " ↓" : " ↑") : "")) : column.label);
  }

  draw();
  return el("div", { class: "data-table" }, el("div", { class: "controls" }, search, pickers, count),
    el("div", { class: "scroll" }, el("table", { "aria-label": label }, el("thead", {}, head), body)), more);
}

// Nulls come last, whichever way it is sorted; numbers that stand as "nan" or "inf" come as what they are.
function byOrder(one, other, down) {
  const [left, right] = [one, other].map((value) => (value === "inf" || value === "nan" ? Infinity : value));
  if (left === right) return 0;
  if (left === null || left === undefined) return 1;
  if (right === null || right === undefined) return -1;
  const order = typeof left === "number" && typeof right === "number" ? left - right
    : String(left).localeCompare(String(right), "en", { numeric: true });
  return down ? -order : order;
}

function searchBox(label, search) {
  let later = 0;
  const box = el("input", { type: "search", placeholder: label, "aria-label": label, autocomplete: "off",
    spellcheck: "false", oninput: () => {
      clearTimeout(later);
      later = setTimeout(() => search(box.value.toLowerCase().split(/\s+/).filter(Boolean)), rowsTooMany() ? 120 : 0);
    } });
  return box;
}

function rowsTooMany() {
  return document.getElementsByTagName("tr").length > 1000;
}
