// The layout: it shows the last data of the gateway, with differences to earlier samples.
const place = Object.fromEntries([...document.querySelectorAll("[id]")].map(node => [node.id, node]));
const samples = new Samples();
const STATES = { up: "good", untested: "", degraded: "warn", returning: "warn", probing: "warn", limited: "warn", down: "bad", locked: "bad" };
const MOST_FAILED = 0.05;
const COLUMNS = {
  targets: ["Target", "State", "In flight", "TTFT p50", "TTFT p95", "TPS", "Attempts/s", "Failed", "Lost", "Cost/h", "Limits left"],
  clients: ["Client", "Requests/s", "Requests", "Failed", "Left this minute", "Spent today", "Spent this month", "Cost since start"],
  teams: ["Team", "Clients", "Requests", "Left this minute", "Spent today", "Spent this month"],
  fleet: ["Gateway", "State", "Version", "Workers", "Last report", "Sees", "Targets down"],
  workers: ["Process", "Uptime", "In flight", "CPU", "Memory", "Log records lost"],
};

// A target has the same colour everywhere.
const colours = new Map();
function colour(target) {
  if (!colours.has(target)) colours.set(target, `target-${colours.size % 8}`);
  return colours.get(target);
}

// Whether a target has served calls that have no price. It need not have reported their tokens.
const unknownCost = target => !target.priced && target.per_hour_usd === null && (target.attempts.ok > 0 || target.output_tokens > 0);

// Dollars per hour at the rate of the shown period; null before there is one.
function hourly(data, spent) {
  return samples.base ? spent * 3600 / (data.at_s - samples.base.at_s) : null;
}

function hits(growth, get) {
  const [hit, shared, miss] = ["hit", "shared", "miss"].map(result => growth(each => get(each)[result]));
  return [hit + shared, hit + shared + miss];
}

function lostCost(growth) {
  const [low, expected, high] = ["lost_low_usd", "lost_usd", "lost_high_usd"].map(bound => growth(each => each[bound]));
  return usd(low) === usd(high) ? usd(expected) : `${usd(expected)} (${usd(low)} to ${usd(high)})`;
}

function tiles(data) {
  const growth = get => samples.growth(get);
  const requests = s => s.requests.all, output = s => s.output_tokens, spent = s => s.usd;
  const failed = growth(s => s.requests.failed), all = growth(requests);
  const others = [["refused", "rejected"], ["left", "aborted"]]
    .map(([key, word]) => [word, growth(s => s.requests[key])]).filter(([, n]) => n);
  const lost = growth(s => s.lost), lostUsd = growth(s => s.lost_usd);
  const [hit, looked] = hits(growth, s => s.cache);
  const extra = (kind, key = "extra") => growth(s => sum(s.routes.map(route => route[key][kind] ?? 0)));
  const kinds = ["fallback", "retry", "escalation", "hedge", "race"];
  const [fallbacks, hedges, won] = [extra("fallback"), extra("hedge"), extra("hedge", "extra_won")];
  const beyond = sum(kinds.map(kind => extra(kind))), unpriced = data.targets.filter(unknownCost);
  const cost = unpriced.length && !growth(spent) ? "no price" : usd(hourly(data, growth(spent)));
  const today = data.usd_today === null ? `${usd(data.usd)} since start` : `${usd(data.usd_today)} today`;
  const tile = (title, value, words, points, kind = "") => el("div", { class: "tile" }, el("h3", {}, title),
    el("div", { class: `value ${kind}` }, value), small(words), spark(points, data.at_s, `${title}, the last minutes`));
  show(place.tiles,
    tile("Requests/s", rate(samples.perSecond(requests)), `${count(data.requests.all)} since start`, samples.rates(requests)),
    tile("Output tokens/s", rate(samples.perSecond(output)), `${rate(samples.perSecond(s => s.input_tokens))} input tokens/s`, samples.rates(output)),
    tile("In flight", count(data.in_flight), data.slots > 1 ? `in ${data.slots} workers` : "", samples.values(s => s.in_flight)),
    tile("Failed", share(per(failed, all)),
      [`${count(failed)} of ${count(all)}`, ...others.map(([word, n]) => `, ${count(n)} ${word}`)],
      samples.rates(s => s.requests.failed), per(failed, all) > MOST_FAILED ? "bad" : ""),
    tile("Token cost per hour", cost, unpriced.length
      ? `${data.usd ? `${today}, without` : ""} ${count(unpriced.length)} target${unpriced.length > 1 ? "s" : ""} without a price` : today, samples.rates(spent)),
    beyond || fallbacks ? tile("Fallbacks", share(per(fallbacks, all)), `${count(fallbacks)} of ${count(all)} calls`,
      samples.rates(s => sum(s.routes.map(route => route.extra.fallback ?? 0)))) : [],
    hedges ? tile("Hedges", share(per(hedges, all)), `${count(hedges)} sent, ${count(won)} won`,
      samples.rates(s => sum(s.routes.map(route => route.extra.hedge ?? 0)))) : [],
    beyond ? tile("Extra attempts", share(per(beyond, all)),
      kinds.map(kind => [kind, extra(kind)]).filter(([, n]) => n).map(([kind, n]) => `${kind} ${count(n)}`).join(", "),
      samples.rates(s => sum(s.routes.map(route => sum(Object.values(route.extra)))))) : [],
    data.lost > 0 ? tile("Lost races", share(per(lost, growth(s => s.attempts))),
      lostUsd ? `${lostCost(growth)}, ${share(per(lostUsd, growth(spent)))} of cost` : counted(lost, "attempt"), samples.rates(s => s.lost)) : [],
    Object.keys(data.cache).length ? tile("Cache hits", share(per(hit, looked)),
      `${count(hit)} of ${count(looked)} lookups`, samples.rates(s => (s.cache.hit ?? 0) + (s.cache.shared ?? 0))) : []);
}

