"""Options that several commands take, so that what is called, sent and paid is asked for in the same words."""

from pathlib import Path
from typing import Annotated

import typer

TARGETS = "What to run"
LOAD = "How hard to press"
REQUESTS = "What to send"
MONEY = "What it may cost"
RESULTS = "Where the results go"

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET...",
        help="provider/model, sim/PROFILE (simulated) or engine/small (llama.cpp, random weights).",
        show_default=False,
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="RULE",
        help='A rule over targets, timed like one: \'race("a/x", "b/x")\'.',
        rich_help_panel=TARGETS,
    ),
]
BaseUrl = Annotated[str, typer.Option(metavar="URL", help="Any OpenAI-compatible endpoint.", rich_help_panel=TARGETS)]
Model = Annotated[str, typer.Option(metavar="NAME", help="Its model.", rich_help_panel=TARGETS)]
ApiKeyEnv = Annotated[
    str, typer.Option(metavar="VAR", help="The variable that holds its key.", rich_help_panel=TARGETS)
]
Dialect = Annotated[
    str, typer.Option(help="What it speaks: openai, anthropic, …", show_default="openai", rich_help_panel=TARGETS)
]
Name = Annotated[str, typer.Option(help="What reports call it.", rich_help_panel=TARGETS)]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="'NAME: VALUE'", help="A header for every request.", rich_help_panel=TARGETS),
]
Warmup = Annotated[
    int | None,
    typer.Option(help="Warm-up requests for each block.", show_default="the concurrency", rich_help_panel=LOAD),
]
Seed = Annotated[int, typer.Option(help="Decides arrivals, order and prompts.", rich_help_panel=LOAD)]
OutputTokens = Annotated[int, typer.Option(help="Length of the answers.", rich_help_panel=REQUESTS)]
Prompts = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Prompts from JSON lines with OpenAI messages.", rich_help_panel=REQUESTS),
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Full-length answers (vLLM, llama.cpp).", rich_help_panel=REQUESTS)
]
Body = Annotated[str, typer.Option(metavar="JSON", help="Further fields of every request.", rich_help_panel=REQUESTS)]
Timeout = Annotated[float, typer.Option(metavar="S", help="Longest wait for a first token.", rich_help_panel=REQUESTS)]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="[TARGET=]IN,OUT",
        help="US dollars for a million tokens in and out, where nobody knows them or you pay others.",
        rich_help_panel=MONEY,
    ),
]
PricesPerHour = Annotated[
    list[str] | None,
    typer.Option(
        "--price-per-hour",
        metavar="[TARGET=]USD",
        help="What a machine of your own costs.",
        rich_help_panel=MONEY,
    ),
]

Log = Annotated[str, typer.Option(metavar="URL", help="The gateway's log; that of splitsecond.yaml, if none is named.")]
LogConfig = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The gateway's configuration.", show_default=False)
]
Days = Annotated[float, typer.Option(help="How many days to look back.")]
LogJson = Annotated[str, typer.Option("--json", metavar="FILE", help="The same as JSON; - for standard output.")]
