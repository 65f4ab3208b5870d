"""Reproduce the tables of a published benchmark: `python -m benchmarks.reproduce_published` (about
ten minutes).

Five simulated providers draw their times from the three tables of General Compute's "LLM Token
Generation Speed: How Providers Compare in 2025" (June 2025: Llama 3.1 70B, 512 tokens in, 512 out,
50 requests at concurrency 1, 8 and 32). `splitsecond bench` measures them with that article's
settings over real sockets. Its results are compared with the tables: each p50 must be within 5%,
each p95 within 15%. The exit code is 1 if one is not.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.runs.planning import Recorded, bench_job
from splitsecond.benchmark.runs.settings import BenchSettings
from splitsecond.cli.commands.demo import PROVIDERS
from splitsecond.cli.measuring import measure
from splitsecond.cli.results import Output
from splitsecond.core.wording import SIMULATED
from splitsecond.log.store.folder import read_run
from splitsecond.simulator.profile import TableRow, load

LEVELS = (1, 8, 32)
REQUESTS = 50
TOKENS = 512
ALLOWED = {"p50": 0.05, "p95": 0.15}


def measured(folder: Path) -> Run:
    """Run the benchmark into `folder`."""
    settings = BenchSettings(
        targets=[SIMULATED + provider for provider in PROVIDERS],
        concurrency=LEVELS,
        requests=REQUESTS,
        input_tokens=TOKENS,
        output_tokens=TOKENS,
        quick=True,
        side_by_side=True,
    )
    with ExitStack() as started:
        measure(bench_job(settings, started, Recorded()), Output(folder=folder, html=False))
    return read_run(folder, Run)


def deviations(
    published: TableRow, found: ConditionFindings
) -> list[tuple[str, float, float | None, bool]]:
    """Return each figure of a published row: its name, the published and the measured value, and if
    they are close."""
    rows = []
    for figure, spread, quantiles in (
        ("TTFT", found.ttft_ms, published.ttft_ms),
        ("TPS", found.tps, published.tps),
    ):
        for percentile, allowed in ALLOWED.items():
            value: float | None = getattr(spread, percentile)
            truth: float = getattr(quantiles, percentile)
            near = value is not None and abs(value / truth - 1) <= allowed
            rows.append((f"{figure} {percentile}", truth, value, near))
    return rows


def main() -> int:
    """Print the comparison as Markdown tables; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        run = measured(Path(folder) / "run")
    found = {(c.target, c.concurrency): c for c in run.conditions}
    wrong = 0
    for level in LEVELS:
        print(f"\n### Concurrency {level}\n")
        print(
            "| provider | TTFT p50, ms | TTFT p95, ms | TPS p50 | TPS p95 | errors "
            "|\n|---|---|---|---|---|---|"
        )
        for provider in PROVIDERS:
            row = next(row for row in load(provider).table if row.concurrency == level)
            condition = found[SIMULATED + provider, level]
            cells = []
            for _, truth, value, near in deviations(row, condition):
                wrong += not near
                change = "missing" if value is None else f"{value:,.0f} ({value / truth - 1:+.1%})"
                cells.append(f"{truth:,.0f} → {change}" + ("" if near else " **off**"))
            wrong += condition.errors
            print(f"| {provider} | {' | '.join(cells)} | {condition.errors} |")
    print(f"\nPublished → measured (deviation). Deviations above the limit, and failures: {wrong}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
