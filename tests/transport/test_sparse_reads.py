"""When streams are left unread for a while, what a read after that says of its times, and which
servers it spares."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from tests.transport.conftest import Run
from tests.transport.peers import Recorder, chunked
from tests.transport.test_connection import CHUNKED, RecordingOwner

from splitsecond.benchmark.runs.settings import RunSettings
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.transport import connection as connection_module
from splitsecond.core.transport import sparse_reads
from splitsecond.core.transport.connection import HttpConnection, ReadBuffer, ReadContext
from splitsecond.core.transport.exchange import Connected, Exchange, Origin, TimeLeft
from splitsecond.core.transport.polling import TICK_NS, BatchedPoller
from splitsecond.core.transport.sparse_reads import (
    MAX_REFUSALS,
    MIN_REST_NS,
    OBSERVED_READS,
    PASSED_PACKETS,
    READS_BEFORE_TRIAL,
    REST_BY_PACKETS_NS,
    REST_BYTES,
    REST_NS,
    REST_PACKETS,
    SLOWEST_GAP_NS,
    STREAMS_BY_PACKETS,
    STREAMS_BY_READS,
    TRIAL_PACKETS,
    UNKNOWN_END_REST_NS,
    ReadPace,
    ServerTrial,
    SparseReads,
)

GAP_NS = 10 * NS_PER_MS
SIZE = 100
ORIGIN = Origin("http", "test", 80)


class Stream:
    """A stream with a packet every `gap_ns` in virtual time; `rest` of the last read, `packets`
    that have come."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        near: socket.socket,
        *,
        streams: int = STREAMS_BY_READS,
    ) -> None:
        self.near = near
        self.now_ns = self.packets = self.rest = 0
        self.streams = streams
        self.left_ns: int | None = 3600 * NS_PER_S
        self.trial = ServerTrial()
        monkeypatch.setattr(sparse_reads, "packets_received", lambda _: self.packets)
        self.pace = self.paced()

    def paced(self, *, by_packets: bool = False) -> ReadPace:
        """Return the pace of a stream whose first token has just been read."""
        pace = ReadPace(
            self.near, self.trial, lambda: self.streams, lambda: self.left_ns, by_packets=by_packets
        )
        assert pace.rest_ns(SIZE) == 0
        return pace

    def read(self, *, gap_ns: int = GAP_NS, packets: int = 1, size: int = SIZE) -> int:
        """Let `gap_ns` pass and `packets` of `size` bytes in all come, and read."""
        self.now_ns += gap_ns
        self.packets += packets
        self.rest = self.pace.rest_ns(size)
        return self.rest

    def promptly(self, reads: int, *, gap_ns: int = GAP_NS) -> None:
        for _ in range(reads):
            assert self.read(gap_ns=gap_ns) == 0


@pytest.fixture
def near() -> Iterator[socket.socket]:
    with socket.socket() as opened:
        yield opened


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch, near: socket.socket) -> Iterator[Stream]:
    moment: list[Stream] = []
    with clock.using(lambda: moment[0].now_ns if moment else 0):
        moment.append(Stream(monkeypatch, near))
        yield moment[0]


def test_server_that_passes_the_trial_is_read_sparsely(stream: Stream) -> None:
    stream.promptly(READS_BEFORE_TRIAL - 1)
    assert stream.read() == TRIAL_PACKETS * GAP_NS
    for _ in range(20):
        assert stream.read(gap_ns=stream.rest, packets=PASSED_PACKETS) == REST_NS
    stream.pace = stream.paced()  # another stream of the server needs no trial
    stream.promptly(OBSERVED_READS - 1)
    assert stream.read() == REST_NS


def test_server_that_fails_the_trials_is_read_promptly(stream: Stream) -> None:
    for _ in range(MAX_REFUSALS):
        stream.promptly(READS_BEFORE_TRIAL - 1)
        assert stream.read() == TRIAL_PACKETS * GAP_NS
        assert stream.read(gap_ns=stream.rest, packets=PASSED_PACKETS - 1) == 0
    stream.promptly(10 * READS_BEFORE_TRIAL)