function route(data, seen) {
  const of = sample => sample.routesByName.get(seen.name);
  const growth = get => samples.growth(sample => of(sample) && get(of(sample)));
  const figure = (word, value) => [el("dt", {}, word), el("dd", {}, value)];
  const bounds = data.ttft_within_s, ttft = [...bounds, 0].map((_, at) => growth(r => r.ttft[at]));
  const escalated = Object.entries(data.escalated).filter(([cascade]) => seen.policy.includes(cascade));
  return el("article", { class: "route" },
    el("div", {}, el("h3", {}, name(seen.name)), el("code", {}, seen.policy), el("p", { class: "now" }, coming(seen.now)),
      escalated.map(([, part]) => small(`${share(part)} of the small model's recent answers were escalated`))),
    el("div", { class: "shares" }, answers(Object.keys(seen.answers).map(target => [target, growth(r => r.answers[target])]), hits(growth, r => r.cache)[0])),
    el("dl", { class: "figures" },
      figure("Requests/s", rate(samples.perSecond(sample => of(sample)?.requests.all))),
      figure("Failed", share(per(growth(r => r.requests.failed), growth(r => r.requests.all)))),
      figure("TTFT p50", ms(quantile(0.5, ttft, bounds))),
      figure("TTFT p95", ms(quantile(0.95, ttft, bounds))),
      seen.extra.fallback ? figure("Fallbacks", share(per(growth(r => r.extra.fallback), growth(r => r.requests.all)))) : [],
      growth(r => r.extra.hedge) ? figure("Hedges won", `${count(growth(r => r.extra_won.hedge))} of ${count(growth(r => r.extra.hedge))}`) : [],
      Object.keys(seen.cache).length ? figure("Cache hits", share(per(...hits(growth, r => r.cache)))) : []));
}

// Where the next calls would go, and why.
function coming(now) {
  if (now === null) return "Next: not known yet";
  const all = sum(now.map(choice => choice.calls));
  const where = choice => choice.refused ? el("span", { class: "bad" }, "no target: ", outside(choice.refused))
    : choice.targets.map((target, at) => [at ? " + " : "", el("b", {}, name(target))]);
  return ["Next: ", now.slice(0, 4).map((choice, at) => [
    at ? "; " : "", choice.calls < all ? `${choice.odds === null ? "about " : ""}${share(choice.odds ?? choice.calls / all)} ` : "", where(choice),
    choice.why ? [" ", small(outside(choice.why))] : [],
  ])];
}

