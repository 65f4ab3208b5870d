"""Resolution of target names to specs that can be called.

provider/model       a provider of the catalogue, with the key from its environment variable
sim/PROFILE          a simulated provider, started for the run in a process of its own
engine/tiny          llama.cpp's server on a tiny model, started for the run
race(...)            a policy over any of these, measured like one of them
Server               any server that speaks a known API format

The providers of a gateway's configuration come before those of the catalogue.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.runs.settings import Server
from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.prices import replacement_hint, replacements
from splitsecond.core.catalog.provider import Auth
from splitsecond.core.errors import KEY_REFUSED, MODEL_NOT_SERVED, CallerFault, Fault
from splitsecond.core.redaction import redacted
from splitsecond.core.timing.timeline import record_fault
from splitsecond.core.transport.exchange import Origin
from splitsecond.core.upstream.spec import TargetSpec, Timeouts, api_key, from_catalog
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.validation import one_of, wrong
from splitsecond.core.wording import ENGINE, SIMULATED
from splitsecond.routing.configuration import reading
from splitsecond.routing.configuration.discovery import LIST_ERRORS, listed_models
from splitsecond.routing.configuration.secrets import is_reference
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.construction.expression import parse, user_policies
from splitsecond.routing.construction.expression import targets as policy_targets
from splitsecond.routing.construction.user_policies import REGISTERED, PolicyFile
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.verdict import of_fault
from splitsecond.simulator import profile
from splitsecond.simulator.llama_cpp.process import MODELS, EngineProcess
from splitsecond.simulator.process import run_simulator

T = TypeVar("T")

REFUSED_KEY = ("http_401", "http_403", KEY_REFUSED, "bad_key")
_AUTH: Mapping[str, Auth] = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
LISTS_MODELS = ("openai", "responses")
LIST_TIMEOUT_S = 10
MAX_SHOWN = 20


def server_spec(server: Server) -> TargetSpec:
    """Return the spec of a server that is not in the catalogue.

    Raises `CallerFault` for an unknown API format, for an address or a name that cannot be used,
    and without a model.
    """
    if not server.model:
        raise wrong("model", "", "the name of the server's model")
    one_of("api_format", server.api_format, tuple(API_FORMATS))
    Origin.parse(server.base_url)
    if (
        server.name.startswith((SIMULATED, ENGINE))
        or "(" in server.name
        or not server.name.isprintable()
    ):
        raise wrong(
            "name",
            server.name,
            f"a name without brackets that does not begin with {SIMULATED} or {ENGINE}",
        )
    host = urlsplit(server.base_url).netloc or server.base_url
    return TargetSpec(
        name=server.name or f"{host}/{server.model}",
        base_url=server.base_url,
        model=server.model,
        api_format=server.api_format,
        auth=_AUTH.get(server.api_format, "bearer"),
        api_key_env=(server.api_key_env,) if server.api_key_env else (),
    )


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", error)
    return (isinstance(inner, OSError) and inner.strerror) or str(error)


def with_model(server: Server, headers: Mapping[str, str]) -> Server:
    """Return `server` with its model, which the server is asked for if it is missing.

    Raises `CallerFault` if the server does not list exactly one model, and as `server_spec` does.
    """
    if server.model:
        return server
    spec = server_spec(replace(server, model="unknown"))
    if server.api_format not in LISTS_MODELS:
        raise wrong(
            "model",
            "",
            "the name of the model: a server of API format "
            f"{server.api_format} is not asked for it",
        )
    key = api_key(spec, os.environ)
    bearer = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        listed = listed_models(
            server.base_url, timeout_s=LIST_TIMEOUT_S, headers={**headers, **bearer}
        )
    except LIST_ERRORS as error:
        raise CallerFault(
            f"{redacted(server.base_url)} does not list its models: {redacted(_reason(error))}",
            kind="no_model",
            hint="Name the model, or check the address and that the server is ready.",
        ) from None
    if len(listed) != 1:
        names = ", ".join(each.id for each in listed[:MAX_SHOWN])
        listing = (
            f"{len(listed)} models: {names}{', …' if len(listed) > MAX_SHOWN else ''}"
            if listed
            else "no model"
        )
        raise CallerFault(
            f"{redacted(server.base_url)} lists {listing}",
            kind="no_model",
            hint="Name one of them.",
        )
    return replace(server, model=listed[0].id)


def configured_targets(
    path: Path, names: Sequence[str]
) -> tuple[dict[str, TargetSpec], dict[str, Price]]:
    """Return the specs, and the known prices, of those of `names` whose provider is in a gateway's
    configuration.

    Raises `CallerFault` for a configuration that cannot be used, and for a key or header that is
    read from a file.
    """
    settings = reading.load(path, os.environ, serving=False)
    own = [
        name
        for name in names
        if name.partition("/")[0] in settings.providers and not name.startswith(SIMULATED)
    ]
    directory = TargetDirectory(settings)
    prices = {name: price for name in own if (price := directory.price(name)) is not None}
    return {name: _configured(settings, name) for name in own}, prices


def _configured(settings: GatewaySettings, name: str) -> TargetSpec:
    spec = settings.spec(name)
    variables = tuple(
        _variable(name, each) if is_reference(each) else each for each in spec.api_key_env
    )
    headers = {
        header: os.environ.get(_variable(name, value), "") if is_reference(value) else value
        for header, value in spec.headers.items()
    }
    if missing := [header for header, value in headers.items() if not value.strip()]:
        raise CallerFault(
            f"the header {missing[0]} of {name} has no value", kind="missing_key", target=name
        )
    spec = replace(spec, api_key_env=variables, headers=headers)
    api_key(spec, os.environ)
    return spec


def _variable(name: str, reference: str) -> str:
    kind, _, variable = reference.partition(":")
    if kind != "env":
        raise CallerFault(
            f"{name} takes a key from a file, but a run takes keys only from the environment",
            kind="bad_config",
            target=name,
            hint="Write env:NAME in the configuration.",
        )
    return variable


def parse_policies(texts: Sequence[str], file: PolicyFile | None) -> dict[str, list[str]]:
    """Return the targets of each policy, under the policy's expression in its usual form.

    The policies of `file` are registered, so that all expressions of this process may name them.
    Raises `CallerFault` for a text that is no policy, for a policy that is given twice, and for one
    that is only known to this process.
    """
    own = file.policies() if file else {}
    REGISTERED.update(own)
    by_policy: dict[str, list[str]] = {}
    for text in texts:
        policy = parse(text)
        if only_here := [name for name in user_policies(policy) if name not in own]:
            raise CallerFault(
                f"{only_here[0]} is a policy of this process; a run sends its requests from other "
                "processes",
                kind="bad_policy",
                hint="Put it into a file of its own, and name this file.",
            )
        if repr(policy) in by_policy:
            raise CallerFault(f"the policy {policy!r} is given twice", kind="bad_target")
        by_policy[repr(policy)] = policy_targets(policy)
    return by_policy


class ResolvedTargets(msgspec.Struct, frozen=True, kw_only=True):
    """The targets of a run: a base URL for each that gets a row, and the specs of all, also those
    that only policies call.

    `prices` are those of the gateway's configuration.
    """

    specs: dict[str, TargetSpec]
    measured: dict[str, str]
    prices: dict[str, Price] = {}


class LocalServers(msgspec.Struct, frozen=True):
    """Starts simulators and engines, which run until `processes` is closed.

    `seed`: of the simulators. With `prompt_cache`, engines reuse the beginnings of prompts.
    """

    processes: ExitStack
    seed: int = 0
    prompt_cache: bool = False

    def simulators(self, names: Sequence[str]) -> dict[str, TargetSpec]:
        if not names:
            return {}
        profiles = [name.removeprefix(SIMULATED) for name in names]
        started = self.processes.enter_context(run_simulator(*profiles, seed=self.seed))
        return {
            name: TargetSpec(name=name, base_url=each.base_url, model=each.model)
            for name, each in zip(names, started, strict=True)
        }

    def engine(self, name: str) -> TargetSpec:
        engine = self.processes.enter_context(
            EngineProcess(name.removeprefix(ENGINE), prompt_cache=self.prompt_cache)
        )
        return TargetSpec(name=name, base_url=engine.base_url, model=engine.model)


def resolve_all(
    targets: Sequence[str],
    servers: Sequence[Server],
    policies: Mapping[str, Sequence[str]],
    local: LocalServers,
    *,
    headers: Mapping[str, str],
    timeouts: Timeouts,
    config: Path | None = None,
) -> ResolvedTargets:
    """Resolve targets, servers, and `policies` as `parse_policies` returns them. Raises as
    `resolve` does.

    `config`: a gateway's configuration, whose providers come before those of the catalogue.
    """
    servers = [with_model(server, headers) for server in servers]
    known_names = {*targets, *(server_spec(server).name for server in servers)}
    inside = list(
        dict.fromkeys(
            each for names in policies.values() for each in names if each not in known_names
        )
    )
    names = [*targets, *inside]
    configured, prices = configured_targets(config, names) if config else ({}, {})
    specs = resolve(
        names, servers, local, headers=headers, timeouts=timeouts, configured=configured
    )
    return ResolvedTargets(
        specs=specs,
        prices=prices,
        measured={name: spec.base_url for name, spec in specs.items() if name not in inside}
        | {policy: specs[names[0]].base_url for policy, names in policies.items()},
    )


def resolve(
    names: Sequence[str],
    servers: Sequence[Server],
    local: LocalServers,
    *,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    configured: Mapping[str, TargetSpec] | None = None,
) -> dict[str, TargetSpec]:
    """Return the specs by name, in the given order, and start those that are `local`.

    `configured`: the specs of targets that are known already. Raises `CallerFault` for no target, a
    target that is named twice, an unknown provider or profile, a missing key.
    """
    _check_names(names, servers)
    headers = headers or {}
    simulated = [name for name in names if name.startswith(SIMULATED)]
    engines = [name for name in names if name.startswith(ENGINE)]
    specs = dict(configured or {})
    specs |= {
        name: from_catalog(name, os.environ)
        for name in names
        if name not in (*simulated, *engines, *specs)
    }
    for server in servers:
        _add_server(specs, server, names, headers)
    for name in engines:
        _known_engine(name)
    for name in simulated:
        profile.load(name.removeprefix(SIMULATED))
    # All names are valid: start the processes.
    specs |= local.simulators(simulated)
    specs |= {name: local.engine(name) for name in engines}
    return {
        name: replace(
            specs[name],
            headers=specs[name].headers | dict(headers),
            timeouts=timeouts or specs[name].timeouts,
        )
        for name in dict.fromkeys((*names, *specs))
    }


def _add_server(
    specs: dict[str, TargetSpec], server: Server, names: Sequence[str], headers: Mapping[str, str]
) -> None:
    spec = server_spec(with_model(server, headers))
    api_key(spec, os.environ)
    if spec.name in names or spec.name in specs:
        raise CallerFault(
            f"{spec.name} is named twice", kind="bad_target", hint="Give the server another name."
        )
    specs[spec.name] = spec


def _check_names(names: Sequence[str], servers: Sequence[Server]) -> None:
    if not names and not servers:
        raise CallerFault(
            "no target given",
            kind="no_target",
            hint="Name one, such as groq/openai/gpt-oss-120b; sim/groq needs neither key nor "
            "network.",
        )
    if repeated := {name for name in names if list(names).count(name) > 1}:
        raise CallerFault(f"{min(repeated)} is named twice", kind="bad_target")


def _known_engine(name: str) -> None:
    model = name.removeprefix(ENGINE)
    if model not in MODELS:
        raise CallerFault(
            f"unknown model {model!r} of the built-in engine",
            kind="bad_target",
            hint=f"Try {' or '.join(ENGINE + other for other in MODELS)}.",
        )


def advised(fault: Fault, spec: TargetSpec | None = None) -> Fault:
    refused = fault.kind in REFUSED_KEY or of_fault(record_fault(fault)) in ("locked", "unpaid")
    if refused and spec is not None and spec.api_key_env:
        variable = spec.key_variable(os.environ) or spec.api_key_env[0]
        fault.hint = f"{fault.hint} The key comes from {variable}.".strip()
    if fault.kind in ("http_404", MODEL_NOT_SERVED) or (
        fault.kind == "http_400" and "model" in fault.message.lower()
    ):
        where = (
            f"The address was {redacted(spec.base_url)}."
            if spec is not None and fault.kind == "http_404"
            else ""
        )
        fault.hint = f"{replacement_hint(*replacements(fault.target))} {fault.hint} {where}".strip()
    return fault


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work`, such as `resolve`, in a thread. When cancelled, wait for its end: it may still
    start a process."""
    thread: Awaitable[T] = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([asyncio.ensure_future(thread)])
        raise
