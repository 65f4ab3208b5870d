"""`cache(x, ttl="10m", size="64MB", sampled=True)`: identical requests are answered from memory."""

import hashlib
import re
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.events import Done
from splitsecond.core.service import WHOLE_OPERATIONS, Call, Reply, Service
from splitsecond.core.wire.client_format import client_format
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.replies.coalescing import CoalescedRequest
from splitsecond.routing.machinery.replies.shared_reply import (
    RecordedChunk,
    SharedReply,
    StoredReply,
    joined,
)
from splitsecond.routing.machinery.settings import Duration, MemorySize

TTL = Duration.parse("ttl", "10m")
SIZE = MemorySize.parse("size", "64MB")
LARGEST_PART = 4
"""One answer may take one part in four of the memory."""
ENTRY_BYTES = 1024
"""The approximate size of an entry without its answer."""
CHUNK_BYTES = 8 * 1024
"""An answer is given again in chunks of about this size, however it arrived."""
LONGEST_REQUEST = 1 << 20
"""The longest request, in bytes, that is looked up: reading a longer one blocks the event loop for
milliseconds."""

_WITHOUT_EFFECT = frozenset({
    "stream", "stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
})  # fmt: skip
_NOT_KEPT = ("web_search_options", "background", "thread")
_HINTS = ("betas", "version")
"""Hints that affect the answer."""
_NOT_ALIKE = re.compile(
    rb'"(?:[a-z_]{0,20}ur[il]|file_data)":"(?!data:)'
    rb'|"(?:[a-z_]{0,20}file_ids?|vector_store_ids|previous_response_id|conversation|container|connector_id)":["{[]'
    rb'|"prompt":\{|"type":"(?:web_|item_reference|file_search|mcp)',
    re.IGNORECASE,
)
"""Text in the JSON of a request whose answer depends on more than the request: pictures, files and
servers by address (of any scheme but "data") or by id, web searches, state at the provider."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class _CacheControl(Struct, frozen=True):
    store: bool = True
    look: bool = True
    max_age_ns: int | None = None


class _Entry(Struct):
    answer: StoredReply
    size: int
    stored_ns: int


class Cache(PolicyService):
    """`service`, whose answers are kept for `ttl` in `size` of memory. `sampled`: also those that
    may vary."""

    def __init__(
        self,
        context: PolicyContext,
        service: Service,
        *,
        ttl: Duration | None = None,
        size: MemorySize | None = None,
        sampled: bool | None = None,
    ) -> None:
        super().__init__(context)
        self._service = service
        self._ttl_ns = (ttl or TTL).ns
        self._most_bytes = (size or SIZE).size
        self._sampled = bool(sampled)
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0
        self._flights: dict[tuple[bytes, bool], CoalescedRequest] = {}

    async def __call__(self, call: Call) -> Reply:
        control = _cache_control(call.hints.get("cache", ""))
        key = _key(call, sampled=self._sampled) if control.store else None
        if key is None:
            return await self._service(call)
        while control.look:
            if (answer := self._found(key, control)) is not None:
                call.notes.cache = "hit"
                return answer.reader(watched=call.watched)
            flight = next(
                (each for mode in (True, False) if (each := self._flights.get((key, mode)))), None
            )
            if flight is None or not flight.accepts(call):
                break
            call.notes.cache = "shared"
            if (reply := await flight.follow(call)) is not None:
                return reply
        return await self._lead(key, call)

    async def _lead(self, key: bytes, call: Call) -> Reply:
        call.notes.cache = "miss"
        flight = self._flights[key, call.stream] = CoalescedRequest(call)
        try:
            reply = await self._service(msgspec.structs.replace(call, watched=True))
        except BaseException as failure:
            self._over(key, call.stream, flight)
            flight.set_fault(failure if isinstance(failure, Fault) else None)
            raise
        shared = _CachedReply(self, key, call.stream, flight, reply)
        flight.set_reply(shared)
        return shared.reader(watched=call.watched, leave=flight.leave)

    def _over(self, key: bytes, stream: bool, flight: CoalescedRequest) -> None:
        if self._flights.get((key, stream)) is flight:
            del self._flights[key, stream]

    def _found(self, key: bytes, control: _CacheControl) -> StoredReply | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        age_ns = clock.now_ns() - entry.stored_ns
        if age_ns >= self._ttl_ns:
            self._drop(key)
            return None
        if control.max_age_ns is not None and age_ns > control.max_age_ns:
            return None
        self._entries.move_to_end(key)
        return entry.answer

    def _keep(self, key: bytes, answer: StoredReply) -> None:
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


class _CachedReply(SharedReply):
    """A reply that goes into the cache when it is complete. No call joins it after its end, or when
    it is closed."""

    def __init__(
        self, cache: Cache, key: bytes, stream: bool, flight: CoalescedRequest, reply: Reply
    ) -> None:
        super().__init__(reply, keep=True)
        self._cache = cache
        self._key = key
        self._stream = stream
        self._flight = flight

    def on_end(self) -> None:
        self._cache._over(self._key, self._stream, self._flight)
        last = next(
            (event for chunk in reversed(self.chunks) for event in reversed(chunk.events)), None
        )
        if self.complete and not self.empty and isinstance(last, Done):
            self._cache._keep(self._key, StoredReply(self.target, _in_large_chunks(self.chunks)))

    async def close(self) -> None:
        self._cache._over(self._key, self._stream, self._flight)
        await super().close()


def _in_large_chunks(chunks: deque[RecordedChunk]) -> list[RecordedChunk]:
    large_chunks: list[RecordedChunk] = []
    group, size = list[RecordedChunk](), 0
    for number, chunk in enumerate(chunks, 1):
        group.append(chunk)
        size += len(chunk.data)
        if size >= CHUNK_BYTES or number == len(chunks):
            large_chunks.append(joined(group))
            group, size = [], 0
    return large_chunks


def _cache_control(header: str) -> _CacheControl:
    if not header:
        return _CacheControl()
    words = {word.strip().lower() for word in header.split(",")}
    ages = [word[8:] for word in words if word.startswith("max-age=")]
    ages_ns = [
        int(age) * clock.NS_PER_S
        for age in ages
        if age.isascii() and age.isdigit() and len(age) < 10
    ]
    return _CacheControl(
        store="no-store" not in words,
        look="no-cache" not in words,
        max_age_ns=min(ages_ns) if ages_ns else None,
    )


def _key(call: Call, *, sampled: bool) -> bytes | None:
    """Return the key of all calls with the same answer; None: the answer must not be kept."""
    fields = _fields(call.body)
    if (
        fields is None
        or fields.get("store", client_format(call).stored)
        or any(fields.get(name) for name in _NOT_KEPT)
    ):
        return None
    alike = (
        fields.get("temperature") == 0
        or fields.get("seed") is not None
        or call.operation in WHOLE_OPERATIONS
    )
    if not (sampled or alike):
        return None
    try:
        encoded = _encode(
            [call.operation, call.api_format, *map(call.hints.get, _HINTS), call.client, fields]
        )
    except RecursionError:  # encoding needs a little more stack than decoding
        return None
    if _NOT_ALIKE.search(encoded):
        return None
    return hashlib.sha256(encoded).digest()


def _fields(body: Mapping[str, Any]) -> dict[str, Any] | None:
    fields: dict[str, Any] = {}
    size = 0
    try:
        for name, value in body.items():
            if name in _WITHOUT_EFFECT:
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


cache = Policy(Cache, example='cache("a/x", ttl="10m", size="64MB", sampled=True)')
