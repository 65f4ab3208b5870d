"""The catalogue: one TOML file for each provider, read when it is asked for.

A file's name is the provider's name in a target: `groq.toml` makes `groq/llama-3.3-70b-versatile` a target. Only what
cannot be asked from the provider stands there: where it is, which dialect it speaks, the names of its keys in the
environment, and how it departs from its dialect. `quirks` is passed on as it is; the dialect checks it.
"""

import difflib
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal

import msgspec

from splitsecond.errors import CallerFault

Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key"]
"""Where the key goes: ``Authorization: Bearer``, or the header of that name."""


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider.

    `base_url` may hold `{NAME}`, which is filled from the environment variable NAME (an account's own address).
    `api_key_env`: the variables that hold its key, in the order in which they are tried; empty: it takes no key.
    `auth`: how the key is sent (see `Auth`).
    `default_model`: a chat model that most keys may use, for where nobody named one; "": there is none.
    `checked`: the day on which address and names were last checked against `source`.
    """

    name: str = ""
    title: str
    base_url: str
    dialect: str = "openai"
    api_key_env: tuple[str, ...] = ()
    auth: Auth = "bearer"
    headers: dict[str, str] = {}
    quirks: dict[str, Any] = {}
    default_model: str = ""
    source: str = ""
    checked: str = ""


def names() -> list[str]:
    """Every provider in the catalogue, sorted."""
    folder = resources.files(__package__) / "providers"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def provider(name: str) -> Provider:
    """The provider of that name. Raises `CallerFault` for a name that the catalogue has not, with the nearest ones."""
    file = resources.files(__package__) / "providers" / f"{name}.toml"
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        raise CallerFault(
            f"unknown provider {name!r}",
            kind="unknown_provider",
            hint=(f"Did you mean {' or '.join(near)}? " if near else f"Known: {', '.join(known)}. ")
            + "Any OpenAI-compatible server works with --base-url URL --model NAME.",
        )
    found = msgspec.convert(tomllib.loads(file.read_text("utf-8")), Provider)
    return msgspec.structs.replace(found, name=name)


def split_target(target: str) -> tuple[str, str]:
    """A target's provider and model: "groq/llama-3.1-8b-instant" → ("groq", "llama-3.1-8b-instant")."""
    name, slash, model = target.partition("/")
    if not slash or not name or not model:
        raise CallerFault(
            f"{target!r} is not a target: expected PROVIDER/MODEL",
            kind="bad_target",
            hint='For example "groq/llama-3.3-70b-versatile" or "sim/groq"; '
            "for a server of your own use --base-url URL --model NAME.",
        )
    return name, model


def fill_base_url(found: Provider, environment: Mapping[str, str]) -> str:
    """The provider's base URL with each `{NAME}` taken from the environment."""
    names_in_url = [part.partition("}")[0] for part in found.base_url.split("{")[1:]]
    missing = [name for name in names_in_url if not environment.get(name)]
    if missing:
        raise CallerFault(
            f"{found.title} needs {' and '.join(missing)} in the environment: part of its address {found.base_url}",
            kind="missing_setting",
            hint=f"For example: export {missing[0]}=...",
        )
    return found.base_url.format_map(environment) if names_in_url else found.base_url
