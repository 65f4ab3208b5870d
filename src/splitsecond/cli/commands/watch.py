from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from splitsecond.benchmark.findings.gate import parse_gate
from splitsecond.benchmark.runs.option_forms import interval
from splitsecond.benchmark.runs.planning import watch_jobs
from splitsecond.benchmark.runs.settings import WatchSettings, at_least_one
from splitsecond.benchmark.runs.watching import Watch, accept_drifts
from splitsecond.cli.files import check_json
from splitsecond.cli.options import of_results
from splitsecond.cli.plan_file import plan_text, planned
from splitsecond.cli.results import Output
from splitsecond.cli.run_options import TargetOptions, with_options
from splitsecond.cli.watch_screen import WatchScreen


class WatchOptions(TargetOptions):
    of = WatchSettings

    out: Annotated[Path, of_results(metavar="FOLDER", help="The folder of all rounds.")] = Path(
        "watch"
    )
    accept: Annotated[
        bool,
        of_results("--accept", help="Acknowledge the drifts in the folder, and measure nothing."),
    ] = False


@with_options(WatchOptions)
def watch(options: WatchOptions) -> None:
    """Repeat a benchmark on a schedule, and report drift.

    \b
    splitsecond watch groq/openai/gpt-oss-120b cerebras/gpt-oss-120b --every 3h --max-cost 20
    splitsecond watch --base-url http://127.0.0.1:8000/v1 --model mine --every 30m --ignore-eos
    splitsecond watch groq/openai/gpt-oss-120b --times 1 --fail-if 'ttft_ms.p95 > +20%'
    splitsecond watch watch/plan.toml

    Each round is a run in a folder of its own, for `report`, `compare` and the gateway's warm
    start. Rounds that are in the folder already count as past rounds, so a watch that is started
    again continues. A round is judged by at least 8 rounds before it: one round outside its usual
    range is unusual, a lasting change is a drift. --max-cost covers all rounds in the folder. With
    --times the exit code is 1 if a --fail-if holds, if a target has drifted for the worse at the
    end, or if the last round failed as a whole. A drift that stays is reported, with this exit
    code, until somebody acknowledges it with --accept.
    """
    options = planned(options)
    check_json(options.json)
    every_ns = interval(options.every, "--every")
    plan = plan_text(options, "watch")
    screen = WatchScreen(options.out, Output(json=options.json, html=options.html), plan)
    if options.accept:
        screen.accepted(*accept_drifts(options.out, every_ns, screen))
        return
    at_least_one(times=options.times)
    gates = [parse_gate(text) for text in options.fail_if or ()]
    settings = options.settings(WatchSettings)
    with ExitStack() as started:
        job = watch_jobs(settings, started, options.recorded(plan=plan))
        rounds = Watch(job, options.out, every_ns, screen, max_cost=options.max_cost, gates=gates)
        code = screen.run(rounds, options.times)
    raise typer.Exit(code)
