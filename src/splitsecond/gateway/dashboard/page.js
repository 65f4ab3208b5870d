// Asks the gateway every two seconds while somebody looks, and shows what it says.
// Counts what it showed, and what went wrong in it, in data-shown and data-wrong of the document, so that a test can see it.
const EVERY_MS = 2000;
const PATIENCE_MS = 10000;
const KEPT = "splitsecond-key";
const root = document.documentElement;
const place = Object.fromEntries([...document.querySelectorAll("[id]")].map(node => [node.id, node]));
const past = new History();
const colours = new Map();
const colour = target => {
  if (!colours.has(target)) colours.set(target, `target-${colours.size % 8}`);
  return colours.get(target);
};
const STATES = { up: "good", returning: "warn", probing: "warn", limited: "warn", down: "bad", locked: "bad" };

function tiles(data) {
  const failed = past.grown(s => s.requests.failed), all = past.grown(s => s.requests.all);
  const cost = past.base ? past.grown(s => s.usd) * 3600 / (data.at_s - past.base.at_s) : null;
  const lost = past.grown(s => s.lost), spent = past.grown(s => s.usd), lostUsd = past.grown(s => s.lost_usd);
  const cached = Object.fromEntries(["hit", "shared", "miss"].map(said => [said, past.grown(s => s.cache[said])]));
  const looked = cached.hit + cached.shared + cached.miss;
  const others = [["refused", past.grown(s => s.requests.refused)], ["left", past.grown(s => s.requests.left)]];
  const tile = (title, value, words, points, bad) => el("div", { class: "tile" }, el("h3", {}, title),
    el("div", { class: bad ? "value bad" : "value" }, value), small(words), points && spark(points, data.at_s, `${title}, the last minutes`));
  const requests = s => s.requests.all, output = s => s.output_tokens;
  show(place.tiles,
    tile("Requests/s", rate(past.lately(requests)), `${count(data.requests.all)} since it began`, past.rates(requests)),
    tile("Output tokens/s", rate(past.lately(output)), `${rate(past.lately(s => s.input_tokens))} input tokens/s`, past.rates(output)),
    tile("In flight", count(data.in_flight), data.seats > 1 ? `in ${data.seats} workers` : "", past.values(s => s.in_flight)),
    tile("Failed", share(per(failed, all)), [`${count(failed)} of ${count(all)}`, ...others.filter(([, n]) => n).map(([word, n]) => `, ${count(n)} ${word}`)],
      past.rates(s => s.requests.failed), per(failed, all) > 0.01),
    tile("Token cost per hour", usd(cost), data.usd_today === null ? `${usd(data.usd)} since it began` : `${usd(data.usd_today)} today`, past.rates(s => s.usd)),
    data.lost > 0 ? tile("Lost races", share(per(lost, past.grown(s => s.attempts))), `${usd(lostUsd)}, ${share(per(lostUsd, spent))} of cost`, past.rates(s => s.lost)) : [],
    Object.keys(data.cache).length ? tile("Cache hits", share(per(cached.hit + cached.shared, looked)), `${count(cached.hit + cached.shared)} of ${count(looked)} looked for`, past.rates(s => (s.cache.hit ?? 0) + (s.cache.shared ?? 0))) : [],
  );
}

function route(data, { name: route, policy, now, cache }) {
  const of = sample => sample.routesByName.get(route);
  const grown = get => past.grown(s => of(s) && get(of(s)));
  const figure = (word, value) => [el("dt", {}, word), el("dd", {}, value)];
  const bounds = data.ttft_within_s, ttft = [...bounds, 0].map((_, at) => grown(r => r.ttft[at]));
  const all = grown(r => r.requests.all);
  return el("article", { class: "route" },
    el("div", {}, el("h3", {}, name(route)), el("code", {}, policy), el("p", { class: "now" }, coming(now)),
      Object.entries(data.escalated).filter(([cascade]) => policy.includes(cascade)).map(([, part]) => small(`${share(part)} of the small model's answers escalated lately`))),
    el("div", { class: "shares" }, answers(Object.keys(of(data).answers).map(target => [target, grown(r => r.answers[target])]))),
    el("dl", { class: "figures" }, figure("Requests/s", rate(past.lately(s => of(s)?.requests.all))), figure("Failed", share(per(grown(r => r.requests.failed), all))),
      figure("TTFT p50", ms(quantile(0.5, ttft, bounds))), figure("TTFT p95", ms(quantile(0.95, ttft, bounds))),
      Object.keys(cache).length ? figure("Cache hits", share(per(grown(r => r.cache.hit) + grown(r => r.cache.shared), grown(r => r.cache.hit) + grown(r => r.cache.shared) + grown(r => r.cache.miss)))) : []));
}

