"""A program that adds two entries to the table of figures and writes every output that must have
them.

It is a process of its own, because the rows of findings get their fields from the table at import.
Usage: python with_new_metrics.py FOLDER
"""

import io
import json
import sys
from pathlib import Path

from splitsecond.benchmark.rows import figures
from splitsecond.benchmark.rows.metric import Figure, Total
from splitsecond.core.clock import NS_PER_MS


def add_metrics() -> None:
    """Add a figure of a request and a number of a row."""
    figures.FIGURES["head_ms"] = Figure(
        name="head_ms",
        label="time to headers",
        unit="ms",
        group="Latency",
        definition="From the first byte of the request to the response headers.",
        of=lambda o: None if o.head_ns is None or o.sent_ns is None else o.head_ns - o.sent_ns,
        main=True,
        listed=("p99",),
        compared=True,
        stated=True,
    )
    figures.TOTALS["error_share"] = Total(
        name="error_share",
        label="error share",
        unit="share",
        group="System",
        definition="Failed requests divided by requests.",
        of=lambda row: row.errors / row.requests if row.requests else None,
        higher_is_better=False,
        main=True,
        compared=True,
    )


ROUNDS = 5
"""What a comparison needs at least."""


def main(folder: Path) -> None:
    """Write each output into `folder`."""
    add_metrics()
    import msgspec  # the table must be complete before any of these is imported
    from rich.console import Console
    from tests.report.invented import invented_run

    from splitsecond.api.results import BenchRun
    from splitsecond.benchmark.findings.compare import RunData, compare
    from splitsecond.benchmark.findings.gate import parse_gate
    from splitsecond.benchmark.report.definitions import figures_page
    from splitsecond.benchmark.report.run_page import render_run
    from splitsecond.benchmark.report.terminal import comparison_table, run_table
    from splitsecond.benchmark.rows.records import Run

    run, one_round = invented_run(concurrencies=(1,), requests=20)
    observations = [
        msgspec.structs.replace(o, round=1 + place % ROUNDS) for place, o in enumerate(one_round)
    ]
    encoded = msgspec.json.encode(run)
    (folder / "run.json").write_bytes(encoded)
    run = msgspec.json.decode(encoded, type=Run)
    slower = [
        msgspec.structs.replace(o, head_ns=(o.head_ns or 0) + 300 * NS_PER_MS) for o in observations
    ]
    comparison = compare([RunData(run, observations)], [RunData(run, slower)])
    (folder / "compare.json").write_bytes(msgspec.json.encode(comparison))
    for name in ("run", "compare"):
        text = io.StringIO()
        console = Console(file=text, width=250)
        run_table(run, console) if name == "run" else comparison_table(comparison, console)
        (folder / f"{name}.txt").write_text(text.getvalue(), encoding="utf-8")
    gates = ("head_ms.p50 > 0", "error_share >= 0")
    breaches = [breach for gate in gates for breach in parse_gate(gate).check(run.conditions)]
    (folder / "gates.txt").write_text("\n".join(breaches), encoding="utf-8")
    (folder / "report.html").write_text(render_run(run, observations), encoding="utf-8")
    (folder / "figures.md").write_text(figures_page(), encoding="utf-8")
    frame = BenchRun(run, observations, folder).to_frame(backend="pandas")
    (folder / "columns.json").write_text(
        json.dumps(frame.to_dict("list"), default=str), encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
