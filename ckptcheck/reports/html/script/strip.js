// The stages of the first divergent step in causal order: which agree, where it breaks, what follows from that.

const STAGES = {
  load: ["load", "everything, live, right after loading, against what was saved"],
  rng: ["rng", "generators when the step begins: torch, each GPU, numpy, python"],
  hyperparameters: ["hyper\u00adparameters", "every value of every group, as the update will use it"],
  inputs: ["inputs", "what enters the outermost module"],
  buffers: ["buffers", "every buffer, after the update"],
  loss: ["loss", "the value that the step returned or differentiated"],
  grad: ["grad", "presence, content and norm of each gradient, as the update reads it"],
  scaler: ["scaler", "scale and growth counter, and whether the update was skipped"],
  state: ["state", "every optimizer-state tensor, after the update"],
  param: ["param", "every parameter, after the update"],
  schedule: ["schedule", "its state_dict at the end of the step"],
  ema: ["ema", "its state_dict at the end of the step"],
  data: ["data", "the data's state_dict at the end of the step"],
  extra: ["extra", "what else the target declares, at the end of the step"],
};
const STATUS_WORDS = {
  agrees: "agrees", breaks: "breaks here", follows: "differs too", absent: "nothing there", open: "not judged",
  harmless: "differs, without effect", unseen: "not seen", unreached: "not reached",
};
const MARKS = { agrees: "✓", breaks: "✕", follows: "✕", absent: "", open: "?", harmless: "≈", unseen: "?",
  unreached: "" };

// Gradients that a save finds are left over from the step before, unless what is wrong is that they are lost.
function sectionStatus(one) {
  if (!one.differing) return one.compared ? "agrees" : "absent";
  const kept = one.section !== "grad" || (result.cause && result.cause.code === "CK613");
  return kept && result.verdict !== "pass" ? "breaks" : "harmless";
}

// One entry a stage: what became of it in the step that is shown.
function stripOf(part) {
  const order = [stripLoad(part)];
  const at = part.steps.indexOf(part.shown);
  let broken = order[0].status === "breaks";
  for (const one of part.stages) {
    const differing = one.differing && at >= 0 ? one.differing[at] : 0;
    let status = one.compared ? "agrees" : "absent";
    if (at < 0) status = part.raised_step === null ? "unseen" : "unreached";
    else if (differing) status = broken ? "follows" : "breaks";
    else if (one.compared && isOpen(part, one.stage, part.shown)) status = "open";
    broken ||= status === "breaks";
    order.push({ stage: one.stage, status, differing, compared: Math.max(one.compared, differing) });
  }
  return order;
}

function stripLoad(part) {
  const sectionsOf = (part.load ?? []).map((one) => ({ ...one, status: sectionStatus(one) }));
  const worst = ["breaks", "harmless", "agrees"].find((status) => sectionsOf.some((one) => one.status === status));
  const counting = sectionsOf.filter((one) => one.status === worst && one.differing);
  return { stage: "load", status: part.load === null ? "unseen" : worst ?? "absent", sections: sectionsOf,
    differing: counting.reduce((sum, one) => sum + one.differing, 0),
    compared: sectionsOf.reduce((sum, one) => sum + one.compared, 0) };
}

// Whether equal runs differ too by then, so that agreeing and differing say nothing of the resume.
function isOpen(part, stage, step) {
  const open = part.open;
  if (!open || !open.stages.includes(stage) || step < open.step) return false;
  const order = Object.keys(STAGES);
  return step > open.step || order.indexOf(stage) >= order.indexOf(open.stage);
}

function stripSection() {
  const parts = result.stages ?? [];
  if (!parts.length) return null;
  const runs = parts.map((part) => part.run);
  chosen.run = firstRun(parts);
  const host = el("div", {});
  const draw = () => {
    const part = parts.find((one) => one.run === chosen.run) ?? parts[0];
    host.replaceChildren(strip(part), stageMatrix(part));
  };
  chosen.watchers.push(draw);
  draw();
  const pick = runs.length > 1 && picker("run", runs.map((run) => [run, spelled(String(run))]), chosen.run,
    (run) => choose({ run }));
  return section("stages", "Stages", pick, host);
}

