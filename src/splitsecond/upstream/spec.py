"""A target as it can be written down: everything that a worker process needs in order to call it.

Specs travel between processes as JSON, so they hold the names of the environment variables with keys, never a key.
A header that a user adds may still carry one: `secrets` finds it, and what is shown or stored goes through `concealed`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from splitsecond.catalog.model import Prefill
from splitsecond.catalog.provider import Auth, fill_base_url, provider, split_target
from splitsecond.errors import CallerFault, Fault

LEAST_SECRET = 8
"""Characters. What is shorter protects nothing ("none", "EMPTY"), and may stand in any message."""
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET")


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait, in milliseconds, for each phase; None waits for ever.

    The defaults are a measurement's: long enough that a slow provider shows as slow, not as an error.
    """

    connect_ms: int = 10_000
    head_ms: int | None = 120_000
    first_token_ms: int | None = 120_000
    stall_ms: int | None = 60_000
    total_ms: int | None = None


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider as we can call it. `name` is how reports call it.

    `quirks` are those of the dialect, as the catalogue holds them. `api_key_env`: the first of these variables that is
    set holds the key; empty: no key is sent. `auth`: how it is sent. `prefill`: whether, and how, the model goes on
    from the beginning of an answer; None: not known.
    """

    name: str
    base_url: str
    model: str
    dialect: str = "openai"
    api_key_env: tuple[str, ...] = ()
    auth: Auth = "bearer"
    headers: dict[str, str] = {}
    quirks: dict[str, Any] = {}
    prefill: Prefill | None = None
    timeouts: Timeouts = Timeouts()


def from_catalog(target: str, environment: Mapping[str, str]) -> TargetSpec:
    """The spec of "provider/model". Raises `CallerFault` for an unknown provider, a missing address or key."""
    name, model = split_target(target)
    found = provider(name)
    spec = TargetSpec(
        name=target,
        base_url=fill_base_url(found, environment),
        model=model,
        dialect=found.dialect,
        api_key_env=found.api_key_env,
        auth=found.auth,
        headers=found.headers,
        quirks=found.quirks,
        prefill=found.continues(model),
    )
    api_key(spec, environment)
    return spec


def api_key(spec: TargetSpec, environment: Mapping[str, str]) -> str | None:
    """The key for a target; None where it takes none. Raises `CallerFault` where it needs one and none is set."""
    if not spec.api_key_env:
        return None
    for variable in spec.api_key_env:
        if value := environment.get(variable, "").strip():
            if not value.isascii() or not value.isprintable():
                raise CallerFault(
                    f"the key in {variable} has characters that no HTTP header can carry",
                    kind="bad_key",
                    target=spec.name,
                    hint="Was it pasted with a line break or a curly quote?",
                )
            return value
    given = any(variable in environment for variable in spec.api_key_env)
    raise CallerFault(
        f"no key: {' or '.join(spec.api_key_env)} is {'empty' if given else 'not set'}",
        kind="missing_key",
        target=spec.name,
        hint=keys_like(spec.api_key_env, environment) + f"export {spec.api_key_env[0]}=...",
    )


def keys_like(variables: Sequence[str], environment: Mapping[str, str]) -> str:
    """Which variables that are set look like the key under another name; "" where none does."""
    owners = tuple({variable.partition("_")[0] + "_" for variable in variables})
    alike = (name for name in environment if name.upper().startswith(owners) and _SECRET_NAME.search(name.upper()))
    near = sorted(name for name in alike if environment[name].strip())
    return f"{' and '.join(near)} {'is' if len(near) == 1 else 'are'} set: is it that? " if near else ""


def secrets(spec: TargetSpec, key: str | None = None) -> list[str]:
    """What of a target must never be shown or stored: its key, and what its headers carry in the place of one."""
    said = [value.split()[-1:] for name, value in spec.headers.items() if _SECRET_HEADER.search(name.lower())]
    return [
        secret for secret in (key or "", *(word for words in said for word in words)) if len(secret) >= LEAST_SECRET
    ]


def concealed(value: Any, secrets: Sequence[str]) -> Any:
    """`value`, a text or lists and objects of texts, with "[key]" in the place of each of `secrets`.

    So for the part of one at which an excerpt ends.
    """
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "[key]")
            if value.endswith("…"):
                begun = next((n for n in range(len(secret) - 1, 3, -1) if value.endswith(secret[:n] + "…")), 0)
                value = value[: len(value) - begun - 1] + "[key]…" if begun else value
        return value
    if isinstance(value, dict):
        return {name: concealed(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [concealed(each, secrets) for each in value]
    return value


def own(fault: Fault, target: str, secrets: Sequence[str]) -> Fault:
    """`fault` with its target's name, and without what a provider must not repeat to anyone: our key."""
    fault.target = fault.target or target
    for words in ("message", "hint", "excerpt"):
        if said := getattr(fault, words, ""):
            setattr(fault, words, concealed(said, secrets))
    return fault
