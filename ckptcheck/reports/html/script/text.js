// Words and numbers as they are shown. Names come from files: whatever steers a line, reorders it or hides in it is
// spelled out, as the text report does it, before it becomes a text node.

const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const LONGEST = 400;

function spelled(text) {
  return text.replace(UNSAFE, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
    return code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
  });
}

// A name of ten thousand characters keeps its two ends: what tells parameters apart stands there.
function shown(value, most = LONGEST) {
  const text = spelled(String(value));
  if (text.length <= most) return text;
  const half = Math.floor(most / 2) - 12;
  return `${text.slice(0, half)} … (${integer(text.length)} characters) … ${text.slice(-half)}`;
}

function integer(value) {
  return Math.round(value).toLocaleString("en-US");
}

// Four digits tell two distances apart; more would only look exact.
function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return spelled(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e");
}

// A distance has one more case: -1 stands for NaN (see encoding.py).
function distanceText(value) {
  if (Number.isNaN(value) || value === null || value === undefined) return "not measured";
  if (value === -1) return "NaN";
  return number(value);
}

function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let amount = bytes;
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) { amount /= 1024; unit += 1; }
  return unit === 0 ? counted(bytes, "byte") : `${amount.toPrecision(3)} ${units[unit]}`;
}

function counted(amount, noun, many = `${noun}s`) {
  return `${integer(amount)} ${amount === 1 ? noun : many}`;
}

function joined(parts, between = ", ") {
  return parts.filter((part) => part !== null && part !== undefined && part !== "").join(between);
}

const SECTION_WORDS = {
  param: "parameters", state: "optimizer state", grad: "gradients", buffer: "buffers", hyper: "hyperparameters",
  groups: "param groups", frozen: "frozen parameters", ties: "tied weights", rng: "generators", schedule: "schedule", scaler: "scaler", ema: "EMA", data: "data position",
  extra: "extra", inputs: "inputs", loss: "loss", structure: "groups and flags", updates: "updates",
  model: "model", optimizer: "optimizer state", scheduler: "schedule",
};

function sectionWord(name) {
  return SECTION_WORDS[name] ?? spelled(String(name));
}

// What a row of any part is about: "blocks.0.fc.weight / exp_avg".
function thing(row) {
  return joined([row.parameter ?? row.name, row.key], " / ") || sectionWord(row.section ?? "");
}
