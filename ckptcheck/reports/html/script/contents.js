// What is in a checkpoint: sections, param groups, tensors.

function contentsSection() {
  if (result.command !== "inspect" || result.verdict === "error") return null;
  const rows = rowsOf(result.tensors);
  const parts = Array.isArray(result.sections) ? result.sections : [];
  return section("contents", "Contents", parts.length > 0 && el("div", { class: "scroll" }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, ["section", "tensors", "values", "size", "dtypes"].map((name, place) =>
      el("th", { class: place > 0 && place < 4 ? "number" : null }, name)))),
    el("tbody", {}, parts.map((one) => el("tr", {}, el("td", {}, sectionWord(one.section)),
      el("td", { class: "number" }, number(one.tensors)), el("td", { class: "number" }, number(one.values)),
      el("td", { class: "number" }, size(one.bytes)),
      el("td", {}, joined(Object.entries(one.dtypes ?? {}).map(([name, many]) => `${spelled(name)} ${integer(many)}`)))))))),
  storedGroups(), rows.length > 0 && dataTable({ label: "tensors", rows, columns: tensorColumns(rows),
    text: (one) => joined([thing(one), one.section, one.dtype], " "),
    filters: [{ label: "section", options: [...new Set(rows.map((one) => one.section))], get: (one) => one.section },
      { label: "dtype", options: [...new Set(rows.map((one) => one.dtype))].sort(), get: (one) => one.dtype }] }));
}

function tensorColumns(rows) {
  const has = (name) => rows.some((one) => one[name] !== null && one[name] !== undefined);
  return [
    { name: "what", label: "tensor", get: thing, show: (one) => code(thing(one), 90) },
    { name: "section", label: "section", get: (one) => one.section, show: (one) => sectionWord(one.section) },
    { name: "dtype", label: "dtype", get: (one) => one.dtype, show: (one) => spelled(one.dtype ?? "–") },
    { name: "shape", label: "shape", show: (one) => (one.shape ? `[${one.shape.join(", ")}]` : "–") },
    has("group") && { name: "group", label: "group", number: true, get: (one) => one.group },
    { name: "bytes", label: "size", number: true, get: (one) => one.bytes, show: (one) => size(one.bytes ?? 0) },
    has("value") && { name: "value", label: "value", number: true, get: (one) => one.value },
  ].filter(Boolean);
}

function storedGroups() {
  const groups = Array.isArray(result.groups) ? result.groups.filter((one) => Array.isArray(one.parameters)) : [];
  return groups.length ? el("div", {}, groups.slice(0, 200).map((one) => unfolding(
    `optimizer ${one.optimizer}, group ${one.group}: ${counted(one.parameters.length, "parameter")}`,
    () => [pairs(one.hyperparameters ?? {}), listOf(one.parameters)]))) : null;
}
