"""Specification of a target: everything that a worker process needs to call it.

Specs are sent between processes as JSON, so they contain the names of the environment variables with keys, never keys.
A header that a user adds can still contain one: `secrets` finds it, and everything shown or stored is `redacted`.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from splitsecond.core.catalog.model import Prefill
from splitsecond.core.catalog.provider import Auth, fill_base_url, provider, split_target
from splitsecond.core.errors import CallerFault, Fault
from splitsecond.core.redaction import MIN_SECRET, redacted

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET")


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of each phase in milliseconds; None: no limit.

    The defaults suit measurements: they are so long that a slow provider shows as slow, not as an error.
    """

    connect_ms: int = 10_000
    head_ms: int | None = 120_000
    first_token_ms: int | None = 120_000
    stall_ms: int | None = 60_000
    total_ms: int | None = None


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider, ready to be called. `name` is its name in reports; it ends with the speed tier
    if there is one, and then `quirks` request it.

    `quirks`: the provider's deviations from the API format, as in the catalogue. `api_key_env`: the first of these
    variables that is set contains the key; empty: no key is sent. `auth`: how it is sent. `prefill`: whether and how
    the model continues the beginning of an answer; None: unknown. `output_tokens`: the model's maximum output; None:
    unknown. `region`: the region in its name; "": none. `trusted`: its requests carry ``traceparent``.
    """

    name: str
    base_url: str
    model: str
    api_format: str = "openai"
    api_key_env: tuple[str, ...] = ()
    auth: Auth = "bearer"
    headers: dict[str, str] = {}
    quirks: dict[str, Any] = {}
    prefill: Prefill | None = None
    output_tokens: int | None = None
    region: str = ""
    timeouts: Timeouts = Timeouts()
    trusted: bool = False


def from_catalog(target: str, environment: Mapping[str, str]) -> TargetSpec:
    """Return the spec of "provider/model". Raises `CallerFault` for an unknown provider, a missing address or key."""
    name, model = split_target(target)
    found = provider(name)
    model, tier = found.split_tier(model)
    spec = TargetSpec(
        name=target,
        base_url=fill_base_url(found, environment),
        model=model,
        api_format=found.api_format,
        api_key_env=found.api_key_env,
        auth=found.auth,
        headers=found.headers,
        quirks=found.quirks | (found.tiers[tier].quirks if tier else {}),
        prefill=found.continues(model),
        output_tokens=found.model(model).output_tokens,
        region=found.region,
    )
    api_key(spec, environment)
    return spec


def api_key(spec: TargetSpec, environment: Mapping[str, str]) -> str | None:
    """Return the key of a target; None if it needs none. Raises `CallerFault` if it needs one and none is set."""
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
    """Return a hint at variables that look like the key under another name; "" if there are none."""
    owners = tuple({variable.partition("_")[0] + "_" for variable in variables})
    alike = (name for name in environment if name.upper().startswith(owners) and _SECRET_NAME.search(name.upper()))
    near = sorted(name for name in alike if environment[name].strip())
    return f"{' and '.join(near)} {'is' if len(near) == 1 else 'are'} set: is it that? " if near else ""


def secrets(spec: TargetSpec, key: str | None = None) -> list[str]:
    """Return what must never be shown or stored: the key of the target, and keys in its headers."""
    values = [value.split()[-1:] for name, value in spec.headers.items() if _SECRET_HEADER.search(name.lower())]
    return [secret for secret in (key or "", *itertools.chain(*values)) if len(secret) >= MIN_SECRET]


def redact_fault(fault: Fault, target: str, secrets: Sequence[str]) -> Fault:
    """Add the name of its target to `fault`, and remove our key, which a provider may have repeated."""
    fault.target = fault.target or target
    for field in ("message", "hint", "excerpt"):
        if text := getattr(fault, field, ""):
            setattr(fault, field, redacted(text, secrets))
    return fault
