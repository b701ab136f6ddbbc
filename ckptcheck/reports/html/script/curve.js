// Divergence over steps, by section: the worst tensor of each at every compared step, on a logarithmic axis. What is
// equal to the bit has no logarithm: a line begins where its section begins to differ.

function curveSection() {
  const parts = (result.distances ?? []).map(distancesOf);
  if (!parts.length) return null;
  const host = el("div", {});
  const hidden = new Set();
  let plot = null;
  const draw = () => {
    if (plot) plot.destroy();
    host.replaceChildren();
    const part = parts.find((one) => one.run === chosen.run);
    plot = null;
    if (!part) { host.append(note(goneOn())); return; }
    plot = curve(host, part, hidden, draw);
  };
  chosen.watchers.push(draw);
  onColours(draw);
  const made = section("divergence", "Divergence over steps", el("div", { class: "controls" },
    metricChoice(parts)), host);
  requestAnimationFrame(draw);
  return made;
}

function metricChoice(parts) {
  return parts.every((part) => part.bound) ? null
    : choice("distance", METRICS, chosen.metric, (metric) => choose({ metric }));
}

function goneOn() {
  return `${chosen.run === null ? "This run" : spelled(String(chosen.run))} has no measured distance: see the stages.`;
}

// By series, the worst distance right after the load and after each step.
function worstOf(part, metric) {
  const found = new Map();
  const loaded = part.step !== null && part.step !== undefined && !part.steps.includes(part.step);
  const steps = loaded ? [part.step, ...part.steps] : part.steps;
  for (const tensor of part.tensors) {
    const name = seriesOf(tensor);
    if (!found.has(name)) found.set(name, { name, values: new Float64Array(steps.length).fill(NaN), tensors: 0 });
    const one = found.get(name);
    one.tensors += 1;
    if (loaded) one.values[0] = worse(one.values[0], tensor.load ? loadDistance(tensor.load[metric]) : 0);
    tensor.places.forEach((place, step) => {
      if (place < 0) return;
      const at = step + (loaded ? 1 : 0);
      one.values[at] = worse(one.values[at], part.columns[metric][place]);
    });
  }
  const order = ["param", "state", "grad", "buffer"];
  const rank = (one) => order.indexOf(one.name.split(" ")[0]);
  return { steps, loaded, series: [...found.values()].sort((one, other) => rank(one) - rank(other)) };
}

function loadDistance(value) {
  if (value === null || value === undefined) return NaN;
  return value === "nan" ? -1 : typeof value === "string" ? Infinity : value;
}

const DASHES = { grad: [2, 3], buffer: [8, 4] };

function curve(host, part, hidden, again) {
  const { steps, loaded, series } = worstOf(part, chosen.metric);
  const colours = series.map((_, place) => colour(`series-${(place % 8) + 1}`));
  const known = (value) => (value > 0 && Number.isFinite(value) ? value : null);
  const data = [steps, ...series.map((one) => Array.from(one.values, known))];
  const values = data.slice(1).flat().filter((value) => value !== null);
  const keys = series.map((one, place) => legendKey(one, colours[place], hidden, again));
  const legend = el("div", { class: "curve-legend", role: "group", "aria-label": "series" }, keys.map((key) => key.button));
  const where = el("p", { class: "readout" });
  const frame = el("div", { class: "plot", tabindex: 0, role: "img", "aria-label": spoken(part, steps, series) });
  host.append(where, frame, legend, ...curveNotes(part, series));
  const at = (place) => {
    where.textContent = place === null ? resting(part) : `step ${steps[place]}${
      loaded && place === 0 ? ", right after the load" : ""} · worst tensor of each section`;
    keys.forEach((key, one) => { key.value.textContent = distanceText(series[one].values[place ?? steps.length - 1]); });
  };
  at(null);
  if (!values.length) { frame.replaceChildren(note("No finite distance to draw.")); return { destroy() {} }; }
  const options = curveOptions(part, steps, series, colours, hidden, [Math.min(...values), Math.max(...values)], at);
  const plot = new uPlot({ ...options, width: Math.max(200, frame.clientWidth), height: 300 }, data, frame);
  onWidth(frame, (width) => plot.setSize({ width, height: width < 520 ? 240 : 300 }));
  frame.addEventListener("keydown", (event) => moveCursor(event, plot, steps, at));
  return plot;
}

function resting(part) {
  const metric = METRICS.find(([name]) => name === chosen.metric)[1];
  return `${part.bound ? "relative gap of the L2 norms" : metric}, worst tensor of each section; values at the last step`;
}

function spoken(part, steps, series) {
  const last = series.map((one) => `${seriesWord(one.name)} ${distanceText(one.values[steps.length - 1])}`);
  return `Divergence from step ${steps[0]} to ${steps[steps.length - 1]}; at the end: ${joined(last)}`;
}

