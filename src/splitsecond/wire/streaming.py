"""What every decoder of an event stream does alike: tells what the body is, feeds it, and looks at its end.

The first byte tells. A brace begins a plain JSON answer (asked for, or from a server that ignores streaming): it is
kept, and decoded when it ends. All else goes through the SSE decoder, event by event, until one of them ends the
stream; nothing after that is looked at. A dialect says what an event means, what a whole answer means, and what makes
the end of a body a good one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from splitsecond.errors import Phase, ProviderFault, excerpt
from splitsecond.events import Broken, Event, Token
from splitsecond.wire.lenient import is_json, mended
from splitsecond.wire.refusals import HTML_HINT, Said
from splitsecond.wire.sse import MAX_EVENT_BYTES, SseDecoder, SseEvent

LEADING = b"\xef\xbb\xbf \t\r\n"
"""A byte order mark, and the blank lines that some send while a request waits."""
END_MARK = b"[DONE]"
"""OpenAI's; others whose dialect knows none send it too."""


T = TypeVar("T")


class StreamDecoder(ABC):
    """One answer's body in, events out. See `splitsecond.wire.dialect.Decoder`."""

    json_begins: tuple[bytes, ...] = (b"{",)
    json_ends: tuple[bytes, ...] = (b"}",)
    html_hint = HTML_HINT

    def __init__(self) -> None:
        self.server_timings: dict[str, float] = {}
        self.in_runs = False
        self._begun = False
        self._json: list[bytes] | None = None
        self._json_bytes = self._json_at = 0
        self._ended = False
        self._chunks = 0
        self._tokens = 0

    def feed(self, data: bytes, at: int) -> list[Event]:
        """The events that `data` completes. None after the end."""
        out: list[Event] = []
        if self._ended:
            return out
        if not self._begun:
            data = data.lstrip(LEADING)
            if not data:
                return out
            self._begun = True
            if data.startswith(self.json_begins):
                self._json = []
            else:
                self._begin_events()
        if self._json is not None:
            self._json.append(data)
            self._json_bytes += len(data)
            self._json_at = at
            if self._json_bytes > MAX_EVENT_BYTES:
                self._break(at, out, "malformed", f"the body is longer than {MAX_EVENT_BYTES} bytes")
        elif (token := self._plain_token(data, at)) is not None:
            out.append(token)
        else:
            self._feed_events(data, at, out)
        return out

    def close(self, at: int) -> list[Event]:
        """The body ended: the last events, `Done` or `Broken` among them unless one was given before."""
        out: list[Event] = []
        if self._ended:
            return out
        if self._json is not None:
            self._take_whole(b"".join(self._json), at, out)
            return out
        if not self._begun:
            self._begin_events()
        cut = self._sse.unfinished
        for event in self._sse.rest():
            cut = event.data is not None and event.data.strip() != END_MARK and not is_json(event.data)
            if not cut:
                self._take(event, at, out)
        if not self._ended:
            self._end(at, out, cut=cut)
        return out

    def _begin_events(self) -> None:
        """The body is a stream of events: makes what reads one."""
        self._sse = SseDecoder()

    def _feed_events(self, data: bytes, at: int, out: list[Event]) -> None:
        for event in self._sse.feed(data):
            self._take(event, at, out)
            if self._ended:
                return
        if self._sse.overflow:
            self._break(at, out, "malformed", f"an event is longer than {MAX_EVENT_BYTES} bytes")

    def _plain_token(self, data: bytes, at: int) -> Token | None:
        """The token, where `data` is one whole event of the commonest kind, if a dialect has a quick way for it."""
        return None

    @abstractmethod
    def _take(self, event: SseEvent, at: int, out: list[Event]) -> None:
        """One event of the stream."""

    @abstractmethod
    def _take_whole(self, body: bytes, at: int, out: list[Event]) -> None:
        """A plain JSON answer, or what came of it. Its tokens arrived when its last byte did (`_json_at`)."""

    @abstractmethod
    def _end(self, at: int, out: list[Event], *, marker: bool = False, cut: bool = False) -> None:
        """The stream ended: by its end mark (`marker`), or with the body; `cut`: inside an event."""

    def _mended(
        self, decode: Callable[[bytes], T], data: bytes, error: Exception, what: str, at: int, out: list[Event]
    ) -> T | None:
        """What `decode`, which failed with `error`, makes of `data` when it is mended.

        None where that does not help: then the answer is broken, as an event of it is no JSON of `what`.
        """
        try:
            return decode(mended(data))
        except (ValueError, RecursionError):
            self._break(at, out, "malformed", f"an event is not the JSON of {what}: {error}", data)
            return None

    def _whole(self, decode: Callable[[bytes], T], body: bytes, what: str, at: int, out: list[Event]) -> T | None:
        """What `decode` makes of a plain JSON `body`, mended if need be; None: it is not that of `what`, and broken."""
        try:
            return decode(body)
        except (ValueError, RecursionError) as error:
            try:
                return decode(mended(body))
            except (ValueError, RecursionError):
                kind = "malformed" if body.rstrip().endswith(self.json_ends) else "truncated"
                self._break(at, out, kind, f"the body is not the JSON of {what}: {error}", body)
                return None

    def _report(self, at: int, out: list[Event], said: Said, data: bytes) -> None:
        """The provider put an error where an answer should be."""
        words = said.message or ", ".join(said.codes) or "without words"
        self._break(at, out, "in_band_error", f"the provider put an error inside a 200: {words}", data)

    def _break_off(self, at: int, out: list[Event], without: str, *, cut: bool, then: str = "") -> None:
        """The body ended before the answer did: `without` what would have ended it, or inside an event (`cut`).

        `then`: what came all the same.
        """
        junk = self._junk
        if self._chunks or (cut and not junk):
            how = "inside an event" if cut else f"without {without}"
            text = f"the answer ended {how} after {self._tokens} content events"
            self._break(at, out, "truncated", f"{text} and {then}" if then else text, junk)
        elif junk:
            self._break(at, out, "malformed", "the body is neither an event stream nor JSON", junk)
        else:
            self._break(at, out, "empty_answer", "the answer holds no event")

    @property
    def _junk(self) -> bytes:
        """What of a stream was none."""
        return b"" if self._json is not None else self._sse.junk

    def _break(self, at: int, out: list[Event], kind: str, message: str, data: bytes = b"") -> None:
        self._ended = True
        phase: Phase = "between tokens" if self._tokens else "first token"
        hint = self.html_hint if data.lstrip().startswith(b"<") else ""
        fault = ProviderFault(message, kind=kind, phase=phase, status=200, excerpt=excerpt(data), hint=hint)
        out.append(Broken(at, fault))
