// Elements, built node by node: text goes in as text nodes only, so that a name can never become markup.

const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    // Through the object model: the page's policy forbids style attributes.
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// A name in the type of code; its whole length stands in a title unless that would be a page of its own.
function code(value, most = 120) {
  const text = spelled(String(value));
  return el("code", { title: text.length > most && text.length < 2000 ? text : null }, breakable(shown(value, most)));
}

// Long dotted names may break after a dot, and nowhere else unless they must.
function breakable(text) {
  return text.split(/(?<=[._/])/).flatMap((piece, place) => (place ? [el("wbr"), piece] : [piece]));
}

let sections = [];
let repaints = [];

// A section of the page, in the order of the calls; it has a place in the bar on top.
function section(id, title, ...children) {
  const made = el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), children);
  sections.push({ id, title, element: made });
  return made;
}

function note(...children) {
  return el("p", { class: "note" }, children);
}

// Choices of which one holds, as radio buttons: arrow keys come with them.
let choices = 0;
function choice(label, options, chosen, choose) {
  const name = `choice-${(choices += 1)}`;
  return el("fieldset", { class: "choice" }, el("legend", {}, label), options.map(([value, text]) =>
    el("label", {}, el("input", { type: "radio", name, value, checked: value === chosen,
      onchange: () => choose(value) }), el("span", {}, text))));
}

function picker(label, options, chosen, choose) {
  const box = el("select", { onchange: () => choose(box.value) },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  return el("label", { class: "picker" }, el("span", {}, label), box);
}

// Long lists are opened on demand, so that a page of 20,000 names is made of those that somebody asked for.
function unfolding(summary, make, open = false) {
  let made = false;
  const details = el("details", { class: "unfolding", open }, el("summary", {}, summary));
  const fill = () => {
    if (details.open && !made) { made = true; details.append(...[make()].flat()); }
  };
  details.addEventListener("toggle", fill);
  fill();
  return details;
}

// Canvases are as wide as the page lets them be; `draw` is called with that width whenever it changes.
function onWidth(element, draw) {
  let last = -1;
  new ResizeObserver((entries) => {
    const width = Math.floor(entries[0].contentRect.width);
    if (width > 0 && width !== last) { last = width; draw(width); }
  }).observe(element);
}

// What costs much is drawn when it comes near, or goes to paper.
function whenNear(element, costly, draw) {
  let drawn = false;
  const once = () => { if (!drawn) { drawn = true; draw(); } };
  if (!costly) { requestAnimationFrame(once); return; }
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((one) => one.isIntersecting)) { watch.disconnect(); once(); }
  }, { rootMargin: "900px 0px" });
  watch.observe(element);
  addEventListener("beforeprint", once, { once: true });
}

// Canvases know no style sheet: what they take from it is read again when the colours change.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function onColours(repaint) { repaints.push(repaint); }
for (const query of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(query).addEventListener("change", () => repaints.forEach((repaint) => repaint()));
}
