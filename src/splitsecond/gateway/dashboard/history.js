// What the page has seen of the gateway in the last minutes. The gateway only counts; what happened in between is here.
const LATELY_S = 10.5;
const LEAST_SHOWN_S = 15;

class Past {
  samples = [];

  add(data) {
    data.workersByPid = new Map(data.workers.map(worker => [worker.pid, worker]));
    const goesOn = worker => data.workersByPid.get(worker.pid)?.up_s >= worker.up_s;  // in a container all have one number
    if (!this.last?.workers.some(goesOn)) this.samples = [];  // it began anew
    for (const kind of ["routes", "targets", "clients"]) {
      data[`${kind}ByName`] = new Map(data[kind].map(each => [each.name, each]));
    }
    this.samples.push(data);
    while (data.at_s - this.samples[0].at_s > SHOWN_S) this.samples.shift();
  }

  get last() { return this.samples.at(-1); }

  // The oldest one; null while that is too short ago to say anything, and then all counts since the beginning hold.
  get base() {
    const oldest = this.samples[0];
    return this.last.at_s - oldest.at_s >= LEAST_SHOWN_S ? oldest : null;
  }

  get words() { return this.base ? `Of the last ${span(this.last.at_s - this.base.at_s)}` : "Since the gateway began"; }

  // How much what `get` counts has grown since `base`. Others' counters come late, and so may seem to fall.
  grown(get, base = this.base) { return Math.max(0, (get(this.last) ?? 0) - (base ? get(base) ?? 0 : 0)); }

  // So much a second, lately; null where there is nothing to tell by.
  lately(get, at = this.samples.length - 1) {
    const here = this.samples[at];
    let from = at;
    while (from > 0 && here.at_s - this.samples[from - 1].at_s <= LATELY_S) from--;
    const passed_s = here.at_s - this.samples[from].at_s;
    return passed_s < 1 ? null : Math.max(0, (get(here) ?? 0) - (get(this.samples[from]) ?? 0)) / passed_s;
  }

  rates(get) { return this.samples.map((sample, at) => [sample.at_s, this.lately(get, at)]); }
  values(get) { return this.samples.map(sample => [sample.at_s, get(sample) ?? null]); }
}
