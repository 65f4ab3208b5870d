// What the page is made of: elements, and lines of the last minutes.
// Text becomes text nodes and nothing else: names come from clients and providers.
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "line", "rect"]);
const SHOWN_S = 300;
const LEAST_WIDE_S = 60;
const GAP_S = 20;

function el(tag, attributes, ...children) {
  const node = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return node;
}

// Makes `place` hold `wanted`, and touches only what differs: what is selected, focused or scrolled stays so.
function show(place, ...wanted) {
  const nodes = wanted.flat(Infinity).map(each => each instanceof Node ? each : document.createTextNode(each));
  nodes.forEach((node, at) => at < place.childNodes.length ? mend(place.childNodes[at], node) : place.append(node));
  while (place.childNodes.length > nodes.length) place.lastChild.remove();
}

function mend(old, wanted) {
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

// Somebody's name, which may be long, run the other way, or look like markup. It breaks at its slashes.
const name = text => el("bdi", { title: text }, text.split(/(?<=\/)/).map((part, at) => at ? [el("wbr"), part] : part));
const said = text => el("bdi", {}, text);
const small = (...words) => el("small", {}, ...words);
const td = (...content) => el("td", {}, ...content);
const heading = (...content) => el("th", { scope: "row" }, ...content);
const mark = kind => el("svg", { class: `mark ${kind}`, "aria-hidden": "true" }, el("rect", { width: 10, height: 10, rx: 2 }));

function table(place, columns, rows) {
  const head = columns.map(words => el("th", { scope: "col", class: words === "State" ? "text" : null }, words));
  show(place, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
}

// The last minutes as a line from 0 up; `points`: pairs of time and value. Where nothing is known there is no line.
function spark(points, now, title) {
  const most = Math.max(...points.map(([, value]) => value ?? 0), 0) || 1;
  const wide = Math.max(LEAST_WIDE_S, now - points[0][0]);
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

// Shares of a whole, side by side; `parts`: pairs of class and share.
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
