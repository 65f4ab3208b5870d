import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from splitsecond.cli.agents import AGENTS, KEY, PLACES, agent_settings
from splitsecond.cli.commands.serve import check_profiles
from splitsecond.cli.options import CONFIG
from splitsecond.cli.running_gateway import gateway_address
from splitsecond.core.catalog.provider import is_foreign
from splitsecond.core.errors import CallerFault, file_faults, printable
from splitsecond.core.wording import listed
from splitsecond.routing.configuration import discovery, key_editing, key_files
from splitsecond.routing.configuration.checkup import check_policies
from splitsecond.routing.configuration.defaults import ROUTE, present
from splitsecond.routing.configuration.error_messages import SeveralMistakes
from splitsecond.routing.configuration.foreign_config import read_foreign
from splitsecond.routing.configuration.initial import PORT, InitialConfig, config_text, policy_text
from splitsecond.routing.configuration.key_files import write_key
from splitsecond.routing.configuration.reading import load
from splitsecond.routing.configuration.settings import GatewaySettings, summary
from splitsecond.routing.configuration.target_specs import NAME
from splitsecond.routing.configuration.warnings import problems
from splitsecond.routing.router.settings import OTHERS

SIMULATED_TARGETS = ("sim/groq", "sim/together")
QUESTION = "Hello"
MAX_TOKENS = 1_000
"""Limit of the printed requests: Anthropic's API requires one. Models that reason use some of it
before they answer."""
MAX_SIMULATED = 50
"""The same for simulated targets, which always write until the limit."""
MAX_PORT = 65_535


