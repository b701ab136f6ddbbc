// What an optimizer does in each scenario: the contract that real steps show.

function contractSection() {
  const rows = rowsOf(result.contract);
  if (!rows.length) return null;
  const several = new Set(rows.map((one) => one.optimizer)).size > 1;
  const columns = [
    several && { name: "optimizer", label: "optimizer", get: (one) => one.optimizer, show: (one) => code(one.optimizer) },
    rows.some((one) => one.variant) && { name: "variant", label: "variant", get: (one) => one.variant || "plain",
      show: (one) => shown(one.variant || "plain", 60) },
    { name: "scenario", label: "scenario", get: (one) => one.scenario, show: (one) => spelled(one.scenario) },
    { name: "implementation", label: "implementation", get: (one) => one.implementation, show: (one) => spelled(one.implementation) },
    { name: "grad", label: "gradient", get: (one) => one.grad, show: (one) => gradWord(one.grad) },
    { name: "entered", label: "entered step", get: (one) => one.entered_step, show: (one) => yesNo(one.entered_step) },
    { name: "param", label: "parameter", get: (one) => one.param_changed, show: (one) => moves(one.param_changed) },
    { name: "state", label: "state that changed", get: (one) => (one.state_changed ?? []).length,
      show: (one) => (one.raised ? el("span", { class: "bad-text" }, shown(one.raised, 120))
        : shown(joined(one.state_changed ?? []) || "none", 120)) },
    { name: "step", label: "counter", get: (one) => one.step_advanced, show: (one) =>
      (one.step_advanced === null || one.step_advanced === undefined ? "–" : one.step_advanced ? "advanced" : "rests") },
    { name: "values", label: "before → after", show: (one) => unfolding("values", () => beforeAfter(one)) },
  ].filter(Boolean);
  const by = (label, name) => ({ label, options: [...new Set(rows.map((one) => one[name]).filter(Boolean))].sort(),
    get: (one) => one[name] });
  return section("contract", "Contract", dataTable({
    label: "cases", rows, columns, text: (one) => joined([one.optimizer, one.variant, one.scenario, one.implementation,
      one.grad, ...(one.state_changed ?? []), one.raised], " "),
    filters: [by("optimizer", "optimizer"), by("variant", "variant"), by("scenario", "scenario"), by("implementation", "implementation"), by("gradient", "grad")],
  }), exactTable(), implementationsTable());
}

function gradWord(grad) {
  return el("span", { class: "key" }, el("i", { class: `swatch grad-${spelled(grad ?? "none")}` }), spelled(grad ?? "–"));
}

function yesNo(value) {
  return value === null || value === undefined ? "–" : value ? "yes" : "no";
}

function moves(value) {
  return value === null || value === undefined ? "–" : value ? el("strong", {}, "changed") : "rests";
}

function beforeAfter(one) {
  const names = [...new Set([...Object.keys(one.before ?? {}), ...Object.keys(one.after ?? {})])];
  const list = (values) => (Array.isArray(values) ? values.slice(0, 8).map(number).join("  ") : values === undefined ? "–" : number(values));
  return [el("table", { class: "plain small" }, el("tbody", {}, names.flatMap((name) => [["before", "before"], ["after", "after"]]
    .map(([side, word]) => el("tr", {}, el("td", {}, side === "before" ? spelled(name) : ""), el("td", { class: "quiet" }, word),
      el("td", {}, el("code", {}, list((one[side] ?? {})[name])))))))), pairs(one.hyperparameters ?? {})];
}

function exactTable() {
  const rows = Array.isArray(result.exact) ? result.exact : [];
  return rows.length ? [el("h3", {}, "Exact transitions"), smallTable(rows, ["name", "expected", "observed", "passed"])] : null;
}

function implementationsTable() {
  const rows = Array.isArray(result.implementations) ? result.implementations : [];
  if (!rows.length) return null;
  const names = ["optimizer", "variant", "implementation", "bitwise", "max_ulp", "max_abs", "reason"]
    .filter((name) => rows.some((one) => one[name] !== undefined && one[name] !== null && one[name] !== ""));
  return [el("h3", {}, "Implementations against each other"), smallTable(rows, names)];
}

function smallTable(rows, names) {
  const cellOf = (value) => (typeof value === "boolean" ? el("span", { class: value ? null : "bad-text" }, value ? "yes" : "no")
    : typeof value === "number" ? number(value) : shown(value ?? "–", 200));
  const whole = (some) => el("div", { class: "scroll" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, names.map((name) =>
    el("th", {}, name.replaceAll("_", " "))))), el("tbody", {}, some.map((one) => el("tr", {}, names.map((name) =>
    el("td", {}, cellOf(one[name]))))))));
  return [whole(rows.slice(0, 40)), rows.length > 40 && unfolding(`${integer(rows.length - 40)} more`, () => whole(rows.slice(40, 2000)))];
}
