"""What must hold of every decoder, whatever the answer: checked over a body by `check_decoder`,
over any bytes by `check_any_bytes`.

A body may come in any split; one that is cut anywhere is a fault or the whole answer; one with a
wrong byte anywhere still ends, once; nothing comes after the end.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.power import repeated

from splitsecond.core.errors import ProviderFault
from splitsecond.core.events import Broken, Done, Event, Quiet, Token, Usage
from splitsecond.core.wire.streaming import Decoder

RANDOM_SPLITS = 40
repeated_at_places = repeated(few=100, full=1_000)
"""At most so many bytes of a body are cut or broken: the body is decoded once for each, which is
quadratic cost."""
CUT_KINDS = {"truncated", "malformed", "empty_answer"}

Make = Callable[[], Decoder]


def events_of(make: Make, parts: Iterable[bytes]) -> list[Event]:
    """The events of a body that comes in `parts`, all at 0."""
    decoder = make()
    events = [event for part in parts for event in decoder.feed(part, 0)]
    return events + decoder.close(0)


def fault_of(events: list[Event]) -> ProviderFault:
    """The fault that ends `events`."""
    (end,) = [event for event in events if isinstance(event, Broken)]
    assert end is events[-1]
    assert isinstance(end.fault, ProviderFault)
    return end.fault


def without_quiet(events: Iterable[Event]) -> list[Event]:
    """Return the events with content, counts or an end."""
    return [event for event in events if not isinstance(event, Quiet)]


def plain(events: list[Event]) -> list[Event | tuple[str, str, str]]:
    """Faults compare by identity; here by what they say."""
    return [
        (event.fault.kind, event.fault.phase, event.fault.message)
        if isinstance(event, Broken)
        else event
        for event in events
    ]


def check_decoder(make: Make, parts: list[bytes], *, whole: bool, places: int) -> None:
    """All of it, for a body that a server would send in `parts`. `whole`: it is an answer that ends
    well. `places`: at most so many bytes are cut and broken."""
    data = b"".join(parts)
    events = events_of(make, [data])
    assert isinstance(events[-1], Done) == whole
    assert plain(events_of(make, parts)) == plain(events)
    _check_splits(make, data, plain(events))
    if whole:
        _check_cuts(make, data, events, places)
    random = Random(data)
    for position in _places(data, places):
        corrupt = data[:position] + bytes([random.randrange(256)]) + data[position + 1 :]
        _check_ends_once(make, [corrupt])


def check_any_bytes(make: Make) -> None:
    """That any bytes, in any parts, end once."""

    @given(st.lists(st.binary()))
    def check(parts: list[bytes]) -> None:
        _check_ends_once(make, parts)

    check()


def _check_splits(make: Make, data: bytes, expected: list[Event | tuple[str, str, str]]) -> None:
    assert plain(events_of(make, [data[i : i + 1] for i in range(len(data))])) == expected
    random = Random(data)
    for _ in range(RANDOM_SPLITS):
        cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(1, 8)))
        parts = [data[start:end] for start, end in pairwise([0, *cuts, len(data)])]
        assert plain(events_of(make, parts)) == expected, parts


def _check_cuts(make: Make, data: bytes, whole: list[Event], places: int) -> None:
    said, usage = _amount(whole)
    for cut in _places(data, places):
        events = events_of(make, [data[:cut]])
        if isinstance(events[-1], Done):
            cut_said, cut_usage = _amount(events)
            assert cut_said == said, data[:cut]
            assert cut_usage in (None, usage), data[:cut]
        else:
            assert fault_of(events).kind in CUT_KINDS, data[:cut]


def _places(data: bytes, most: int) -> Sequence[int]:
    """Return where a body is cut and broken: at each byte, or at one of each part of `most` equal
    ones."""
    if len(data) <= most:
        return range(len(data))
    bounds = [len(data) * part // most for part in range(most + 1)]
    random = Random(data)
    return [random.randrange(start, end) for start, end in pairwise(bounds)]


def _amount(events: list[Event]) -> tuple[list[Token], Usage | None]:
    """What an answer comes to: its tokens, and the last word on how many they are."""
    usages = [event for event in events if isinstance(event, Usage)]
    return [event for event in events if isinstance(event, Token)], usages[-1] if usages else None


def _check_ends_once(make: Make, parts: list[bytes]) -> None:
    decoder = make()
    events = [event for part in parts for event in decoder.feed(part, 0)] + decoder.close(0)
    assert [isinstance(event, Done | Broken) for event in events] == [False] * (len(events) - 1) + [
        True
    ]
    assert decoder.feed(b"data: {}\n\n", 0) == decoder.close(0) == []