// Where the next calls would go, and why.
function coming(now) {
  if (now === null) return "Next: not looked into yet";
  const all = now.reduce((sum, choice) => sum + choice.calls, 0);
  return ["Next: ", now.slice(0, 4).map((choice, at) => {
    const which = choice.refused ? el("span", { class: "bad" }, `nobody: ${choice.refused}`) : choice.targets.map((target, nth) => [nth ? " + " : "", el("b", {}, name(target))]);
    return [at ? "; " : "", choice.calls < all ? `${share(choice.calls / all)} ` : "", which, choice.why ? [" ", el("small", {}, el("bdi", {}, choice.why))] : []];
  })];
}

function answers(found) {
  const sum = found.reduce((total, [, n]) => total + n, 0);
  if (!sum) return small("No answers");
  const parts = found.map(([target, n]) => [target, n / sum]).filter(([, part]) => part > 0).sort(([, a], [, b]) => b - a);
  return [small("Answers"), bar(parts.map(([target, part]) => [colour(target), part])),
    el("ul", { class: "legend" }, parts.slice(0, 8).map(([target, part]) => el("li", {}, mark(colour(target)), name(target), ` ${share(part)}`)),
      parts.length > 8 ? el("li", {}, `${parts.length - 8} others`) : [])];
}

function target(data, seen) {
  const of = sample => sample.targetsByName.get(seen.name);
  const grown = get => past.grown(s => of(s) && get(of(s)));
  const [ok, failed, cancelled] = ["ok", "failed", "cancelled"].map(how => grown(t => t.attempts[how]));
  const kinds = Object.keys(seen.faults).map(kind => [kind, grown(t => t.faults[kind])]).filter(([, n]) => n).sort(([, a], [, b]) => b - a);
  const lost = grown(t => t.lost);
  const cost = past.base ? grown(t => t.usd) * 3600 / (data.at_s - past.base.at_s) : null;
  const asking = Math.round(seen.asked_by * data.workers.length);
  const left = [[seen.requests_left, "requests"], [seen.tokens_left, "tokens"]].filter(([n]) => n !== null).map(([n, what]) => el("small", {}, `${count(n)} ${what}`));
  return el("tr", {},
    el("th", { scope: "row" }, mark(colour(seen.name)), name(seen.name)),
    el("td", { class: "text" }, el("span", { class: `state ${STATES[seen.state] ?? ""}` }, seen.state),
      seen.state !== "up" && seen.why ? small(el("bdi", {}, seen.why)) : [],
      asking < data.workers.length && (asking > 0 || seen.state === "up") ? small(`asked by ${asking} of ${data.workers.length} workers`) : []),
    el("td", {}, count(seen.in_flight)),
    el("td", {}, ms(seen.ttft_p50_ms), seen.ttft_p50_ms === null ? [] : spark(past.values(s => of(s)?.ttft_p50_ms), data.at_s, "TTFT p50, the last minutes")),
    el("td", {}, ms(seen.ttft_p95_ms)),
    el("td", {}, rate(seen.tps)),
    el("td", {}, rate(past.lately(s => Object.values(of(s)?.attempts ?? {}).reduce((sum, n) => sum + n, 0)))),
    el("td", { class: per(failed, ok + failed) > 0.05 ? "bad" : "" }, share(per(failed, ok + failed)), kinds.slice(0, 2).map(([kind, n]) => small(el("bdi", {}, kind), ` ${count(n)}`))),
    el("td", {}, share(per(lost, ok + failed + cancelled)), lost ? small(usd(grown(t => t.lost_usd))) : []),
    el("td", {}, seen.priced ? usd(cost) : seen.per_hour_usd === null ? small("no price") : NONE, seen.per_hour_usd === null ? [] : small(`${usd(seen.per_hour_usd)} for the machine`)),
    el("td", {}, left.length ? left : NONE));
}

function client(data, seen) {
  const of = sample => sample.clientsByName.get(seen.name);
  const grown = get => past.grown(s => of(s) && get(of(s)));
  const limit = (used, most, say, held) => most === null ? el("td", {}, small("no limit")) : el("td", {}, say(Math.max(0, most - used)),
    small(`of ${say(most)}`, held ? `, ${say(held)} held` : ""), bar([[used / most > 0.9 ? "target-1" : "target-0", Math.min(1, used / most)]]));
  return el("tr", {}, el("th", { scope: "row" }, name(seen.name)),
    el("td", {}, rate(past.lately(s => of(s)?.requests.all))), el("td", {}, count(seen.requests.all)),
    el("td", {}, share(per(grown(c => c.requests.failed), grown(c => c.requests.all)))),
    limit(seen.requests_used, seen.requests_per_minute, count), limit(seen.spent_usd + seen.held_usd, seen.usd_per_day, usd, seen.held_usd), el("td", {}, usd(seen.usd)));
}

