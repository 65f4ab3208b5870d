// The last calls as waterfalls of their attempts, and the last failures.
const CALL_COLUMNS = ["Time", "Route", "Result", "First token", "Duration", "Attempts"];
const FAILURE_COLUMNS = ["Time", "Target", "Route", "Reason", "Answered", "Call"];

const moment = seconds => new Date(seconds * 1000).toLocaleTimeString("en", { hour12: false });

// One line for each attempt: pale until its first token, then in the colour of its target; red if it failed.
function waterfall(call) {
  const whole = Math.max(call.end_ms, ...call.attempts.map(each => each.end_ms), 0.001);
  const percent = at => `${(100 * Math.max(0, Math.min(at / whole, 1))).toFixed(2)}%`;
  return call.attempts.map(each => {
    const first = each.first_token_ms ?? each.end_ms, failed = each.outcome === "failed";
    const words = failed ? each.why : each.outcome === "cancelled" ? "closed" : "";
    const part = (kind, from, to) => to > from ? el("rect", { class: kind, x: percent(from), width: percent(to - from), height: "100%" }) : [];
    const title = `${each.target}: sent after ${ms(each.begin_ms)}, first token ${each.first_token_ms === null ? NONE : ms(first)}, end ${ms(each.end_ms)}`;
    return el("div", { class: "attempt" },
      el("svg", { class: "bars", role: "img", "aria-label": title }, el("title", {}, title),
        part(`wait ${failed ? "bad" : colour(each.target)}`, each.begin_ms, first),
        part(failed ? "bad" : colour(each.target), first, each.end_ms)),
      el("span", {}, name(each.target), words ? small(" ", outside(words)) : []));
  });
}

// Which branch a policy chose, and how probable that was.
const choiceWords = call => call.choice ? small(`branch ${call.choice}${call.odds ? `, ${share(call.odds)}` : ""}`) : [];

function callRow(call) {
  const result = call.status >= 500 || call.status === 429 ? "bad" : call.status >= 400 ? "warn" : "good";
  const words = call.status === 499 ? "client left" : String(call.status);
  return el("tr", {}, heading(moment(call.at_s)),
    el("td", { class: "text" }, name(call.route), call.client ? small(outside(call.client)) : [], choiceWords(call)),
    el("td", {}, el("span", { class: `state ${result}` }, words), call.why ? small(outside(call.why)) : []),
    td(ms(call.first_token_ms)), td(ms(call.end_ms)),
    el("td", { class: "text attempts" }, call.cache === "hit" || !call.attempts.length ? small(call.cache === "hit" ? "from the cache" : "none") : waterfall(call)));
}

function failureRow(failure) {
  return el("tr", {}, heading(moment(failure.at_s)),
    el("td", { class: "text" }, failure.target ? name(failure.target) : small("none")),
    el("td", { class: "text" }, name(failure.route)),
    el("td", { class: "text" }, outside([failure.kind, failure.phase].filter(Boolean).join(", ")), failure.message ? small(outside(failure.message)) : []),
    el("td", { class: failure.answered ? null : "bad" }, failure.answered ? "yes" : "no"),
    el("td", {}, el("code", {}, failure.call)));
}

function recent(data) {
  const of = data.slots > 1 ? ` of process ${data.pid}, one of ${data.slots} workers` : "";
  show(place["failures-note"], data.failures.length ? `The last ${counted(data.failures.length, "failure of an attempt", "failures of attempts")}${of}. Answered: the client still got a response.` : `No attempt has failed${of}.`);
  show(place["calls-note"], data.calls.length ? `The last ${counted(data.calls.length, "call")}${of}. Each bar is an attempt, over the duration of its call: pale until its first token.` : "No calls yet.");
  place.failures.hidden = !data.failures.length;
  place.calls.hidden = !data.calls.length;
  table(place.failures, FAILURE_COLUMNS, data.failures.map(failureRow));
  table(place.calls, CALL_COLUMNS, data.calls.map(callRow));
}
