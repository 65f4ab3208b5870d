"""`cache(x, ttl="10m", size="64MB", sampled=True)`: what was answered once is not asked again.

What it does. An answer is kept for `ttl`, and given to whoever asks exactly the same: every field that means something
to the answer is equal, in whatever order, and it is the same client. Nothing that one client was told is ever told to
another. It is given again as it came, a stream as a stream. Only answers that ended well are kept. Identical requests
that are under way at the same time are sent once (`flight`).

Kept are answers to requests that would be answered alike again: with ``temperature`` 0 or a ``seed``, and embeddings.
With ``sampled=True`` all others too: then whoever asks twice for another version is given the same one. Never kept:
what is to be stored at the provider, what searches the web, and pictures by address, as those may change.

A client sends ``Cache-Control: no-cache`` for a fresh answer (which is kept for later), ``no-store`` to have nothing
to do with the cache, ``max-age=60`` for an answer of the last minute.

What it costs. Memory up to `size` in each process (each worker has its own), the least recently used answer goes first;
and reading the request whole, some microseconds for each kilobyte of prompt. A hit sends nothing and leaves no
observation, so that the times of targets stay what they are.

When it helps. Where the same is asked again: evaluations, retries of applications, a page that many open at once. A hit
takes microseconds. And where a burst of identical requests would be paid for one by one.

When it hurts. Where answers go stale within `ttl`, and with `sampled` where variety is wanted. Conversations hardly
ever repeat; there it only costs.

Where it stands. Outside of everything whose answer it keeps. Inside `deadline`.
"""

import hashlib
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.events import Done, Event
from splitsecond.policy.answers.flight import Flight
from splitsecond.policy.answers.recording import Kept, Piece, Recording
from splitsecond.policy.settings import duration, memory, written
from splitsecond.service import Call, Reply, Service

TTL = "10m"
SIZE = "64MB"
LARGEST_PART = 4
"""One answer may take one part in so many of the memory."""
ENTRY_BYTES = 1024
"""About what an entry takes beside its answer."""
PIECE_BYTES = 8 * 1024
"""An answer is given again in pieces of about this size, whatever the reads were in which it came."""
LONGEST_REQUEST = 1 << 20
"""Bytes. To read a longer one whole would hold up everybody else for milliseconds."""

_MEANS_NOTHING = frozenset({
    "stream", "stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "service_tier",
})  # fmt: skip
_NOT_KEPT = ("web_search_options", "background")
_NOT_ALIKE = (b'"url":"http', b'"image_url":"http', b'"file_url":"http', b'"type":"web_', b'"previous_response_id":"')
"""What stands in the JSON of a request whose answer depends on more than that: pictures and files by address, what
searches the web, what only the provider remembers."""

_encode = msgspec.json.Encoder(order="deterministic").encode


def cache(service: Service, *, ttl: str | None = None, size: str | None = None, sampled: bool | None = None) -> Service:
    """`service`, whose answers are kept for `ttl` in `size` of memory."""
    return Cache(service, ttl, size, sampled)


class _Wish(Struct, frozen=True):
    """What a client wants of the cache. `max_age_ns` None: any age."""

    store: bool = True
    look: bool = True
    max_age_ns: int | None = None


class _Entry(Struct):
    answer: Kept
    size: int
    stored_ns: int


