"""Any nesting of policies gives an answer or a fault of our family, in time, and leaves nothing
open."""

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.branches import (
    SILENT,
    a_call,
    bad_request,
    play,
    refused,
    reset,
    scripted,
    status,
    too_long,
)
from tests.policies.test_expression import expressions, in_region

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import Fault, NetworkFault
from splitsecond.core.events import Broken, Done
from splitsecond.core.service import Service
from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import Expression
from splitsecond.testing.fake_service import Script

WITHIN_MS = 3000
BODY = {"messages": [{"role": "user", "content": "Say something."}]}
FAULTS: list[Fault] = [
    bad_request(),
    too_long(),
    reset(),
    refused(),
    status(500),
    status(429, 1),
    status(503),
]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    ttft = draw(st.sampled_from([0.0, 0.001, 0.1, 0.2, 1.0, 2.9, 3.0, 5.0]))
    match draw(st.sampled_from(["answers", "answers", "fails", "breaks", "hangs", "empty"])):
        case "answers":
            return Script(ttft=ttft, tokens=3)
        case "fails":
            return Script(ttft=ttft, fault=draw(st.sampled_from(FAULTS)))
        case "breaks":
            return Script(
                ttft=ttft,
                fault=NetworkFault("cut", kind="reset", phase="between tokens"),
                breaks_after=2,
            )
        case "empty":
            return Script(ttft=ttft, tokens=0)
    return SILENT


TARGETS = ("a/x", "b/x", "c/x")
BEHAVIOURS = st.fixed_dictionaries(
    {name: st.lists(scripts(), min_size=1, max_size=4) for name in TARGETS}
)
CALLS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 100, 1000]), st.none() | st.sampled_from([0, 1, 100, 200, 201, 2000])
    ),
    min_size=1,
    max_size=4,
)


@examples(300)
@given(expressions(st.sampled_from(TARGETS), leaves=6), BEHAVIOURS, CALLS)
def test_any_nesting_of_policies_ends_in_time_and_closes_all(
    expression: Expression, behaviours: dict[str, list[Script]], calls: list[tuple[int, int | None]]
) -> None:
    states = in_region()
    fakes = {
        name: scripted(*behaviours[name], target=name, observer=states.observe) for name in TARGETS
    }

    async def main() -> None:
        service = build(expression, fakes.__getitem__, states, make_encoder=continuation_encoder)
        async with asyncio.TaskGroup() as group:
            for number, (starts_ms, leaves_ms) in enumerate(calls):
                group.create_task(_client(service, number, starts_ms, leaves_ms))

    play(main, list(fakes.values()))


async def _client(service: Service, number: int, starts_ms: int, leaves_ms: int | None) -> None:
    await asyncio.sleep(starts_ms / 1000)
    asking = asyncio.create_task(_ask(service, number))
    if leaves_ms is not None:
        asyncio.get_running_loop().call_later(leaves_ms / 1000, asking.cancel)
    began_ns = clock.now_ns()
    await asyncio.wait([asking])
    took_ms = (clock.now_ns() - began_ns) / NS_PER_MS
    if asking.cancelled():
        assert leaves_ms is not None
        assert took_ms == leaves_ms  # at once
    else:
        asking.result()
        assert took_ms <= WITHIN_MS


async def _ask(service: Service, number: int) -> None:
    try:
        reply = await service(
            msgspec.structs.replace(a_call(number, within_ms=WITHIN_MS), body=BODY)
        )
    except Fault:
        return
    async with reply:
        events = [event async for event in reply]
    assert isinstance(events[-1], Done | Broken)
