from contextlib import ExitStack
from typing import Annotated

import typer

from splitsecond.benchmark.runs.planning import capacity_job
from splitsecond.benchmark.runs.settings import CapacitySettings
from splitsecond.cli import option_values
from splitsecond.cli.measuring import measure
from splitsecond.cli.plan_file import plan_text, planned
from splitsecond.cli.run_options import RunOutputOptions, SessionOptions, with_options


class CapacityOptions(SessionOptions, RunOutputOptions):
    of = CapacitySettings
    left_out = ("policy_file",)

    target: Annotated[
        str,
        typer.Argument(
            metavar="[TARGET]",
            help="provider/model, sim/PROFILE, engine/small, or the URL of a server.",
            show_default=False,
        ),
    ] = ""

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
    settings = options.settings(CapacitySettings)
    recorded = options.recorded(plan=plan_text(options, "capacity"))
    recorded.settings["from"] = recorded.settings.pop("first")  # by the options' names
    recorded.settings["to"] = recorded.settings.pop("last")
    with ExitStack() as started:
        code = measure(capacity_job(settings, started, recorded), options.output, options.max_cost)
    raise typer.Exit(code)
