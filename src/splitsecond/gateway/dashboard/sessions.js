// The sessions of the log, and one of them as a waterfall of its turns, by causes.
const SESSIONS_MS = 6000;
const SESSION_COLUMNS = ["Session", "Began", "Client", "Turns", "Time", "Cost", "Cached", "Errors", "Slowest turn"];
const TURN_COLUMNS = ["At", "Turn", "Target", "New", "Cached", "Cost", "Took", "Causes"];
const CAUSE_COLOURS = { network_s: "target-2", queue_s: "warn", retries_s: "bad", cache_miss_s: "target-3", prefill_s: "target-0", generation_s: "target-1" };
let sessionsLoaded = -Infinity, sessionsLoading = false, chosenSession = "";

const seconds = s => s < 10 ? `${s.toFixed(1)} s` : span(s);
const cost = each => each.unpriced ? each.usd ? `${usd(each.usd)}+` : NONE : usd(each.usd);

function sessionRow(each) {
  const shown = each.id === chosenSession;
  return el("tr", {},
    heading(el("button", { type: "button", class: "session", "data-session": each.id, "aria-pressed": String(shown) }, el("code", {}, each.id))),
    td(new Date(each.began).toLocaleString("en", { hour12: false, dateStyle: "medium", timeStyle: "short" })),
    td(each.client ? name(each.client) : NONE),
    td(each.agents > 1 ? [count(each.turns), small(counted(each.agents, "agent"))] : count(each.turns)),
    td(seconds(each.wall_s)), td(cost(each)), td(share(each.cached_share)),
    el("td", { class: each.errors ? "bad" : null }, count(each.errors)), td(seconds(each.slowest_s)));
}

function causesBar(turn, longest) {
  const percent = at => `${(100 * at / longest).toFixed(2)}%`, words = [];
  let at = turn.overlap_s;
  const rects = Object.entries(CAUSE_COLOURS).map(([cause, kind]) => {
    const took = turn.causes[cause], rect = took ? el("rect", { class: kind, x: percent(at), width: percent(took), height: "100%" }) : [];
    at += took;
    if (took >= 0.05) words.push(`${causeWords[cause]} ${seconds(took)}`);
    return rect;
  });
  const title = words.join(", ");
  return el("svg", { class: "bars", role: "img", "aria-label": title }, el("title", {}, title), rects);
}

function turnRow(turn, longest) {
  const failed = turn.outcome === "ok" ? "" : turn.fault || turn.outcome;
  return el("tr", {}, heading(seconds(turn.at_s)),
    td(turn.agent ? [count(turn.turn), small(`agent ${turn.agent.slice(0, 4)}`)] : count(turn.turn)),
    el("td", { class: "text" }, turn.target ? name(turn.target) : [], turn.moved ? small(outside(turn.moved)) : [], turn.looped ? small(turn.looped) : [], failed ? el("small", { class: "bad" }, outside(failed)) : []),
    td(turn.input_tokens === null ? NONE : count(turn.input_tokens - turn.cached_tokens)), td(turn.input_tokens === null ? NONE : count(turn.cached_tokens)),
    td(usd(turn.usd)), td(seconds(turn.took_s)), el("td", { class: "text causes" }, causesBar(turn, longest)));
}

let causeWords = {};
function showSession(data) {
  const { session, statement, causes } = data, longest = Math.max(...session.turns.map(turn => turn.took_s), 0.001);
  causeWords = causes;
  const legend = Object.entries(causes).map(([cause, words]) =>
    el("span", {}, CAUSE_COLOURS[cause] ? mark(CAUSE_COLOURS[cause]) : [], ` ${words}: ${seconds(session.causes[cause])} `));
  const of = session.of_turns > session.turns.length ? `The last ${count(session.turns.length)} of ${count(session.of_turns)} turns. ` : "";
  const turns = el("table", { class: "wide" });
  table(turns, TURN_COLUMNS, session.turns.map(turn => turnRow(turn, longest)));
  show(place.session, el("p", { class: "statement" }, outside(statement)), el("p", { class: "note" }, `${of}Session ${session.id}: each bar is a turn, by causes.`),
    el("p", { class: "legend" }, legend), turns);
}

async function loadSessions() {
  if (sessionsLoading || Date.now() - sessionsLoaded < SESSIONS_MS) return;
  sessionsLoading = true;
  const wanted = chosenSession;
  try {
    const { sessions, days } = await fetchJson("dashboard/sessions");
    show(place["sessions-note"], sessions.length ? `The latest sessions of ${days} days. Choose one to see what it waited for.` : `The log has no sessions of the last ${days} days.`);
    place.sessions.hidden = !sessions.length;
    table(place.sessions, SESSION_COLUMNS, sessions.map(sessionRow));
    if (wanted) {
      const found = await fetchJson(`dashboard/sessions?id=${wanted}`);
      if (wanted === chosenSession) showSession(found);
    }
  } catch (error) {
    show(place["sessions-note"], `Sessions cannot be read (${error.message}).`);
  }
  sessionsLoading = false;
  sessionsLoaded = wanted === chosenSession ? Date.now() : -Infinity;
  if (wanted !== chosenSession) loadSessions();
}
