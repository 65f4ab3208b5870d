"""Specification of a target: everything that a worker process needs to call it.

Specs are sent between processes as JSON, so they contain the names of the environment variables
with keys, never keys. A header that a user adds can still contain one: `secrets` finds it, and
everything shown or stored is `redacted`.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from splitsecond.core.catalog.provider import (
    Access,
    Provider,
    fill_base_url,
    provider,
    split_target,
)
from splitsecond.core.errors import CallerFault, Fault
from splitsecond.core.redaction import MIN_SECRET, redacted

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET")


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of each phase in milliseconds; None: no limit.

    The defaults suit measurements: they are so long that a slow provider shows as slow, not as an
    error.
    """

    connect_ms: int = 10_000
    head_ms: int | None = 120_000
    first_token_ms: int | None = 120_000
    stall_ms: int | None = 60_000
    total_ms: int | None = None


class TargetSpec(Access, frozen=True, kw_only=True):
    """One model at one provider, ready to be called. `name` is its name in reports; it ends with
    the speed tier if there is one, and then `quirks` request it.

    `output_tokens`: the model's maximum output; None: unknown. `trusted`: its requests carry
    ``traceparent``.
    """

    name: str
    model: str
    output_tokens: int | None = None
    timeouts: Timeouts = Timeouts()
    trusted: bool = False


def from_catalog(target: str, environment: Mapping[str, str]) -> TargetSpec:
    """Return the spec of "provider/model". Raises `CallerFault` for an unknown provider, a missing
    address or key."""
    name, model = split_target(target)
    entry = provider(name)
    spec = spec_at(entry, target, model, entry, base_url=fill_base_url(entry, environment))
    api_key(spec, environment)
    return spec


def spec_at(
    access: Access, target: str, model: str, entry: Provider | None, **fields: Any
) -> TargetSpec:
    """Return the spec of `model`, with its speed tier, that is called as `access` says.

    `entry`: the catalogue's entry of the provider, which knows tiers and models; None: it has none.
    `fields` come before both. Raises `CallerFault` for an unknown tier.
    """
    target_fields: dict[str, Any] = {"name": target, "model": model}
    if entry is not None:
        model, tier = entry.split_tier(model)
        target_fields = {
            "name": target,
            "model": model,
            "quirks": access.quirks | (entry.tiers[tier].quirks if tier else {}),
            "prefill": entry.continues(model),
            "output_tokens": entry.model(model).output_tokens,
        }
    return TargetSpec(**access.access | target_fields | fields)


def api_key(spec: TargetSpec, environment: Mapping[str, str]) -> str | None:
    """Return the key of a target; None if it needs none. Raises `CallerFault` if it needs one and
    none is set."""
    if not spec.api_key_env or spec.credentials == "client":
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
    is_set = any(variable in environment for variable in spec.api_key_env)
    raise CallerFault(
        f"no key: {' or '.join(spec.api_key_env)} is {'empty' if is_set else 'not set'}",
        kind="missing_key",
        target=spec.name,
        hint=keys_like(spec.api_key_env, environment) + f"export {spec.api_key_env[0]}=...",
    )


def keys_like(variables: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a hint at variables that look like the key under another name; "" if there are
    none."""
    owners = tuple({variable.partition("_")[0] + "_" for variable in variables})
    alike = (
        name
        for name in environment
        if name.upper().startswith(owners) and _SECRET_NAME.search(name.upper())
    )
    near = sorted(name for name in alike if environment[name].strip())
    return (
        f"{' and '.join(near)} {'is' if len(near) == 1 else 'are'} set: is it that? "
        if near
        else ""
    )


def secrets(spec: TargetSpec, key: str | None = None) -> list[str]:
    """Return what must never be shown or stored: the key of the target, and keys in its headers."""
    values = [
        value.split()[-1:]
        for name, value in spec.headers.items()
        if _SECRET_HEADER.search(name.lower())
    ]
    return [
        secret for secret in (key or "", *itertools.chain(*values)) if len(secret) >= MIN_SECRET
    ]


def redact_fault(fault: Fault, target: str, secrets: Sequence[str]) -> Fault:
    """Add the name of its target to `fault`, and remove our key, which a provider may have
    repeated."""
    fault.target = fault.target or target
    for field in ("message", "hint", "excerpt"):
        if text := getattr(fault, field, ""):
            setattr(fault, field, redacted(text, secrets))
    return fault