function worker(data, seen) {
  const of = sample => sample.workersByPid.get(seen.pid), before = past.samples.find(of);
  const cpu = before === data ? null : per(seen.cpu_s - of(before).cpu_s, data.at_s - before.at_s);
  return el("tr", {}, el("th", { scope: "row" }, String(seen.pid), seen.pid === data.asked ? small("tells this page") : []), el("td", {}, span(seen.up_s)),
    el("td", {}, count(seen.in_flight)), el("td", {}, percent(cpu)), el("td", {}, bytes(seen.resident_bytes)),
    el("td", { class: seen.dropped ? "bad" : "" }, count(seen.dropped)));
}

function look(data) {
  past.add(data);
  data.targets.forEach(({ name: target }) => colour(target));
  const up = Math.max(...data.workers.map(worker => worker.up_s)), shown = past.words;
  const view = data.seats > 1 ? ` State, speed, limits and what is under way at targets: as process ${data.asked} sees them, one of ${data.seats} workers; all else is of all.` : "";
  show(place.about, `Version ${data.version} · up ${span(up)} · ${new Date().toLocaleTimeString()}`);
  tiles(data);
  show(place["routes-note"], `${shown}. Next: what would become of a short chat that came now.`, data.direct.all ? ` ${count(data.direct.all)} calls since it began named a target themselves.` : "");
  show(place.routes, data.routes.length ? data.routes.map(each => route(data, each)) : el("p", { class: "note" }, "There are no routes."));
  show(place["targets-note"], `${shown}; TTFT, TPS and limits as they are expected now.${view}`, data.more_targets ? ` ${data.more_targets} more were asked.` : "");
  table(place.targets, ["Target", "State", "In flight", "TTFT p50", "TTFT p95", "TPS", "Attempts/s", "Failed", "Lost", "Cost/h", "Limits left"], data.targets.map(each => target(data, each)));
  place["clients-section"].hidden = !data.clients.length;
  show(place["clients-note"], `Limits of all workers together; the day is UTC's. ${count(data.no_calls)} requests since it began became no call: a wrong key, path or request, or a limit.`, data.more_clients ? ` ${data.more_clients} more have asked less.` : "");
  table(place.clients, ["Client", "Requests/s", "Requests", "Failed", "Left this minute", "Left today", "Cost"], data.clients.map(each => client(data, each)));
  show(place["workers-note"], data.workers.length < data.seats ? `${data.seats - data.workers.length} of ${data.seats} have served nothing yet.` : "");
  table(place.workers, ["Process", "Up", "In flight", "CPU", "Memory", "Log records lost"], data.workers.map(each => worker(data, each)));
}

// Asking.
let timer = 0, asking = false, shown = 0, wrong = 0, answered = "";

function trouble(words) {
  place.trouble.hidden = !words;
  if (place.trouble.textContent !== words) place.trouble.textContent = words;
  place.seen.classList.toggle("stale", Boolean(words));
}

function askForKey(words) {
  sessionStorage.removeItem(KEPT);
  place.ask.hidden = false;
  place.seen.hidden = true;
  place.about.textContent = "";
  trouble(words);
}

// What the gateway says; null where it wants a key first.
async function told() {
  const key = sessionStorage.getItem(KEPT);
  const reply = await fetch("dashboard/data", { headers: key ? { authorization: `Bearer ${key}` } : {}, cache: "no-store", credentials: "omit",
    redirect: "error", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (reply.status === 401 || reply.status === 403) {
    askForKey(key ? "The gateway does not take that key for all routes." : "");
    return null;
  }
  if (!reply.ok) throw new Error(`HTTP ${reply.status}`);
  return reply.json();
}

async function ask() {
  if (asking) return;
  asking = true;
  let data;
  try {
    data = await told();
  } catch (error) {
    trouble(`The gateway does not answer (${error.message}).${answered ? ` These figures are of ${answered}.` : ""} Trying again.`);
  }
  asking = false;
  clearTimeout(timer);
  if (data === null) return;
  if (!document.hidden) timer = setTimeout(ask, EVERY_MS);
  if (data === undefined) return;
  answered = new Date().toLocaleTimeString();
  trouble("");
  place.seen.hidden = false;
  look(data);
  root.dataset.shown = ++shown;
}

place.ask.addEventListener("submit", event => {
  event.preventDefault();
  const key = place.key.value.trim();
  place.key.value = "";
  if (!/^[\x21-\x7e]+$/.test(key)) {
    trouble("That is no key: keys are of letters, digits and signs.");
    return;
  }
  sessionStorage.setItem(KEPT, key);
  place.ask.hidden = true;
  ask();
});

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
const named = () => { place.theme.textContent = theme() === "dark" ? "Light" : "Dark"; };
place.theme.addEventListener("click", () => { root.dataset.theme = theme() === "dark" ? "light" : "dark"; named(); });
dark.addEventListener("change", named);
document.addEventListener("visibilitychange", () => { if (!document.hidden && place.ask.hidden) ask(); });
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) addEventListener(kind, () => { root.dataset.wrong = ++wrong; });
named();
ask();
