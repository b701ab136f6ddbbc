// Every finding with its card: message, place, evidence, what to do, and whether it was accepted. Found by words, by
// severity and by code; `/` leads here.

const CARDS_AT_ONCE = 60;
const SEVERITIES = ["error", "warning", "info"];

function findingsSection() {
  const findings = result.findings;
  if (!findings.length) {
    return result.verdict === "error" || !result.said.has_verdict ? null
      : section("findings", "Findings", note("No rule found anything."));
  }
  const state = { words: [], severity: "", code: "", most: CARDS_AT_ONCE };
  const list = el("div", { class: "cards" });
  const count = el("output", { class: "count" });
  const more = el("button", { type: "button", class: "more", onclick: () => { state.most += 200; draw(); } });
  const texts = findings.map(findingText);
  const order = findings.map((_, place) => place).sort((one, other) => findingRank(one) - findingRank(other) || one - other);

  function draw() {
    const found = order.filter((place) => (!state.severity || findings[place].severity === state.severity) &&
      (!state.code || findings[place].code === state.code) && state.words.every((word) => texts[place].includes(word)));
    list.replaceChildren(...found.slice(0, state.most).map((place) => card(findings[place], place === result.said.cause)));
    count.textContent = found.length === findings.length ? counted(found.length, "finding")
      : `${integer(found.length)} of ${counted(findings.length, "finding")}`;
    more.hidden = found.length <= state.most;
    more.textContent = `Show ${integer(Math.min(200, found.length - state.most))} more`;
  }

  const search = searchBox("Search findings  ( / )", (words) => { Object.assign(state, { words, most: CARDS_AT_ONCE }); draw(); });
  search.id = "search";
  const has = SEVERITIES.filter((severity) => findings.some((one) => one.severity === severity));
  const codes = [...new Set(findings.map((one) => one.code))].sort();
  const made = section("findings", "Findings", el("div", { class: "controls" }, search,
    has.length > 1 && picker("severity", [["", "all"], ...has.map((one) => [one, one])], "",
      (severity) => { state.severity = severity; draw(); }),
    codes.length > 1 && picker("code", [["", "all"], ...codes.map((one) => [one, spelled(one)])], "",
      (one) => { state.code = one; draw(); }), count), list, more);
  if (result.said.findings > findings.length) made.append(note(`The first ${integer(findings.length)} of ${
    integer(result.said.findings)} are here; JSON has all.`));
  draw();
  return made;
}

// The cause first, then by severity; what is accepted or without effect after its like.
function findingRank(place) {
  const one = result.findings[place];
  if (place === result.said.cause) return -1;
  return SEVERITIES.indexOf(one.severity) * 2 + (one.accepted || (one.evidence ?? {}).without_effect ? 1 : 0);
}

function findingText(one) {
  return [one.code, one.name, one.severity, one.message, one.fix, JSON.stringify(one.where),
    one.accepted ? `accepted ${one.accepted.reason}` : ""].join(" ").toLowerCase();
}

function card(one, isCause) {
  const quiet = one.accepted || (one.evidence ?? {}).without_effect;
  const tags = [isCause && "cause", one.accepted && "accepted", (one.evidence ?? {}).without_effect && "without effect"];
  const details = el("details", { class: `card ${spelled(one.severity)}${quiet ? " muted" : ""}`, open: isCause },
    el("summary", {}, badge(one), el("span", { class: "card-name" }, spelled(one.name).replaceAll("-", " ")),
      tags.filter(Boolean).map((tag) => el("span", { class: "tag" }, tag)),
      el("span", { class: "card-where" }, whereText(one.where))));
  const fill = () => {
    if (!details.open || details.children.length > 1) return;
    details.append(el("div", { class: "card-body" }, el("p", { class: "message" }, breakable(shown(one.message, 4000))),
      one.accepted && accepted(one.accepted), one.fix && row("To do", el("p", { class: "fix" }, shown(one.fix, 2000))),
      Object.keys(one.where).length > 0 && row("Where", pairs(one.where)),
      Object.keys(one.evidence ?? {}).length > 0 && row("Evidence", pairs(one.evidence)),
      row("Card", el("code", {}, `ckptcheck explain ${spelled(one.code)}`))));
  };
  details.addEventListener("toggle", fill);
  fill();
  if (!details.open) {
    details.firstChild.append(el("span", { class: "card-message" }, shown(one.message, 260)));
  }
  return details;
}

function whereText(where) {
  const at = where.step === undefined ? null : where.stage === "load" ? `load, step ${where.step}`
    : `step ${where.step}${where.stage ? `, ${where.stage}` : ""}`;
  return joined([joined([where.parameter, where.key], " / ") ? shown(joined([where.parameter, where.key], " / "), 80) : null,
    at === null ? where.stage : at, where.rank === undefined ? null : `rank ${where.rank}`], " · ");
}
