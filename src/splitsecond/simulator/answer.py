"""One answer: takes tokens as they are produced, sends each when it is due, keeps planned and actual times.

Tokens come from a feed (`feeds`) by `offer`, in order, and a fault may put them off or cut them short. Nothing is
written before the head has gone (`open`), and nothing of an answer that is held back (`buffered`, or not streamed)
before the end. `app` waits until it has `ended`, and ends the response.
"""

import asyncio
from array import array
from collections.abc import Callable
from typing import Literal

from splitsecond import clock
from splitsecond.pacing import Pacer
from splitsecond.simulator.faults import PlannedFault
from splitsecond.wire.server_times import Took

Outcome = Literal["complete", "cut", "error_event", "closed_by_client", "slow_reader", "abandoned"]

DEFAULT_SECONDS = 2.0


class Answer:
    """`tokens` are to be sent; `render` makes the bytes of one, `write` sends them (False: the client does not read).

    No bytes: they come with those of a later token, or with the end.

    `error` and `malformed` are the bytes that the faults of these names send. `held`: keep all of it back, until
    `release`. `begun` is called when its first token is due.
    """

    def __init__(
        self,
        *,
        tokens: int,
        pacer: Pacer,
        fault: PlannedFault | None,
        render: Callable[[int], bytes],
        write: Callable[[bytes], bool],
        error: bytes,
        malformed: bytes,
        held: bool,
        begun: Callable[[], None],
    ) -> None:
        self.tokens = tokens
        self.planned_ns: array[int] = array("q")
        self.actual_ns: array[int] = array("q")
        self.outcome: Outcome | None = None
        self.began_ns = 0
        """When the work on its prompt began; whoever produces it says so."""
        self._first_ns = 0
        self._last_ns = 0
        self._news = asyncio.Event()
        self._pacer = pacer
        self._render = render
        self._write = write
        self._begun = begun
        self._error = error
        self._malformed = malformed
        self._hold = held or (fault is not None and fault.kind == "buffered")
        self._waiting: list[bytes] | None = []
        self._kind = fault.kind if fault else None
        self._after = min(fault.after if fault and fault.after is not None else 1, tokens)
        self._delay_ns = (
            round((DEFAULT_SECONDS if fault.seconds is None else fault.seconds) * clock.NS_PER_S) if fault else 0
        )

    @property
    def over(self) -> bool:
        """Whether nothing more will be sent."""
        return self.outcome is not None

    def took(self, arrived_ns: int) -> Took:
        """Where the provider's time went, by when its tokens were there, sent or not. Nothing, where none was."""
        if not self.planned_ns:
            return Took(0, 0, 0)
        return Took(self.began_ns - arrived_ns, self._first_ns - self.began_ns, self._last_ns - self._first_ns)

    async def ended(self) -> Outcome:
        """Wait until it is over, and say why."""
        while self.outcome is None:
            await self._news.wait()
        return self.outcome

    async def head_due(self, arrived_ns: int) -> None:
        """Wait until the head may go, or until it is over."""
        if self._kind == "slow_head":
            alarm = self._pacer.call_at(arrived_ns + self._delay_ns, self._news.set)
            await self._news.wait()
            alarm.cancel()
            if not self.over:
                self._news.clear()

    def due_ns(self, index: int, produced_ns: int) -> int:
        """When token `index`, which the provider produced at `produced_ns`, is to leave."""
        late = self._kind in ("slow_head", "slow_first_token") or (self._kind == "stall" and index >= self._after)
        return produced_ns + self._delay_ns if late else produced_ns

    def offer(self, index: int, produced_ns: int) -> None:
        """Token `index` was produced: send it now, or when a fault lets it go."""
        due_ns = self.due_ns(index, produced_ns)
        if due_ns == produced_ns:
            self.send(index, due_ns)
        else:
            self._pacer.call_at(due_ns, self.send, index, due_ns)

    def send(self, index: int, due_ns: int) -> None:
        """Token `index` is due."""
        if self.over or (index == self._after and self._strikes()):
            return
        if index == 0:
            self._begun()
        self.planned_ns.append(due_ns)
        data = self._render(index)
        now = self._last_ns = clock.now_ns()
        if index == 0:
            self._first_ns = now
        self._put(data, now)
        if index + 1 == self.tokens and not self.over and not (self._after == self.tokens and self._strikes()):
            self.end("complete")

    def open(self) -> None:
        """The head has gone: what was produced meanwhile follows, unless it is held back."""
        if not self._hold:
            self.release()

    def release(self) -> None:
        """Send what was held back, all at once."""
        waiting, self._waiting = self._waiting, None
        if waiting:
            self.stamp()
            self._write(b"".join(waiting))

    def stamp(self) -> None:
        """Whatever is planned but not sent leaves now."""
        now = clock.now_ns()
        self.actual_ns.extend([now] * (len(self.planned_ns) - len(self.actual_ns)))

    def end(self, outcome: Outcome) -> None:
        """Nothing more will be sent, because of `outcome`. The first one counts."""
        if self.outcome is None:
            self.outcome = outcome
            self._news.set()

    def closed_by_client(self) -> None:
        """The client has gone."""
        self.end("closed_by_client")

    def _put(self, data: bytes, token_ns: int | None = None) -> None:
        """Send it, or hold it back. `token_ns`: it is a token, which leaves at this moment if it does."""
        if self._waiting is not None:
            self._waiting.append(data)
            return
        if not data:
            return
        if token_ns is not None:
            self.actual_ns.append(token_ns)
        if not self._write(data):
            self.end("slow_reader")

    def _strikes(self) -> bool:
        """The fault's moment has come. Whether that is the end."""
        if self._kind == "malformed":
            self._put(self._malformed)
        elif self._kind == "error_event":
            self._put(self._error)
            self.end("error_event")
        elif self._kind == "cut":
            self.end("cut")
        return self.over
