"""An answer of the gateway itself, as a message of the assistant in the client's API format."""

from splitsecond.core import clock
from splitsecond.core.events import Done, Event, Finish, Token, Usage
from splitsecond.core.service import Call, ReplyBase
from splitsecond.core.upstream.transcoding import transcoder
from splitsecond.log.store.call_record import OWN_TARGET


class OwnAnswer(ReplyBase):
    target = OWN_TARGET
    empty = False
    complete = True

    def __init__(self, call: Call, text: str) -> None:
        now_ns = self.token_ns = clock.now_ns()
        events: list[Event] = [
            Token(now_ns, text),
            Finish(now_ns, "stop"),
            Usage(now_ns, 0, 0),
            Done(now_ns, True),
        ]
        self._bytes = transcoder(call, OWN_TARGET).encode(events)

    async def read(self) -> bytes:
        data, self._bytes = self._bytes, b""
        return data

    def arrived(self) -> list[Event]:
        return []

    async def finished(self) -> None:
        return

    async def aclose(self) -> None:
        return
