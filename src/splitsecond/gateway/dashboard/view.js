// What the gateway says, as the page shows it. Beside its last word there is what the page has seen before (`past`).
const place = Object.fromEntries([...document.querySelectorAll("[id]")].map(node => [node.id, node]));
const past = new Past();
const STATES = { up: "good", returning: "warn", probing: "warn", limited: "warn", down: "bad", locked: "bad" };
const MOST_FAILED = 0.05;
const COLUMNS = {
  targets: ["Target", "State", "In flight", "TTFT p50", "TTFT p95", "TPS", "Attempts/s", "Failed", "Lost", "Cost/h", "Limits left"],
  clients: ["Client", "Requests/s", "Requests", "Failed", "Left this minute", "Left today", "Cost"],
  workers: ["Process", "Up", "In flight", "CPU", "Memory", "Log records lost"],
};

// A target has one colour, wherever it is.
const colours = new Map();
function colour(target) {
  if (!colours.has(target)) colours.set(target, `target-${colours.size % 8}`);
  return colours.get(target);
}

// By the hour, of what has been spent while the page looked.
function hourly(data, spent) {
  return past.base ? spent * 3600 / (data.at_s - past.base.at_s) : null;
}

function hits(grown, get) {
  const [hit, shared, miss] = ["hit", "shared", "miss"].map(said => grown(each => get(each)[said]));
  return [hit + shared, hit + shared + miss];
}

function tiles(data) {
  const grown = get => past.grown(get);
  const requests = s => s.requests.all, output = s => s.output_tokens, spent = s => s.usd;
  const failed = grown(s => s.requests.failed), all = grown(requests);
  const others = ["refused", "left"].map(how => [how, grown(s => s.requests[how])]).filter(([, n]) => n);
  const lost = grown(s => s.lost), lostUsd = grown(s => s.lost_usd);
  const [hit, looked] = hits(grown, s => s.cache);
  const tile = (title, value, words, points, kind = "") => el("div", { class: "tile" }, el("h3", {}, title),
    el("div", { class: `value ${kind}` }, value), small(words), spark(points, data.at_s, `${title}, the last minutes`));
  show(place.tiles,
    tile("Requests/s", rate(past.lately(requests)), `${count(data.requests.all)} since it began`, past.rates(requests)),
    tile("Output tokens/s", rate(past.lately(output)), `${rate(past.lately(s => s.input_tokens))} input tokens/s`, past.rates(output)),
    tile("In flight", count(data.in_flight), data.seats > 1 ? `in ${data.seats} workers` : "", past.values(s => s.in_flight)),
    tile("Failed", share(per(failed, all)),
      [`${count(failed)} of ${count(all)}`, ...others.map(([how, n]) => `, ${count(n)} ${how}`)],
      past.rates(s => s.requests.failed), per(failed, all) > MOST_FAILED ? "bad" : ""),
    tile("Token cost per hour", usd(hourly(data, grown(spent))),
      data.usd_today === null ? `${usd(data.usd)} since it began` : `${usd(data.usd_today)} today`, past.rates(spent)),
    data.lost > 0 ? tile("Lost races", share(per(lost, grown(s => s.attempts))),
      `${usd(lostUsd)}, ${share(per(lostUsd, grown(spent)))} of cost`, past.rates(s => s.lost)) : [],
    Object.keys(data.cache).length ? tile("Cache hits", share(per(hit, looked)),
      `${count(hit)} of ${count(looked)} looked for`, past.rates(s => (s.cache.hit ?? 0) + (s.cache.shared ?? 0))) : []);
}