def init(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The configuration to write.")
    ] = CONFIG,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Carry over LiteLLM's configuration, or a list of models as for OpenRouter.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: use everything that is found.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing configuration.")
    ] = False,
    agent: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="AGENT",
            help="Print the settings of a client for the gateway of FILE, and write nothing: "
            f"{listed(AGENTS, 'or')}.",
            show_default=False,
        ),
    ] = "",
    url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The gateway's address for --for; default: that of FILE.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Write splitsecond.yaml from the keys and servers found here.

    \b
    splitsecond init --yes && splitsecond serve
    splitsecond init --from litellm.yaml
    splitsecond init --for claude-code

    Keys of providers are looked for in the environment, servers on the ports 8000, 8080, 11434 and
    30000. If there is neither, the targets are simulated, so the gateway can be tried at once. Asks
    at most three questions, and none with --yes or without a terminal. The client's key is written
    to FILE with the ending .key, readable by its owner only; an existing one is kept. With --from,
    names everything that cannot be carried over.
    """
    if agent:
        settings = load(file, os.environ, serving=False) if file.exists() else GatewaySettings()
        typer.echo(_settings_for(agent, settings, url), nl=False)
        typer.echo("\n".join(filter(None, [PLACES.get(agent), _where_key(file)])), err=True)
        return
    if file.exists() and not force:
        raise CallerFault(
            f"{file} exists",
            kind="file_taken",
            hint="Replace it with --force, or name another file.",
        )
    if file.suffix == ".key":
        raise CallerFault(f"{file}: the ending .key is for the client's key", kind="bad_option")
    config = _discovered(ask=not yes and _terminal()) if source is None else read_foreign(source)
    key_file = None
    if not config.key:
        key_file = file.with_suffix(".key")
        with file_faults(f"cannot write {key_file}", kind="unwritable_file"):
            _write_key(key_file)
        config = replace(config, key=f"file:{key_file.name}")
    with file_faults(f"cannot write {file}", kind="unwritable_file"):
        file.write_text(config_text(config), "utf-8")
    typer.echo(f"Wrote {file}{f' and {key_file}' if key_file else ''}.")
    for line in config.not_carried:
        typer.echo(f"Not carried over: {printable(line)}")
    _check(file)
    typer.echo(_next_steps(file, key_file, config))


def _settings_for(agent: str, settings: GatewaySettings, url: str) -> str:
    """Return the settings of `agent` for the gateway at `url`, or that of `settings`."""
    route = next((name for name in settings.routes if name != OTHERS), ROUTE)
    return agent_settings(agent, gateway_address(settings, url), route)


def _where_key(file: Path) -> str:
    """Return where the variable of these settings comes from: the first key of the configuration
    that is in a file."""
    keys = key_editing.entries(key_files.read_text(file)) if file.exists() else []
    for each in keys:
        kind, _, name = str(each.get("key")).partition(":")
        if kind == "file":
            return f"The key: export {KEY}=$(cat {shlex.quote(str(file.parent / name))})"
    return f"{KEY} is a key of the gateway."


def _terminal() -> bool:
    return sys.stdin.isatty()


def _discovered(*, ask: bool) -> InitialConfig:
    servers = discovery.find_servers()
    targets = [f"{each.name}/{next(iter(each.models))}" for each in servers]
    for server, target in zip(servers, targets, strict=True):
        typer.echo(f"Found a server at {server.base_url}: {target}")
    others = {each.name: [*each.models][1:6] for each in servers}
    comments = [
        f"{name} also serves {', '.join(models)}." for name, models in others.items() if models
    ]
    for each in present(os.environ):
        targets.append(f"{each.name}/{each.default_model}")
        typer.echo(f"Found {each.key_variable(os.environ)}: {targets[-1]}")
    if not targets:
        targets = list(SIMULATED_TARGETS)
        comments.append("sim/ targets are simulated: replace them by your own.")
        typer.echo(
            "Found no provider's key and no server, so the targets are simulated.\n"
            "Set a key, such as GROQ_API_KEY, and repeat this with --force."
        )
    route, port = ROUTE, PORT
    if ask:
        if len(targets) > 1:
            targets = _asked_targets(targets)
        route = _asked_route(route)
        port = _asked_port(port)
    return InitialConfig(
        routes={route: policy_text("fallback", targets)},
        providers={
            each.name: {"base_url": each.base_url} for each in servers if is_foreign(each.name)
        },
        port=port,
        comments=comments,
    )


def _asked_port(default: int) -> int:
    def port(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= MAX_PORT:
            raise typer.BadParameter(f"got {text}, expected a number from 1 to {MAX_PORT:,}")
        return int(text)

    answer: int = typer.prompt("Port", default=str(default), value_proc=port)
    return answer


def _asked_targets(targets: list[str]) -> list[str]:
    for number, target in enumerate(targets, 1):
        typer.echo(f"  {number}  {target}")
    every = ",".join(str(number) for number in range(1, len(targets) + 1))

    def chosen(text: str) -> list[str]:
        numbers = [each.strip() for each in text.split(",")]
        if not all(each.isdecimal() and 1 <= int(each) <= len(targets) for each in numbers):
            raise typer.BadParameter(
                f"got {text}, expected numbers from 1 to {len(targets)}, such as {every}"
            )
        return [targets[int(each) - 1] for each in dict.fromkeys(numbers)]

    answer: list[str] = typer.prompt(
        "Targets in the order in which to try them", default=every, value_proc=chosen
    )
    return answer


def _asked_route(default: str) -> str:
    def route_name(text: str) -> str:
        if not NAME.fullmatch(text):
            raise typer.BadParameter(
                f"got {text}, expected letters, digits, dots and dashes, at most 64"
            )
        return text

    answer: str = typer.prompt(
        "Name that clients give as the model", default=default, value_proc=route_name
    )
    return answer


def _write_key(path: Path) -> None:
    """Write a fresh client key that only the owner can read; keep that of an existing file."""
    if path.exists():
        path.chmod(0o600)
    else:
        write_key(path)


def _check(file: Path) -> None:
    """Check the configuration as `serve` would. Missing keys and addresses are reported: they can
    be set later."""
    load(file, os.environ, serving=False)
    try:
        settings = load(file, os.environ, checks=(check_profiles, check_policies))
    except CallerFault as fault:
        mistakes = fault.mistakes if isinstance(fault, SeveralMistakes) else [fault]
        first: dict[str, CallerFault] = {}
        for each in mistakes:
            # a key that several routes need is named once
            first.setdefault(each.hint or each.message, each)
        for each in first.values():
            typer.echo(f"Before it can serve: {each}")
        return
    for words in problems(settings):
        typer.echo(f"Problem: {words}")
    typer.echo(f"It is valid: {summary(settings)}.")


def _next_steps(file: Path, key_file: Path | None, config: InitialConfig) -> str:
    url, route = f"http://127.0.0.1:{config.port}/v1", next(iter(config.routes))
    variable = config.key.removeprefix("env:")
    shell_key = f"$(cat {shlex.quote(str(key_file))})" if key_file else f"${variable}"
    python_key = (
        f"open({str(key_file)!r}).read().strip()" if key_file else f'os.environ["{variable}"]'
    )
    most = (
        MAX_SIMULATED
        if any(target in config.routes[route] for target in SIMULATED_TARGETS)
        else MAX_TOKENS
    )
    body = json.dumps(
        {"model": route, "max_tokens": most, "messages": [{"role": "user", "content": QUESTION}]}
    )
    # in one line it is longer than a terminal
    body = body.replace(' "messages"', '\n           "messages"')
    serve = "splitsecond serve" if file == CONFIG else f"splitsecond serve {shlex.quote(str(file))}"
    return f"""
Start the gateway:

    {serve}

Then, in another terminal:

    curl {url}/chat/completions -H "Authorization: Bearer {shell_key}" \\
      -H "Content-Type: application/json" \\
      -d '{body}'

Or in Python (pip install openai):

    {"from openai import OpenAI" if key_file else "import os; from openai import OpenAI"}
    client = OpenAI(base_url="{url}", api_key={python_key})
    messages = [{{"role": "user", "content": "{QUESTION}"}}]
    reply = client.chat.completions.create(model="{route}", max_tokens={most}, messages=messages)
    print(reply.choices[0].message.content)"""
