// Speed grades of the log: the chart and the filters of the page that the gateway makes for `dashboard/speed`.
const SPEEDS_MS = 60000, SPEEDS_TIMEOUT_MS = 300000;
let speedsLoaded = -Infinity, speedsLoading = false;

// An XMLHttpRequest can parse a page without running or loading anything in it.
function fetchSpeeds(key) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(), fail = words => () => reject(new Error(words));
    request.open("GET", "dashboard/speed");
    request.responseType = "document";
    request.timeout = SPEEDS_TIMEOUT_MS;
    if (key) request.setRequestHeader("authorization", `Bearer ${key}`);
    request.onload = () => request.status === 200 && request.response ? resolve(request.response) : fail(`HTTP ${request.status}`)();
    request.onerror = fail("no answer");
    request.ontimeout = fail("no answer in time");
    request.send();
  });
}

// The controls keep what the user chose on the older form.
function keepChoices(older, form) {
  for (const field of form.elements) {
    const same = [...older.elements].find(each => each.name === field.name && (field.type !== "checkbox" || each.value === field.value));
    if (!same || !field.name) continue;
    if (field.type === "checkbox") field.checked = same.checked;
    else field.value = same.value;
  }
}

function showSpeeds(page) {
  const [section, ...findings] = ["#speed", ".lead", ".sentence", "header .findings"].map(each => page.querySelector(each))
    .filter(Boolean).map(each => document.importNode(each, true));
  const { rows } = JSON.parse(page.getElementById("data").textContent);
  section.querySelector("h2").after(...findings);
  const form = section.querySelector("form"), older = place.speeds.querySelector("form");
  if (older) keepChoices(older, form);
  place.speeds.replaceChildren(section);
  const bars = [...section.querySelectorAll(".chart .row")];
  const drawn = new Set(bars.map(bar => bar.querySelector("[data-name]").dataset.name));
  filterRows(form, rows.filter(row => drawn.has(row.name)), bars);
}

async function loadSpeeds(key) {
  const used = place.speeds.contains(document.activeElement);
  if (speedsLoading || used || Date.now() - speedsLoaded < SPEEDS_MS) return;
  speedsLoading = true;
  try {
    showSpeeds(await fetchSpeeds(key));
    show(place["speeds-note"], "");
  } catch (error) {
    show(place["speeds-note"], `Speed grades cannot be read (${error.message}).`);
  }
  speedsLoaded = Date.now();
  speedsLoading = false;
}
