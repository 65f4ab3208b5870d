"""The options that bench, watch and capacity share, and what they make of them.

The options of a command are the fields of a dataclass. `with_options` makes a command of a function
that takes one.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from splitsecond.benchmark.runs.planning import Recorded
from splitsecond.benchmark.runs.settings import RunSettings, Server
from splitsecond.cli import option_values
from splitsecond.cli.options import (
    PANELS,
    ApiFormat,
    ApiKeyEnv,
    BaseUrl,
    Model,
    RunConfig,
    TargetNames,
    of_cost,
    of_load,
    of_requests,
    of_results,
    of_targets,
)
from splitsecond.cli.results import Output

Options = TypeVar("Options")
Settings = TypeVar("Settings", bound=RunSettings)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    base_url: BaseUrl = None
    model: Model = ""
    name: Annotated[str, of_targets(metavar="NAME", help="Name of --base-url in reports.")] = ""
    api_key_env: ApiKeyEnv = ""
    api_format: ApiFormat = ""
    config: RunConfig = None
    header: Annotated[
        list[str] | None, of_targets(metavar="'NAME: VALUE'", help="HTTP header of every request.")
    ] = None
    warmup: Annotated[
        int | None,
        of_load(metavar="N", help="Warm-up requests before each block.", default="the concurrency"),
    ] = None
    on: Annotated[
        str,
        of_load(
            metavar="CLUSTER",
            help="Send the requests from the nodes of a Ray cluster: ray://HOST:PORT, or ray for "
            "this machine's own.",
        ),
    ] = ""
    seed: Annotated[int, of_load(metavar="N", help="Seed of arrivals, order and prompts.")] = 0
    clock: Annotated[
        str,
        of_load(
            metavar="CLOCK",
            help="What arrival times are taken from: packets, kernel or process.",
            default="packets where allowed",
        ),
    ] = ""
    itl: Annotated[
        str,
        of_load(
            metavar="exact",
            help="Read every token promptly, also without the packet clock: ITL at 100 streams "
            "and more.",
        ),
    ] = ""
    input_tokens: Annotated[
        int | None,
        of_requests(
            metavar="N",
            help="Length of the prompts in tokens, by the server's count.",
            default="512",
        ),
    ] = None
    prompts: Annotated[
        Path | None,
        of_requests(
            metavar="FILE",
            help="Prompts from a file: JSON lines with messages or a "
            "prompt, ShareGPT, or plain text.",
        ),
    ] = None
    images: Annotated[
        str,
        of_requests(
            metavar="WxH[,N][,jpeg]",
            help="Add N synthetic images of this size to each request, such as 1024x1024,2 or "
            "1024x1024,jpeg. Default: PNG.",
        ),
    ] = ""
    ignore_eos: Annotated[
        bool, of_requests("--ignore-eos", help="Request full-length responses (vLLM, llama.cpp).")
    ] = False
    body: Annotated[str, of_requests(metavar="JSON", help="Further fields of every request.")] = ""
    timeout: Annotated[
        float, of_requests(metavar="S", help="Longest wait for the first token.")
    ] = 120.0
    price: Annotated[
        list[str] | None,
        of_cost(
            metavar="[TARGET=]IN,OUT",
            help="US dollars per million tokens in and out, if unknown or different for you.",
        ),
    ] = None
    price_per_hour: Annotated[
        list[str] | None,
        of_cost(metavar="[TARGET=]USD", help="US dollars per hour of a rented machine."),
    ] = None
    owned: Annotated[
        list[str] | None,
        of_cost(
            metavar="[TARGET=]USD,YEARS,WATTS,USD/KWH",
            help="Your own machine: price, life, power, price of electricity. Or a known one: "
            "rtx-4090,YEARS,USD/KWH.",
        ),
    ] = None
    usd_per_kwh: Annotated[
        float | None,
        of_cost(metavar="USD", help="Price of electricity, for the energy of GPUs that are read."),
    ] = None
    max_cost: Annotated[
        float | None,
        of_cost(metavar="USD", help="Stop before this cost and keep the results so far."),
    ] = None
    location: Annotated[
        str,
        of_results(
            metavar="PLACE",
            help="Where this machine stands, for the report.",
            default="what the machine reports",
        ),
    ] = ""
    metrics: Annotated[
        list[str] | None,
        of_targets(
            metavar="[TARGET=]URL",
            help="A further page of metrics to read during the run, of a server or of GPUs. "
            "Repeatable.",
        ),
    ] = None
    no_metrics: Annotated[
        bool,
        of_targets(
            "--no-metrics", help="Do not look for the metrics of servers and GPUs, and read none."
        ),
    ] = False
    json: Annotated[
        str, of_results(metavar="FILE", help="Write the results as JSON; - is standard output.")
    ] = ""
    html: Annotated[bool, of_results(help="Write report.html.")] = True

    @property
    def named_targets(self) -> list[str]:
        return [*map(option_values.full_address, vars(self).get("targets") or [])]

    @property
    def servers(self) -> list[Server]:
        urls = [*(self.base_url or []), *(each for each in self.named_targets if "://" in each)]
        return option_values.servers(urls, self.model, self.name, self.api_key_env, self.api_format)

    def settings(self, kind: type[Settings], **parsed: Any) -> Settings:
        """Return the settings: `parsed` ones, and each other option under its own name. Raises
        `CallerFault`."""
        named = self.named_targets
        found = {
            name: value for name, value in vars(self).items() if name in kind.__struct_fields__
        }
        found |= {
            "targets": [each for each in named if "://" not in each],
            "policies": vars(self).get("policy") or [],
            "servers": self.servers,
            "headers": option_values.headers(self.header or []),
            "metrics": self.metrics or [],
            "body": option_values.json_object(self.body, "--body"),
            "prices": option_values.prices(
                self.price or [], self.price_per_hour or [], self.owned or []
            ),
        }
        return kind(**(found | parsed))

    def recorded(self, *, input_tokens: int | str | None = None, plan: str = "") -> Recorded:
        given = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(self).items()
        }
        given["input_tokens"] = input_tokens or self.input_tokens or 512
        if given.get("sessions"):  # which say how long their prompts are
            del given["input_tokens"]
        return Recorded(
            command=["splitsecond", *sys.argv[1:]],
            settings={
                name: value
                for name, value in given.items()
                if isinstance(value, str | int | float | list)
            },
            plan=plan,
        )


@dataclass(frozen=True, kw_only=True)
class TargetOptions(RunOptions):
    targets: TargetNames = None
    policy: Annotated[
        list[str] | None,
        of_targets(
            metavar="POLICY",
            help='A policy over targets, measured like a target: \'race("a/x", "b/x")\'.',
        ),
    ] = None
    policy_file: Annotated[
        Path | None,
        of_targets("--policies", metavar="FILE", help="A Python file with policies of your own."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunOutputOptions(RunOptions):
    out: Annotated[
        Path | None, of_results(metavar="FOLDER", help="The run's folder.", default="runs/ID")
    ] = None
    processes: Annotated[
        int | None,
        of_load(
            metavar="N",
            help="Maximum client processes per row; with --on, nodes.",
            default="number of cores; all nodes",
        ),
    ] = None
    verbose: Annotated[
        bool,
        of_results(
            "--verbose", help="Print all figures and findings, and the error of the instrument."
        ),
    ] = False
    png: Annotated[bool, of_results("--png", help="Also write the plots as PNG files.")] = False
    csv: Annotated[
        str,
        of_results("--csv", metavar="FILE", help="Write the rows as CSV; - is standard output."),
    ] = ""
    markdown: Annotated[
        str,
        of_results(
            "--markdown", metavar="FILE", help="Write the tables as Markdown; - is standard output."
        ),
    ] = ""

    @property
    def output(self) -> Output:
        return Output(
            folder=self.out,
            json=self.json,
            html=self.html,
            png=self.png,
            csv=self.csv,
            markdown=self.markdown,
            verbose=self.verbose,
        )


@dataclass(frozen=True, kw_only=True)
class SessionOptions(RunOptions):
    sessions: Annotated[
        str,
        of_requests(
            metavar="WHAT",
            help="Send sessions; the load is then their number at a time. WHAT is agent, chat, or "
            "a file: WEKA, "
            "MLPerf, TraceLab, OpenTelemetry spans, messages, or ours.",
        ),
    ] = ""
    longest_wait: Annotated[
        str,
        of_requests(
            metavar="TIME", help="With --sessions: longest tool time before a turn.", default="10s"
        ),
    ] = ""
    no_waits: Annotated[
        bool, of_requests("--no-waits", help="With --sessions: leave tool times out.")
    ] = False
    answers: Annotated[
        str,
        of_requests(
            metavar="server|recorded",
            help="With --sessions: a turn contains the answer that the server gave, or filler of "
            "the recorded length.",
        ),
    ] = "server"


def with_options(
    kind: type[Options], first: Sequence[str] = ()
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of a function that takes a `kind`: a dataclass whose fields are the options.

    `first`: the options that `--help` shows, and `--help-all` has all; empty: `--help` shows all.
    Within a panel of help, the fields of a subclass stand before those of its bases.
    """

    def decorate(function: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**values: Any) -> None:
            function(kind(**values))

        hints = get_type_hints(kind, include_extras=True)
        parameters = [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in sorted(
                _own_first(kind), key=lambda field: PANELS.index(_panel(hints[field.name]))
            )
        ]
        command.first_options = first  # type: ignore[attr-defined] # what `help.Command` reads
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # what `inspect.signature` reads
        return command

    return decorate


def _own_first(kind: type) -> Iterator[Field[Any]]:
    known = {field.name: field for field in fields(kind)}
    for each in kind.__mro__:
        for name in getattr(each, "__annotations__", {}):
            if name in known:
                yield known.pop(name)


def _panel(annotation: Any) -> str:
    return next((option.rich_help_panel or "" for option in annotation.__metadata__), "")
