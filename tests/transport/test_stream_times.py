"""Each byte of a stream has the time at which it and all bytes before it had arrived, whatever
happened to packets."""

from hypothesis import given
from hypothesis import strategies as st

from splitsecond.core.transport.stream_times import StreamTimes, monotonic

WRAP = 1 << 32


def pairs(taken: tuple[list[int], list[int]]) -> list[tuple[int, int]]:
    """Return the size and the arrival of each packet."""
    return list(zip(*taken, strict=True))


@st.composite
def packets(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """The number of bytes of a stream, and its packets (offset, length) in the order of their
    arrival.

    Some are retransmissions, also of parts of several packets, and some come before earlier ones.
    """
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=12))
    begins = [sum(lengths[:i]) for i in range(len(lengths))]
    size = sum(lengths)
    sent = list(zip(begins, lengths, strict=True))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, size - 1))
        sent.append((begin, draw(st.integers(1, size - begin))))
    return size, draw(st.permutations(sent))


@given(packets(), st.integers(0, WRAP - 1), st.data())
def test_a_byte_has_arrived_when_all_before_it_have(
    sent: tuple[int, list[tuple[int, int]]], first: int, data: st.DataObject
) -> None:
    size, order = sent
    times = StreamTimes(first)
    first_arrival = [0] * size
    got: list[int] = []
    for at, (begin, length) in enumerate(order, 1):
        times.add((first + begin) % WRAP, length, at)
        for byte in range(begin, begin + length):
            first_arrival[byte] = first_arrival[byte] or at
        there = next((byte for byte in range(size) if not first_arrival[byte]), size)
        assert times.arrived == there
        for count, arrival in pairs(times.take(data.draw(st.integers(0, there - times.read)))):
            got += [arrival] * count
    for count, arrival in pairs(times.take(times.arrived - times.read)):
        got += [arrival] * count
    expected = [max(first_arrival[: byte + 1]) for byte in range(size)]
    assert got == expected
    assert len(times) == 0


def test_a_sequence_number_wraps_around_within_a_packet() -> None:
    times = StreamTimes(WRAP - 3)
    times.add(WRAP - 3, 10, 1)
    times.add(7, 5, 2)
    assert pairs(times.take(15)) == [(10, 1), (5, 2)]


def test_packet_that_overtook_another_has_the_later_time() -> None:
    times = StreamTimes(100)
    times.add(110, 10, 1)
    assert (times.arrived, times.reordered) == (0, 1)
    times.add(100, 10, 2)
    assert pairs(times.take(20)) == [(20, 2)]


def test_a_retransmission_changes_nothing_but_its_count() -> None:
    times = StreamTimes(0)
    times.add(0, 10, 1)
    times.add(0, 10, 2)
    times.add(5, 10, 3)  # half of it is new
    assert times.repeated == 1
    assert pairs(times.take(15)) == [(10, 1), (5, 3)]


def test_gap_in_the_packet_ring_is_skipped_with_the_read() -> None:
    times = StreamTimes(0)
    times.add(0, 10, 1)
    times.take(10)
    times.add(20, 10, 3)  # the packet before it was lost in the ring
    assert times.arrived == times.read
    times.skip(20, 4)  # what was read without it
    assert (times.arrived, times.read) == (30, 30)
    times.add(30, 10, 5)
    assert pairs(times.take(10)) == [(10, 5)]


def test_a_read_may_end_inside_a_gap() -> None:
    times = StreamTimes(0)
    times.skip(5, 1)
    times.add(0, 10, 2)
    assert pairs(times.take(5)) == [(5, 2)]


def test_a_packet_can_be_taken_in_parts() -> None:
    times = StreamTimes(0)
    times.add(0, 10, 1)
    times.add(10, 10, 2)
    times.add(20, 10, 3)
    assert pairs(times.take(0)) == []
    assert pairs(times.take(4)) == [(4, 1)]
    assert pairs(times.take(8)) == [(6, 1), (2, 2)]
    assert pairs(times.take(8)) == [(8, 2)]
    assert pairs(times.take(10)) == [(10, 3)]
    assert (times.read, len(times)) == (30, 0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 9))
def test_arrivals_are_put_in_order_one_by_one(arrivals: list[int], first: int, last: int) -> None:
    expected, at = [], first
    for arrived in arrivals:
        at = min(max(arrived, at), last)
        expected.append(at)
    assert monotonic(arrivals, first, last) == expected