def test_one_stream_of_a_server_is_tried_at_a_time(stream: Stream) -> None:
    first, second = stream.pace, stream.paced()
    stream.promptly(READS_BEFORE_TRIAL - 1)
    assert stream.read() > 0
    stream.pace = second
    stream.promptly(READS_BEFORE_TRIAL)
    stream.now_ns += NS_PER_S  # the first stream has ended in its trial
    stream.pace = stream.paced()
    stream.promptly(READS_BEFORE_TRIAL - 1)
    assert stream.read() > 0
    assert first is not stream.pace


def test_slow_streams_and_few_streams_are_read_promptly(stream: Stream) -> None:
    stream.promptly(3 * READS_BEFORE_TRIAL, gap_ns=SLOWEST_GAP_NS + 1)
    stream.streams -= 1
    stream.promptly(3 * READS_BEFORE_TRIAL)


def test_fast_streams_rest_for_the_minimum_time(stream: Stream) -> None:
    stream.trial.passed = True
    stream.promptly(OBSERVED_READS - 1, gap_ns=NS_PER_MS)
    assert stream.read(gap_ns=NS_PER_MS) == MIN_REST_NS


@pytest.mark.parametrize(
    ("gap_ns", "by_packets", "rest_ns"),
    [
        (4 * NS_PER_MS, False, REST_PACKETS * 4 * NS_PER_MS),
        (4 * NS_PER_MS, True, REST_PACKETS * 4 * NS_PER_MS),
        (19 * NS_PER_MS, False, REST_NS),
        (19 * NS_PER_MS, True, REST_BY_PACKETS_NS),
    ],
)
def test_a_stream_rests_for_the_time_of_its_packets(
    stream: Stream, gap_ns: int, by_packets: bool, rest_ns: int
) -> None:
    stream.trial.passed = True
    stream.pace = stream.paced(by_packets=by_packets)
    stream.promptly(OBSERVED_READS - 1, gap_ns=gap_ns)
    assert stream.read(gap_ns=gap_ns) == rest_ns


