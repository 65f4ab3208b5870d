"""A real worker process with fake targets; the name of the model selects their behaviour."""

import asyncio
import os
import signal
from collections.abc import Callable

from splitsecond.benchmark.load.worker import main
from splitsecond.core.errors import CallerFault, NetworkFault, ProviderFault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Service
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.testing.fake_service import FakeService, Script


def quick(call: Call) -> Script:
    messages: list[dict[str, str]] = call.body["messages"]  # type: ignore[assignment]
    words = sum(len(message["content"].split()) for message in messages)
    return Script(ttft=0.001, tokens=3, tps=1000, input_tokens=words)


def wrong_key(call: Call) -> Script:
    return Script(
        ttft=0, fault=ProviderFault("wrong key", kind="http_401", phase="head", status=401)
    )


def refused(call: Call) -> Script:
    if "calibration" in call.id:
        return quick(call)
    return Script(ttft=0, fault=NetworkFault("nobody listens", kind="refused", phase="connect"))


def absent(call: Call) -> Script:
    return Script(ttft=0, fault=NetworkFault("nobody listens", kind="refused", phase="connect"))


def dies(call: Call) -> Script:
    if not call.id.endswith("-5"):
        return quick(call)
    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGKILL)
    return Script(hangs=True)


def hangs_after_five(call: Call) -> Script:
    return (
        Script(hangs=True)
        if "calibration" not in call.id and int(call.id.split("-")[-1]) >= 5
        else quick(call)
    )


def prints(call: Call) -> Script:
    print("a stray line on standard output")
    return quick(call)


def broken(call: Call) -> Script:
    raise RuntimeError("a bug")


SCRIPTS: dict[str, Callable[[Call], Script]] = {
    "quick": quick,
    "wrong_key": wrong_key,
    "refused": refused,
    "absent": absent,
    "away": absent,
    "dies": dies,
    "hangs": hangs_after_five,
    "prints": prints,
    "broken": broken,
}


def connect(spec: TargetSpec, observer: Callable[[Observation], None], /) -> Service:
    """A fake target. Raises `CallerFault` for the model "no_key"."""
    if spec.model == "no_key":
        raise CallerFault("no key is set", kind="missing_key", target=spec.name)
    return FakeService(script=SCRIPTS[spec.model], target=spec.name, observer=observer)


if __name__ == "__main__":
    main(connect)
