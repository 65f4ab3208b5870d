// Polls the gateway every two seconds while the page is visible, and shows its data.
// For tests, data-shown and data-wrong of the document count updates and errors.
const POLL_MS = 2000;
const TIMEOUT_MS = 10000;
const HISTORY_MS = 10000;
const STORED = "splitsecond-key";
const root = document.documentElement;
let timer = 0, polling = false, shown = 0, wrong = 0, updated = "";

function problem(words) {
  place.problem.hidden = !words;
  if (place.problem.textContent !== words) place.problem.textContent = words;
  place.overview.classList.toggle("stale", Boolean(words));
}

function askForKey(words) {
  sessionStorage.removeItem(STORED);
  place["key-form"].hidden = false;
  place.overview.hidden = true;
  place.about.textContent = "";
  problem(words);
}

// Returns the gateway's data, or null if it needs a key.
async function fetchData() {
  const key = sessionStorage.getItem(STORED);
  const headers = key ? { authorization: `Bearer ${key}` } : {}, signal = AbortSignal.timeout(TIMEOUT_MS);
  const reply = await fetch("dashboard/data", { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  if (reply.status === 401 || reply.status === 403) {
    askForKey(key ? "The gateway does not accept this key for all routes." : "");
    return null;
  }
  if (!reply.ok) throw new Error(`HTTP ${reply.status}`);
  return reply.json();
}

// Fetches the period that is shown from the log, at most every ten seconds.
async function fetchHistory() {
  const hours = range;
  if (!hours || (logged?.hours === hours && Date.now() - logged.fetched < HISTORY_MS)) return;
  const key = sessionStorage.getItem(STORED), headers = key ? { authorization: `Bearer ${key}` } : {};
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const reply = await fetch(`dashboard/history?hours=${hours}`, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  if (!reply.ok) throw new Error(`the log: HTTP ${reply.status}`);
  logged = { ...await reply.json(), hours, fetched: Date.now() };
}

async function fetchJson(path) {
  const key = sessionStorage.getItem(STORED), headers = key ? { authorization: `Bearer ${key}` } : {};
  const reply = await fetch(path, { headers, cache: "no-store", credentials: "omit", redirect: "error" });
  if (!reply.ok) throw new Error(`HTTP ${reply.status}`);
  return reply.json();
}

async function chooseRange(data) {
  range = data.logged ? 1 : 0;
  await fetchHistory();
  const now = Date.now() / 1000;
  if (range && !filled(logged, now - range * 3600, now).some(each => each.calls)) range = 0;
}

async function poll() {
  if (polling) return;
  polling = true;
  let data;
  try {
    data = await fetchData();
    if (data && range === null) await chooseRange(data);
    if (data) await fetchHistory();
  } catch (error) {
    const age = updated ? ` The figures are from ${updated}.` : "";
    problem(`The gateway does not answer (${error.message}). Retrying.${age}`);
  }
  polling = false;
  clearTimeout(timer);
  if (data === null) return;
  if (!document.hidden) timer = setTimeout(poll, POLL_MS);
  if (data === undefined) return;
  updated = new Date().toLocaleTimeString();
  problem("");
  place.overview.hidden = false;
  showAll(data);
  place["speeds-section"].hidden = !data.logged;
  place["sessions-section"].hidden = !data.logged;
  if (data.logged) loadSpeeds(sessionStorage.getItem(STORED));
  if (data.logged) loadSessions();
  if (data.logged) loadWhatIf();
  root.dataset.shown = ++shown;
}

place["key-form"].addEventListener("submit", event => {
  event.preventDefault();
  const key = place.key.value.trim();
  place.key.value = "";
  if (!/^[\x21-\x7e]+$/.test(key)) {
    problem("This is not a key: a key has only ASCII letters, digits and symbols.");
    return;
  }
  sessionStorage.setItem(STORED, key);
  place["key-form"].hidden = true;
  poll();
});

place.sessions.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  chosenSession = chosenSession === button.dataset.session ? "" : button.dataset.session;
  sessionsLoaded = -Infinity;
  if (!chosenSession) place.session.replaceChildren();
  loadSessions();
});

place.ranges.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  range = Number(button.dataset.hours);
  poll();
});

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
const label = () => { place.theme.textContent = theme() === "dark" ? "Light" : "Dark"; };
place.theme.addEventListener("click", () => {
  root.dataset.theme = theme() === "dark" ? "light" : "dark";
  label();
});
dark.addEventListener("change", label);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && place["key-form"].hidden) poll();
});
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) {
  addEventListener(kind, () => { root.dataset.wrong = ++wrong; });
}
label();
poll();
