"""Worst-case inputs, and checks that reading them takes linear time and bounded memory.

Anything that reads bytes from outside must cost at most linear time and a fixed multiple of the
input in memory, whatever the bytes are. `check_linear` and `check_bounded` verify this for one
reader and one kind of text. `KINDS` holds the kinds of text, by name, so that tests can be
parametrised with it.
"""

import bisect
import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import Fault

Make = Callable[[int], bytes]
"""Make a text of about so many bytes."""

SIZE = 1 << 19
FLOOR_NS = 20 * clock.NS_PER_MS
"""Shorter CPU times are not compared."""
_PARTS = 8
_GROWTH = 2.5
"""How many times as long as the parts the whole may take. Linear cost gives 1, quadratic cost 8.

A linear reader reaches 1.5 where only the whole needs more memory than the processor's caches hold.
"""
_TRIES = 5
_BYTES_PER_BYTE = 100
"""Python objects per byte of text: an empty list inside a list takes 2 bytes of JSON and 64 bytes
of memory."""
_FIXED_BYTES = 8 << 20


def check_linear(
    feed: Callable[[bytes], object],
    make: Make,
    *,
    size: int = SIZE,
    allowed: tuple[type[BaseException], ...] = (Fault,),
) -> None:
    """Fail where `feed` takes more than linear CPU time, or raises anything but `allowed`.

    One text of `size` bytes may take 2.5 times as long as eight texts of an eighth of `size`.
    `feed` starts from scratch for each text. With linear cost both sides take equally long, one
    right after the other, so a busy machine slows both down. The check passes if one of five
    comparisons does.
    """
    whole, part = make(size), make(size // _PARTS)
    growth = float("inf")
    for _ in range(_TRIES):
        whole_ns = _cpu_ns(feed, whole, allowed)
        if whole_ns <= FLOOR_NS:
            return
        parts_ns = (
            sum(_cpu_ns(feed, part, allowed) for _ in range(_PARTS))
            * len(whole)
            / (_PARTS * len(part))
        )
        growth = min(growth, whole_ns / parts_ns)
        if growth <= _GROWTH:
            return
    raise AssertionError(
        f"{len(whole):,} bytes take {growth:.1f} times as long as the same amount in {_PARTS} "
        f"parts, at most "
        f"{_GROWTH} times is linear: {whole_ns / clock.NS_PER_MS:,.0f} ms and "
        f"{parts_ns / clock.NS_PER_MS:,.0f} ms"
    )


def check_cheap(
    work: Callable[[], object], reference: Callable[[], object], *, times: float
) -> None:
    """Fail where `work` takes more than `times` the CPU time of `reference`, in each of five
    comparisons."""
    for _ in range(_TRIES):
        reference_ns = _cpu_ns(lambda _: reference(), b"", ())
        work_ns = _cpu_ns(lambda _: work(), b"", ())
        if work_ns <= times * reference_ns:
            return
    raise AssertionError(
        f"{work_ns / clock.NS_PER_MS:,.0f} ms are more than {times:,.0f} times the reference of "
        f"{reference_ns / clock.NS_PER_MS:,.1f} ms"
    )


def check_bounded(
    feed: Callable[[bytes], object],
    make: Make,
    *,
    size: int = SIZE,
    allowed: tuple[type[BaseException], ...] = (Fault,),
    bytes_per_byte: float = _BYTES_PER_BYTE,
) -> None:
    """Fail where `feed` allocates more than `bytes_per_byte` for each byte of the text, beside a
    fixed amount."""
    text = make(size)
    tracemalloc.start()
    try:
        _call(feed, text, allowed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    most = _FIXED_BYTES + bytes_per_byte * len(text)
    if peak > most:
        raise AssertionError(
            f"{len(text):,} bytes of text take {peak:,} bytes of memory, more than {most:,.0f}"
        )


def in_pieces(text: bytes, size: int = 1_400) -> Iterator[bytes]:
    """Cut a text into fragments, by default of the size of a network packet."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _cpu_ns(
    feed: Callable[[bytes], object], text: bytes, allowed: tuple[type[BaseException], ...]
) -> int:
    gc.collect(1)
    # a collection walks all objects of the process, most of which are not the reader's
    gc.disable()
    try:
        started_ns = time.process_time_ns()
        _call(feed, text, allowed)
        return time.process_time_ns() - started_ns
    finally:
        gc.enable()


def _call(
    feed: Callable[[bytes], object], text: bytes, allowed: tuple[type[BaseException], ...]
) -> None:
    try:
        feed(text)
    except allowed:
        pass
    except Exception as error:
        raise AssertionError(
            f"raises {type(error).__name__}, not one of {[t.__name__ for t in allowed]}"
        ) from error


def repeated(unit: bytes, before: bytes = b"", after: bytes = b"") -> Make:
    """Make texts that repeat `unit` between `before` and `after`."""
    return lambda size: (
        before + unit * max(1, (size - len(before) - len(after)) // len(unit)) + after
    )


def nested(
    opening: bytes, inner: bytes, closing: bytes, before: bytes = b"", after: bytes = b""
) -> Make:
    """Make texts in which `opening` and `closing` are nested as deeply as the size allows."""

    def make(size: int) -> bytes:
        depth = max(1, size // (len(opening) + len(closing)))
        return before + opening * depth + inner + closing * depth + after

    return make


def deepest_json() -> int:
    """Return how many arrays in each other can be read here: Python limits this together with the
    calls around it."""

    def is_readable(depth: int) -> bool:
        try:
            msgspec.json.decode(b"[" * depth + b"]" * depth)
        except RecursionError:
            return False
        return True

    return bisect.bisect_left(range(1 << 20), True, key=lambda depth: not is_readable(depth + 1))


def numbered(
    item: Callable[[int], bytes], order: str = "ascending", before: bytes = b"", after: bytes = b""
) -> Make:
    """Make texts of many items with distinct indexes: "ascending", "descending", "random", "huge"
    or "negative"."""

    def make(size: int) -> bytes:
        count = max(1, size // len(item(100_000)))
        return before + b"".join(item(index) for index in indexes(count, order)) + after

    return make


def indexes(count: int, order: str) -> list[int]:
    """Return `count` distinct indexes in the given order. "huge" indexes are above 10⁹, in random
    order."""
    numbers = list(range(count))
    match order:
        case "descending":
            numbers.reverse()
        case "random":
            random.Random(0).shuffle(numbers)
        case "huge":
            random.Random(0).shuffle(numbers)
            numbers = [10**9 + 7_919 * number for number in numbers]
        case "negative":
            numbers = [-number for number in numbers]
        case "ascending":
            pass
        case _:
            raise ValueError(f"unknown order {order!r}")
    return numbers


ORDERS = ("ascending", "descending", "random", "huge", "negative")

JSON_KINDS: dict[str, Make] = {
    "nested arrays": nested(b"[", b"", b"]"),
    "nested objects": nested(b'{"a":', b"1", b"}"),
    "arrays that never close": repeated(b"["),
    "objects that never close": repeated(b'{"a":'),
    "empty arrays in an array": repeated(b"[],", b"[", b"[]]"),
    "empty objects in an array": repeated(b"{},", b"[", b"{}]"),
    "repeated keys": repeated(b'"a":1,', b"{", b'"a":1}'),
    "many keys": numbered(lambda index: b'"%d":0,' % index, "random", b"{", b'"":0}'),
    "base64": repeated(b"QUJDRA", b'{"data":"', b'"}'),
    "half surrogates": repeated(rb"\uD800", b'{"text":"', b'"}'),
    "reversed surrogates": repeated(rb"\uDC00\uD800", b'{"text":"', b'"}'),
    "backslashes": repeated(rb"\\", b'{"text":"', b'"}'),
    "quotes": repeated(rb"\"", b'{"text":"', b'"}'),
    "a string that never closes": repeated(rb"\"a", b'{"text":"'),
    "digits": repeated(b"1"),
    "digits as an index": repeated(b"1", b'{"index":', b"}"),
    "digits after a point": repeated(b"1", b'{"index":0.', b"}"),
    "digits as an exponent": repeated(b"9", b'{"index":1e', b"}"),
    "whitespace": repeated(b" \t\r\n", b"{", b"}"),
    "bytes that are not UTF-8": repeated(b"\xff"),
    "a string that is not UTF-8": repeated(b"\xe2\x82", b'{"text":"', b'"}'),
}
"""JSON texts, whole and broken."""

LINE_KINDS: dict[str, Make] = {
    "one long line": repeated(b"a"),
    "one long field": repeated(b"a", b"data: "),
    "empty lines": repeated(b"\n"),
    "carriage returns": repeated(b"\r"),
    "line ends of every kind": repeated(b"a\r\n\r\n\n\r\r\n\n"),
    "short lines": repeated(b"a\n"),
    "short data lines": repeated(b"data:\n"),
    "data lines of one event": repeated(b"data: 1\n"),
    "short events": repeated(b"data: {}\n\n"),
    "empty events": repeated(b"data:\n\n"),
    "comments": repeated(b":\n"),
    "event names": repeated(b"event: a\n"),
    "byte order marks": repeated(b"\xef\xbb\xbf"),
    "null events": repeated(b"data: null\n\n"),
    "array events": repeated(b"data: []\n\n"),
    "string events": repeated(b'data: ""\n\n'),
}
"""Texts of lines, most of them event streams."""

HTTP_KINDS: dict[str, Make] = {
    "status line that never ends": repeated(b"a", b"HTTP/1.1 200 "),
    "interim responses": repeated(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "many headers": repeated(b"a: b\r\n", b"HTTP/1.1 200 OK\r\n", b"\r\n"),
    "different headers": numbered(
        lambda index: b"h%d: b\r\n" % index, "random", b"HTTP/1.1 200 OK\r\n", b"\r\n"
    ),
    "one long header": repeated(b"a", b"HTTP/1.1 200 OK\r\na: ", b"\r\n\r\n"),
    "one long header name": repeated(b"a", b"HTTP/1.1 200 OK\r\n", b": b\r\n\r\n"),
    "tiny chunks": repeated(
        b"1\r\na\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"0\r\n\r\n"
    ),
    "chunk extensions": repeated(
        b"1;a=b;c=d\r\na\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"0\r\n\r\n",
    ),
    "one long chunk extension": repeated(
        b";a=b", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1", b"\r\na\r\n0\r\n\r\n"
    ),
    "zeros before a chunk size": repeated(
        b"0", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n0\r\n\r\n"
    ),
    "many trailers": repeated(
        b"a: b\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
        b"\r\n",
    ),
    "one long trailer": repeated(
        b"a",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\na: ",
        b"\r\n\r\n",
    ),
}
"""HTTP/1.1 responses."""

KINDS: dict[str, Make] = {**JSON_KINDS, **LINE_KINDS, **HTTP_KINDS}
"""All kinds, by name."""
