// Figures as text. An unknown value is a dash.
const NONE = "–";
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const known = say => value => value === null || value === undefined || Number.isNaN(value) ? NONE : say(value);

const count = known(n => n < 100000 ? whole.format(Math.round(n)) : short.format(n));
const counted = (n, one, several = `${one}s`) => `${count(n)} ${n === 1 ? one : several}`;
const bytes = known(n => `${Math.round(n / 2 ** 20)} MB`);
const percent = known(n => `${(100 * n).toFixed(0)}%`);

const rate = known(n => {
  if (n === 0) return "0";
  return n < 10 ? n.toFixed(n < 0.1 ? 2 : 1) : count(n);
});

const ms = known(n => {
  if (n < 1000) return `${n < 10 ? n.toFixed(1) : Math.round(n)} ms`;
  return `${(n / 1000).toFixed(n < 10000 ? 2 : 1)} s`;
});

const share = known(n => {
  if (n > 0 && n < 0.001) return "<0.1%";
  if (n > 0.999 && n < 1) return ">99.9%";
  return `${(100 * n).toFixed(n > 0 && n < 0.1 ? 1 : 0)}%`;
});

const usd = known(n => {
  if (n === 0) return "$0";
  if (n < 0.0001) return "<$0.0001";
  if (n < 1) return `$${n.toPrecision(3)}`;
  return `$${n < 1000 ? n.toFixed(2) : count(n)}`;
});

const span = known(s => {
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min` : `${Math.floor(s / 86400)} days`;
});

// The share of `part` in `all`; null if `all` is 0.
const per = (part, all) => all > 0 ? Math.max(0, part) / all : null;
const sum = numbers => numbers.reduce((total, n) => total + n, 0);

// The quantile `q` in ms of counts in buckets with these upper bounds in seconds.
function quantile(q, counts, bounds) {
  const wanted = q * sum(counts);
  let below = 0;
  if (!wanted) return null;
  for (let at = 0; at < bounds.length; at++) {
    if (counts[at] > 0 && below + counts[at] >= wanted) {
      const low = at ? bounds[at - 1] : 0;
      return 1000 * (low + (bounds[at] - low) * (wanted - below) / counts[at]);
    }
    below += counts[at];
  }
  return 1000 * bounds.at(-1);
}
