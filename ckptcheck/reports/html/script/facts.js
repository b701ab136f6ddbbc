// What else a result says: rules that were not judged, what was covered, runs, environment, what was compared.

const PAIRS_AT_ONCE = 24;

// Any JSON value as a person reads it: short ones on a line, long ones opened on demand.
function pairs(value) {
  if (Array.isArray(value)) return listOf(value);
  if (value === null || typeof value !== "object") return plainValue(value);
  const entries = Object.entries(value);
  const list = (some) => el("dl", { class: "pairs" }, some.flatMap(([name, one]) =>
    [el("dt", {}, breakable(shown(name, 200))), el("dd", {}, pairs(one))]));
  if (entries.length <= PAIRS_AT_ONCE) return entries.length ? list(entries) : el("span", { class: "quiet" }, "none");
  return el("div", {}, list(entries.slice(0, PAIRS_AT_ONCE)),
    unfolding(`${integer(entries.length - PAIRS_AT_ONCE)} more`, () => list(entries.slice(PAIRS_AT_ONCE, 2000))));
}

function plainValue(value) {
  if (value === null || value === "") return el("span", { class: "quiet" }, "–");
  if (typeof value === "number" || typeof value === "boolean") return el("span", { title: String(value) }, number(value));
  return el("code", {}, breakable(shown(value, 600)));
}

function listOf(values) {
  if (!values.length) return el("span", { class: "quiet" }, "none");
  if (values.some((one) => one !== null && typeof one === "object")) {
    const items = (some) => el("ul", { class: "values tall-values" }, some.map((one) => el("li", {}, pairs(one))));
    return values.length <= 12 ? items(values)
      : el("div", {}, items(values.slice(0, 12)), unfolding(`${integer(values.length - 12)} more`, () => items(values.slice(12, 1000))));
  }
  const items = (some) => el("ul", { class: "values" }, some.map((one) => el("li", {}, plainValue(one))));
  return values.length <= 24 ? items(values)
    : el("div", {}, items(values.slice(0, 24)), unfolding(`${integer(values.length - 24)} more`, () => items(values.slice(24, 2000))));
}

function notJudgedSection() {
  const open = result.not_judged;
  if (!open.length) return result.said.has_verdict && result.verdict !== "error" ? section("not-judged", "Not judged",
    note("Every rule that was asked for had what it needs.")) : null;
  const required = new Set(Array.isArray(result.required) ? result.required : []);
  return section("not-judged", "Not judged", note("These rules lacked what they need. Silence is never a pass."),
    el("dl", { class: "reasons" }, open.flatMap((one) => [el("dt", {}, el("span", { class: "badge open" }, spelled(one.code)),
      required.has(one.code) && el("span", { class: "tag" }, "demanded")), el("dd", {}, breakable(shown(one.reason, 900)))])));
}

function coveredSection() {
  const crossed = result.crossed;
  if (!crossed || !Array.isArray(crossed.situations)) return null;
  const groups = [["yes", "covered", "✓"], ["no", "not covered", "–"]];
  const rest = crossed.situations.filter((one) => !groups.some(([value]) => value === one.covered));
  return section("covered", "What the resume crossed", el("div", { class: "columns" }, groups.map(([value, title, mark]) => {
    const some = crossed.situations.filter((one) => one.covered === value);
    return el("div", {}, el("h3", {}, title, " ", el("span", { class: "count" }, integer(some.length))),
      el("ul", { class: `situations ${value}` }, some.map((one) => el("li", {}, el("span", { class: "mark", "aria-hidden": "true" },
        mark), el("span", {}, shown(one.name), one.steps.length > 0 && el("span", { class: "quiet" },
        ` at ${one.steps.slice(0, 6).join(", ")}`), one.covered === "no" && (one.to_cover || one.why) &&
        el("span", { class: "quiet block" }, shown(joined([one.why, one.to_cover && `try ${one.to_cover}`], "; "))))))));
  })), rest.length > 0 && unfolding(`${integer(rest.length)} that do not apply`, () => el("ul", { class: "situations" },
    rest.map((one) => el("li", {}, shown(one.name), one.why && el("span", { class: "quiet" }, ` — ${shown(one.why)}`))))));
}

const ELSEWHERE = new Set(["schema", "tool", "command", "verdict", "compared", "first_divergence", "cause", "findings",
  "not_judged", "environment", "said", "distances", "stages", "gradients", "membership", "magnitudes", "crossed", "error",
  "differences", "ulp", "tensors", "values", "contract", "implementations", "exact", "runs", "trajectory_left_out",
  "groups"]);

function comparedSection() {
  if (result.verdict === "error") return null;
  const parts = Object.entries(result).filter(([name, value]) => !ELSEWHERE.has(name) && value !== null &&
    !(Array.isArray(value) && !value.length) && value !== "");
  const isShort = (value) => typeof value !== "object" || JSON.stringify(value).length < 320;
  const short = parts.filter(([, value]) => isShort(value));
  const long = parts.filter(([, value]) => !isShort(value));
  return section("compared", result.command === "inspect" ? "About it" : "What was compared",
    el("dl", { class: "pairs" }, [...comparedPairs(), ...short.map(([name, value]) => [name, pairs(value)])]
      .flatMap(([name, value]) => [el("dt", {}, spelled(name).replaceAll("_", " ")), el("dd", {}, value)])),
    runsTable(), long.map(([name, value]) => unfolding(spelled(name).replaceAll("_", " "), () => pairs(value))));
}

function comparedPairs() {
  const amounts = Object.entries(result.compared).filter(([, amount]) => amount);
  return amounts.map(([name, amount]) => [name, name === "bytes" ? `${size(amount)} (${integer(amount)})` : integer(amount)]);
}

function runsTable() {
  const runs = Array.isArray(result.runs) ? result.runs.filter((one) => one && typeof one === "object") : [];
  if (!runs.length) return null;
  const names = Object.keys(runs[0]).filter((name) => runs.some((one) => typeof one[name] !== "object"));
  const cellOf = (value) => (typeof value === "number" ? number(value) : shown(value ?? "–", 200));
  return el("div", { class: "scroll" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, names.map((name, place) =>
    el("th", { class: place > 1 ? "number" : null }, name === "name" ? "run" : spelled(name).replace("_s", ", s").replace(
      "seconds", "seconds in all"))))),
  el("tbody", {}, runs.map((one) => el("tr", {}, names.map((name) => el("td", { class: typeof one[name] === "number"
    ? "number" : null }, name === "name" ? el("code", {}, cellOf(one[name])) : cellOf(one[name]))))))));
}

function environmentSection() {
  if (!Object.keys(result.environment).length) return null;
  return section("environment", "Environment", pairs(result.environment));
}
