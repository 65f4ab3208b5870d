// The latest answer of `splitsecond what-if` over the gateway's log.
const WHAT_IF_MS = 30000;
const WHAT_IF_COLUMNS = ["Figure", "Today", "What if", "Difference (95% interval)"];
const WHAT_IF_FIGURES = { ttft_p50_ms: "TTFT p50", ttft_p95_ms: "TTFT p95", total_p50_ms: "Completion p50", total_p95_ms: "Completion p95", usd_per_1000: "$ per 1,000 calls", failed: "Failed" };
let whatIfLoaded = -Infinity, whatIfLoading = false;

const figureText = name => name.endsWith("_ms") ? ms : name === "usd_per_1000" ? usd : share;
const pointsText = known(n => `${(100 * n).toFixed(1).replace(/\.0$/, "")} points`);

function signed(name, value) {
  const say = figureText(name) === share ? pointsText : figureText(name);
  return value === null ? NONE : `${value > 0 ? "+" : value < 0 ? "−" : ""}${say(Math.abs(value))}`;
}

function whatIfRow(figure) {
  const { name: of, difference, ci95: [low, high] } = figure, say = figureText(of);
  const real = figure.p_value !== null && figure.p_value < 0.05;
  const between = low === null || high === null ? [] : small(`${signed(of, low).replace(/ (points|ms)$/, "")} to ${signed(of, high)}`);
  return el("tr", {}, heading(WHAT_IF_FIGURES[of] ?? outside(`Answered by ${of}`)), td(say(figure.today)), td(say(figure.what_if)),
    el("td", {}, el("span", { class: real ? null : "faint" }, signed(of, difference)), between));
}

function whatIfAnswer(answer) {
  const { calls, covered } = answer.coverage, rows = answer.figures.filter(each => each.today !== null || each.what_if !== null);
  const figures = el("table", { class: "wide" });
  table(figures, WHAT_IF_COLUMNS, rows.map(whatIfRow));
  const words = answer.refused ? `No answer: ${answer.refused}.` : "A grey difference may be chance.";
  return [el("h3", {}, el("code", {}, outside(answer.policy))),
    el("p", { class: "note" }, `${share(per(covered, calls))} of ${counted(calls, "call")} rest on at least 20 similar attempts. `, outside(words)),
    answer.refused ? [] : figures];
}

function showWhatIf(kept) {
  const { at, answer } = kept, { identity } = answer;
  const day = us => new Date(us / 1000).toLocaleDateString("en", { dateStyle: "medium" });
  const agrees = identity.differs.length ? "Today’s policy, replayed over its own log, does not give the log’s figures, so there is no answer. " : "";
  show(place["what-if-note"], agrees, "Asked with ", el("code", {}, "splitsecond what-if"), ` on ${new Date(at).toLocaleString("en", { hour12: false, dateStyle: "medium", timeStyle: "short" })}: route `, name(answer.route),
    `, ${counted(answer.calls, "call")} from ${day(answer.since_us)} to ${day(answer.until_us)}, today `, el("code", {}, outside(answer.today)));
  show(place["what-if"], answer.answers.map(whatIfAnswer));
}

async function loadWhatIf() {
  if (whatIfLoading || Date.now() - whatIfLoaded < WHAT_IF_MS) return;
  whatIfLoading = true;
  try {
    const kept = await fetchJson("dashboard/what-if");
    place["what-if-section"].hidden = !kept;
    if (kept) showWhatIf(kept);
  } catch (error) {
    place["what-if-section"].hidden = false;
    show(place["what-if-note"], `The last answer of what-if cannot be read (${error.message}).`);
  }
  whatIfLoaded = Date.now();
  whatIfLoading = false;
}
