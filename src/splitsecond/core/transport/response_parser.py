"""Parser of one HTTP/1.1 response: bytes in any split to headers, body pieces and an end. No
socket, no clock.

llhttp (through httptools) parses in its strict mode: bare line feeds, folded headers, signs or
lists in Content-Length, and Content-Length beside Transfer-Encoding are refused, as two parsers
could read them differently.

`feed` runs once per token in the read callback, so it is lean: llhttp appends body fragments
straight to a list, and `changed` is set only for a read that held the headers, the end or a
failure.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from splitsecond.core.errors import Fault, NetworkFault, Phase, ProviderFault, excerpt
from splitsecond.core.transport.decoding import BadEncoding, Inflater, inflater_for

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of header names and values, and most bytes in sequence that complete neither the
headers nor any body."""

MAX_HEADERS = 256
"""Most header lines. nginx, Cloudflare and the providers behind them send 10 to 40."""

_STATUSES_WITHOUT_BODY = frozenset({204, 304})
_VERSIONS = frozenset({"1.0", "1.1"})
_CRLF = b"\r\n"
_text = partial(str, encoding="latin-1")


class ResponseParser:
    """Response to one request. After each `feed` with `changed` set, read the other fields and
    clear it."""

    __slots__ = (
        "_between_chunks",
        "_body_end",
        "_fed",
        "_fruitless_bytes",
        "_header_count",
        "_inflater",
        "_lines",
        "_method",
        "_parser",
        "_parser_ended",
        "_parts",
        "answered",
        "changed",
        "complete",
        "fault",
        "headers",
        "keep_alive",
        "on_body",
        "status",
        "surplus",
        "until_close",
    )

    # llhttp looks these up: None is found quickly
    on_status = on_chunk_header = on_chunk_complete = None

    def __init__(self, method: str) -> None:
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self._parser = HttpResponseParser(self)
        self._parser_ended = False
        self.changed = False
        self.answered = False
        """Whether at least one byte has come."""
        self.status = 0
        """The final status; 0 until the headers are complete."""
        self.headers: Mapping[str, str] = {}
        self.complete = False
        self.fault: Fault | None = None
        self.keep_alive = False
        """Whether the peer takes another request on this connection, according to the headers."""
        self.until_close = False
        """Whether only the end of the connection ends the body."""
        self.surplus = False
        """Whether bytes came after the end, without a request: the connection must not be
        reused."""

        self._method = method
        self._body_end: int | None = None
        self._inflater: Inflater | None = None
        self._between_chunks = False
        self._fed = self._fruitless_bytes = 0
        self._lines: list[tuple[bytes, bytes]] = []
        self._header_count = 0  # header lines, as opposed to trailers

    def followed_by(self, method: str) -> "ResponseParser":
        """Return a parser for the next response on a connection that this one left usable.

        Creating a parser costs more than feeding it a response, so this one is reset if llhttp has
        seen the end of the response too.
        """
        if not self._parser_ended or self.surplus:
            self.drop()
            return ResponseParser(method)
        # everything else is unchanged, or set with the headers
        self.answered = self.complete = False
        self.status = 0
        self.headers = {}
        self._method = method
        self._body_end = self._inflater = None
        self._fruitless_bytes = 0
        self._lines = []
        return self

    def feed(self, data: bytes | memoryview) -> bytes:
        self.answered = True
        self._between_chunks = False
        self._fed = len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._stopped(error, data)
        parts = self._parts
        if parts:
            self._fruitless_bytes = 0
            end = self._body_end
            if end is not None and len(parts) > end:
                self.surplus = True
                del parts[end:]
            body = b"".join(parts)  # no copy for a single part
            parts.clear()
        else:
            self._bound_fruitless_bytes(len(data))
            body = b""
        return body if self._inflater is None else self._inflated(self._inflater, body)

    def note_chunk(self, data: bytes, body: bytes) -> None:
        heads, begin = _chunk_heads(len(data))
        framed = data.startswith(heads) and data.endswith(_CRLF) and body == data[begin:-2]
        self._between_chunks = framed and not self.changed and self._inflater is None

    def whole_chunks(self, data: bytes, sizes: Sequence[int]) -> list[bytes] | None:
        """Return the body bytes in each part of `data`, with these `sizes`, if each part is one
        whole chunk.

        Else return None, and nothing is parsed. Between two chunks, the length, so many bytes and
        the line ends around them can only be a chunk, so llhttp need not see it: it waits for the
        next one.
        """
        if not self._between_chunks:
            return None
        starts, begin = data.startswith, 0
        bodies = []
        for size in sizes:
            heads, body = _chunk_heads(size)
            end = begin + size - 2
            if not (starts(heads, begin) and starts(_CRLF, end)):
                return None
            bodies.append(data[begin + body : end])
            begin = end + 2
        self._fruitless_bytes = 0
        return bodies

    def end_of_stream(self, *, clean: bool) -> None:
        if self.fault is not None:
            return
        if self.until_close and clean and (self._inflater is None or self._inflater.whole):
            self._finish()
        elif not self.status:
            self.fail(
                NetworkFault(
                    "the connection was closed inside the headers", kind="truncated", phase="head"
                )
            )
        else:
            self.fail(
                NetworkFault(
                    "the connection was closed before the end of the body",
                    kind="truncated",
                    phase="between tokens",
                )
            )

    def fail(self, fault: Fault) -> None:
        if self.fault is None and not self.complete:
            self.changed = True
            self.fault = fault
            self._body_end = len(self._parts) if self._body_end is None else self._body_end

    def drop(self) -> None:
        """Cut the reference cycle with llhttp's parser, as a measurement runs without the garbage
        collector."""
        del self._parser

    @property
    def phase(self) -> Phase:
        return "between tokens" if self.status else "head"

    # Called by llhttp.

    def on_message_begin(self) -> None:
        self._parser_ended = False
        if self.complete:
            self.surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        # after the headers these are trailers: counted, and dropped
        self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        if self.status or self.fault:
            return
        parser, lines = self._parser, self._lines
        status = parser.get_status_code()
        if 100 <= status < 200:  # interim (RFC 9110 section 15.2): not the final response
            lines.clear()
            return
        large = self._fruitless_bytes + self._fed > MAX_HEAD_BYTES or len(lines) > MAX_HEADERS
        if large and not self._is_bounded():
            return
        self.headers = headers = _joined(lines)
        self._header_count = len(lines)
        version = parser.get_http_version()
        if status < 100 or version not in _VERSIONS:
            self.fail(
                self._malformed(
                    f"got HTTP/{version} with status {status:03}, expected HTTP/1 with 100 to 999"
                )
            )
            return
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            self.fail(self._malformed(f"got Transfer-Encoding {coding!r}, expected chunked"))
            return
        self.status = status
        self.changed = True
        self.keep_alive = parser.should_keep_alive()
        if self._method == "HEAD" or status in _STATUSES_WITHOUT_BODY:
            self._body_end = 0
            self._finish()
            return
        self.until_close = coding is None and "content-length" not in headers
        if "content-encoding" in headers:
            self._decode_from(headers["content-encoding"])

    def _decode_from(self, content_encoding: str) -> None:
        try:
            self._inflater = inflater_for(content_encoding)
        except BadEncoding as error:
            self.fail(self._malformed(str(error)))

    def on_message_complete(self) -> None:
        self._parser_ended = True
        if not self.status or self.complete or self.fault is not None:
            return
        if len(self._lines) == self._header_count or self._is_bounded():
            self._body_end = len(self._parts)
            self.changed = self.complete = True

    def _is_bounded(self) -> bool:
        size = sum(len(name) + len(value) for name, value in self._lines)
        if size <= MAX_HEAD_BYTES and len(self._lines) <= MAX_HEADERS:
            return True
        self.fail(
            self._malformed(
                f"{len(self._lines):,} header lines of {size:,} bytes, the most are {MAX_HEADERS} "
                f"of {MAX_HEAD_BYTES:,}"
            )
        )
        return False

    # Ends.

    def _finish(self) -> None:
        self.changed = True
        self.complete = True

    def _malformed(self, what: str, data: bytes | memoryview = b"") -> ProviderFault:
        return ProviderFault(
            f"the response is malformed: {what}",
            kind="malformed",
            phase=self.phase,
            status=self.status,
            excerpt=excerpt(bytes(data)),
        )

    def _stopped(self, error: Exception, data: bytes | memoryview) -> None:
        if self.complete:
            self.surplus = True
        elif not self.status and self._parser.get_status_code() == 101:
            self.fail(self._malformed("it switches protocols (101) without a request for it"))
        elif self._parser.get_status_code():
            self.fail(self._malformed(str(error), data))
        else:
            self.fail(
                ProviderFault(
                    f"the response is not HTTP/1: {error}",
                    kind="not_http",
                    phase="head",
                    hint="Is this the right port, and http or https as the server expects?",
                    excerpt=excerpt(bytes(data)),
                )
            )

    def _bound_fruitless_bytes(self, count: int) -> None:
        """Fail if too many bytes came without a result, as llhttp sets no limit to headers,
        trailers and extensions."""
        self._fruitless_bytes += count
        if self._fruitless_bytes > MAX_HEAD_BYTES and not self.complete:
            self.fail(
                self._malformed(
                    f"{self._fruitless_bytes:,} bytes without complete headers or any body"
                )
            )

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


@lru_cache(maxsize=4096)
def _chunk_heads(size: int) -> tuple[tuple[bytes, ...], int]:
    for digits in range(1, 9):
        length = size - digits - 2 * len(_CRLF)
        head = b"%x\r\n" % max(length, 0)
        if length > 0 and len(head) == digits + len(_CRLF):  # an empty chunk ends the body
            return (head, head.upper()), len(head)
    return (), 0


def _joined(lines: list[tuple[bytes, bytes]]) -> dict[str, str]:
    if not lines:
        return {}
    names, values = zip(*lines, strict=True)
    headers = dict(zip(map(_lowered, names), map(str.rstrip, map(_text, values)), strict=True))
    if len(headers) < len(lines):
        headers.clear()
        for name, value in lines:
            key, text = _lowered(name), _text(value).rstrip()
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


@lru_cache(maxsize=1024)
def _lowered(name: bytes) -> str:
    return name.decode("latin-1").lower()