function legendKey(one, ink, hidden, again) {
  const value = el("span", { class: "value" });
  const button = el("button", { type: "button", "aria-pressed": String(!hidden.has(one.name)), onclick: () => {
    if (!hidden.delete(one.name)) hidden.add(one.name);
    again();
  } }, svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4,
    stroke: ink, "stroke-width": 2.5, "stroke-dasharray": (DASHES[one.name] ?? []).join(" ") || null })),
  el("span", {}, seriesWord(one.name)), value);
  return { button, value };
}

function curveOptions(part, steps, series, colours, hidden, [low, high], at) {
  const quiet = colour("quiet");
  const grid = { stroke: colour("line"), width: 1 };
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const floor = 10 ** Math.floor(Math.log10(low) - 0.05);
  const ceiling = 10 ** Math.ceil(Math.log10(high) + 0.05);
  const axis = { stroke: quiet, grid, ticks: grid, font };
  return {
    padding: [14, 12, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: false, range: (_, from, to) => (from === to ? [from - 1, to + 1] : [from, to]) },
      y: { distr: 3, log: 10, range: [floor, ceiling] } },
    axes: [{ ...axis, size: 34, label: "step", labelSize: 16, labelFont: font, labelGap: 0,
      incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
    { ...axis, size: 58, splits: () => powersBetween(floor, ceiling), values: (_, splits) => splits.map((value) => (value === null ? "" : powerOfTen(value))) }],
    series: [{}, ...series.map((one, place) => ({ label: one.name, stroke: colours[place], width: 2,
      dash: DASHES[one.name], show: !hidden.has(one.name), spanGaps: false,
      points: { show: steps.length <= 40, size: 5, fill: colours[place] } }))],
    hooks: { setCursor: [(plot) => at(plot.cursor.idx ?? null)], drawClear: [(plot) => marks(plot, part, font)] },
  };
}

function powerOfTen(value) {
  const power = Math.round(Math.log10(value));
  return power >= 0 && power < 4 ? String(10 ** power) : `1e${power}`;
}

// Lines at powers of ten alone, at most eight of them.
function powersBetween(floor, ceiling) {
  const [low, high] = [floor, ceiling].map((value) => Math.round(Math.log10(value)));
  const apart = Math.ceil((high - low) / 8) || 1;
  return Array.from({ length: Math.floor((high - low) / apart) + 1 }, (_, place) => 10 ** (low + place * apart));
}

// Where the run was resumed, and where it first differs.
function marks(plot, part, font) {
  const pen = plot.ctx;
  const ratio = window.devicePixelRatio || 1;
  const { top, height, left, width } = plot.bbox;
  const strip = (result.stages ?? []).find((one) => one.run === part.run);
  const found = strip ? stripOf(strip).find((one) => one.status === "breaks") : null;
  const lines = part.step === null || part.step === undefined ? [] : [[part.step, `load after step ${part.step}`]];
  if (found && found.stage !== "load") lines.push([strip.shown, `first: step ${strip.shown}, ${found.stage}`]);
  else if (found && lines.length) lines[0][1] = `first: the load after step ${part.step}`;
  pen.save();
  pen.font = font.replace("11px", `${11 * ratio}px`);
  pen.textBaseline = "bottom";
  lines.forEach(([step, text], place) => {
    const x = plot.valToPos(step, "x", true);
    if (x < left - 1 || x > left + width + 1) return;
    pen.strokeStyle = pen.fillStyle = colour(place === lines.length - 1 && found ? "bad" : "quiet");
    pen.lineWidth = ratio;
    pen.setLineDash([3 * ratio, 3 * ratio]);
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, top + height);
    pen.stroke();
    if (place === lines.length - 1) {
      pen.textAlign = x > left + width / 2 ? "right" : "left";
      pen.fillText(text, x, top - 2 * ratio);
    }
  });
  pen.restore();
}

function moveCursor(event, plot, steps, at) {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -steps.length, End: steps.length }[event.key];
  if (!step) return;
  event.preventDefault();
  const place = Math.max(0, Math.min(steps.length - 1, (plot.cursor.idx ?? (step > 0 ? -1 : steps.length)) + step));
  plot.setCursor({ left: plot.valToPos(steps[place], "x"), top: 0 });
  at(place);
}

function curveNotes(part, series) {
  const odd = series.filter((one) => one.values.some((value) => value === -1 || value === Infinity));
  return [
    part.bound && note("Only digests and norms were compared: a tensor is at least as far apart as its norms are, " +
      "and one whose norm stays may differ all the same."),
    odd.length > 0 && note(`NaN or infinite, and not drawn, at some steps: ${joined(odd.map((one) => seriesWord(one.name)))}.`),
    part.leftOut && note(shown(part.leftOut.reason), "."),
    part.notMeasured.length > 0 && note("Not measured in part: ", joined(part.notMeasured.map((one) => shown(one)), "; ")),
  ].filter(Boolean);
}