function answers(found, cached) {
  const all = sum(found.map(([, n]) => n));
  if (!all) return small(cached ? "All answers came from the cache" : "No answers");
  const parts = found.filter(([, n]) => n).map(([target, n]) => [target, n / all]).sort(([, a], [, b]) => b - a);
  return [small("Answers"), bar(parts.map(([target, part]) => [colour(target), part])),
    el("ul", { class: "legend" },
      parts.slice(0, 8).map(([target, part]) => el("li", {}, mark(colour(target)), name(target), ` ${share(part)}`)),
      parts.length > 8 ? el("li", {}, counted(parts.length - 8, "other")) : [])];
}

function target(data, seen) {
  const of = sample => sample.targetsByName.get(seen.name);
  const growth = get => samples.growth(sample => of(sample) && get(of(sample)));
  const [ok, failed, cancelled] = ["ok", "failed", "cancelled"].map(how => growth(t => t.attempts[how]));
  const faults = Object.keys(seen.faults).map(kind => [kind, growth(t => t.faults[kind])]).filter(([, n]) => n);
  const lost = growth(t => t.lost), failing = per(failed, ok + failed);
  const line = seen.ttft_p50_ms === null ? []
    : spark(samples.values(sample => of(sample)?.ttft_p50_ms), data.at_s, "TTFT p50, the last minutes");
  return el("tr", {},
    heading(mark(colour(seen.name)), name(seen.name)),
    el("td", { class: "text" }, state(data, seen)),
    td(count(seen.in_flight)), td(ms(seen.ttft_p50_ms), line), td(ms(seen.ttft_p95_ms)), td(rate(seen.tps)),
    td(rate(samples.perSecond(sample => sum(Object.values(of(sample)?.attempts ?? {}))))),
    el("td", { class: failing > MOST_FAILED ? "bad" : null }, share(failing),
      faults.sort(([, a], [, b]) => b - a).slice(0, 2).map(([kind, n]) => small(outside(kind), ` ${count(n)}`))),
    td(share(per(lost, ok + failed + cancelled)), growth(t => t.lost_usd) ? small(lostCost(growth)) : []),
    td(seen.free ? small("free") : seen.priced ? usd(hourly(data, growth(t => t.usd))) : small("no price"),
      seen.per_hour_usd === null ? [] : small(`${usd(seen.per_hour_usd)} machine`)),
    td(left(seen)));
}

// The state, which `splitsecond explain` shows too.
function state(data, seen) {
  const workers = data.workers.length, asking = Math.round(seen.available_share * workers);
  const differ = asking < workers && (asking > 0 || ["up", "degraded"].includes(seen.state));
  return [el("span", { class: `state ${STATES[seen.state] ?? ""}` }, seen.state),
    seen.why ? small(outside(seen.why)) : [],
    differ ? small(`used by ${asking} of ${workers} workers`) : []];
}

function left({ requests_left: requests, tokens_left: tokens }) {
  const lines = [[requests, "requests"], [tokens, "tokens"]].filter(([n]) => n !== null);
  return lines.length ? lines.map(([n, what]) => small(`${count(n)} ${what}`)) : NONE;
}

function used(share) {
  return bar([[share > 0.9 ? "target-1" : "target-0", Math.min(1, share)]]);
}

function requestsLeft({ requests_per_minute: most, requests_used: requests }) {
  if (most === null) return td(small("no limit"));
  return td(count(Math.max(0, most - requests)), small(`of ${count(most)}`), used(requests / most));
}

// What a client or a team has spent, and what is left if it has a limit.
function spent(amount, most, held) {
  if (most === null) return td(usd(amount));
  return td(usd(amount), small(`${usd(Math.max(0, most - amount - held))} left of ${usd(most)}`),
    held ? small(`${usd(held)} reserved`) : [], used((amount + held) / most));
}

const spending = seen => [spent(seen.usd_today, seen.usd_per_day, seen.reserved_usd),
  spent(seen.usd_month, seen.usd_per_month, seen.reserved_usd)];

function client(seen) {
  const of = sample => sample.clientsByName.get(seen.name);
  const growth = get => samples.growth(sample => of(sample) && get(of(sample)));
  return el("tr", {}, heading(name(seen.name), seen.team ? small(outside(seen.team)) : []),
    td(rate(samples.perSecond(sample => of(sample)?.requests.all))), td(count(seen.requests.all)),
    td(share(per(growth(c => c.requests.failed), growth(c => c.requests.all)))),
    requestsLeft(seen), spending(seen),
    td(seen.priced || !seen.requests.all ? usd(seen.usd) : small("no price")));
}