class Cache:
    """See `cache`."""

    def __init__(self, service: Service, ttl: str | None, size: str | None, sampled: bool | None) -> None:
        self._service = service
        self._ttl, self._ttl_ns = ttl, duration("ttl", ttl or TTL)
        self._size, self._most_bytes = size, memory("size", size or SIZE)
        self._sampled = sampled
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0
        self._flights: dict[tuple[bytes, bool], Flight] = {}

    def __repr__(self) -> str:
        return written("cache", [self._service], ttl=self._ttl, size=self._size, sampled=self._sampled)

    async def __call__(self, call: Call) -> Reply:
        wish = _wish(call.hints.get("cache", ""))
        key = _key(call, sampled=bool(self._sampled)) if wish.store else None
        if key is None:
            return await self._service(call)
        while wish.look:
            if (answer := self._found(key, wish)) is not None:
                call.notes.cache = "hit"
                return answer.play(watched=call.watched)
            flight = next((each for mode in (True, False) if (each := self._flights.get((key, mode)))), None)
            if flight is None or not flight.takes(call):
                break
            call.notes.cache = "shared"
            if (reply := await flight.follow(call)) is not None:
                return reply
        return await self._lead(key, call)

    async def _lead(self, key: bytes, call: Call) -> Reply:
        call.notes.cache = "miss"
        flight = self._flights[key, call.stream] = Flight(call)
        try:
            reply = await self._service(msgspec.structs.replace(call, watched=True))
        except BaseException as failure:
            self._over(key, call.stream, flight)
            flight.fails(failure if isinstance(failure, Fault) else None)
            raise
        recording = _Recording(self, key, call.stream, flight, reply)
        flight.answers(recording)
        return recording.play(watched=call.watched, leave=flight.leave)

    def _over(self, key: bytes, stream: bool, flight: Flight) -> None:
        """Nobody may join `flight` any more."""
        if self._flights.get((key, stream)) is flight:
            del self._flights[key, stream]

    def _found(self, key: bytes, wish: _Wish) -> Kept | None:
        """The answer that is kept, if it is young enough."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        age_ns = clock.now_ns() - entry.stored_ns
        if age_ns >= self._ttl_ns:
            self._drop(key)
            return None
        if wish.max_age_ns is not None and age_ns > wish.max_age_ns:
            return None
        self._entries.move_to_end(key)
        return entry.answer

    def _keep(self, key: bytes, answer: Kept) -> None:
        """Put `answer` in, and as many others out as must be."""
        size = answer.size + ENTRY_BYTES
        if size > self._most_bytes // LARGEST_PART:
            return
        if key in self._entries:
            self._drop(key)
        self._entries[key] = _Entry(answer, size, clock.now_ns())
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: bytes) -> None:
        self._bytes -= self._entries.pop(key).size


class _Recording(Recording):
    """Goes into the cache when it is whole; nobody joins it when it is over, or closed."""

    def __init__(self, cache: Cache, key: bytes, stream: bool, flight: Flight, reply: Reply) -> None:
        super().__init__(reply, keep=True)
        self._cache = cache
        self._key = key
        self._stream = stream
        self._flight = flight

    def ended(self) -> None:
        self._cache._over(self._key, self._stream, self._flight)
        last = next((event for piece in reversed(self.pieces) for event in reversed(piece.events)), None)
        if self.whole and not self.empty and isinstance(last, Done):
            self._cache._keep(self._key, Kept(self.target, _joined(self.pieces)))

    async def close(self) -> None:
        self._cache._over(self._key, self._stream, self._flight)
        await super().close()


def _joined(pieces: deque[Piece]) -> list[Piece]:
    """`pieces` put together to fewer."""
    found: list[Piece] = []
    data, events, size = list[bytes](), list[Event](), 0
    for number, piece in enumerate(pieces, 1):
        data.append(piece.data)
        events.extend(piece.events)
        size += len(piece.data)
        if size >= PIECE_BYTES or number == len(pieces):
            found.append(Piece(b"".join(data), tuple(events)))
            data, events, size = [], [], 0
    return found


def _wish(said: str) -> _Wish:
    """What ``Cache-Control`` says to a cache of answers; what it does not know, it does not mind."""
    if not said:
        return _Wish()
    words = {word.strip().lower() for word in said.split(",")}
    ages = [word[8:] for word in words if word.startswith("max-age=")]
    ages_ns = [int(age) * clock.NS_PER_S for age in ages if age.isascii() and age.isdigit() and len(age) < 10]
    return _Wish(
        store="no-store" not in words, look="no-cache" not in words, max_age_ns=min(ages_ns) if ages_ns else None
    )


def _key(call: Call, *, sampled: bool) -> bytes | None:
    """What stands for all calls that would be answered like this one. None: it is not to be kept."""
    fields = _fields(call.body)
    stored = call.dialect == "responses"  # where nobody says otherwise
    if fields is None or fields.get("store", stored) or any(fields.get(name) for name in _NOT_KEPT):
        return None
    alike = fields.get("temperature") == 0 or fields.get("seed") is not None or call.operation == "embeddings"
    if not (sampled or alike):
        return None
    said = _encode([call.operation, call.dialect, call.hints.get("betas", ""), call.client, fields])
    if any(words in said for words in _NOT_ALIKE):
        return None
    return hashlib.sha256(said).digest()


def _fields(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields that mean something to the answer, as plain values. None: too long, or no JSON."""
    fields: dict[str, Any] = {}
    size = 0
    try:
        for name, value in body.items():
            if name in _MEANS_NOTHING:
                continue
            if isinstance(value, Raw):
                size += len(memoryview(value))
                if size > LONGEST_REQUEST:
                    return None
                value = msgspec.json.decode(value)
            if value is not None:
                fields[name] = value
    except (ValueError, RecursionError):
        return None
    return fields
