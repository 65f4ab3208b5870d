"""Settings of coding agents for a gateway that runs, as text to copy."""

from collections.abc import Callable, Mapping

from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import nearest

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


def agent_settings(agent: str, origin: str, route: str) -> str:
    """Return the settings with which `agent` uses `route` of the gateway at `origin`, an address
    without a path.

    Raises `CallerFault` for an unknown agent.
    """
    found = _SETTINGS.get(agent)
    if found is None:
        known = f"Known: {', '.join(AGENTS)}."
        raise CallerFault(
            f"--for: no settings are known for {agent!r}",
            kind="bad_option",
            hint=nearest(agent, AGENTS) or known,
        )
    return found(origin, route)
