"""Coding agents and their settings: the variables that name an API's address, and what each program
needs beside them.

Clients do not agree on what the address contains: OpenAI's has ``/v1``, the others add the whole
path themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from splitsecond.core.catalog.provider import provider
from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import nearest

NO_KEY = "splitsecond"
"""Stands for a key where a client refuses to start without one, and no target gets it."""
PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_ADDRESSES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "anthropic": ("ANTHROPIC_BASE_URL", "/v1", ("ANTHROPIC_API_BASE",)),
    "openai": ("OPENAI_BASE_URL", "", ("OPENAI_API_BASE",)),
    "openai-responses": ("OPENAI_BASE_URL", "", ()),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "/v1beta", ("GEMINI_API_BASE",)),
    "ollama": ("OLLAMA_HOST", "", ("OLLAMA_API_BASE",)),
}
"""By vendor: the variable with its address, the end of the path that clients add to it, and other
clients' names."""
_SUFFIXES: Mapping[str, str] = {
    "OPENAI_BASE_URL": "/v1",
    "OPENAI_API_BASE": "/v1",
    "GEMINI_API_BASE": "/v1beta",
}
"""What clients expect at the end of the variable's value."""
_ARGUMENTS: Mapping[str, Sequence[str]] = {
    # With the login of a subscription it compresses requests, which the gateway would have to read.
    "codex": (
        "-c",
        'openai_base_url="{origin}/v1"',
        "-c",
        "features.enable_request_compression=false",
    )
}
"""Arguments of programs that read none of the variables."""
VENDORS = tuple(_ADDRESSES)
CHATGPT_URL = "https://chatgpt.com/backend-api/codex"
"""Where Codex sends requests with the login of a ChatGPT subscription."""


def vendor_addresses(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the base URL of each vendor: the catalogue's, or that of the variable with which
    clients replace it."""
    addresses = {}
    for vendor, (variable, path, _) in _ADDRESSES.items():
        address = environment.get(variable, "").strip().rstrip("/")
        if address and "://" not in address:
            address = f"http://{address}"  # OLLAMA_HOST may be HOST:PORT
        addresses[vendor] = (
            address.removesuffix(path) + path if address else provider(vendor).base_url
        )
    return addresses


def command_line(program: Sequence[str], origin: str) -> list[str]:
    """Return the command line of `program` with the arguments that send it to the gateway at
    `origin`."""
    added = _ARGUMENTS.get(Path(program[0]).name, ())
    return [program[0], *(each.format(origin=origin) for each in added), *program[1:]]


def client_variables(
    origin: str, environment: Mapping[str, str], *, keys: bool = False
) -> dict[str, str]:
    """Return the variables that send clients to the gateway at `origin`.

    `keys`: also keys where none is set, for clients that refuse to start without one.
    """
    names = [name for variable, _, others in _ADDRESSES.values() for name in (variable, *others)]
    values = {name: origin + _SUFFIXES.get(name, "") for name in names}
    if keys:
        variables = [name for vendor in VENDORS for name in provider(vendor).api_key_env]
        values |= {name: NO_KEY for name in variables if not environment.get(name)}
    if any(environment.get(name) for name in PROXIES):
        for name in ("NO_PROXY", "no_proxy"):
            values[name] = ",".join(filter(None, [environment.get(name), "127.0.0.1"]))
    return values


KEY = "SPLITSECOND_KEY"
"""The variable with the client's key in these settings."""


def _claude_code(origin: str, route: str) -> str:
    return f"""# In the shell that starts claude, or under "env" in ~/.claude/settings.json
export ANTHROPIC_BASE_URL={origin}
export ANTHROPIC_AUTH_TOKEN=${KEY}
export ANTHROPIC_MODEL={route}
export ANTHROPIC_DEFAULT_HAIKU_MODEL={route}   # for its small tasks

# With your own subscription or key (credentials: client), instead of the last three:
export ANTHROPIC_CUSTOM_HEADERS="x-splitsecond-key: ${KEY}"
"""


def _codex(origin: str, route: str) -> str:
    return f"""# ~/.codex/config.toml
model = "{route}"
model_provider = "splitsecond"

[model_providers.splitsecond]
name = "Splitsecond"
base_url = "{origin}/v1"
env_key = "{KEY}"
wire_api = "responses"
"""


def _opencode(origin: str, route: str) -> str:
    return f"""{{
  "$schema": "https://opencode.ai/config.json",
  "model": "splitsecond/{route}",
  "provider": {{
    "splitsecond": {{
      "npm": "@ai-sdk/openai-compatible",
      "name": "Splitsecond",
      "options": {{"baseURL": "{origin}/v1", "apiKey": "{{env:{KEY}}}"}},
      "models": {{"{route}": {{}}}}
    }}
  }}
}}
"""


def _gemini_cli(origin: str, route: str) -> str:
    return f"""# In the shell that starts gemini. ~/.gemini/settings.json needs
# {{"security": {{"auth": {{"selectedType": "gemini-api-key"}}}}}}
export GOOGLE_GEMINI_BASE_URL={origin}
export GEMINI_API_KEY=${KEY}
export GEMINI_MODEL={route}
"""


def _aider(origin: str, route: str) -> str:
    return f"""# In the shell that starts aider
export OPENAI_API_BASE={origin}/v1
export OPENAI_API_KEY=${KEY}
export AIDER_MODEL=openai/{route}
"""


_SETTINGS: Mapping[str, Callable[[str, str], str]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
    "gemini-cli": _gemini_cli,
    "aider": _aider,
}
AGENTS = tuple(_SETTINGS)
PLACES = {"opencode": "For opencode.json in the project or in ~/.config/opencode."}
"""Where settings belong that cannot say it."""


def agent_settings(agent: str, origin: str, route: str) -> str:
    """Return the settings with which `agent` uses `route` of the gateway at `origin`, an address
    without a path.

    Raises `CallerFault` for an unknown agent.
    """
    settings_for = _SETTINGS.get(agent)
    if settings_for is None:
        agents = f"Known: {', '.join(AGENTS)}."
        raise CallerFault(
            f"--for: no settings are known for {agent!r}",
            kind="bad_option",
            hint=nearest(agent, AGENTS) or agents,
        )
    return settings_for(origin, route)
