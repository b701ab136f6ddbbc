// Gradient presence over time: none, zero and nonzero are three things, and none is never drawn as zero. Parameters
// that share their course are one row, which opens.

function presenceSection() {
  const parts = (result.gradients ?? []).filter((part) => part.rows.length);
  if (!parts.length) return null;
  const host = el("div", {});
  const draw = () => {
    const part = parts.find((one) => one.run === chosen.run) ?? parts[0];
    host.replaceChildren(...presence(part));
  };
  chosen.watchers.push(draw);
  draw();
  return section("gradients", "Gradient presence", host);
}

function presence(part) {
  const groups = part.rows.map((row, place) => ({ row, open: false, place }));
  // What is not simply there in every step is what one looks for.
  const plain = ({ row }) => !row.frozen && !row.contract && row.right === null && /^\+*$/.test(row.left.trim());
  groups.sort((one, other) => plain(one) - plain(other) || one.place - other.place);
  const paint = { "-": hollow, 0: filledCell("grad-zero"), "+": filledCell("grad-nonzero"), " ": null };
  const made = matrix({
    label: "gradient presence of parameters by steps", columns: part.steps, rowHeight: 22, most: 22 * 16, nameWidth: 330,
    rows: () => groups.flatMap(presenceRows),
    toggle: (row) => { row.group.open = !row.group.open; },
    cell: ({ group: { row } }, column) => {
      const [left, right] = [row.left[column], row.right ? row.right[column] : null];
      const frozen = row.frozen && row.frozen[column] === "f";
      const weight = { "-": 1, 0: 2, "+": 0, " ": -1 }[left] + (right !== null && right !== " " && right !== left ? 4 : 0);
      return [colour("panel"), weight, (pen, x, top, width, height) => {
        const half = right !== null && right !== " " ? height / 2 : height;
        if (paint[left]) paint[left](pen, x, top, width, half - (half < height ? 1 : 0));
        if (half < height && paint[right]) paint[right](pen, x, top + half, width, half);
        if (frozen) { pen.fillStyle = colour("frozen"); pen.fillRect(x, top + height - 3, width + 1, 3); }
      }];
    },
    readout: ({ group: { row } }, column) => presenceWords(part, row, column),
    hint: "Parameters that share their course are one row; it opens with a click or Enter",
  });
  const frozen = part.rows.some((row) => row.frozen || row.contract);
  return [made, el("div", { class: "legend" }, swatch("grad-nonzero", "nonzero"), swatch("grad-zero", "zero"),
    swatch("grad-none", "none"), frozen && swatch("frozen", "requires_grad is off"),
    part.rows.some((row) => row.right) && el("span", { class: "key" }, "two halves: reference above, resumed run below")),
  part.every > 1 && note(`One in ${part.every} steps is shown.`)].filter(Boolean);
}

function presenceRows(group) {
  const { row } = group;
  const many = row.parameters.length > 1;
  const aside = joined([row.contract, row.frozen ? "frozen" : null]);
  const head = { group, depth: 0, opens: many, open: group.open, mark: row.contract || row.frozen ? "is-frozen" : null,
    name: many ? commonName(row.parameters) : shown(row.parameters[0], 80), full: many ? null : shown(row.parameters[0], 1000),
    aside: joined([many ? `×${integer(row.parameters.length)}` : null, aside], "  ") };
  return group.open ? [head, ...row.parameters.map((name) => ({ group, depth: 1, name: shown(name, 80),
    full: shown(name, 1000) }))] : [head];
}

// "backbone.*" where all begin so, else the first one and how many there are beside it.
function commonName(names) {
  let pieces = names[0].split(".");
  for (const name of names) {
    const other = name.split(".");
    let same = 0;
    while (same < pieces.length && pieces[same] === other[same]) same += 1;
    pieces = pieces.slice(0, same);
  }
  return pieces.length ? shown(`${pieces.join(".")}.*`, 80) : `${shown(names[0], 60)}, …`;
}

function presenceWords(part, row, column) {
  const word = (letter) => part.letters[letter] ?? "";
  const right = row.right && row.right[column] !== " " ? `, ${word(row.right[column])} in the resumed run` : "";
  const held = joined([row.frozen && row.frozen[column] === "f" ? "frozen" : null,
    row.contract ? `contract ${row.contract}` : null]);
  return `step ${part.steps[column]} · ${row.parameters.length > 1 ? commonName(row.parameters)
    : shown(row.parameters[0], 90)}: gradient ${word(row.left[column])}${right}${held ? ` · ${held}` : ""}`;
}

function filledCell(name) {
  return (pen, x, top, width, height) => { pen.fillStyle = colour(name); pen.fillRect(x, top, width, height); };
}

// None is a line around nothing; where cells are narrow, nothing with a line through the middle.
function hollow(pen, x, top, width, height) {
  pen.fillStyle = colour("grad-none");
  if (width < 5) { pen.fillRect(x, top + height / 2 - 0.5, width + 1, 1); return; }
  pen.strokeStyle = colour("grad-none");
  pen.lineWidth = 1;
  pen.strokeRect(x + 0.5, top + 0.5, width - 1, height - 1);
}
