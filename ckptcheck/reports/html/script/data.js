// The result, as schema 1 has it, with long lists in columns (encoding.py, distances.py and model.py say how).

const results = JSON.parse(document.getElementById("data").textContent);
let result = results[0];

// Little-endian floats, as they were written; a null is NaN, a NaN is -1.
function decoded(base64, Column) {
  const text = atob(base64);
  const width = Column.BYTES_PER_ELEMENT;
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1) {
    for (let place = 0; place < bytes.length; place += width) bytes.subarray(place, place + width).reverse();
  }
  return new Column(bytes.buffer);
}

// Rows of a part in columns, as objects again.
function rowsOf(part) {
  if (Array.isArray(part)) return part;
  if (!part || !part.columns) return [];
  const names = Object.keys(part.columns);
  return Array.from({ length: part.rows }, (_, place) => {
    const row = {};
    for (const name of names) {
      const value = part.columns[name][place];
      row[name] = value !== null && part.texts[name] ? part.texts[name][value] : value;
    }
    return row;
  });
}

const METRICS = [["rel_l2", "relative L2"], ["max_abs", "max abs"], ["max_ulp", "max ULP"]];

// One run's distances: each tensor with its name and, for each of the run's steps, a place in the columns or -1. They
// are read once, and a column when it is first looked at: there may be 200,000 numbers in each.
const read = new WeakMap();
function distancesOf(part) {
  if (!read.has(part)) read.set(part, readDistances(part));
  return read.get(part);
}

function readDistances(part) {
  const columns = {};
  for (const [name] of METRICS) {
    let column = null;
    const read = () => (column ??= decoded(part[name], name === "max_ulp" ? Float32Array : Float64Array));
    Object.defineProperty(columns, name, { get: read });
  }
  const placeOf = new Map(part.steps.map((step, place) => [step, place]));
  let offset = 0;
  const tensors = rowsOf(part.tensors);
  for (const tensor of tensors) {
    const own = tensor.steps;
    tensor.places = new Int32Array(part.steps.length).fill(-1);
    (own ?? part.steps).forEach((step, place) => { tensor.places[own ? placeOf.get(step) : place] = offset + place; });
    offset += (own ?? part.steps).length;
  }
  return { run: part.run, step: part.step, steps: part.steps, tensors, columns, bound: part.bound,
    leftOut: part.left_out, notMeasured: part.not_measured };
}

// What a tensor counts as in a plot: state by its key, the other sections as they are.
function seriesOf(tensor) {
  return tensor.section === "state" ? `state ${tensor.key ?? ""}`.trim() : tensor.section;
}

function seriesWord(name) {
  return name.startsWith("state ") ? spelled(name.slice(6)) : sectionWord(name);
}

// The larger of two distances: unknown gives way to everything, NaN to nothing.
function worse(one, other) {
  if (Number.isNaN(one)) return other;
  if (Number.isNaN(other)) return one;
  if (one === -1 || other === -1) return -1;
  return one > other ? one : other;
}

// Things that several sections show together: the run and the metric that are looked at.
const chosen = {};
function lookAt(place) {
  result = results[place];
  Object.assign(chosen, { run: (result.distances[0] ?? { run: null }).run, metric: "rel_l2", watchers: [], magnitudes: null });
}

function choose(change) {
  Object.assign(chosen, change);
  chosen.watchers.forEach((watch) => watch());
}

function ofRun(parts, run = chosen.run) {
  return (parts ?? []).filter((part) => part.run === run || part.run === null || part.run === undefined);
}
