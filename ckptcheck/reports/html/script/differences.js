// Two checkpoints: what differs, section by section, then every tensor and value of it.

function differencesSection() {
  if (result.command !== "diff" || !result.differences) return null;
  const rows = rowsOf(result.differences);
  if (!rows.length) return section("differences", "Differences", sectionsTable(), note("No tensor and no value differs."));
  const cut = result.differences.of > rows.length
    ? note(`The first ${integer(rows.length)} of ${integer(result.differences.of)} are here; JSON has all.`) : null;
  const has = (name) => rows.some((one) => one[name] !== null && one[name] !== undefined);
  const columns = [
    { name: "what", label: "what", get: thing, show: (one) => [code(thing(one), 90), one.other &&
      el("span", { class: "quiet" }, " → ", code(one.other, 60))] },
    { name: "section", label: "section", get: (one) => one.section, show: (one) => sectionWord(one.section) },
    { name: "kind", label: "kind", get: (one) => one.kind, show: (one) => spelled(one.kind) },
    has("differing") && { name: "differing", label: "elements", number: true, get: shareOf,
      show: (one) => (has("differing") && one.differing !== null && one.differing !== undefined
        ? `${number(one.differing)} / ${number(one.numel)}` : "–") },
    ...[["rel_l2", "rel L2"], ["max_abs", "max abs"], ["max_ulp", "max ULP"], ["median_ulp", "median ULP"],
      ["sign_flips", "sign flips"], ["nan", "NaN"], ["inf", "inf"]].filter(([name]) => rows.some((one) => one[name]))
      .map(([name, label]) => ({ name, label, number: true, get: (one) => one[name] })),
    (has("left") || has("right")) && { name: "values", label: "left → right", show: valuesOfSides },
  ].filter(Boolean);
  return section("differences", "Differences", sectionsTable(), dataTable({
    label: "differences", rows, columns, sorted: rows.some((one) => one.rel_l2) ? "rel_l2" : null,
    text: (one) => joined([thing(one), one.section, one.kind, one.other], " "),
    filters: [{ label: "section", options: [...new Set(rows.map((one) => one.section))], get: (one) => one.section },
      { label: "kind", options: [...new Set(rows.map((one) => one.kind))], get: (one) => one.kind }],
  }), cut);
}

function shareOf(one) {
  return one.numel ? (one.differing ?? 0) / one.numel : null;
}

function valuesOfSides(one) {
  const side = (name) => {
    const value = one[name];
    if (value !== null && value !== undefined) return el("code", {}, typeof value === "number" ? number(value) : shown(value, 60));
    const dtype = one[`${name}_dtype`];
    return dtype && (one.kind === "dtype" || one.kind === "shape" || one.kind === "added" || one.kind === "removed")
      ? el("code", {}, `${spelled(dtype)}[${(one[`${name}_shape`] ?? []).join(", ")}]`) : el("span", { class: "quiet" }, "–");
  };
  return one.left_dtype || one.right_dtype || side("left").tagName === "CODE" || side("right").tagName === "CODE"
    ? (side("left").tagName === "SPAN" && side("right").tagName === "SPAN" ? "" : [side("left"), " → ", side("right")]) : "";
}

function sectionsTable() {
  const parts = Array.isArray(result.sections) ? result.sections : [];
  if (!parts.length) return null;
  const columns = ["tensors", "values", "differing", "added", "removed", "tolerated"].filter((name) =>
    name === "tensors" || name === "differing" || parts.some((one) => one[name]));
  return el("div", { class: "scroll" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, el("th", {}, "section"),
    columns.map((name) => el("th", { class: "number" }, name)), el("th", { class: "number" }, "size"))),
  el("tbody", {}, parts.map((one) => el("tr", {}, el("td", {}, sectionWord(one.section)), columns.map((name) =>
    el("td", { class: `number${name === "differing" && one[name] ? " bad-text" : ""}` }, number(one[name]))),
  el("td", { class: "number" }, size(one.bytes)))))));
}
