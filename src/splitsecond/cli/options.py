"""The options of several commands, each declared once."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from splitsecond.core.option import PANELS


def option(*names: str, default: str = "", **more: Any) -> Any:
    """Return a `typer.Option`. `default` describes the default in words, where the value itself
    says nothing."""
    if default:
        more |= {"help": f"{more['help']} Default: {default}.", "show_default": False}
    return typer.Option(*names, **more)


of_targets, of_limits, of_load, of_requests, of_cost, of_results = (
    partial(option, rich_help_panel=panel) for panel in PANELS[1:]
)

API_FORMATS = "openai, anthropic, gemini, ollama, cohere, responses or replicate"
"""The keys of `core.upstream.target.API_FORMATS`, whose import is slow."""

CONFIG = Path("splitsecond.yaml")

TargetNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET...",
        help="provider/model, sim/PROFILE (simulated), engine/small (llama.cpp, random weights), "
        "or the [NAME=]URL of a server.",
        show_default=False,
    ),
]
BaseUrl = Annotated[
    list[str] | None,
    of_targets(
        "--base-url", metavar="[NAME=]URL", help="Any OpenAI-compatible server. Repeatable."
    ),
]
Model = Annotated[
    str,
    of_targets(metavar="NAME", help="The model of --base-url.", default="the only one it lists"),
]
ApiKeyEnv = Annotated[
    str, of_targets(metavar="VAR", help="Environment variable with the key of --base-url.")
]
ApiFormat = Annotated[
    str,
    of_targets(
        metavar="FORMAT",
        help=f"API format of --base-url: {API_FORMATS}.",
        default="openai",
    ),
]
Log = Annotated[
    str,
    typer.Option(metavar="URL", help="The log; default: that of splitsecond.yaml, or of `run`."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The gateway's configuration; default: splitsecond.yaml, if it exists.",
        show_default=False,
    ),
]
Policies = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A Python file with policies of your own; default: that of the configuration.",
        show_default=False,
    ),
]
GatewayUrl = Annotated[
    str,
    typer.Option(metavar="URL", help="The gateway's address; default: that of the configuration."),
]
GatewayKey = Annotated[
    str,
    typer.Option(
        "--api-key-env",
        metavar="NAME",
        help="Variable with a client key for all routes, for a remote gateway.",
    ),
]
Days = Annotated[float, typer.Option(metavar="N", help="Days to look back.")]
Since = Annotated[str, typer.Option(metavar="TIME", help="How far to look back: 30m, 12h, 14d.")]
Today = Annotated[
    str,
    typer.Option(
        metavar="POLICY", help="Its policy in that time. Default: that of the configuration."
    ),
]
Json = Annotated[
    str,
    typer.Option("--json", metavar="FILE", help="Write the results as JSON; - is standard output."),
]
JsonOfCounts = Annotated[
    str,
    typer.Option("--json", metavar="FILE", help="Write the counts as JSON; - is standard output."),
]
Csv = Annotated[
    str, typer.Option("--csv", metavar="FILE", help="Write the rows as CSV; - is standard output.")
]
Markdown = Annotated[
    str,
    typer.Option(
        "--markdown", metavar="FILE", help="Write the tables as Markdown; - is standard output."
    ),
]


def config_file(path: Path | None) -> Path | None:
    """Return `path`, otherwise the default file, or None if that does not exist."""
    return path or (CONFIG if CONFIG.exists() else None)
