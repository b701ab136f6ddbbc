// The page from top to bottom, in the order in which a reviewer asks.

function page(place) {
  lookAt(place);
  sections = [];
  repaints = [];
  const head = header();
  const body = [stripSection, curveSection, heatSection, groupsSection, presenceSection, ulpSection, differencesSection,
    contractSection, contentsSection, findingsSection, notJudgedSection, environmentSection, coveredSection, comparedSection];
  const shownSections = body.map(guarded).filter(Boolean);
  sections = shownSections.map((one) => sections.find(({ element }) => element === one));
  document.getElementById("root").replaceChildren(
    el("a", { class: "skip", href: "#findings" }, "Skip to the findings"),
    sections.length > 1 ? bar() : "",
    el("main", { id: "top" }, results.length > 1 && others(place), head, shownSections,
      el("footer", {}, `ckptcheck ${spelled(result.tool.version)}, schema ${result.schema}. `,
        "This file holds everything it shows and asks the network for nothing. Keys: ", el("kbd", {}, "/"), " searches, ",
        el("kbd", {}, "Tab"), " and the arrow keys move, ", el("kbd", {}, "Enter"), " opens.")));
}

// A part that is not as it is known here, as of a result that was edited, must not take the others along.
function guarded(make) {
  try {
    return make();
  } catch (error) {
    console.error(error);
    return section(`failed-${sections.length}`, "Not drawn", note(`A part of this result could not be drawn: ${shown(error.message)}`));
  }
}

// Several results on one page, as of several checkpoints: one is looked at, the others are told in a line each.
function others(place) {
  return el("ul", { class: "others", "aria-label": "results" }, results.map((one, at) => el("li", {}, el("button", {
    type: "button", "aria-current": String(at === place), onclick: () => { page(at); scrollTo(0, 0); } },
  el("span", { class: `word ${one.said.has_verdict ? one.verdict : "none"}` }, one.said.has_verdict ? VERDICT_WORDS[one.verdict] : "–"),
  typeof one.path === "string" && code(one.path, 90), el("span", {}, shown(one.said.headline, 160))))));
}

addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLElement && ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  const box = document.getElementById("search");
  if (event.key === "/" && !typing && box && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    box.focus();
    box.scrollIntoView({ block: "center" });
  }
  if (event.key === "Escape" && typing && event.target.type === "search") {
    event.target.value = "";
    event.target.dispatchEvent(new Event("input"));
    event.target.blur();
  }
});

// On paper nothing can be opened any more: short cards are opened before.
addEventListener("beforeprint", () => {
  [...document.querySelectorAll("details.card")].slice(0, 40).forEach((one) => { one.open = true; });
});

page(0);
document.documentElement.dataset.drawn = "yes";
