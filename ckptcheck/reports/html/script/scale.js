// Colours of distances: the logarithm between the smallest and the greatest, and three cases beside it.

const EQUAL = 0;

function ramp() {
  return ["heat-0", "heat-1", "heat-2", "heat-3", "heat-4", "heat-5"].map((name) => channels(colour(name)));
}

function channels(hex) {
  return [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
}

function mixed(stops, share) {
  const place = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  const part = place - low;
  return `rgb(${stops[low].map((channel, at) => Math.round(channel + (stops[low + 1][at] - channel) * part)).join(" ")})`;
}

// From the numbers that are to be shown to the colours that show them.
function heatScale(values) {
  let low = Infinity;
  let high = 0;
  for (const value of values) {
    if (value > 0 && Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  }
  if (high === 0) { low = 1; high = 1; }
  const span = Math.log10(high) - Math.log10(low);
  const stops = ramp();
  const equal = colour("heat-equal");
  const unknown = colour("heat-unknown");
  const beyond = colour("heat-beyond");
  return {
    low, high,
    share: (value) => (span > 0 ? (Math.log10(value) - Math.log10(low)) / span : 1),
    fill(value) {
      if (Number.isNaN(value)) return unknown;
      if (value === EQUAL) return equal;
      if (value === -1 || value === Infinity) return beyond;
      return mixed(stops, this.share(value));
    },
  };
}

function heatLegend(scale) {
  const bar = el("canvas", { class: "ramp", width: 160, height: 10, role: "img",
    "aria-label": `from ${number(scale.low)}, light, to ${number(scale.high)}, strong; the scale is logarithmic` });
  const pen = bar.getContext("2d");
  for (let x = 0; x < 160; x += 1) {
    pen.fillStyle = scale.fill(scale.low * (scale.high / scale.low) ** (x / 159));
    pen.fillRect(x, 0, 1, 10);
  }
  return el("div", { class: "legend" }, swatch("heat-equal", "distance 0"), el("span", { class: "ends" },
    number(scale.low), bar, number(scale.high)), swatch("heat-beyond", "NaN or infinite"),
    swatch("heat-unknown", "not measured"));
}

function swatch(name, text) {
  return el("span", { class: "key" }, el("i", { class: `swatch ${name}` }), text);
}
