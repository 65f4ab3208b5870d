"""The sender of one response: it sends each token when it is due and records planned and actual
times.

Nothing is written before the headers have been sent (`open`). A response that is buffered, by a
fault or because it is not streamed, is written at the end.
"""

import asyncio
from array import array
from collections.abc import Callable
from typing import Literal

from splitsecond.core import clock
from splitsecond.core.pacing import Pacer
from splitsecond.core.wire.api_format import ServerTimes
from splitsecond.simulator.request import SimulatedRequest

ResponseOutcome = Literal[
    "complete", "cut", "error_event", "closed_by_client", "slow_reader", "abandoned"
]

DEFAULT_SECONDS = 2.0
MAX_UNREAD_BYTES = 4 << 20
"""A client that leaves more bytes of a stream unread is disconnected."""


class ResponseSender:
    """Sends the tokens of the response to `request`. If that is not a stream, everything is kept
    until `release`.

    `render` encodes a token; an empty result means that its bytes come with a later token or with
    the end. `write` sends bytes and returns how many bytes the client has not read. `error`: the
    event of an error. `on_first_token` is called right after the first token is sent.
    """

    def __init__(
        self,
        request: SimulatedRequest,
        pacer: Pacer,
        *,
        render: Callable[[int], bytes],
        write: Callable[[bytes], int],
        error: bytes,
        on_first_token: Callable[[], None],
    ) -> None:
        fault = request.fault
        self.tokens = tokens = request.output_tokens
        self.planned_ns: array[int] = array("q")
        self.actual_ns: array[int] = array("q")
        self.first_written_ns = 0
        """When the write of the first token had returned."""
        self.outcome: ResponseOutcome | None = None
        self.began_ns = 0
        """When the provider began with the prompt; set by the producer."""
        self.preemptions = 0
        """How often the request lost its place in the engine's KV cache; set by the producer."""
        self.throttled_ns = 0
        """For how long a power limit slowed the engine down meanwhile; set by the producer."""
        self._first_ns = 0
        self._last_ns = 0
        self._opening = b""
        self._changed = asyncio.Event()
        self._pacer = pacer
        self._render = render
        self._write = write
        self._on_first_token = on_first_token
        self._error = error
        self._malformed = request.endpoint.malformed
        self._buffered = not request.parsed.stream or request.fault_kind == "buffered"
        self._waiting: list[bytes] | None = []
        self._kind = fault.kind if fault else None
        self._after = min(fault.after if fault and fault.after is not None else 1, tokens)
        self._delay_ns = (
            round((DEFAULT_SECONDS if fault.seconds is None else fault.seconds) * clock.NS_PER_S)
            if fault
            else 0
        )

    @property
    def over(self) -> bool:
        return self.outcome is not None

    def times(self, arrived_ns: int) -> ServerTimes:
        if not self.planned_ns:
            return ServerTimes(0, 0, 0)
        return ServerTimes(
            self.began_ns - arrived_ns,
            self._first_ns - self.began_ns,
            self._last_ns - self._first_ns,
        )

    async def ended(self) -> ResponseOutcome:
        while self.outcome is None:
            await self._changed.wait()
        return self.outcome

    async def head_due(self, arrived_ns: int) -> None:
        if self._kind == "slow_head":
            timer = self._pacer.call_at(arrived_ns + self._delay_ns, self._changed.set)
            await self._changed.wait()
            timer.cancel()
            if not self.over:
                self._changed.clear()

    def due_ns(self, index: int, produced_ns: int) -> int:
        late = self._kind in ("slow_head", "slow_first_token") or (
            self._kind == "stall" and index >= self._after
        )
        return produced_ns + self._delay_ns if late else produced_ns

    def offer(self, index: int, produced_ns: int) -> None:
        due_ns = self.due_ns(index, produced_ns)
        if due_ns == produced_ns:
            self.send(index, due_ns)
        else:
            self._pacer.call_at(due_ns, self.send, index, due_ns)

    def send(self, index: int, due_ns: int) -> None:
        if self.over or (index == self._after and self._strikes()):
            return
        self.planned_ns.append(due_ns)
        data = self._render(index)
        now = self._last_ns = clock.now_ns()
        if index == 0:
            self._first_ns = now
        self._put(data, now)
        if index == 0:
            self._on_first_token()  # after the write, as it takes some time for a long prompt
        if (
            index + 1 == self.tokens
            and not self.over
            and not (self._after == self.tokens and self._strikes())
        ):
            self.end("complete")

    def open(self, opening: bytes = b"") -> None:
        """Start sending, after the headers. Tokens that were produced before follow, unless they
        are buffered.

        `opening` is sent with the first bytes of the response.
        """
        self._opening = opening
        if not self._buffered:
            self.release()

    def release(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting:
            self.stamp()
            self._write_first(b"".join(waiting))
            if self.actual_ns:
                self.first_written_ns = clock.now_ns()

    def stamp(self) -> None:
        now = clock.now_ns()
        self.actual_ns.extend([now] * (len(self.planned_ns) - len(self.actual_ns)))

    def end(self, outcome: ResponseOutcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self._changed.set()

    def closed_by_client(self) -> None:
        self.end("closed_by_client")

    def _put(self, data: bytes, token_ns: int | None = None) -> None:
        if self._waiting is not None:
            self._waiting.append(data)
            return
        if not data:
            return
        if token_ns is not None:
            self.actual_ns.append(token_ns)
        unread_bytes = self._write_first(data)
        if token_ns is not None and not self.first_written_ns:
            self.first_written_ns = clock.now_ns()
        if unread_bytes > MAX_UNREAD_BYTES:
            self.end("slow_reader")

    def _write_first(self, data: bytes) -> int:
        """Write `data`, after the opening if nothing was written before. Returns the unread
        bytes."""
        if self._opening:
            data, self._opening = self._opening + data, b""
        return self._write(data)

    def _strikes(self) -> bool:
        if self._kind == "malformed":
            self._put(self._malformed)
        elif self._kind == "error_event":
            self._put(self._error)
            self.end("error_event")
        elif self._kind == "cut":
            self.end("cut")
        return self.over
