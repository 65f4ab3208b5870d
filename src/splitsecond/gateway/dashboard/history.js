// The gateway's counters of the last minutes. The gateway only counts; differences and rates are computed here.
const RATE_S = 10.5;
const LEAST_SHOWN_S = 15;

class Samples {
  all = [];

  add(data) {
    data.workersByPid = new Map(data.workers.map(worker => [worker.pid, worker]));
    // In a container, the processes of two gateways have the same number.
    const goesOn = worker => data.workersByPid.get(worker.pid)?.up_s >= worker.up_s;
    if (!this.last?.workers.some(goesOn)) this.all = [];  // the gateway restarted
    for (const kind of ["routes", "targets", "clients"]) {
      data[`${kind}ByName`] = new Map(data[kind].map(each => [each.name, each]));
    }
    this.all.push(data);
    while (data.at_s - this.all[0].at_s > SHOWN_S) this.all.shift();
  }

  get last() { return this.all.at(-1); }

  // The oldest sample. Null while it is too recent to compute differences: then counts since the gateway's start apply.
  get base() {
    const oldest = this.all[0];
    return this.last.at_s - oldest.at_s >= LEAST_SHOWN_S ? oldest : null;
  }

  get period() { return this.base ? `the last ${span(this.last.at_s - this.base.at_s)}` : "the time since start"; }

  // The growth of the counter `get` since `base`. Counters of other workers arrive late, so a difference may be negative.
  growth(get, base = this.base) { return Math.max(0, (get(this.last) ?? 0) - (base ? get(base) ?? 0 : 0)); }

  // The recent growth per second; null without an earlier sample to compare with.
  perSecond(get, at = this.all.length - 1) {
    const here = this.all[at];
    let from = at;
    while (from > 0 && here.at_s - this.all[from - 1].at_s <= RATE_S) from--;
    const passed_s = here.at_s - this.all[from].at_s;
    return passed_s < 1 ? null : Math.max(0, (get(here) ?? 0) - (get(this.all[from]) ?? 0)) / passed_s;
  }

  rates(get) { return this.all.map((sample, at) => [sample.at_s, this.perSecond(get, at)]); }
  values(get) { return this.all.map(sample => [sample.at_s, get(sample) ?? null]); }
}
