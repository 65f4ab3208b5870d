"""What a user calls a target, made into something that can be called.

provider/model       a provider of the catalogue, with the key from its environment variable
sim/PROFILE          a simulated provider, started for the run in a process of its own
engine/tiny          llama.cpp's server on a tiny model, started for the run
--policy 'race(...)' a rule over any of these, timed like one of them
--base-url --model   any OpenAI-compatible endpoint, or with --dialect one that speaks another dialect
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

import msgspec

from splitsecond.analysis.wording import ENGINE, SIMULATED
from splitsecond.catalog.prices import instead_of, words_of
from splitsecond.catalog.provider import Auth
from splitsecond.cli.asking import one_of
from splitsecond.errors import CallerFault, Fault
from splitsecond.policy.expression import parse
from splitsecond.policy.expression import targets as policy_targets
from splitsecond.policy.targets.verdict import of_fault
from splitsecond.simulator import profile
from splitsecond.simulator.process import running
from splitsecond.testing.engine.process import MODELS, EngineProcess
from splitsecond.timing.timeline import record_fault
from splitsecond.transport.exchange import Origin
from splitsecond.upstream.spec import TargetSpec, Timeouts, api_key, from_catalog
from splitsecond.upstream.target import DIALECTS

REFUSED_KEY = ("http_401", "http_403", "bad_key")
_AUTH: Mapping[str, Auth] = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
"""How the key is sent in each dialect whose makers do not send it as a bearer token."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint that is not in the catalogue. `api_key_env`: the variable with its key, "" for none."""

    base_url: str
    model: str
    name: str = ""
    api_key_env: str = ""
    dialect: str = "openai"

    @classmethod
    def asked(
        cls, *, base_url: str, model: str, name: str = "", api_key_env: str = "", dialect: str = ""
    ) -> "Endpoint | None":
        """The endpoint that options describe; None where they describe none. Raises `CallerFault` for half of one."""
        options = {
            "--base-url": base_url,
            "--model": model,
            "--name": name,
            "--api-key-env": api_key_env,
            "--dialect": dialect,
        }
        if not any(options.values()):
            return None
        if missing := [option for option in ("--base-url", "--model") if not options[option]]:
            given = " and ".join(option for option, value in options.items() if value)
            raise CallerFault(f"{given} needs {' and '.join(missing)} with it", kind="bad_option")
        Origin.parse(base_url)
        spoken = one_of(dialect or "openai", "--dialect", tuple(DIALECTS))
        return cls(base_url=base_url, model=model, name=name, api_key_env=api_key_env, dialect=spoken)

    def spec(self) -> TargetSpec:
        """Its spec; unless it has a `name`, it is called by its host and model."""
        host = urlsplit(self.base_url).netloc or self.base_url
        return TargetSpec(
            name=self.name or f"{host}/{self.model}",
            base_url=self.base_url,
            model=self.model,
            dialect=self.dialect,
            auth=_AUTH.get(self.dialect, "bearer"),
            api_key_env=(self.api_key_env,) if self.api_key_env else (),
        )


