"""Where a policy would send a call now: tried out with targets that are asked and never answer.

The policy itself decides, by how the targets really stand, so nothing is said here that it would not do. What it would
do once an answer is late or has failed is not seen: that depends on the answer. Policies that choose by chance are
asked many times. Nothing is sent, and no target is the worse for it.
"""

import asyncio
from collections import Counter

import msgspec
from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import Fault, Overloaded
from splitsecond.policy.building import build
from splitsecond.policy.expression import Expression, targets
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Notes, Reply, Service

TURNS = 64
"""Of the event loop, in which a policy that does not wait has asked whom it wants to ask."""


class Choice(Struct, frozen=True, kw_only=True):
    """Of so many calls: the targets that are asked at once, none where `refused` says why, and why it is these."""

    calls: int
    targets: tuple[str, ...] = ()
    why: str = ""
    refused: str = ""


async def preview(expression: Expression, standing: Standing, call: Call, *, calls: int = 100) -> list[Choice]:
    """What would become of `calls` calls like `call`, the commonest first."""
    asked: list[str] = []
    names = targets(expression)

    def probe(name: str) -> Service:
        return _Probe(name, standing, names, asked)

    service = build(expression, probe, standing, guarded=False)
    found: Counter[tuple[tuple[str, ...], str]] = Counter()
    whys: dict[tuple[str, ...], str] = {}
    for _ in range(calls):
        asked.clear()
        notes = Notes()
        refused = await _tried(service, msgspec.structs.replace(call, notes=notes), asked)
        found[tuple(asked), refused] += 1
        whys.setdefault(tuple(asked), notes.chosen)
    return [
        Choice(calls=count, targets=which, why=whys[which], refused=refused)
        for (which, refused), count in found.most_common()
    ]


async def _tried(service: Service, call: Call, asked: list[str]) -> str:
    """Puts those that are asked into `asked`; returns why none is."""
    trying = asyncio.ensure_future(service(call))
    for _ in range(TURNS):
        await asyncio.sleep(0)
        if trying.done():
            break
    trying.cancel()
    try:
        await trying
    except asyncio.CancelledError:
        return ""
    except Fault as fault:
        return "" if asked else str(fault)
    return ""


class _Probe:
    """A target that notes that it was asked."""

    def __init__(self, name: str, standing: Standing, names: list[str], asked: list[str]) -> None:
        self._name = name
        self._standing = standing
        self._names = names
        self._asked = asked

    def __repr__(self) -> str:
        return f'"{self._name}"'

    async def __call__(self, call: Call) -> Reply:
        standing = self._standing
        if not standing.available(self._name) and any(map(standing.available, self._names)):
            raise Overloaded(standing.why_not(self._name), kind="ejected", target=self._name)
        self._asked.append(self._name)
        await asyncio.get_running_loop().create_future()
        raise TimeoutError("a probe never answers")


def sample(prompt: str, *, stream: bool = True) -> Call:
    """A chat that asks `prompt`."""
    body = {"messages": [{"role": "user", "content": prompt}], "stream": stream}
    return Call(id="preview", body=body, stream=stream, start_ns=clock.now_ns())
