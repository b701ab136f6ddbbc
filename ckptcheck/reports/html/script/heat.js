// Every differing tensor at every compared step, gathered by module: a row is as far apart as the worst below it.

function heatSection() {
  const parts = (result.distances ?? []).map(distancesOf);
  if (!parts.length) return null;
  const host = el("div", { class: "heat" });
  let series = "";
  let near = false;
  const draw = () => {
    if (!near) return;
    const part = parts.find((one) => one.run === chosen.run);
    const drawn = part ? heat(part, series) : [note(goneOn())];
    host.replaceChildren(...drawn);
    if (part) drawn[0].settle();
  };
  chosen.watchers.push(draw);
  onColours(draw);
  const kinds = [...new Set(parts.flatMap((part) => part.tensors.map(seriesOf)))];
  const made = section("heat", "Tensors by steps", el("div", { class: "controls" },
    picker("section", [["", "all"], ...kinds.map((kind) => [kind, seriesWord(kind)])], "", (kind) => {
      series = kind;
      draw();
    })), host);
  whenNear(made, parts.some((part) => part.tensors.length > 3000), () => { near = true; draw(); });
  return made;
}

function heat(part, series) {
  const metric = chosen.metric;
  const tensors = part.tensors.filter((one) => !series || seriesOf(one) === series);
  const root = moduleTree(tensors);
  unfold(root, 24);
  const values = (node) => (node.values ??= valuesOf(node, part, metric));
  const scale = heatScale(values(root).length ? allValues(tensors, part, metric) : []);
  const fills = new Map();
  const fill = (value) => {
    if (!fills.has(value)) fills.set(value, scale.fill(value));
    return fills.get(value);
  };
  const made = matrix({
    label: "tensors by steps", columns: part.steps, rowHeight: 18, most: 18 * 26, nameWidth: 330,
    rows: () => visible(root, []),
    toggle: (row) => { row.node.open = !row.node.open; },
    cell: ({ node }, column) => { const value = values(node)[column]; return [fill(value), rankOf(value)]; },
    readout: ({ node }, column) => `step ${part.steps[column]} · ${shown(node.path || "all", 90)}${
      node.children.length ? ` (${counted(node.leaves, "tensor")}, the worst)` : ""}: ${distanceText(values(node)[column])}`,
    hint: "Point at a cell, or use the arrow keys; a module opens with a click or Enter",
  });
  const names = new Set(tensors.map((one) => one.parameter ?? one.key)).size;
  return [made, heatLegend(scale), note(`${counted(tensors.length, "tensor")} of ${counted(names, "name")} ${
    tensors.length === 1 ? "differs" : "differ"} somewhere; those that are equal at every compared step are not listed.`)];
}

function* allValues(tensors, part, metric) {
  for (const tensor of tensors) for (const place of tensor.places) if (place >= 0) yield part.columns[metric][place];
}

function rankOf(value) {
  if (Number.isNaN(value)) return -1;
  return value === -1 ? Infinity : value;
}

// Modules by the dots of their names; one that holds a single module is told together with it.
function moduleTree(tensors) {
  const root = newNode("", "");
  const byName = new Map();
  for (const tensor of tensors) {
    const name = tensor.parameter ?? tensor.key ?? tensor.section;
    if (!byName.has(name)) byName.set(name, []);
    byName.get(name).push(tensor);
  }
  for (const [name, own] of byName) {
    let node = root;
    let path = "";
    for (const piece of name.split(".")) {
      path = path ? `${path}.${piece}` : piece;
      node = node.named.get(piece) ?? added(node, piece, path);
    }
    if (own.length === 1) node.tensors = own;
    else for (const tensor of own) added(node, ` ${byName.size} ${labelOf(tensor)}`, `${name} / ${labelOf(tensor)}`, labelOf(tensor), [tensor]);
    if (own.length === 1) node.aside = labelOf(own[0]);
  }
  return gathered(root);
}

function labelOf(tensor) {
  const kind = seriesWord(seriesOf(tensor));
  return joined([kind === "parameters" ? "value" : kind === "gradients" ? "grad" : kind,
    tensor.optimizer ? `optimizer ${tensor.optimizer}` : null, tensor.part ? `part ${tensor.part}` : null], ", ");
}

function newNode(name, path) {
  return { name, path, named: new Map(), children: [], tensors: [], leaves: 0, open: false, values: null, aside: null };
}

function added(node, piece, path, name = piece, tensors = []) {
  const child = newNode(name, path);
  child.tensors = tensors;
  node.named.set(piece, child);
  node.children.push(child);
  return child;
}

function gathered(node) {
  node.children = node.children.map(gathered);
  // Layers in their order; other names as they come, which is the order in which they begin to differ.
  if (node.children.every((child) => /^\d+(\.|$)/.test(child.name))) {
    node.children.sort((one, other) => parseInt(one.name, 10) - parseInt(other.name, 10));
  }
  while (node.children.length === 1 && !node.tensors.length && node.path && node.children[0].path.startsWith(`${node.path}.`)) {
    const only = node.children[0];
    Object.assign(node, { name: `${node.name}.${only.name}`, path: only.path, children: only.children,
      tensors: only.tensors, aside: only.aside });
  }
  node.leaves = node.tensors.length + node.children.reduce((sum, child) => sum + child.leaves, 0);
  return node;
}

// Level by level, as long as about `most` rows are in view.
function unfold(root, most) {
  root.open = true;
  let level = root.children;
  let count = level.length;
  while (level.length) {
    const next = level.flatMap((node) => node.children);
    // One module that holds all the others is no picture: then its many parts are shown, and scrolled.
    if (!next.length || (count + next.length > most && (count > 4 || next.length > 2000))) return;
    level.forEach((node) => { node.open = node.children.length > 0; });
    count += next.length;
    level = next;
  }
}

function visible(node, rows, depth = 0) {
  for (const child of node.children) {
    rows.push({ node: child, name: shown(child.name, 80), full: shown(child.path, 1000), depth, open: child.open,
      opens: child.children.length > 0, aside: child.children.length ? integer(child.leaves) : child.aside });
    if (child.open) visible(child, rows, depth + 1);
  }
  return rows;
}

function valuesOf(node, part, metric) {
  const values = new Float64Array(part.steps.length).fill(NaN);
  const take = (value, column) => { values[column] = worse(values[column], value); };
  for (const tensor of node.tensors) {
    tensor.places.forEach((place, column) => { if (place >= 0) take(part.columns[metric][place], column); });
  }
  for (const child of node.children) (child.values ??= valuesOf(child, part, metric)).forEach(take);
  return values;
}
