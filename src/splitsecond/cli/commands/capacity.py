from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

import typer

from splitsecond.benchmark.runs.planning import capacity_job
from splitsecond.benchmark.runs.settings import CapacitySettings
from splitsecond.cli import option_values
from splitsecond.cli.measuring import measure
from splitsecond.cli.options import USES, OutputTokens, of_limits, of_load
from splitsecond.cli.plan_file import plan_text, planned
from splitsecond.cli.run_options import RunOutputOptions, SessionOptions, with_options


@dataclass(frozen=True, kw_only=True)
class CapacityOptions(SessionOptions, RunOutputOptions):
    target: Annotated[
        str,
        typer.Argument(
            metavar="[TARGET]",
            help="provider/model, sim/PROFILE, engine/small, or the URL of a server.",
            show_default=False,
        ),
    ] = ""
    slo: Annotated[
        str,
        of_limits(
            metavar="LIMITS", help=f"Such as ttft=300ms,tpot=20ms,e2e=5s,tps=50, or one of {USES}."
        ),
    ] = "voice"
    share: Annotated[
        str, of_limits(metavar="SHARE", help="Share of the requests that must meet them.")
    ] = "95%"
    by_rate: Annotated[
        bool, of_load("--by-rate", help="Search by requests per second instead of concurrency.")
    ] = False
    first: Annotated[float, of_load("--from", metavar="N", help="The lowest load.")] = 1
    last: Annotated[float, of_load("--to", metavar="N", help="The highest load.")] = 256
    requests: Annotated[
        int | None,
        of_load(
            "-n",
            "--requests",
            metavar="N",
            help="Requests of a round of a step.",
            default="as many as the load needs",
        ),
    ] = None
    over: Annotated[
        str,
        of_load(
            metavar="TIME",
            help="Spread the rounds that confirm the result evenly over 15m or 2h, with pauses.",
        ),
    ] = ""
    output_tokens: OutputTokens = 128

    @property
    def named_targets(self) -> list[str]:
        return [option_values.full_address(self.target)] if self.target else []


@with_options(CapacityOptions)
def capacity(options: CapacityOptions) -> None:
    """Find the highest load at which a server meets its limits.

    \b
    splitsecond capacity mine=http://127.0.0.1:8000/v1 --slo voice --ignore-eos
    splitsecond capacity mine=http://127.0.0.1:11434/v1 --slo ttft=1s,tpot=50ms --to 16
    splitsecond capacity sim/runpod-h100-mistral-7b --by-rate --slo voice --price-per-hour 2.69
    splitsecond capacity sim/agent-vllm-h100 --sessions chat --slo ttft=200ms --to 64
    splitsecond capacity runs/monday/plan.toml

    The search doubles the load until the limits are missed, then closes in. A target that is paid
    by the token needs --max-cost.
    """
    options = planned(options)
    settings = options.settings(
        CapacitySettings,
        rate=options.by_rate,
        share=option_values.share(options.share, "--share"),
        over=option_values.seconds(options.over, "--over"),
        longest_wait=option_values.longest_wait(options.longest_wait, options.no_waits),
    )
    recorded = options.recorded(plan=plan_text(options, "capacity"))
    recorded.settings["from"] = recorded.settings.pop("first")  # by the options' names
    recorded.settings["to"] = recorded.settings.pop("last")
    with ExitStack() as started:
        code = measure(capacity_job(settings, started, recorded), options.output, options.max_cost)
    raise typer.Exit(code)
