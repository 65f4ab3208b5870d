"""A simulated provider that answers with recorded responses, at the recorded times."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.pacing import Pacer
from splitsecond.core.serving.connection import ServerConnection
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.simulator.endpoints import endpoint_at
from splitsecond.simulator.journal import RequestJournal
from splitsecond.simulator.recording import (
    MAX_REQUEST_BYTES,
    RecordedExchange,
    as_raw_json,
    path_without_key,
)
from splitsecond.simulator.request import RejectedRequest
from splitsecond.simulator.response import send_error

_Key = tuple[str, str, bytes]


class ReplayedProvider:
    """One provider: it answers a request with the response that was recorded for the same method,
    path and body.

    If a request was recorded several times, its responses are replayed in turn, and the last one
    again after that.
    """

    def __init__(self, recordings: Sequence[RecordedExchange], pacer: Pacer) -> None:
        self._recordings: dict[_Key, list[RecordedExchange]] = defaultdict(list)
        for each in recordings:
            self._recordings[each.method, each.path, bytes(each.request)].append(each)
        self._pacer = pacer
        self._played: dict[_Key, int] = defaultdict(int)
        self._journal = RequestJournal()

    def on_connect(self, connection: ServerConnection) -> None:
        """Accept every connection."""

    def abandon(self) -> None:
        """Do nothing: the server ends the responses."""

    async def __call__(self, cycle: RequestCycle) -> None:
        endpoint = endpoint_at(cycle.path)
        if (page := self._own_page(cycle)) is not None:
            await cycle.answer(200, page)
            return
        format_name = endpoint.format_name if endpoint is not None else ""
        entry = self._journal.add(
            cycle.method, cycle.path, cycle.query.decode("latin-1"), cycle.headers, format_name
        )
        try:
            body = await cycle.body(MAX_REQUEST_BYTES)
            self._journal.set_body(entry, body)
            await self._replay(self._next(cycle, body), cycle)
        except CallerFault as fault:
            await send_error(
                cycle,
                RejectedRequest(fault.status or 400, fault.message, code=fault.kind),
                endpoint,
            )
        except RejectedRequest as rejected:
            await send_error(cycle, rejected, endpoint)
        finally:
            entry.status = cycle.status

    def _own_page(self, cycle: RequestCycle) -> bytes | None:
        match cycle.method, cycle.path:
            case "GET", "/_splitsecond/requests":
                return self._journal.as_json()
            case "DELETE", "/_splitsecond":
                self._played.clear()
                self._journal.clear()
                return b"[]"
        return None

    def _next(self, cycle: RequestCycle, body: bytes) -> RecordedExchange:
        key = (cycle.method, path_without_key(cycle), bytes(as_raw_json(body)))
        exchanges = self._recordings.get(key)
        if exchanges is None:
            same = sum(each[:2] == key[:2] for each in self._recordings)
            message = (
                f"this request was not recorded; {same:,} requests with other bodies were, "
                f"at {key[1]}"
            )
            raise RejectedRequest(404, message, code="not_recorded")
        number = self._played[key]
        self._played[key] += 1
        return exchanges[min(number, len(exchanges) - 1)]

    async def _replay(self, recording: RecordedExchange, cycle: RequestCycle) -> None:
        headers = [
            (name.encode(), value.encode("latin-1")) for name, value in recording.headers.items()
        ]
        if recording.is_stream:
            await self._wait(cycle, recording.head_ms)
            kind = next(value for name, value in headers if name == b"content-type")
            cycle.begin_stream([each for each in headers if each[0] != b"content-type"], kind=kind)
            cycle.flush()
            for chunk in recording.chunks:
                await self._wait(cycle, chunk.ms)
                await cycle.send(chunk.content())
            await self._wait(cycle, recording.end_ms)
            if recording.complete:
                await cycle.send(b"", last=True)
            else:
                cycle.cut()
            return
        await self._wait(cycle, recording.end_ms)
        body = b"".join(chunk.content() for chunk in recording.chunks)
        if recording.complete:
            others = [each for each in headers if each[0] != b"content-type"]
            kind = recording.headers.get("content-type", "application/json").encode("latin-1")
            cycle.begin(
                recording.status,
                [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *others],
            )
            await cycle.send(body, last=True)
        else:
            cycle.reset()

    async def _wait(self, cycle: RequestCycle, ms: float) -> None:
        due_ns = cycle.arrived_ns + round(ms * clock.NS_PER_MS)
        if due_ns <= clock.now_ns():
            return
        reached = asyncio.Event()
        timer = self._pacer.call_at(due_ns, reached.set)
        try:
            await reached.wait()
        finally:
            timer.cancel()