def test_stream_of_large_packets_rests_until_half_the_window(stream: Stream) -> None:
    stream.trial.passed = True
    for _ in range(2):
        assert [stream.read(size=REST_BYTES // 8) for _ in range(OBSERVED_READS)][:-1] == [0] * (
            OBSERVED_READS - 1
        )
        assert 7 * GAP_NS < stream.rest <= 8 * GAP_NS
        stream.read(gap_ns=2 * stream.rest)  # the stream has paused


def test_pace_is_measured_again_after_a_pause(stream: Stream) -> None:
    stream.trial.passed = True
    stream.promptly(OBSERVED_READS - 1)
    assert stream.read() > 0
    assert stream.read(gap_ns=2 * stream.rest) == 0
    stream.promptly(OBSERVED_READS - 1)
    assert stream.read() > 0


@pytest.mark.parametrize("late", [True, False])
def test_trial_with_a_pause_of_the_stream_is_not_passed(stream: Stream, late: bool) -> None:
    stream.promptly(READS_BEFORE_TRIAL - 1)
    stream.read()
    stream.read(gap_ns=stream.rest * (2 if late else 1), packets=TRIAL_PACKETS)
    assert stream.trial.passed is not late


def test_trial_that_a_deadline_cuts_short_does_not_count(stream: Stream) -> None:
    for _ in range(2 * MAX_REFUSALS):
        stream.promptly(READS_BEFORE_TRIAL - 1)
        assert stream.read() == TRIAL_PACKETS * GAP_NS
        assert stream.read(gap_ns=stream.rest // 2, packets=1) == 0
        stream.now_ns += NS_PER_S  # the next trial
        stream.pace = stream.paced()
    assert not stream.trial.passed


def test_rest_without_packet_clock_is_at_most_half_the_time_left(stream: Stream) -> None:
    stream.trial.passed = True
    stream.left_ns = None
    stream.promptly(3 * OBSERVED_READS)  # its end is not known
    stream.left_ns = 3 * REST_NS
    stream.promptly(OBSERVED_READS - 1)
    rests = []
    while stream.read(gap_ns=stream.rest or GAP_NS):
        rests.append(stream.rest)
        stream.left_ns -= stream.rest
    assert rests == [REST_NS, REST_NS, REST_NS // 2, REST_NS // 4]
    stream.promptly(3 * OBSERVED_READS)


def test_without_the_packet_clock_no_trial_begins_near_the_end(stream: Stream) -> None:
    stream.left_ns = 2 * TRIAL_PACKETS * GAP_NS - 2
    stream.promptly(READS_BEFORE_TRIAL)
    stream.left_ns += 2
    stream.promptly(READS_BEFORE_TRIAL - 1)
    assert stream.read() == TRIAL_PACKETS * GAP_NS


def test_rest_with_packet_clock_ends_at_the_expected_end(stream: Stream) -> None:
    stream.trial.passed = True
    stream.pace = stream.paced(by_packets=True)
    stream.left_ns = None
    stream.promptly(OBSERVED_READS - 1)
    assert stream.read() == UNKNOWN_END_REST_NS
    longest_ns = REST_BY_PACKETS_NS
    for left_ns, rest_ns in (
        (10 * longest_ns, longest_ns),
        (longest_ns // 2, longest_ns // 2),
        (-1, MIN_REST_NS),
    ):
        stream.left_ns = left_ns
        assert stream.read(gap_ns=stream.rest) == rest_ns


def test_exact_itl_without_packet_clock_forbids_sparse_reads(near: socket.socket) -> None:
    def pace(*, exact: bool, by_packets: bool) -> ReadPace | None:
        return SparseReads(exact=exact).pace(
            near, ORIGIN, lambda: 0, lambda: None, by_packets=by_packets
        )

    assert pace(exact=False, by_packets=False)
    assert pace(exact=True, by_packets=False) is None
    assert pace(exact=True, by_packets=True)


def test_the_packet_clock_allows_sparse_reads_of_fewer_streams() -> None:
    assert STREAMS_BY_PACKETS < STREAMS_BY_READS


# The poller.


def test_resting_socket_is_called_once_and_gathers_again(run: Run) -> None:
    async def story() -> None:
        poller = BatchedPoller(asyncio.get_running_loop())
        near, far = socket.socketpair()
        near.setblocking(False)
        called: asyncio.Queue[int] = asyncio.Queue()

        def readable() -> None:
            try:
                near.recv(10)
            except BlockingIOError:
                called.put_nowait(0)
            else:
                called.put_nowait(clock.now_ns())

        poller.watch(near.fileno(), readable)
        poller.gather(near.fileno())
        began = clock.now_ns()
        poller.rest(near.fileno(), TICK_NS)
        far.send(b"token")
        assert await called.get() - began >= TICK_NS
        far.send(b"token")  # it gathers again
        assert await called.get()
        poller.rest(near.fileno(), TICK_NS)
        assert await called.get() == 0  # nothing came, and it was called all the same
        assert poller.gathered == 1
        poller.rest(near.fileno(), TICK_NS)
        poller.unwatch(near.fileno())
        poller.watch(near.fileno(), readable)  # as a new connection with the same descriptor
        await asyncio.sleep(3 * TICK_NS / NS_PER_S)
        assert called.empty()
        assert poller.gathered == 0
        poller.close()
        near.close()
        far.close()

    run(story())


def test_shorter_rest_ends_in_time_beside_a_longer_one(run: Run) -> None:
    async def story() -> None:
        poller = BatchedPoller(asyncio.get_running_loop())
        pairs = [socket.socketpair() for _ in range(2)]
        called = asyncio.Event()
        for near, _ in pairs:
            poller.watch(near.fileno(), called.set)
            poller.gather(near.fileno())
        poller.rest(pairs[0][0].fileno(), 3600 * NS_PER_S)
        poller.rest(pairs[1][0].fileno(), TICK_NS)
        await called.wait()
        poller.close()
        for near, far in pairs:
            near.close()
            far.close()

    run(story())


def test_a_rest_can_be_ended(run: Run) -> None:
    async def story() -> None:
        poller = BatchedPoller(asyncio.get_running_loop())
        near, far = socket.socketpair()
        read = asyncio.Event()
        calls: list[bytes] = []

        def readable() -> None:
            calls.append(near.recv(10))
            read.set()

        poller.watch(near.fileno(), readable)
        poller.gather(near.fileno())
        far.send(b"token")
        poller.rest(near.fileno(), 3600 * NS_PER_S)
        poller.gather(near.fileno())
        await read.wait()
        assert calls == [b"token"]
        poller.unwatch(near.fileno())
        poller.close()
        near.close()
        far.close()

    run(story())


def test_each_rest_wakes_the_loop_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop rounds timers to whole milliseconds. One that rang early was set again for at once,
    until it was time."""
    wakes: list[int] = []
    ends = BatchedPoller._end_rests

    def end_rests(poller: BatchedPoller) -> None:
        wakes.append(clock.now_ns())
        ends(poller)

    monkeypatch.setattr(BatchedPoller, "_end_rests", end_rests)

    async def story() -> None:
        poller = BatchedPoller(asyncio.get_running_loop())
        near, far = socket.socketpair()
        done = asyncio.Event()
        calls: list[int] = []

        def readable() -> None:
            calls.append(clock.now_ns())
            if len(calls) <= 20:
                poller.rest(near.fileno(), TICK_NS)
            else:
                poller.unwatch(near.fileno())
                done.set()

        poller.watch(near.fileno(), readable)
        poller.gather(near.fileno())
        far.send(b"token")  # never read: only rests keep it from being called again and again
        await done.wait()
        assert calls[-1] - calls[0] >= 19 * TICK_NS
        assert len(wakes) == 20
        poller.close()
        near.close()
        far.close()

    run(story())


# A connection.


class HandPoller:
    """A poller that calls nothing by itself. `rests` are the lengths of the rests."""

    gathers, looked_ns, gathered = True, 0, STREAMS_BY_READS

    def __init__(self) -> None:
        self.readable: Callable[[], None] = lambda: None
        self.rests: list[int] = []
        self.gathers_again = -1

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None:
        self.readable = readable

    def gather(self, descriptor: int) -> None:
        self.gathers_again += 1

    def rest(self, descriptor: int, length_ns: int) -> None:
        self.rests.append(length_ns)

    def unwatch(self, descriptor: int) -> None: ...

    def close(self) -> None: ...


class Asleep(SparseReads):
    """Lets each stream rest after each read."""

    def pace(
        self,
        sock: socket.socket,
        origin: Origin,
        streams: Callable[[], int],
        time_left: TimeLeft,
        *,
        by_packets: bool,
    ) -> ReadPace | None:
        class Always(ReadPace):
            def rest_ns(self, size: int) -> int:
                return TICK_NS if time_left() else 0

        return Always(sock, ServerTrial(), streams, time_left, by_packets=by_packets)


@contextmanager
def resting(
    monkeypatch: pytest.MonkeyPatch, packets: list[int]
) -> Iterator[tuple[socket.socket, HandPoller, Exchange, list[int]]]:
    """A connection whose response has begun and whose reading pauses. `packets`: those received,
    call by call.

    It pauses until the number in the yielded list is 0.
    """
    left_ns = [NS_PER_S]
    monkeypatch.setattr(connection_module, "packets_received", lambda _: packets.pop(0))
    near, far = socket.socketpair()
    near.setblocking(False)
    poller = HandPoller()
    info = Connected(1, False, 0, 0, 0, "here")
    made = HttpConnection(
        near,
        None,
        origin=ORIGIN,
        info=info,
        owner=RecordingOwner(),
        reading=ReadContext(
            cast(asyncio.AbstractEventLoop, None), poller, ReadBuffer(), sparse=Asleep(exact=False)
        ),
    )
    exchange = Exchange(Recorder(), info, lambda _: pytest.fail("nothing to send again"))
    with near, far:
        made.start(exchange, b"request", "POST", reused=False)
        far.send(CHUNKED + b"\r\n")
        poller.readable()
        exchange.gather(lambda: left_ns[0])
        far.send(chunked([b"first"]).removesuffix(b"0\r\n\r\n"))
        poller.readable()
        assert poller.rests == [TICK_NS]
        yield far, poller, exchange, left_ns


def test_read_after_a_rest_dates_from_the_start_of_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[tuple[int, int]] = []
    with resting(monkeypatch, packets=[0, 2, 3, 6, 6]) as (far, poller, exchange, _):
        sparse = [exchange.sparse]
        before = clock.now_ns()
        monkeypatch.setattr(
            Recorder, "body_received", lambda *_: found.append(exchange.packets_read())
        )
        far.send(chunked([b"second", b"third"]).removesuffix(b"0\r\n\r\n"))
        poller.readable()
    sparse.append(exchange.sparse)
    assert sparse == [False, True]
    ((packets, after_ns),) = found
    assert packets == 6 - 3
    assert after_ns <= before


def test_stream_near_its_end_is_read_promptly(monkeypatch: pytest.MonkeyPatch) -> None:
    with resting(monkeypatch, packets=[0, 2, 3, 6]) as (far, poller, exchange, left_ns):
        left_ns[0] = 0
        far.send(chunked([b"second"]).removesuffix(b"0\r\n\r\n"))
        poller.readable()
        assert poller.rests == [TICK_NS]
        assert exchange.packets_read() == (1, 0)


def test_a_resting_stream_is_read_when_a_deadline_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bytes] = []
    with resting(monkeypatch, packets=[0, 2, 3, 6]) as (far, poller, exchange, left_ns):
        monkeypatch.setattr(Recorder, "body_received", lambda *read: found.append(read[-1]))
        exchange.read_resting()
        assert found == []  # nothing has come
        far.send(chunked([b"second"]).removesuffix(b"0\r\n\r\n"))
        exchange.read_resting()
        assert found == [b"second"]
        assert poller.rests == [TICK_NS, TICK_NS]  # and it rests again
        assert poller.gathers_again == 0
        left_ns[0] = 0
        far.send(chunked([b"third"]).removesuffix(b"0\r\n\r\n"))
        exchange.read_resting()
        assert found == [b"second", b"third"]
        assert poller.gathers_again == 1  # the poller learns that the rest is over
        far.send(chunked([b"fourth"]).removesuffix(b"0\r\n\r\n"))
        exchange.read_resting()
        assert found == [b"second", b"third"]  # it is read as soon as it is readable


def test_a_stream_that_is_paused_in_a_rest_stays_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bytes] = []
    with resting(monkeypatch, packets=[0, 2, 3, 6]) as (far, poller, exchange, _):

        def paused(*read: object) -> None:
            found.append(cast(bytes, read[-1]))
            exchange.pause()

        monkeypatch.setattr(Recorder, "body_received", paused)
        for text in (b"second", b"third"):
            far.send(chunked([text]).removesuffix(b"0\r\n\r\n"))
            exchange.read_resting()
        assert found == [b"second"]
        assert poller.gathers_again == 0


# The option.


def test_setting_itl_accepts_only_exact() -> None:
    RunSettings(itl="exact").check()
    RunSettings().check()
    with pytest.raises(CallerFault, match="itl: got 'blurred', expected exact"):
        RunSettings(itl="blurred").check()
