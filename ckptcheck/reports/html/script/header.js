// What a reviewer reads first: the verdict, why, where, and what to do.

const VERDICT_WORDS = { pass: "PASS", fail: "FAIL", inconclusive: "INCONCLUSIVE", error: "ERROR" };

function header() {
  const said = result.said;
  const verdict = said.has_verdict ? result.verdict : "none";
  const finding = said.lead === null ? null : result.findings[said.lead];
  const why = [cause, first, todo, proved].map((tell) => tell(finding, said)).filter(Boolean);
  return el("header", { class: `verdict ${verdict}` },
    el("p", { class: "eyebrow" }, el("span", { class: "tool" }, "ckptcheck ", spelled(result.command)), subject()),
    el("h1", {}, said.has_verdict && el("span", { class: "word" }, VERDICT_WORDS[result.verdict]), " ",
      el("span", { class: "headline" }, breakable(shown(said.headline, 1200)))),
    why.length > 0 && el("div", { class: "why" }, why),
    el("p", { class: "tally" }, tally()));
}

function subject() {
  const side = (one) => (one && typeof one === "object" ? one.path : one);
  const names = result.command === "diff" || result.command === "compare"
    ? [side(result.left), side(result.right)]
    : [typeof result.target === "string" ? result.target : null, result.path, result.subject, result.run];
  return names.filter((name) => typeof name === "string" && name).flatMap((name, place) =>
    [el("span", { class: "between" }, place ? "against" : ""), code(name, 160)]);
}

function cause(finding) {
  if (!result.cause && !finding) return null;
  return row(result.cause ? "Cause" : "Found",
    el("p", { class: "cause" }, badge(finding ?? { code: result.cause.code, severity: "error" }),
      finding && el("strong", {}, spelled(finding.name).replaceAll("-", " ")),
      result.cause && el("span", { class: "quiet" }, spelled(result.cause.confidence))),
    finding && el("p", {}, breakable(shown(finding.message, 900))),
    finding && finding.accepted && accepted(finding.accepted));
}

function first(_, { first: place }) {
  if (!place) return null;
  return row("First at", el("p", {}, el("strong", {}, spelled(place.when)), place.what && ": ",
    place.what && code(place.what, 300)), place.distance && el("p", { class: "quiet" }, shown(place.distance)));
}

function todo(finding) {
  return finding && finding.fix ? row("To do", el("p", { class: "fix" }, shown(finding.fix, 900))) : null;
}

// What a bisection has shown by further runs.
function proved() {
  const part = result.bisection;
  if (!part || typeof part !== "object" || !part.reason) return null;
  const from = part.smallest_resume_at === null || part.smallest_resume_at === undefined ? null
    : `breaks from resume point ${part.smallest_resume_at} on${part.passes_at === null || part.passes_at === undefined ? ""
      : `, not at ${part.passes_at}`}`;
  return row(part.proved ? "Proved" : "Not proved", el("p", {}, shown(part.reason, 900)), from && el("p", { class: "quiet" }, from));
}

function row(label, ...children) {
  return el("div", { class: "row" }, el("div", { class: "label" }, label), el("div", {}, children));
}

function badge(finding) {
  return el("span", { class: `badge ${spelled(finding.severity)}` }, spelled(finding.code));
}

function accepted(one) {
  return el("p", { class: "accepted" }, el("strong", {}, "accepted"), ": ", shown(one.reason),
    one.until && ` (until ${spelled(one.until)})`, one.source && el("span", { class: "quiet" }, " ", shown(one.source)));
}

function tally() {
  const compared = result.compared;
  const parts = [
    compared.steps && counted(compared.steps, "step"),
    compared.parameters && counted(compared.parameters, "parameter"),
    compared.state_tensors && counted(compared.state_tensors, "state tensor"),
    compared.bytes && `${size(compared.bytes)} compared`,
  ].filter(Boolean);
  const found = result.findings.length ? counted(result.said.findings, "finding") : "no finding";
  const open = result.not_judged.length ? `${counted(result.not_judged.length, "rule")} not judged` : null;
  return joined([...parts, result.verdict === "error" || !result.said.has_verdict ? null : found, open], "  ·  ");
}

const BAR_WORDS = { stages: "Stages", divergence: "Divergence", heat: "Tensors", groups: "Groups", gradients: "Gradients",
  ulp: "ULP", covered: "Covered", compared: "Compared" };

// The bar on top: where one is, and what there is.
function bar() {
  const links = sections.map(({ id, title }) => [id, el("a", { href: `#${id}` }, BAR_WORDS[id] ?? title)]);
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    entries.forEach((one) => (one.isIntersecting ? seen.add(one.target.id) : seen.delete(one.target.id)));
    const here = sections.find(({ id }) => seen.has(id));
    links.forEach(([id, link]) => link.setAttribute("aria-current", String(here !== undefined && id === here.id)));
  }, { rootMargin: "-60px 0px -50% 0px" });
  sections.forEach(({ element }) => watch.observe(element));
  const verdict = result.said.has_verdict ? VERDICT_WORDS[result.verdict] : spelled(result.command);
  return el("nav", { class: "bar", "aria-label": "sections" },
    el("a", { href: "#top", class: `word ${result.said.has_verdict ? result.verdict : "none"}` }, verdict),
    el("div", { class: "links" }, links.map(([, link]) => link)));
}
