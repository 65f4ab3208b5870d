"""One HTTP/1.1 response, from bytes in any split to a head, pieces of body and an end. No socket, no clock.

llhttp (through httptools) does the parsing, in its strict mode: bare line feeds, folded headers, signs or lists in
Content-Length, and Content-Length beside Transfer-Encoding are refused, as two parsers could read them differently.
This file adds what llhttp cannot know or does not bound: the request's method, interim responses, bodies that only
the end of the connection ends, Content-Encoding, and how much may come in without anything being completed.

For the read callback, which runs once per token, `feed` is lean: llhttp appends body fragments straight to a list,
and `news` is set only for a read that held the head, the end or a failure.
"""

from collections.abc import Mapping
from functools import lru_cache

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from splitsecond.errors import Fault, NetworkFault, Phase, ProviderFault, excerpt
from splitsecond.transport.decoding import BadEncoding, Inflater, inflater_for

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of header names and values, and most bytes in a row that complete neither the head nor any body."""

MAX_HEADERS = 256
"""Most header lines. nginx, Cloudflare and the providers behind them send 10 to 40."""

_STATUSES_WITHOUT_BODY = frozenset({204, 304})
_VERSIONS = frozenset({"1.0", "1.1"})


class Answer:
    """The response to one request. After each `feed`, where `news` is set, look at the other fields, and clear it."""

    __slots__ = (
        "_barren",
        "_body_end",
        "_fed",
        "_in_head",
        "_inflater",
        "_lines",
        "_method",
        "_parser",
        "_parser_ended",
        "_parts",
        "answered",
        "complete",
        "fault",
        "headers",
        "keep_alive",
        "news",
        "on_body",
        "status",
        "surplus",
        "until_close",
    )

    on_status = on_chunk_header = on_chunk_complete = None  # looked for by the parser; found at once, as nothing

    def __init__(self, method: str) -> None:
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self._parser = HttpResponseParser(self)
        self._parser_ended = False
        self.news = False
        self.answered = False
        """At least one byte has come."""
        self.status = 0
        """The final status; 0 until the head is complete."""
        self.headers: Mapping[str, str] = {}
        self.complete = False
        """The whole body has come."""
        self.fault: Fault | None = None
        self.keep_alive = False
        """The peer will take another request on this connection, as far as the head says."""
        self.until_close = False
        """Nothing but the end of the connection ends the body."""
        self.surplus = False
        """Bytes came after the end: nobody asked for them, so the connection is not to be used again."""

        self._method = method
        self._body_end: int | None = None
        self._inflater: Inflater | None = None
        self._fed = self._barren = 0
        self._lines: list[tuple[bytes, bytes]] = []
        self._in_head = 0  # how many of them

    def followed_by(self, method: str) -> "Answer":
        """For the response to the next request on a connection that this one left usable.

        A parser costs more to make than to feed with an answer; so this is the same one, begun again, where llhttp too
        knows that the answer has ended. It does not where the request's method took the body away.
        """
        if not self._parser_ended or self.surplus:
            self.drop()
            return Answer(method)
        self.answered = self.complete = False  # all else is as it began, or is set by each head
        self.status = 0
        self.headers = {}
        self._method = method
        self._body_end = self._inflater = None
        self._barren = 0
        self._lines = []
        return self

    def feed(self, data: bytes | memoryview) -> bytes:
        """Take what one read brought; return the body bytes that it completed. Never raises."""
        self.answered = True
        self._fed = len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._stopped(error, data)
        parts = self._parts
        if parts:
            self._barren = 0
            end = self._body_end
            if end is not None and len(parts) > end:
                self.surplus = True
                del parts[end:]
            body = b"".join(parts)  # of one it makes no copy
            parts.clear()
        else:
            self._nothing_completed(len(data))
            body = b""
        return body if self._inflater is None else self._inflated(self._inflater, body)

    def end_of_stream(self, *, clean: bool) -> None:
        """The peer, having answered in part, sends no more. `clean`: it said so itself (over TLS, by close_notify)."""
        if self.fault is not None:
            return
        if self.until_close and clean and (self._inflater is None or self._inflater.whole):
            self._finish()
        elif not self.status:
            self.fail(NetworkFault("the connection was closed inside the headers", kind="truncated", phase="head"))
        else:
            self.fail(
                NetworkFault(
                    "the connection was closed before the end of the body", kind="truncated", phase="between tokens"
                )
            )

    def fail(self, fault: Fault) -> None:
        """It will not come whole. The first failure counts, and none after the end."""
        if self.fault is None and not self.complete:
            self.news = True
            self.fault = fault
            self._body_end = len(self._parts) if self._body_end is None else self._body_end

    def drop(self) -> None:
        """Done with it: cut the cycle with the parser, as a measurement runs without the garbage collector."""
        del self._parser

    @property
    def phase(self) -> Phase:
        """How far the answer has come, as far as HTTP can tell."""
        return "between tokens" if self.status else "head"

    # Called by llhttp.

    def on_message_begin(self) -> None:
        self._parser_ended = False
        if self.complete:
            self.surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._lines.append((name, value))  # after the head these are trailers: counted, and dropped

    def on_headers_complete(self) -> None:
        if self.status or self.fault:
            return
        parser, lines = self._parser, self._lines
        status = parser.get_status_code()
        if status < 200 and status >= 100:  # interim (RFC 9110 section 15.2): not the answer yet
            lines.clear()
            return
        large = self._barren + self._fed > MAX_HEAD_BYTES or len(lines) > MAX_HEADERS
        if large and not self._is_bounded():
            return
        self.headers = headers = _joined(lines)
        self._in_head = len(lines)
        version = parser.get_http_version()
        if status < 100 or version not in _VERSIONS:
            self.fail(self._malformed(f"got HTTP/{version} with status {status:03}, expected HTTP/1 with 100 to 999"))
            return
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            self.fail(self._malformed(f"got Transfer-Encoding {coding!r}, expected chunked, as no other was asked for"))
            return
        self.status = status
        self.news = True
        self.keep_alive = parser.should_keep_alive()
        if self._method == "HEAD" or status in _STATUSES_WITHOUT_BODY:
            self._body_end = 0
            self._finish()
            return
        self.until_close = coding is None and "content-length" not in headers
        if "content-encoding" in headers:
            try:
                self._inflater = inflater_for(headers["content-encoding"])
            except BadEncoding as error:
                self.fail(self._malformed(str(error)))

    def on_message_complete(self) -> None:
        self._parser_ended = True
        if not self.status or self.complete or self.fault is not None:
            return
        if len(self._lines) == self._in_head or self._is_bounded():
            self._body_end = len(self._parts)
            self.news = self.complete = True

    def _is_bounded(self) -> bool:
        """Whether the header lines are as many, and as long, as may be."""
        size = sum(len(name) + len(value) for name, value in self._lines)
        if size <= MAX_HEAD_BYTES and len(self._lines) <= MAX_HEADERS:
            return True
        self.fail(
            self._malformed(
                f"{len(self._lines)} header lines of {size} bytes, expected at most {MAX_HEADERS} of {MAX_HEAD_BYTES}"
            )
        )
        return False

    # Ends.

    def _finish(self) -> None:
        self.news = True
        self.complete = True

    def _malformed(self, what: str, data: bytes | memoryview = b"") -> ProviderFault:
        return ProviderFault(
            f"the answer is malformed: {what}",
            kind="malformed",
            phase=self.phase,
            status=self.status,
            excerpt=excerpt(bytes(data)),
        )

    def _stopped(self, error: Exception, data: bytes | memoryview) -> None:
        """llhttp refuses to go on."""
        if self.complete:
            self.surplus = True
        elif not self.status and self._parser.get_status_code() == 101:
            self.fail(self._malformed("it switches protocols (101), which nobody asked for"))
        elif self._parser.get_status_code():
            self.fail(self._malformed(str(error), data))
        else:
            self.fail(
                ProviderFault(
                    f"the answer is not HTTP/1: {error}",
                    kind="not_http",
                    phase="head",
                    hint="Is this the right port, and http or https as the server expects?",
                    excerpt=excerpt(bytes(data)),
                )
            )

    def _nothing_completed(self, count: int) -> None:
        """Without this bound llhttp would gather one endless header, trailer or chunk extension for ever."""
        self._barren += count
        if self._barren > MAX_HEAD_BYTES and not self.complete:
            self.fail(self._malformed(f"{self._barren} bytes without a complete head or any body"))

    def _inflated(self, inflater: Inflater, body: bytes) -> bytes:
        try:
            out = inflater.feed(body) if body else b""
            if self.complete and not inflater.whole:
                raise BadEncoding("the compressed data stops before its end")
        except BadEncoding as error:
            self.complete = False
            self.fail(self._malformed(str(error)))
            return b""
        return out


def _joined(lines: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by their names in lower case; those that are given several times joined with commas."""
    headers = {_lowered(name): value.decode("latin-1").rstrip() for name, value in lines}
    if len(headers) < len(lines):
        headers.clear()
        for name, value in lines:
            key, text = _lowered(name), value.decode("latin-1").rstrip()
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


@lru_cache(maxsize=1024)
def _lowered(name: bytes) -> str:
    return name.decode("latin-1").lower()
