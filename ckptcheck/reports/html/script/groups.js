// Who is in which param group on either side, and who carries whose state.

function groupsSection() {
  const parts = (result.membership ?? []).filter((part) => part.left.length || part.right.length);
  const bound = result.findings.filter((one) => one.evidence && isMapping(one.evidence.permutation));
  const named = result.findings.filter((one) => one.code === "CK301" && isMapping(one.evidence.groups));
  if (!parts.length && !bound.length && !named.length) return null;
  const host = el("div", {});
  const draw = () => {
    const here = parts.some((part) => part.run === chosen.run) ? ofRun(parts) : parts;
    host.replaceChildren(...here.map(optimizerGroups),
      ...(here.some((part) => !part.same_members) ? [] : named.map(movesTold)), ...bound.map(permutation));
  };
  chosen.watchers.push(draw);
  draw();
  return section("groups", "Group membership", host);
}

function isMapping(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0;
}

function sideWords() {
  return result.command === "verify" ? ["when saved", "after the load"]
    : result.command === "check" ? ["in the file", "live, after the load"] : ["left", "right"];
}

function optimizerGroups(part) {
  const [before, after] = sideWords();
  const title = `optimizer ${part.optimizer}${part.class_name ? ` (${spelled(part.class_name)})` : ""}`;
  const sum = (groups) => groups.reduce((total, group) => total + group.size, 0);
  if (part.same_members && part.same_order) {
    const told = part.left.map((group) => `group ${group.group}: ${counted(group.size, "member")}`);
    return el("div", { class: "optimizer" }, el("p", {}, el("strong", {}, title), " — ", part.left.length === 1
      ? `one group of ${counted(sum(part.left), "member")}` : joined(told), ", the same on both sides, in the same order."));
  }
  const moved = movedIn(part);
  return el("div", { class: "optimizer" },
    el("p", {}, el("strong", {}, title), " — ", part.same_members
      ? "the same members in every group, in another order."
      : moved.size === 0 ? "the members differ."
        : `${counted(moved.size, "parameter")} ${moved.size === 1 ? "is" : "are"} in another group or on one side only.`),
    el("div", { class: "sides" },
      el("h3", {}, before), el("h3", {}, after),
      part.right.map((group, place) => pairOfGroups(part, group, place, moved)).flat(),
      part.left.filter((group) => !part.of.includes(group.group)).flatMap((group) =>
        [groupCard(group, moved, "left"), el("div", { class: "group absent" }, "no group answers to it")])));
}

// By name: the group on either side, for who is not in answering ones.
function movedIn(part) {
  const places = new Map();
  const put = (group, side) => (group.members ?? []).forEach((name) => {
    if (name === null) return;
    if (!places.has(name)) places.set(name, {});
    places.get(name)[side] = group.group;
  });
  part.left.forEach((group) => put(group, "left"));
  part.right.forEach((group) => put(group, "right"));
  for (const [name, place] of places) {
    if (place.left !== undefined && place.right !== undefined && part.of[place.right] === place.left) places.delete(name);
  }
  return places;
}

function pairOfGroups(part, group, place, moved) {
  const left = part.left.find((one) => one.group === part.of[place]);
  const changed = left ? Object.keys({ ...left.options, ...group.options })
    .filter((key) => left.options[key] !== group.options[key]) : [];
  return [left ? groupCard(left, moved, "left", changed, left.members)
    : el("div", { class: "group absent" }, "no group answers to it"),
  groupCard(group, moved, "right", changed, left ? left.members : null)];
}

function groupCard(group, moved, side, changed = [], other = null) {
  const members = (group.members ?? []).map((name, place) => ({ name, place, move: moved.get(name),
    shifted: moved.size === 0 && other && other[place] !== name }));
  const told = members.filter((one) => one.name === null || one.move || one.shifted);
  const rest = members.filter((one) => !told.includes(one));
  const options = Object.entries(group.options ?? {}).filter(([key]) => changed.includes(key) ||
    ["lr", "weight_decay", "momentum"].includes(key));
  return el("div", { class: "group" },
    el("p", { class: "group-head" }, el("strong", {}, `group ${group.group}`), " ",
      el("span", { class: "quiet" }, counted(group.size, "member")),
      el("span", { class: "side-word" }, sideWords()[side === "left" ? 0 : 1])),
    el("p", { class: "options" }, options.map(([key, value]) => el("span", { class: changed.includes(key) ? "changed" : null },
      spelled(key), " ", el("b", {}, number(value))))),
    el("ol", { class: "members" }, told.slice(0, 60).map((one) => member(one, side))),
    told.length > 60 && unfolding(`${integer(told.length - 60)} more that moved`, () => el("ol", { class: "members" },
      told.slice(60, 2000).map((one) => member(one, side)))),
    rest.length > 0 && unfolding(`${counted(rest.length, "member")} ${told.length ? "that stayed" : "alike"}`,
      () => el("ol", { class: "members" }, rest.slice(0, 2000).map((one) => member(one, side)))));
}

function member({ name, place, move, shifted }, side) {
  if (name === null) return el("li", { class: "moved" }, el("em", {}, "a tensor that the model does not hold"));
  const other = move ? move[side === "left" ? "right" : "left"] : undefined;
  const aside = !move ? (shifted ? `place ${place}` : null)
    : other === undefined ? "on this side only" : side === "left" ? `→ group ${other}` : `from group ${other}`;
  return el("li", { class: move || shifted ? "moved" : null }, code(name), aside && el("span", { class: "aside" }, aside));
}

// Where the result names the moves alone.
function movesTold(finding) {
  const moves = Object.entries(finding.evidence.groups);
  return el("div", { class: "optimizer" }, el("p", {}, badge(finding), " param groups"), pairsTable(
    ["parameter", ...sideWords()], moves.map(([name, groups]) => [code(name), ...[groups].flat().slice(0, 2)
      .map((group) => (group === null ? "in none" : `group ${spelled(String(group))}`))])));
}

function permutation(finding) {
  const pairs = Object.entries(finding.evidence.permutation);
  return el("div", { class: "optimizer" }, el("p", {}, badge(finding), " state bound to other parameters",
    finding.where.optimizer === undefined ? "" : `, optimizer ${spelled(String(finding.where.optimizer))}`),
  pairsTable(["parameter", "carries the state of"], pairs.map(([name, other]) => [code(name), code(String(other))])));
}

function pairsTable(head, rows) {
  const body = (some) => el("tbody", {}, some.map((cells) => el("tr", {}, cells.map((one) => el("td", {}, one)))));
  const whole = (some) => el("div", { class: "scroll" }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, head.map((text) => el("th", {}, text)))), body(some)));
  return [whole(rows.slice(0, 30)), rows.length > 30 && unfolding(`${integer(rows.length - 30)} more`,
    () => whole(rows.slice(30, 2000)))];
}