function team(seen) {
  return el("tr", {}, heading(name(seen.name)), td(count(seen.clients.length)),
    td(count(seen.requests.all)), requestsLeft(seen), spending(seen));
}

function worker(data, seen) {
  const of = sample => sample.workersByPid.get(seen.pid), first = samples.all.find(of);
  const cpu = per(seen.cpu_s - of(first).cpu_s, data.at_s - first.at_s);
  return el("tr", {}, heading(String(seen.pid), seen.pid === data.pid && data.slots > 1 ? small("serves this page") : []),
    td(span(seen.up_s)), td(count(seen.in_flight)), td(percent(cpu)), td(bytes(seen.resident_bytes)),
    el("td", { class: seen.dropped ? "bad" : null }, count(seen.dropped)));
}

function gateway(fleet, seen) {
  const names = fleet.gateways.map(each => each.name), unseen = names.filter(each => !seen.sees.includes(each));
  const [word, kind] = seen.silent ? ["silent", "bad"] : ["up", "good"];
  const list = found => found.map((each, at) => [at ? ", " : "", name(each)]);
  return el("tr", {}, heading(name(seen.name), seen.name === fleet.name ? small("serves this page") : []),
    el("td", { class: "text" }, el("span", { class: `state ${kind}` }, word)),
    td(outside(seen.version)), td(count(seen.workers)), td(`${span(seen.silent_s)} ago`),
    el("td", { class: "text" }, unseen.length ? [`${names.length - unseen.length} of ${names.length}`, small("not ", list(unseen))]
      : `all ${names.length}`),
    el("td", { class: "text" }, seen.down.length ? list(seen.down) : NONE));
}

function showFleet(fleet) {
  place["fleet-section"].hidden = !fleet;
  if (!fleet) return;
  const versions = new Set(fleet.gateways.map(each => each.version)).size;
  show(place["fleet-note"], fleet.answered_s === null ? "The database of the fleet has not answered yet."
    : fleet.away ? `The database of the fleet has not answered for ${span(fleet.answered_s)}. This is what it knew then.`
    : "Gateways that share limits and what they learn. Sees: the gateways that reported lately, as each of them knows.",
    versions > 1 ? ` There are ${versions} versions.` : "");
  table(place.fleet, COLUMNS.fleet, fleet.gateways.map(each => gateway(fleet, each)));
}

function showAll(data) {
  samples.add(data);
  data.targets.forEach(each => colour(each.name));
  const uptime = Math.max(...data.workers.map(each => each.up_s)), more = (words, n) => n ? ` ${words}: ${count(n)}.` : "";
  const silent = data.slots - data.workers.length;
  show(place.about, `Version ${data.version} · up ${span(uptime)} · ${new Date().toLocaleTimeString()}`);
  tiles(data);
  overTime(data);
  recent(data);
  show(place["routes-note"], `Figures of ${samples.period}. Next: where a short chat would go now.`,
    more("Calls since start that named a target directly", data.direct.all));
  const routes = data.routes.map(each => route(data, each));
  show(place.routes, routes.length ? routes : el("p", { class: "note" }, "No routes are configured."));
  show(place["targets-note"], `Figures of ${samples.period}; TTFT, TPS and limits are current estimates.`,
    data.slots > 1 ? ` State, TTFT, TPS, limits and requests in flight are those of process ${data.pid}, one of ` +
      `${data.slots} workers. The other figures cover all workers.` : "", more("Targets not shown", data.more_targets));
  table(place.targets, COLUMNS.targets, data.targets.map(each => target(data, each)));
  place["clients-section"].hidden = !data.clients.length;
  show(place["clients-note"], "Limits apply to all workers together. Days and months are those of UTC.",
    data.teams.length ? " Below a client: its team." : "",
    more("Requests rejected since start (wrong key, path or body, or over a limit)", data.rejected),
    more("Clients with fewer requests, not shown", data.more_clients));
  table(place.clients, COLUMNS.clients, data.clients.map(client));
  place["teams-section"].hidden = !data.teams.length;
  show(place["teams-note"], "Limits that the clients of a team share.");
  table(place.teams, COLUMNS.teams, data.teams.map(team));
  showFleet(data.fleet);
  show(place["workers-note"], silent > 0 ? `${counted(silent, "worker has", "workers have")} not served a request yet.` : "");
  table(place.workers, COLUMNS.workers, data.workers.map(each => worker(data, each)));
}
