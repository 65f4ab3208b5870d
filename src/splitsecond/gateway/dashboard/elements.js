// The elements of the page. Text becomes text nodes only, because clients and providers choose the names.
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "line", "rect", "text", "title", "g"]);
const SHOWN_S = 300;
const LEAST_WIDTH_S = 60;
const GAP_S = 20;
const TEXTS = new Set(["State", "Reason", "Route", "Target", "Attempts", "Sees", "Targets down", "Causes"]);

function el(tag, attributes, ...children) {
  const node = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return node;
}

// Makes `place` contain `wanted` and changes only what differs, so that selection, focus and scrolling stay.
function show(place, ...wanted) {
  const nodes = wanted.flat(Infinity).map(each => each instanceof Node ? each : document.createTextNode(each));
  nodes.forEach((node, at) => at < place.childNodes.length ? update(place.childNodes[at], node) : place.append(node));
  while (place.childNodes.length > nodes.length) place.lastChild.remove();
}

function update(old, wanted) {
  if (old.nodeName !== wanted.nodeName) {
    old.replaceWith(wanted);
  } else if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
  } else {
    for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of [...wanted.attributes]) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    show(old, ...wanted.childNodes);
  }
}

// A name from outside: it may be long, run from right to left, or look like markup. It may break after a slash.
const name = text => el("bdi", { title: text }, text.split(/(?<=\/)/).map((part, at) => at ? [el("wbr"), part] : part));
const outside = text => el("bdi", {}, text);
const small = (...words) => el("small", {}, ...words);
const td = (...content) => el("td", {}, ...content);
const heading = (...content) => el("th", { scope: "row" }, ...content);
const mark = kind => el("svg", { class: `mark ${kind}`, "aria-hidden": "true" }, el("rect", { width: 10, height: 10, rx: 2 }));

// On a phone each row is a card, with the headings from data-label.
function table(place, columns, rows) {
  const head = columns.map(words => el("th", { scope: "col", class: TEXTS.has(words) ? "text" : null }, words));
  for (const row of rows) [...row.children].forEach((cell, at) => { if (at) cell.dataset.label = columns[at]; });
  show(place, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
}

// The last minutes as a line above 0. `points` are pairs of time and value; a value of null is a gap.
function spark(points, now, title) {
  const most = Math.max(...points.map(([, value]) => value ?? 0), 0) || 1;
  const wide = Math.max(LEAST_WIDTH_S, now - points[0][0]);
  let path = "M0 0", before = null;
  for (const [at, value] of points) {
    if (value === null) continue;
    const step = before !== null && at - before < GAP_S ? "L" : "M";
    path += `${step}${(100 - 100 * (now - at) / wide).toFixed(2)} ${(23 - 22 * value / most).toFixed(2)}`;
    before = at;
  }
  const shape = { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": title };
  return el("svg", shape, el("line", { x1: 0, x2: 100, y1: 23.5, y2: 23.5 }), el("path", { d: path }));
}

// Shares of a whole, side by side. `parts` are pairs of class and share.
function bar(parts) {
  const percent = part => `${(100 * part).toFixed(2)}%`;
  let at = 0;
  const rects = parts.map(([kind, part]) => {
    const rect = el("rect", { class: kind, x: percent(at), width: percent(part), height: "100%" });
    at += part;
    return rect;
  });
  return el("svg", { class: "bar", "aria-hidden": "true" }, rects);
}
