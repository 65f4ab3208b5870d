"""The whole instrument against the corpus, over real sockets and on both event loops."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
import uvloop
from tests.streams import Stream, load
from tests.streams.sockets import check_over_sockets

LONG_MS = 400


def brief(stream: Stream) -> Stream:
    """The same stream without its long waits: a test may not sleep, and the order of things
    stays."""
    scale = max(1, stream.end_ns // (LONG_MS * 100_000))

    def sooner(at_ns: int) -> int:
        return at_ns // scale

    return msgspec.structs.replace(
        stream,
        head_ns=sooner(stream.head_ns),
        end_ns=sooner(stream.end_ns),
        packets=tuple(msgspec.structs.replace(p, at_ns=sooner(p.at_ns)) for p in stream.packets),
        truth=msgspec.structs.replace(
            stream.truth, token_ns=tuple(sooner(at) for at in stream.truth.token_ns)
        ),
    )


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.SelectorEventLoop])
def test_every_stream_over_sockets_matches_its_truth(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        checks = runner.run(check_over_sockets([brief(stream) for stream in load()], at_once=32))
    assert {c.stream.name: c.wrong for c in checks if c.wrong} == {}
    assert sum(len(c.error_ns) for c in checks) > 100


def test_a_wrong_truth_is_noticed() -> None:
    plain = next(stream for stream in load() if stream.name == "plain")
    lie = msgspec.structs.replace(
        plain, truth=msgspec.structs.replace(plain.truth, text="something else")
    )
    short = msgspec.structs.replace(plain, truth=msgspec.structs.replace(plain.truth, token_ns=()))
    with asyncio.Runner() as runner:
        checks = runner.run(check_over_sockets([lie])) + runner.run(check_over_sockets([short]))
    assert any(line.startswith("text: ") for line in checks[0].wrong)
    assert any(line.startswith("tokens: ") for line in checks[1].wrong)