// The run that breaks first in time: load before steps, smaller steps before greater ones.
function firstRun(parts) {
  const when = (part) => {
    const order = stripOf(part);
    if (order[0].status === "breaks") return part.step;
    return order.some((one) => one.status === "breaks") ? part.shown : Infinity;
  };
  return parts.reduce((best, part) => (when(part) < when(best) ? part : best)).run;
}

function strip(part) {
  const order = stripOf(part);
  const broken = order.findIndex((one) => one.status === "breaks");
  const detail = el("div", { class: "detail", id: "stage-detail", "aria-live": "polite" });
  const cells = order.map((one, place) => cell(one, place, broken));
  const select = (place) => {
    cells.forEach((one, at) => {
      one.setAttribute("aria-pressed", String(at === place));
      one.tabIndex = at === place ? 0 : -1;
    });
    detail.replaceChildren(...stageDetail(part, order[place]));
  };
  cells.forEach((one, place) => one.addEventListener("click", () => select(place)));
  const line = el("ol", { class: "strip", "aria-label": "stages in causal order" },
    cells.map((one, place) => el("li", { class: place === 0 ? "at-load" : null }, one)));
  line.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const place = cells.indexOf(document.activeElement) + (step ?? 0);
    if (!step || !cells[place]) return;
    event.preventDefault();
    select(place);
    cells[place].focus();
  });
  select(broken >= 0 ? broken : Math.max(0, order.findIndex((one) => one.status === "harmless")));
  return el("div", { class: "strip-frame" }, stripLine(part, order, broken), el("div", { class: "captions" },
    el("span", {}, `after the load, step ${part.step}`),
    el("span", {}, part.shown === null ? "no step was compared" : `step ${part.shown}`)), line, detail);
}

function stripLine(part, order, broken) {
  if (broken < 0) return note(unbroken(part));
  const follow = order.filter((one) => one.status === "follows").map((one) => one.stage);
  const agree = order.slice(0, broken).filter((one) => one.status === "agrees").map((one) => one.stage);
  const where = broken === 0 ? `right after the load of step ${part.step}` : `in step ${part.shown}`;
  return el("p", { class: "lead" }, "Breaks at ", el("strong", {}, order[broken].stage), ` ${where}. `,
    agree.length > 0 && `${joined(agree)} ${agree.length === 1 ? "agrees" : "agree"} before it. `,
    follow.length > 0 && `In ${broken === 0 ? `step ${part.shown}, ` : ""}${joined(follow)} ` +
      `${follow.length === 1 ? "differs" : "differ"} too${broken === 0 ? "" : ", which follows"}.`);
}

function unbroken(part) {
  const steps = part.steps.length;
  if (!steps) return part.raised_step === null ? "No step was compared." : `The resumed run raised in step ${
    part.raised_step}, before a step could be compared.`;
  if (part.open) {
    return `No divergence was found, but equal runs without a resume differ too, from step ${part.open.step}, ${part.open.stage} ` +
      `on: from there ${part.open.held_against_floor ? `${joined(part.open.stages)} were held against that floor` : "nothing was judged"}.`;
  }
  const apart = result.verdict === "fail"
    ? " What fails is not a divergence of this run: see the cause above and the findings." : "";
  return `Every stage agrees in ${steps === 1 ? "the one compared step" : `all ${integer(steps)} compared steps`}.${apart}`;
}

function cell(one, place, broken) {
  const [label, what] = STAGES[one.stage];
  const count = one.differing ? `${integer(one.differing)} of ${integer(one.compared)}`
    : one.compared ? integer(one.compared) : "–";
  return el("button", { type: "button", class: `stage ${one.status}${broken >= 0 && place > broken ? " after" : ""}`,
    "aria-controls": "stage-detail", title: what,
    "aria-label": `${one.stage}: ${STATUS_WORDS[one.status]}, ${count}` },
    el("span", { class: "mark", "aria-hidden": "true" }, MARKS[one.status]),
    el("span", { class: "name" }, label), el("span", { class: "count" }, count));
}
