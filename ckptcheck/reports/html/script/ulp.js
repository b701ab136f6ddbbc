// How many units in the last place the elements of two checkpoints are apart, by powers of two.

const MANTISSA_BITS = { float64: 52, float32: 23, float16: 10, bfloat16: 7, float8_e4m3fn: 3, float8_e5m2: 2 };

function ulpSection() {
  const parts = result.ulp ?? [];
  if (!parts.length) return null;
  return section("ulp", "Distances in ULP", note("Elements whose bits differ, by how many representable numbers lie " +
    "between both sides. To the right of the mark they differ by a factor of two and more, or in sign."),
  el("div", { class: "histograms" }, parts.map(histogram)));
}

function histogram(part) {
  const counts = part.counts;
  const total = counts.reduce((sum, count) => sum + count, 0);
  const readout = el("figcaption", { class: "readout" }, ulpSummary(part, total));
  const [width, height, base] = [460, 130, 108];
  const wide = width / Math.max(counts.length, 12);
  const most = Math.max(...counts);
  // Counts differ by orders of magnitude, so that bars are logarithmic; one element is as high as a hair.
  const high = (count) => (count ? 2 + (Math.log10(count) / Math.max(1, Math.log10(most))) * (base - 16) : 0);
  const bars = counts.map((count, place) => svg("g", { class: "bar-slot",
    onpointerenter: () => { readout.textContent = ulpBar(place, count, total); },
    onpointerleave: () => { readout.textContent = ulpSummary(part, total); } },
  svg("rect", { class: "slot", x: place * wide, y: 0, width: wide, height: base }),
  svg("rect", { class: "bar-fill", x: place * wide + 0.75, y: base - high(count), width: Math.max(1, wide - 1.5),
    height: high(count), rx: 1 })));
  const binade = MANTISSA_BITS[part.dtype];
  const mark = binade !== undefined && counts.length > binade + 1 ? svg("line", { class: "mark", x1: (binade + 1) * wide,
    x2: (binade + 1) * wide, y1: 0, y2: base }) : null;
  const ticks = counts.map((_, place) => place).filter((place) => place === 0 || (place - 1) % 4 === 0);
  return el("figure", { class: "histogram" },
    el("p", { class: "histogram-title" }, el("strong", {}, part.key ? spelled(part.key) : sectionWord(part.section)), " ",
      el("span", { class: "quiet" }, joined([part.key && sectionWord(part.section), spelled(part.dtype),
        counted(part.tensors, "tensor")]))),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": ulpSummary(part, total) }, bars, mark,
      svg("line", { class: "base", x1: 0, x2: width, y1: base, y2: base }),
      ticks.map((place) => svg("text", { x: (place + 0.5) * wide, y: base + 14, "text-anchor": "middle" },
        place === 0 ? "0" : place === 1 ? "1" : superscript(place - 1)))),
    readout);
}

function superscript(power) {
  return `2${[...String(power)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("")}`;
}

function ulpBar(place, count, total) {
  const range = place === 0 ? "0 apart: zeros of two signs" : place === 1 ? "1 apart"
    : `${number(2 ** (place - 1))} to ${number(2 ** place - 1)} apart`;
  return `${range}: ${counted(count, "element")}, ${((100 * count) / total).toPrecision(3)} %`;
}

function ulpSummary(part, total) {
  let seen = 0;
  const middle = part.counts.findIndex((count) => (seen += count) * 2 >= total);
  const most = part.counts.length - 1;
  return `${counted(total, "element")}; half of them less than ${middle === 0 ? "1" : superscript(middle)} apart, ` +
    `the farthest less than ${superscript(most)}`;
}