function route(data, seen) {
  const of = sample => sample.routesByName.get(seen.name);
  const grown = get => past.grown(sample => of(sample) && get(of(sample)));
  const figure = (word, value) => [el("dt", {}, word), el("dd", {}, value)];
  const bounds = data.ttft_within_s, ttft = [...bounds, 0].map((_, at) => grown(r => r.ttft[at]));
  const escalated = Object.entries(data.escalated).filter(([cascade]) => seen.policy.includes(cascade));
  return el("article", { class: "route" },
    el("div", {}, el("h3", {}, name(seen.name)), el("code", {}, seen.policy), el("p", { class: "now" }, coming(seen.now)),
      escalated.map(([, part]) => small(`${share(part)} of the small model's answers were not accepted lately`))),
    el("div", { class: "shares" }, answers(Object.keys(seen.answers).map(target => [target, grown(r => r.answers[target])]))),
    el("dl", { class: "figures" },
      figure("Requests/s", rate(past.lately(sample => of(sample)?.requests.all))),
      figure("Failed", share(per(grown(r => r.requests.failed), grown(r => r.requests.all)))),
      figure("TTFT p50", ms(quantile(0.5, ttft, bounds))),
      figure("TTFT p95", ms(quantile(0.95, ttft, bounds))),
      Object.keys(seen.cache).length ? figure("Cache hits", share(per(...hits(grown, r => r.cache)))) : []));
}

// Where the next calls would go, and why.
function coming(now) {
  if (now === null) return "Next: not looked into yet";
  const all = sum(now.map(choice => choice.calls));
  const who = choice => choice.refused ? el("span", { class: "bad" }, "nobody: ", said(choice.refused))
    : choice.targets.map((target, at) => [at ? " + " : "", el("b", {}, name(target))]);
  return ["Next: ", now.slice(0, 4).map((choice, at) => [
    at ? "; " : "", choice.calls < all ? `${share(choice.calls / all)} ` : "", who(choice),
    choice.why ? [" ", small(said(choice.why))] : [],
  ])];
}

function answers(found) {
  const all = sum(found.map(([, n]) => n));
  if (!all) return small("No answers");
  const parts = found.filter(([, n]) => n).map(([target, n]) => [target, n / all]).sort(([, a], [, b]) => b - a);
  return [small("Answers"), bar(parts.map(([target, part]) => [colour(target), part])),
    el("ul", { class: "legend" },
      parts.slice(0, 8).map(([target, part]) => el("li", {}, mark(colour(target)), name(target), ` ${share(part)}`)),
      parts.length > 8 ? el("li", {}, `${parts.length - 8} others`) : [])];
}

function target(data, seen) {
  const of = sample => sample.targetsByName.get(seen.name);
  const grown = get => past.grown(sample => of(sample) && get(of(sample)));
  const [ok, failed, cancelled] = ["ok", "failed", "cancelled"].map(how => grown(t => t.attempts[how]));
  const faults = Object.keys(seen.faults).map(kind => [kind, grown(t => t.faults[kind])]).filter(([, n]) => n);
  const lost = grown(t => t.lost), failing = per(failed, ok + failed);
  const line = seen.ttft_p50_ms === null ? []
    : spark(past.values(sample => of(sample)?.ttft_p50_ms), data.at_s, "TTFT p50, the last minutes");
  return el("tr", {},
    heading(mark(colour(seen.name)), name(seen.name)),
    el("td", { class: "text" }, state(data, seen)),
    td(count(seen.in_flight)), td(ms(seen.ttft_p50_ms), line), td(ms(seen.ttft_p95_ms)), td(rate(seen.tps)),
    td(rate(past.lately(sample => sum(Object.values(of(sample)?.attempts ?? {}))))),
    el("td", { class: failing > MOST_FAILED ? "bad" : null }, share(failing),
      faults.sort(([, a], [, b]) => b - a).slice(0, 2).map(([kind, n]) => small(said(kind), ` ${count(n)}`))),
    td(share(per(lost, ok + failed + cancelled)), lost ? small(usd(grown(t => t.lost_usd))) : []),
    td(seen.priced ? usd(hourly(data, grown(t => t.usd))) : small("no price"),
      seen.per_hour_usd === null ? [] : small(`${usd(seen.per_hour_usd)} for the machine`)),
    td(left(seen)));
}

