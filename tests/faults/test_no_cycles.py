"""A call leaves nothing for the garbage collector, however it went: all of it is freed when it is
over.

Cycles would be found only when there are many. A worker would then hold megabytes of calls that are
long over, and stop for tens of milliseconds to look for them.
"""

import asyncio
import gc
import importlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import Raw, Struct, UnsetType
from tests.cases import each_case, sampled_cases
from tests.faults.test_failover import OddTarget, end, pieces
from tests.faults.test_faults_and_policies import FOR_EVER_S, POLICY
from tests.faults.world import World, play, profile
from tests.garbage import garbage

import splitsecond
from splitsecond.core.errors import Fault, ProviderFault
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.routing.machinery.replies.shared_reply import SharedReply
from splitsecond.simulator.content.faults import InjectedFault

CALLS = 24
ROOMS = "errors gateway policies router service serving timing transport upstream wire"
OURS = tuple(f"splitsecond.{room}" for room in ROOMS.split())
FAULTS = (
    InjectedFault(kind="http", status=500, every=3),
    InjectedFault(kind="cut", after=3, every=4),
    InjectedFault(kind="error_event", after=3, every=5),
    InjectedFault(kind="slow_first_token", seconds=FOR_EVER_S, every=7),
    InjectedFault(kind="stall", after=3, seconds=FOR_EVER_S, every=11),
    InjectedFault(kind="reset", every=13),
)


@sampled_cases(9)
@each_case("faults", [(), FAULTS], ids=["well", "ill"])
@each_case("policy", POLICY)
def test_calls_leave_no_garbage(
    policy: str, faults: tuple[InjectedFault, ...], tmp_path: Path
) -> None:
    found: list[str] = []

    async def story(world: World) -> None:
        await calls(world)  # what is made once is made
        with garbage() as left:
            await calls(world)
        found.extend(name for name in left if name.startswith(OURS))

    play(
        f'deadline({POLICY[policy]}, total="30s")',
        tmp_path,
        story,
        a=profile(*faults),
        b=profile(*faults),
    )
    assert found == []


def test_a_stream_that_arrives_at_once_leaves_no_garbage(tmp_path: Path) -> None:
    """Its attempt has ended before the client's side takes the reply."""
    found: list[str] = []

    async def at_once(cycle: RequestCycle) -> None:
        cycle.begin_stream([])
        await cycle.send(pieces() + end(), last=True)

    async def story(world: World) -> None:
        await world.ask(stream=True)
        with garbage() as left:
            await world.ask(stream=True)
            await world.settled()
        found.extend(name for name in left if name.startswith(OURS))

    play('fallback("a/m", "b/m")', tmp_path, story, a=OddTarget(at_once), b=profile())
    assert found == []


def test_a_broken_reply_is_freed_after_its_fault_was_raised() -> None:
    """The fault then has frames that hold the reply."""

    class BrokenReply:
        target, empty, token_ns = "a/x", False, 0

        async def read(self) -> bytes:
            raise ProviderFault("cut", kind="cut", phase="total")

        def arrived(self) -> list[Any]:
            return []

    async def read() -> "weakref.ref[SharedReply]":
        shared = SharedReply(BrokenReply())  # type: ignore[arg-type]
        with pytest.raises(Fault, match="cut"):
            await shared.reader(watched=False).read()
        return weakref.ref(shared)

    freed = asyncio.run(read())
    gc.collect()
    assert freed() is None


VALUES = (str, int, float, bool, bytes, NoneType, Raw, UnsetType, Any)
CONTAINERS = (list, tuple, dict, Sequence, Mapping, Union, UnionType)


def test_structs_that_the_collector_ignores_hold_only_values() -> None:
    """A cycle through such a struct is never freed. `Any` is a value of JSON."""
    found = list(ignored_structs())
    assert len(found) > 50
    assert [each.__qualname__ for each in found if not holds_only_values(each)] == []


def ignored_structs() -> Iterator[type[Struct]]:
    """Yield all structs with gc=False."""
    root = Path(splitsecond.__file__).parent
    for file in sorted(root.rglob("*.py")):
        text = file.read_text("utf-8")
        if "gc=False" in text or "(Shape" in text:  # a `Shape` inherits it
            module = importlib.import_module(
                ".".join(("splitsecond", *file.relative_to(root).with_suffix("").parts))
            )
            for each in vars(module).values():
                if (
                    isinstance(each, type)
                    and issubclass(each, Struct)
                    and each.__module__ == module.__name__
                ):
                    yield from () if each.__struct_config__.gc else (each,)


def holds_only_values(kind: Any, outer: tuple[Any, ...] = ()) -> bool:
    """Return whether objects of this type hold nothing but values of JSON. `outer`: the structs
    that it is part of."""
    origin = get_origin(kind)
    if kind in VALUES or kind in outer or origin is Literal:
        return True
    if origin is Annotated:
        return holds_only_values(get_args(kind)[0], outer)
    if origin in CONTAINERS:
        return all(holds_only_values(part, outer) for part in get_args(kind) if part is not ...)
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind, include_extras=True)
        return all(
            holds_only_values(hints[field.name], (*outer, kind))
            for field in msgspec.structs.fields(kind)
        )
    return False


async def calls(world: World) -> None:
    """Of every sort; some clients leave."""
    for number in range(CALLS):
        await world.ask(
            stream=number % 3 != 0,
            leaves_after_s=(0.04, 0.09, 0.4)[number // 4 % 3] if number % 4 == 3 else None,
        )
    await world.settled()
