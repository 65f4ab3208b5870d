// Asks the gateway every two seconds while somebody looks, and shows what it says.
// Counts what it showed, and what went wrong in it, in data-shown and data-wrong of the document, so that a test can
// see it.
const EVERY_MS = 2000;
const PATIENCE_MS = 10000;
const KEPT = "splitsecond-key";
const root = document.documentElement;
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
  const headers = key ? { authorization: `Bearer ${key}` } : {}, signal = AbortSignal.timeout(PATIENCE_MS);
  const reply = await fetch("dashboard/data", { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
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
    const since = answered ? ` These figures are of ${answered}.` : "";
    trouble(`The gateway does not answer (${error.message}).${since} Trying again.`);
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
place.theme.addEventListener("click", () => {
  root.dataset.theme = theme() === "dark" ? "light" : "dark";
  named();
});
dark.addEventListener("change", named);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && place.ask.hidden) ask();
});
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) {
  addEventListener(kind, () => { root.dataset.wrong = ++wrong; });
}
named();
ask();
