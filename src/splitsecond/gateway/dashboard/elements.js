// What the page is made of: elements, figures in words, and lines of the last minutes.
// Text becomes text nodes and nothing else: names come from clients and providers.
const DRAWN = new Set(["svg", "path", "line", "rect"]);
const SHOWN_S = 300;
const LEAST_WIDE_S = 60;
const GAP_S = 20;

function el(tag, attributes, ...children) {
  const node = DRAWN.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return node;
}

// Makes `place` hold `wanted`, and touches only what differs: what is selected, focused or scrolled stays so.
function show(place, ...wanted) {
  const nodes = wanted.flat(Infinity);
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
    for (const { name, value } of [...wanted.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    show(old, ...wanted.childNodes);
  }
}

// Somebody's name, which may be long, run the other way, or look like markup. It breaks at its slashes.
const name = text => el("bdi", { title: text }, text.split(/(?<=\/)/).map((part, at) => at ? [el("wbr"), part] : part));
const small = (...words) => el("small", {}, ...words);
const NONE = "–";

// Figures in words. What is not known is a dash.
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const known = say => value => value === null || value === undefined || Number.isNaN(value) ? NONE : say(value);
const count = known(n => n < 100000 ? whole.format(Math.round(n)) : short.format(n));
const rate = known(n => n === 0 ? "0" : n < 10 ? n.toFixed(n < 0.1 ? 2 : 1) : count(n));
const ms = known(n => n < 10 ? `${n.toFixed(1)} ms` : n < 1000 ? `${Math.round(n)} ms` : `${(n / 1000).toFixed(n < 10000 ? 2 : 1)} s`);
const share = known(n => n === 0 ? "0 %" : n < 0.001 ? "<0.1 %" : n > 0.999 && n < 1 ? ">99.9 %" : `${(100 * n).toFixed(n < 0.1 ? 1 : 0)} %`);
const usd = known(n => n === 0 ? "$0" : n < 0.0001 ? "<$0.0001" : n < 1 ? `$${n.toPrecision(3)}` : n < 1000 ? `$${n.toFixed(2)}` : `$${count(n)}`);
const bytes = known(n => `${Math.round(n / 2 ** 20)} MB`);
const percent = known(n => `${(100 * n).toFixed(0)} %`);
const span = known(s => s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min` : `${Math.floor(s / 86400)} days`);
const per = (part, all) => all > 0 ? Math.max(0, part) / all : null;

// The last minutes as a line from 0 up; `points`: pairs of time and value. Where nothing is known there is no line.
function spark(points, now, title) {
  const most = Math.max(...points.map(([, value]) => value ?? 0), 0) || 1;
  const wide = Math.max(LEAST_WIDE_S, now - points[0][0]);
  let path = "", before = null;
  for (const [at, value] of points) {
    if (value === null) continue;
    const step = before !== null && at - before < GAP_S ? "L" : "M";
    path += `${step}${(100 - 100 * (now - at) / wide).toFixed(2)} ${(23 - 22 * value / most).toFixed(2)}`;
    before = at;
  }
  return el("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": title },
    el("line", { x1: 0, x2: 100, y1: 23.5, y2: 23.5 }), el("path", { d: path || "M0 0" }));
}

// Shares of a whole, side by side; `parts`: pairs of class and share.
function bar(parts) {
  let at = 0;
  const rects = parts.map(([kind, part]) => {
    const rect = el("rect", { class: kind, x: `${(100 * at).toFixed(2)}%`, width: `${(100 * part).toFixed(2)}%`, height: "100%" });
    at += part;
    return rect;
  });
  return el("svg", { class: "bar", "aria-hidden": "true" }, rects);
}

const mark = kind => el("svg", { class: `mark ${kind}`, "aria-hidden": "true" }, el("rect", { width: 10, height: 10, rx: 2 }));

function table(place, columns, rows) {
  show(place, el("thead", {}, el("tr", {}, columns.map(words => el("th", { scope: "col", class: words === "State" ? "text" : null }, words)))), el("tbody", {}, rows));
}

// The value below which a share `q` lies, of counts in buckets with these upper bounds (s), in ms.
function quantile(q, counts, bounds) {
  const all = counts.reduce((sum, n) => sum + n, 0);
  let below = 0;
  for (let at = 0; at < bounds.length && all > 0; at++) {
    if (below + counts[at] >= q * all && counts[at] > 0) {
      const low = at ? bounds[at - 1] : 0;
      return 1000 * (low + (bounds[at] - low) * (q * all - below) / counts[at]);
    }
    below += counts[at];
  }
  return all > 0 ? 1000 * bounds.at(-1) : null;
}
