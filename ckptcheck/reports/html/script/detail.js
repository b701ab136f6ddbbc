// What stands below the strip: what of one stage differs and how far, then every stage in every compared step.

const TOLD = 8;

function stageDetail(part, one) {
  const [, what] = STAGES[one.stage];
  const head = el("p", { class: "detail-head" }, el("strong", { class: one.status }, one.stage), " ",
    el("span", { class: "status" }, STATUS_WORDS[one.status]), el("span", { class: "quiet" }, " — ", what));
  if (one.stage === "load") return [head, loadSections(one), entriesOf(part, one)].filter(Boolean);
  if (one.differing) return [head, entriesOf(part, one)].filter(Boolean);
  const said = {
    agrees: `${counted(one.compared, "item")} compared in step ${part.shown}, equal to the bit` +
      `${result.policy && (result.policy.rtol || result.policy.atol) ? " or within the tolerance" : ""}.`,
    absent: "There is nothing of this kind in this training, or nothing that could be sampled.",
    open: "Equal runs without a resume differ here too, so it says nothing about the resume.",
    unseen: "No step was compared.",
    unreached: "The resumed run ended before it.",
  }[one.status];
  return [head, note(said ?? "")];
}

function loadSections(one) {
  return el("ul", { class: "chips" }, (one.sections ?? []).map((each) => el("li", { class: each.status },
    el("span", { class: "mark", "aria-hidden": "true" }, MARKS[each.status]), sectionWord(each.section), " ",
    el("span", { class: "count" }, each.differing ? `${integer(each.differing)} of ${integer(each.compared)}`
      : integer(each.compared)), each.status === "harmless" && el("span", { class: "quiet" }, " without effect"))));
}

// The rows of the load and of the first divergent step, with their numbers.
function entriesOf(part, one) {
  chosen.magnitudes ??= rowsOf(result.magnitudes);
  const harmless = new Set((one.sections ?? []).filter((each) => each.status === "harmless").map((each) => each.section));
  const rows = chosen.magnitudes.filter((each) => each.run === part.run && each.stage === one.stage &&
    (one.stage === "load" || each.step === part.shown) && (one.status === "harmless" || !harmless.has(each.section)));
  if (!rows.length) return one.differing && one.status !== "harmless" ? note("The result holds no numbers of it.") : null;
  rows.sort((left, right) => (right.rel_l2 ?? -1) - (left.rel_l2 ?? -1));
  const more = rows.slice(TOLD);
  return el("div", {}, entryTable(rows.slice(0, TOLD)),
    more.length > 0 && unfolding(`${integer(more.length)} more${one.differing > rows.length && one.stage !== "load"
      ? `, the furthest apart of ${integer(one.differing)}` : ""}`, () => entryTable(more)));
}

function entryTable(rows) {
  const valued = rows.some((each) => each.left !== null && each.left !== undefined || each.right !== null &&
    each.right !== undefined);
  const head = ["what", "kind", "rel L2", "max abs", "max ULP", "elements", ...(valued ? ["left", "right"] : [])];
  return el("div", { class: "scroll" }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, head.map((text, place) => el("th", { class: place > 1 ? "number" : null }, text)))),
    el("tbody", {}, rows.map((each) => el("tr", {}, el("td", {}, code(thing(each)), " ",
      el("span", { class: "quiet" }, ["param", "state"].includes(each.section) ? "" : sectionWord(each.section))),
      el("td", {}, spelled(each.kind ?? "changed")), ...entryNumbers(each),
      valued && [each.left, each.right].map((side) => el("td", { class: "number" }, el("code", {},
        side === null || side === undefined ? "–" : typeof side === "number" ? number(side) : shown(side, 60)))))))));
}

function entryNumbers(each) {
  if (each.max_abs === null || each.max_abs === undefined) {
    return [el("td", { colspan: 4, class: "quiet reason" }, shown(each.reason ?? "", 120))];
  }
  return [each.rel_l2, each.max_abs, each.max_ulp].map((value) => el("td", { class: "number" }, number(value)))
    .concat(el("td", { class: "number" }, `${number(each.differing)} / ${number(each.numel)}`));
}

// Every stage in every compared step: where the break stands among them.
function stageMatrix(part) {
  if (part.steps.length < 2) return null;
  const rows = part.stages.filter((one) => one.compared || one.differing)
    .map((one) => ({ id: one.stage, name: one.stage, one }));
  const made = matrix({
    label: "stages by steps", columns: part.steps, rows: () => rows, rowHeight: 16, most: 13 * 16, nameWidth: 150,
    cell: ({ one }, column) => {
      const differing = one.differing ? one.differing[column] : 0;
      if (differing) return [colour(column === part.steps.indexOf(part.shown) ? "bad" : "bad-soft"), 2];
      return isOpen(part, one.stage, part.steps[column]) ? [colour("open-soft"), 1] : [colour("good-soft"), 0];
    },
    readout: ({ one }, column) => {
      const differing = one.differing ? one.differing[column] : 0;
      const open = isOpen(part, one.stage, part.steps[column]);
      return `step ${part.steps[column]} · ${one.stage}: ${differing ? `${counted(differing, "item")} ` +
        `${differing === 1 ? "differs" : "differ"}` : open ? "not judged, equal runs differ too" : "agrees"}`;
    },
    hint: "Every stage in every compared step",
  });
  return el("div", { class: "stage-matrix" }, made, el("div", { class: "legend" }, swatch("good-soft", "agrees"),
    swatch("bad", "differs, first divergent step"), swatch("bad-soft", "differs"), part.open && swatch("open-soft", "not judged: equal runs differ too")));
}
