"""What a user calls a target, made into something that can be called.

provider/model       a provider of the catalogue, with the key from its environment variable
sim/PROFILE          a simulated provider, started for the run in a process of its own
engine/tiny          llama.cpp's server on a tiny model, started for the run
--base-url --model   any OpenAI-compatible endpoint
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.simulator.process import running
from splitsecond.testing.engine.process import MODELS, EngineProcess
from splitsecond.upstream.spec import TargetSpec, Timeouts, from_catalog

SIMULATED = "sim/"
ENGINE = "engine/"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint that is not in the catalogue. `api_key_env`: the variable with its key, "" for none."""

    base_url: str
    model: str
    name: str = ""
    api_key_env: str = ""

    def spec(self) -> TargetSpec:
        """Its spec; unless it has a `name`, it is called by its host and model."""
        host = urlsplit(self.base_url).netloc or self.base_url
        return TargetSpec(
            name=self.name or f"{host}/{self.model}",
            base_url=self.base_url,
            model=self.model,
            api_key_env=(self.api_key_env,) if self.api_key_env else (),
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
    if not names and endpoint is None:
        raise CallerFault(
            "no target given",
            kind="no_target",
            hint="Name one, such as groq/llama-3.3-70b-versatile or sim/groq, "
            "or give --base-url URL --model NAME. `splitsecond demo` needs neither key nor network.",
        )
    if repeated := {name for name in names if list(names).count(name) > 1}:
        raise CallerFault(f"{min(repeated)} is named twice", kind="bad_target")
    specs = {
        name: from_catalog(name, os.environ)
        for name in names
        if not name.startswith((SIMULATED, ENGINE))  # these are started once all others are known to be right
    }
    specs |= _simulated([name for name in names if name.startswith(SIMULATED)], processes, seed)
    specs |= {name: _engine(name, processes) for name in names if name.startswith(ENGINE)}
    ordered = {name: specs[name] for name in names}
    if endpoint is not None:
        spec = endpoint.spec()
        ordered[spec.name] = spec
    return {
        name: msgspec.structs.replace(spec, headers=spec.headers | (headers or {}), timeouts=timeouts or spec.timeouts)
        for name, spec in ordered.items()
    }


def _engine(name: str, processes: ExitStack) -> TargetSpec:
    model = name.removeprefix(ENGINE)
    if model not in MODELS:
        raise CallerFault(
            f"unknown model {model!r} of the built-in engine",
            kind="bad_target",
            hint=f"Try {' or '.join(ENGINE + known for known in MODELS)}.",
        )
    engine = processes.enter_context(EngineProcess(model))
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
