// Charts over time, with times below and values beside them. `points` are pairs of seconds since 1970 and a value.
const WIDE = 300, HIGH = 120, LEFT = 52, FOOT = 98, TOP = 10;
const LEAST_PERIODS = 5;  // the axis of a young log begins at its first call, but is at least this long
const RANGES = [[0, "5 minutes"], [1, "1 hour"], [6, "6 hours"], [24, "24 hours"], [168, "7 days"]];
// The first period is an hour of the log. Without a log, or before it has a whole period, it is what this page has seen.
let range = null, logged = null;

function clockTime(seconds, length) {
  const at = new Date(seconds * 1000);
  if (length > 48 * 3600) return at.toLocaleDateString("en", { month: "short", day: "numeric" });
  return at.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false, second: length < 900 ? "2-digit" : undefined });
}

// The least number of 1, 2, 4, 6 or 8 times a power of ten that is not less: it and its half are short labels of an axis.
function roundedUp(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return unit * ([1, 2, 4, 6, 8].find(times => times * unit >= value) ?? 10);
}

function timeChart(title, points, begin, end, say, gap) {
  const known = points.filter(([, value]) => value !== null && value !== undefined);
  const most = roundedUp(Math.max(...known.map(([, value]) => value), 0) || 1);
  const x = at => LEFT + (WIDE - LEFT - 6) * (at - begin) / (end - begin), y = value => FOOT - (FOOT - TOP) * value / most;
  let path = "", before = null;
  for (const [at, value] of known) {
    path += `${before !== null && at - before <= gap ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (before === null || at - before > gap) path += "h0.01";
    before = at;
  }
  const label = (at, height, anchor, words) => el("text", { x: at, y: height, "text-anchor": anchor }, words);
  const last = known.at(-1), shape = { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", class: "chart",
    "aria-label": `${title}, from ${clockTime(begin, end - begin)} to ${clockTime(end, end - begin)}, now ${last ? say(last[1]) : NONE}` };
  return el("figure", {}, el("figcaption", {}, title), el("svg", shape,
    [0, 0.5, 1].map(part => [
      el("line", { class: "grid", x1: LEFT, x2: WIDE - 6, y1: y(part * most), y2: y(part * most) }),
      label(LEFT - 5, y(part * most) + 4, "end", part ? say(part * most) : "0"),
    ]),
    [0, 0.5, 1].map((part, at) => label(x(begin + part * (end - begin)), HIGH - 6, ["start", "middle", "end"][at],
      clockTime(begin + part * (end - begin), end - begin))),
    el("path", { class: "line", d: path || "M0 0" })));
}

// The charts of the shown period: from the page's own samples, or from the log.
function overTime(data) {
  const now = Date.now() / 1000, wall = points => points.map(([at, value]) => [now - (data.at_s - at), value]);
  show(place.ranges, data.logged ? RANGES.map(([hours, words]) => el("button",
    { type: "button", "data-hours": hours, "aria-pressed": String(hours === range) }, words)) : []);
  if (!range) {
    const begin = now - Math.max(LEAST_WIDTH_S, data.at_s - samples.all[0].at_s);
    const ttft = samples.all.map((_, at) => [samples.all[at].at_s, recentTtft(data, at)]);
    const failed = samples.all.map((_, at) => [samples.all[at].at_s,
      per(samples.perSecond(s => s.requests.failed, at), samples.perSecond(s => s.requests.all, at))]);
    show(place["history-note"], data.logged ? "" : "With a log in the configuration, longer periods can be chosen.");
    show(place.history,
      timeChart("Requests/s", wall(samples.rates(s => s.requests.all)), begin, now, rate, GAP_S),
      timeChart("Failed requests", wall(failed), begin, now, share, GAP_S),
      timeChart("TTFT, median", wall(ttft), begin, now, ms, GAP_S),
      timeChart("Output tokens/s", wall(samples.rates(s => s.output_tokens)), begin, now, rate, GAP_S));
  } else if (logged?.hours === range) {
    const { period_s } = logged, whole = filled(logged, now - range * 3600, now), began = whole.find(each => each.calls)?.at_s;
    const begin = Math.max(now - range * 3600, Math.min(began ?? 0, now - LEAST_PERIODS * period_s));
    const every = (get, empty) => whole.filter(each => each.at_s >= began)
      .map(each => [each.at_s + period_s / 2, each.calls ? get(each) : empty]);
    show(place["history-note"], `From the log, in periods of ${span(period_s)}.${began ? "" : " It has no whole period with calls yet."}`);
    show(place.history,
      timeChart("Requests/s", every(p => p.calls / period_s, 0), begin, now, rate, period_s * 1.5),
      timeChart("Failed requests", every(p => p.failed / p.calls, null), begin, now, share, period_s * 1.5),
      timeChart("TTFT, mean", every(p => p.ttft_ms, null), begin, now, ms, period_s * 1.5),
      timeChart("Output tokens/s", every(p => p.output_tokens / period_s, 0), begin, now, rate, period_s * 1.5));
  }
}

// All whole periods from `begin` to `now`; those without calls are not in the log.
function filled({ periods, period_s: length }, begin, now) {
  const known = new Map(periods.map(each => [Math.round(each.at_s), each])), found = [];
  for (let at = Math.ceil(begin / length) * length; at + length <= now; at += length) {
    found.push(known.get(at) ?? { at_s: at, calls: 0 });
  }
  return found;
}

// The median TTFT of the calls between a sample and the one before it.
function recentTtft(data, at) {
  if (!at) return null;
  const sum = (sample, bucket) => sample.routes.reduce((total, route) => total + (route.ttft[bucket] ?? 0), 0);
  const counts = [...data.ttft_within_s, 0].map((_, bucket) => sum(samples.all[at], bucket) - sum(samples.all[at - 1], bucket));
  return quantile(0.5, counts.map(n => Math.max(0, n)), data.ttft_within_s);
}
