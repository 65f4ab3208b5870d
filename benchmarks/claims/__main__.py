"""Try the claims about speed that the field repeats: `python -m benchmarks.claims` (about half an
hour).

Each experiment sends real requests through the public API to simulated providers with published
speeds, measures with and without the optimisation, and compares each case with what the claim says
about it. A claim that holds only under a condition is measured on both sides of it. All experiments
run several times, which gives each value its interval. The program writes docs/reference/claims.md
with one plot for each claim.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import latency, throughput
from benchmarks.claims.judged import PICTURES, chart, repeated, section

DOCS = Path(__file__).parents[2] / "docs"
RUNS = 5
EXPERIMENTS = [
    throughput.PARALLEL, throughput.BATCHING, throughput.CASCADING, throughput.PIPELINED,
    latency.RACING,
    latency.STREAMING, latency.REGIONS, latency.CAPPING, latency.LENGTH, latency.AGENTS,
    throughput.BREAK_EVEN,
]  # fmt: skip

HEAD = f"""# Claims about optimisation, tried

Articles about fast inference repeat the same claims. Here each one is measured: real requests go
through Splitsecond's policies to simulated providers with published speeds, with and without the
optimisation. A simulated provider shows what follows from its speed. It cannot show how a real
one behaves on a given day, so measure your own: `splitsecond bench --policy '…'`.

`python -m benchmarks.claims` wrote this page. Each value is the mean of {RUNS} runs, with the 95%
interval of that mean. The verdict compares the interval with what the claim says about this case:
*as claimed* if all of it lies in the claimed range, *less* or *more* if all of it lies outside,
otherwise *cannot tell*. A range has the ends that the article writes; a single number stands for
what rounds to it (0.7 for 0.65 to 0.75). "–": the claim says nothing about this case, as about a
baseline.
"""


async def run(names: Sequence[str]) -> list[str]:
    """Run the experiments one after another, so that they do not disturb each other, and return
    their sections."""
    sections = []
    for experiment in EXPERIMENTS:
        if names and experiment.claim.name not in names:
            continue
        runs = []
        for number in range(RUNS):
            print(f"{experiment.claim.name}, run {number + 1} of {RUNS} …", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                runs.append(await experiment.measure(Path(folder)))
        cases = repeated(runs)
        sections.append(section(experiment, cases))
        print(sections[-1], flush=True)
        (DOCS / PICTURES / f"{experiment.claim.name}.svg").write_text(
            chart(experiment.claim, cases), encoding="utf-8"
        )
    return sections


def updated(page: str, sections: Sequence[str]) -> str:
    """Return the page with these sections in the place of those with the same title; the others
    stay."""
    parts = dict.fromkeys(f"## {each.claim.title}\n" for each in EXPERIMENTS)
    for each in [*("## " + part for part in page.split("\n## ")[1:]), *sections]:
        title = each[: each.index("\n") + 1]
        if title in parts:
            parts[title] = each.strip() + "\n"
    return "\n".join([HEAD, *(part for part in parts.values() if part)])


def main() -> None:
    """Run all experiments, or some, and write their sections of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help=", ".join(each.claim.name for each in EXPERIMENTS))
    sections = asyncio.run(run(parser.parse_args().name))
    page = DOCS / "reference/claims.md"
    page.write_text(updated(page.read_text(encoding="utf-8"), sections), encoding="utf-8")


if __name__ == "__main__":
    main()