function state(data, seen) {
  const workers = data.workers.length, asking = Math.round(seen.asked_by * workers);
  const differ = asking < workers && (asking > 0 || seen.state === "up");
  return [el("span", { class: `state ${STATES[seen.state] ?? ""}` }, seen.state),
    seen.state !== "up" && seen.why ? small(said(seen.why)) : [],
    differ ? small(`asked by ${asking} of ${workers} workers`) : []];
}

function left({ requests_left: requests, tokens_left: tokens }) {
  const lines = [[requests, "requests"], [tokens, "tokens"]].filter(([n]) => n !== null);
  return lines.length ? lines.map(([n, what]) => small(`${count(n)} ${what}`)) : NONE;
}

function client(seen) {
  const of = sample => sample.clientsByName.get(seen.name);
  const grown = get => past.grown(sample => of(sample) && get(of(sample)));
  const limit = (most, used, say, held) => {
    if (most === null) return td(small("no limit"));
    const part = Math.min(1, used / most);
    return td(say(Math.max(0, most - used)), small(`of ${say(most)}`, held ? `, ${say(held)} held` : ""),
      bar([[part > 0.9 ? "target-1" : "target-0", part]]));
  };
  return el("tr", {}, heading(name(seen.name)),
    td(rate(past.lately(sample => of(sample)?.requests.all))), td(count(seen.requests.all)),
    td(share(per(grown(c => c.requests.failed), grown(c => c.requests.all)))),
    limit(seen.requests_per_minute, seen.requests_used, count),
    limit(seen.usd_per_day, seen.spent_usd + seen.held_usd, usd, seen.held_usd),
    td(usd(seen.usd)));
}

function worker(data, seen) {
  const of = sample => sample.workersByPid.get(seen.pid), first = past.samples.find(of);
  const cpu = per(seen.cpu_s - of(first).cpu_s, data.at_s - first.at_s);
  return el("tr", {}, heading(String(seen.pid), seen.pid === data.asked && data.seats > 1 ? small("tells this page") : []),
    td(span(seen.up_s)), td(count(seen.in_flight)), td(percent(cpu)), td(bytes(seen.resident_bytes)),
    el("td", { class: seen.dropped ? "bad" : null }, count(seen.dropped)));
}

function look(data) {
  past.add(data);
  data.targets.forEach(each => colour(each.name));
  const up = Math.max(...data.workers.map(each => each.up_s)), more = (n, words) => n ? ` ${count(n)} ${words}` : "";
  const silent = data.seats - data.workers.length;
  show(place.about, `Version ${data.version} · up ${span(up)} · ${new Date().toLocaleTimeString()}`);
  tiles(data);
  show(place["routes-note"], `${past.words}. Next: what would become of a short chat that came now.`,
    more(data.direct.all, "calls since it began named a target themselves."));
  show(place.routes, data.routes.length ? data.routes.map(each => route(data, each)) : el("p", { class: "note" }, "There are no routes."));
  show(place["targets-note"], `${past.words}; TTFT, TPS and limits as they are expected now.`,
    data.seats > 1 ? ` State, speed, limits and what is under way at targets: as process ${data.asked} sees them, one of ` +
      `${data.seats} workers; all else is of all.` : "", more(data.more_targets, "more were asked."));
  table(place.targets, COLUMNS.targets, data.targets.map(each => target(data, each)));
  place["clients-section"].hidden = !data.clients.length;
  show(place["clients-note"], "Limits of all workers together; the day is UTC's.",
    more(data.no_calls, "requests since it began became no call: a wrong key, path or request, or a limit."),
    more(data.more_clients, "more have asked less."));
  table(place.clients, COLUMNS.clients, data.clients.map(client));
  show(place["workers-note"], silent > 0 ? `${silent} of ${data.seats} have served nothing yet.` : "");
  table(place.workers, COLUMNS.workers, data.workers.map(each => worker(data, each)));
}