def parse_policies(texts: Sequence[str]) -> dict[str, list[str]]:
    """The policies that `texts` describe, as they are written best, each with the names of the targets in it.

    Raises `CallerFault` for a text that is no policy, or is given twice.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        policy = parse(text)
        if repr(policy) in found:
            raise CallerFault(f"--policy {policy!r} is given twice", kind="bad_target")
        found[repr(policy)] = policy_targets(policy)
    return found


class Callees(msgspec.Struct, frozen=True, kw_only=True):
    """Who is called. `measured`: the targets and policies that get rows, each with a base URL; `specs`: all targets,
    those that only policies call too.
    """

    specs: dict[str, TargetSpec]
    measured: dict[str, str]


def callees(
    targets: Sequence[str],
    endpoint: Endpoint | None,
    policies: Mapping[str, Sequence[str]],
    processes: ExitStack,
    *,
    headers: dict[str, str],
    timeouts: Timeouts,
    seed: int,
) -> Callees:
    """All that is named on a command line. `policies`: as `parse_policies` gives them. Raises as `resolve` does."""
    known = {*targets, *([endpoint.spec().name] if endpoint else [])}
    inside = list(dict.fromkeys(each for names in policies.values() for each in names if each not in known))
    specs = resolve([*targets, *inside], endpoint, processes, headers=headers, timeouts=timeouts, seed=seed)
    return Callees(
        specs=specs,
        measured={name: spec.base_url for name, spec in specs.items() if name not in inside}
        | {rule: specs[names[0]].base_url for rule, names in policies.items()},
    )


def resolve(
    names: Sequence[str],
    endpoint: Endpoint | None,
    processes: ExitStack,
    *,
    headers: dict[str, str] | None = None,
    timeouts: Timeouts | None = None,
    seed: int = 0,
) -> dict[str, TargetSpec]:
    """The specs by name, in the order asked. What must be started is started, and stopped with `processes`.

    Raises `CallerFault` for no target, one that is named twice, an unknown provider or profile, a missing key.
    """
    simulated = [name for name in names if name.startswith(SIMULATED)]
    engines = [name for name in names if name.startswith(ENGINE)]
    if not names and endpoint is None:
        raise CallerFault(
            "no target given",
            kind="no_target",
            hint="Name one, such as groq/openai/gpt-oss-120b or sim/groq, "
            "or give --base-url URL --model NAME. `splitsecond demo` needs neither key nor network.",
        )
    if repeated := {name for name in names if list(names).count(name) > 1}:
        raise CallerFault(f"{min(repeated)} is named twice", kind="bad_target")
    specs = {name: from_catalog(name, os.environ) for name in names if name not in (*simulated, *engines)}
    if endpoint is not None:
        spec = endpoint.spec()
        api_key(spec, os.environ)
        if spec.name in names:
            raise CallerFault(
                f"{spec.name} is named twice", kind="bad_target", hint="Give the endpoint another --name."
            )
        specs[spec.name] = spec
    for name in engines:
        _known_engine(name)
    for name in simulated:
        profile.load(name.removeprefix(SIMULATED))
    # Everything asked for is known to be right: now start what must be started.
    specs |= _simulated(simulated, processes, seed)
    specs |= {name: _engine(name, processes) for name in engines}
    ordered = {name: specs[name] for name in (*names, *specs)}
    return {
        name: msgspec.structs.replace(spec, headers=spec.headers | (headers or {}), timeouts=timeouts or spec.timeouts)
        for name, spec in ordered.items()
    }


def _known_engine(name: str) -> None:
    model = name.removeprefix(ENGINE)
    if model not in MODELS:
        raise CallerFault(
            f"unknown model {model!r} of the built-in engine",
            kind="bad_target",
            hint=f"Try {' or '.join(ENGINE + known for known in MODELS)}.",
        )


def _engine(name: str, processes: ExitStack) -> TargetSpec:
    engine = processes.enter_context(EngineProcess(name.removeprefix(ENGINE)))
    return TargetSpec(name=name, base_url=engine.base_url, model=engine.model)


def _simulated(names: Sequence[str], processes: ExitStack, seed: int) -> dict[str, TargetSpec]:
    if not names:
        return {}
    profiles = [name.removeprefix(SIMULATED) for name in names]
    started = processes.enter_context(running(*profiles, seed=seed))
    return {
        name: TargetSpec(name=name, base_url=each.base_url, model=each.model)
        for name, each in zip(names, started, strict=True)
    }


def advised(fault: Fault, spec: TargetSpec | None = None) -> Fault:
    """The same fault; where a provider refuses the key or does not know the model, with what to change in its hint.

    `spec`: its target's.
    """
    refused = fault.kind in REFUSED_KEY or of_fault(record_fault(fault)) in ("locked", "unpaid")
    if refused and spec is not None and spec.api_key_env:
        variable = next((name for name in spec.api_key_env if os.environ.get(name, "").strip()), spec.api_key_env[0])
        fault.hint = f"{fault.hint} It is the one in {variable}.".strip()
    if fault.kind == "http_404" or (fault.kind == "http_400" and "model" in fault.message.lower()):
        where = f"It was asked at {spec.base_url}." if spec is not None and fault.kind == "http_404" else ""
        fault.hint = f"{words_of(*instead_of(fault.target))} {fault.hint} {where}".strip()
    return fault
