"""OpenAI's Responses over a WebSocket: each `response.create` of a client is a request like one by POST.

`serve_socket` reads the messages of one client and serves them one after another. A message becomes a `Turn`, which
the gateway serves as it serves other requests: with the key's limits, the route's policy, the log and the metrics.
Targets are asked by HTTP, and each event of the stream is one message to the client. An error is an event with its
status.

A message that continues the last response on its WebSocket holds only what is new. The gateway has kept that
conversation (`Conversations`) and sends the target all of it, so the target need not store anything. Other responses
are continued by the target that has stored them.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct
from websockets.frames import CloseCode

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.events import Usage
from splitsecond.gateway.parsed_request import ParsedRequest
from splitsecond.serving.request_cycle import ClientLeft, ErrorReply, Headers, RequestCycle
from splitsecond.serving.websocket import MessageCycle, WebSocket
from splitsecond.validation import MAX_VALUES, has_too_many_values, read_json
from splitsecond.wire.responses import StreamWriter
from splitsecond.wire.sse import SseDecoder

LONGEST_S = 3600.0
"""How long a WebSocket may be open, as at OpenAI."""
CONTINUES = "previous_response_id"
MAX_ITEMS = 20_000
"""Items of a conversation. Each takes `ITEM_BYTES` beside its own, so many short ones would take much memory."""
ITEM_BYTES = 48
_CREATE = "response.create"
_ACKNOWLEDGEMENT = "response.processed"
"""A message that Codex may send after a response; it is ignored."""
_BROKEN = 502
"""Status of an error in the middle of a response."""
_LIMIT = "websocket_connection_limit_reached"
_ENDS = ("response.completed", "response.incomplete")
_KEPT = re.compile(rb'"response\.(?:output_item\.done|completed|incomplete)"')
"""Finds the events that belong to the conversation. Most events are deltas, which are not parsed."""


class Conversation(Struct, frozen=True):
    """A conversation that ends with the response `id`, as items of a request's ``input``."""

    id: str
    items: list[bytes]

    @property
    def size(self) -> int:
        """Return the bytes that it takes in memory."""
        return sum(map(len, self.items)) + ITEM_BYTES * len(self.items)


class Conversations:
    """The last conversation of each WebSocket, as long as that is open.

    All of them have `max_bytes` together; the one that was not used for longest is forgotten first.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self.size = 0
        self._max_bytes = max_bytes
        self._kept: OrderedDict[WebSocket, Conversation] = OrderedDict()

    def find(self, socket: WebSocket, response_id: str) -> Conversation | None:
        """Return the conversation of `socket` that ends with that response; None if it is not kept."""
        found = self._kept.get(socket)
        return found if found is not None and found.id == response_id else None

    def keep(self, socket: WebSocket, conversation: Conversation) -> None:
        """Keep `conversation` as the last one of `socket`."""
        self.drop(socket)
        self._kept[socket] = conversation
        self.size += conversation.size
        while self.size > self._max_bytes:
            self.drop(next(iter(self._kept)))

    def drop(self, socket: WebSocket) -> None:
        """Forget the conversation of `socket`."""
        if (found := self._kept.pop(socket, None)) is not None:
            self.size -= found.size


class _Head(Struct):
    """The fields of a message that are not those of a request by POST."""

    type: str = ""
    stream_id: str | None = None
    generate: bool | None = None
    store: bool | None = None


class _Response(Struct):
    id: str = ""


class _Event(Struct):
    type: str = ""
    item: Raw = Raw()
    response: _Response | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_items = msgspec.json.Decoder(list[Raw]).decode


class Turn(MessageCycle):
    """One message of a WebSocket, and its response as messages."""

    def __init__(self, upgrade: RequestCycle, socket: WebSocket, conversations: Conversations, message: bytes) -> None:
        super().__init__(upgrade)
        self._message = message
        self._socket = socket
        self._conversations = conversations
        self._events = SseDecoder()
        self._first_field = b"{"  # begins each event, with the client's name for the lane
        self._given = _Head()
        self._items: list[bytes] | None = None  # the whole conversation so far, None if it is not known
        self._headers: dict[str, str] = {}  # sent with the first event
        self._id = ""  # the id of the response
        self._max_bytes = 0  # the limit of the conversation

    def check(self) -> bool:
        """Read the message. Return whether it is a request. Raises `CallerFault` for one that is not known here."""
        try:
            self._given = _decode_head(self._message)
        except (ValueError, RecursionError) as error:
            raise CallerFault(f"the message is not a JSON object with a type: {error}") from None
        if self._given.stream_id is not None:
            self._first_field = b'{"stream_id":' + msgspec.json.encode(self._given.stream_id) + b","
        if self._given.type == _ACKNOWLEDGEMENT:
            return False
        if self._given.type != _CREATE:
            message = f"no messages of type {self._given.type[:100]!r} are served here"
            raise CallerFault(message, kind="unknown_event", hint=f"Send {_CREATE}.", param="type")
        return True

    async def body(self, limit: int) -> bytes:
        """Return the message. The conversation that it continues may make it as long as `limit`."""
        self._max_bytes = limit
        return self._message

    async def prepared(self, request: ParsedRequest) -> bool:
        """Make the request one for a target: whole, and without the fields of messages.

        Return False if no target must be asked. Raises `CallerFault` for a conversation that is too long.
        """
        body = request.body
        if bytes(body.pop("background", b"false")) not in (b"false", b"null"):
            raise CallerFault("a WebSocket has no background responses", param="background", hint="Leave it out.")
        for name in ("type", "stream_id", "generate", "stream"):
            body.pop(name, None)
        self._put_together(body)
        if self._given.generate is not False:
            return True
        await self._warm_up(request.model)
        return False

    def _put_together(self, body: dict[str, Raw]) -> None:
        """Replace the id of a kept response by the conversation that it ends."""
        before: list[bytes] = []
        if (previous := bytes(body.get(CONTINUES, b"null"))) != b"null":
            found = None
            with suppress(msgspec.DecodeError):  # the target reports it
                found = self._conversations.find(self._socket, msgspec.json.decode(previous, type=str))
            if found is None:
                return
            before = found.items
        new = _input_items(bytes(body.get("input", b"[]")))
        if new is None:
            return
        if len(before) + len(new) > MAX_ITEMS:
            message = f"the conversation has {len(before) + len(new):,} items; the maximum is {MAX_ITEMS:,}"
            raise CallerFault(message, kind="request_too_large", status=413)
        self._items = [*before, *map(bytes, new)]
        if before:
            whole = b"[" + b",".join(self._items) + b"]"
            body["input"] = Raw(whole)
            if len(whole) > self._max_bytes:
                message = f"the conversation is longer than {self._max_bytes:,} bytes"
                raise CallerFault(message, kind="request_too_large", status=413)
        body.pop(CONTINUES, None)

    async def _warm_up(self, model: str) -> None:
        """Answer a request that only prepares the next one, which continues it."""
        identity = f"resp_{clock.now_ns():016x}{id(self):x}"
        created = int(clock.wall_time().timestamp())
        writer = StreamWriter("chat", model, id=identity, created=created)
        events = writer.opening() + writer.finish("stop") + writer.usage(Usage(0, 0, 0)) + writer.done()
        self.begin_stream(())
        await self.send(events, last=True)

    # The response.

    def begin(self, status: int, headers: Headers) -> None:
        """Begin the response. Its first event names the headers about the call, such as `x-splitsecond-dropped`."""
        if self._left:
            raise ClientLeft
        self.status = status
        self._headers = _names(each for each in headers if each[0].startswith(b"x-"))

    async def refuse(self, error: ErrorReply, headers: Headers = ()) -> None:
        """Send an error event, with the headers of the error."""
        self.begin(error.status, ())
        given = _names((*error.headers, *headers, *self.extra))
        details = msgspec.json.decode(error.body)["error"] | {"headers": given}  # there for OpenAI's library
        event = {"type": "error", "status": error.status, "error": details, "headers": given}
        await self._put([self._first_field + msgspec.json.encode(event)[1:]])
        self.complete = True

    async def send(self, data: bytes, *, last: bool = False) -> None:
        """Send the events in `data`, each as one message."""
        if self._left:
            raise ClientLeft
        given = (event.data for event in self._events.feed(data) if event.data is not None)
        texts = [self._text(each) for each in given if each[:1] == b"{"]
        await self._put(texts)
        self.complete = last
        if last and self._id and self._items is not None:
            self._conversations.keep(self._socket, Conversation(self._id, self._items))

    async def _put(self, texts: Sequence[bytes]) -> None:
        """Send messages. Raises `ClientLeft` if the client has closed the WebSocket."""
        try:
            if texts:
                await self._socket.send(*texts)
        except ClientLeft:
            self.lost()
            raise

    def _text(self, event: bytes) -> bytes:
        if _KEPT.search(event) is not None:
            self._take(event)
        if event.startswith(b'{"type":"error"') and b'"status":' not in event:
            event = b'{"status":%d,' % _BROKEN + event[1:]
        if self._headers:
            event = b'{"headers":' + msgspec.json.encode(self._headers) + b"," + event[1:]
            self._headers = {}
        return event if self._first_field == b"{" else self._first_field + event[1:]

    def _take(self, event: bytes) -> None:
        """Take an item of the response, or its id at the end."""
        with suppress(ValueError, RecursionError):
            found = _decode_event(event)
            if found.type in _ENDS and found.response is not None:
                self._id = found.response.id
            elif found.item and self._items is not None:
                item = bytes(found.item) if self._given.store is not False else _unstored(found.item)
                self._items += [item] if item else []


def _names(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


def _input_items(given: bytes) -> Sequence[bytes | Raw] | None:
    """Return the items of a request's ``input``; None if it is neither a text nor a list.

    Raises `CallerFault` for more values than are decoded.
    """
    if given.startswith(b'"'):
        return [b'{"type":"message","role":"user","content":' + given + b"}"]
    if has_too_many_values(given):
        message = f"input has more than {MAX_VALUES:,} values"
        raise CallerFault(message, kind="request_too_large", status=413, param="input")
    return read_json(given, _items)


def _unstored(item: Raw) -> bytes:
    """Return an item of a response that its provider has not stored, as input: without its id, which is not known
    there. Return b"" for reasoning that only the id stands for."""
    fields: dict[str, Any] = msgspec.json.decode(item)
    fields.pop("id", None)
    if fields.get("type") == "reasoning" and not (fields.get("encrypted_content") or fields.get("content")):
        return b""
    return msgspec.json.encode(fields)


async def serve_socket(
    cycle: RequestCycle,
    conversations: Conversations,
    max_bytes: int,
    serve: Callable[[Turn], Awaitable[None]],
) -> None:
    """Serve the WebSocket that the request in `cycle` asks for, until the client or the server ends it.

    `max_bytes` limits a message. `serve` serves one turn. Raises `CallerFault` for an invalid handshake.
    """
    socket = WebSocket(cycle, max_bytes)
    ends_at = asyncio.get_running_loop().time() + LONGEST_S
    try:
        while True:
            try:
                async with asyncio.timeout_at(ends_at):
                    message = await socket.message()
            except TimeoutError:
                await socket.send(_limit_reached())
                await socket.end(CloseCode.NORMAL_CLOSURE)
                break
            if message is None:
                await socket.end(CloseCode.GOING_AWAY, "the server shuts down")
                break
            turn = Turn(cycle, socket, conversations, message)
            cycle.on_lost = turn.lost
            await serve(turn)
    finally:
        socket.release()
        conversations.drop(socket)
        cycle.on_lost = None
        cycle.cut()


def _limit_reached() -> bytes:
    message = f"the WebSocket has been open for {LONGEST_S / 60:.0f} minutes. Open another one."
    error = {"type": "invalid_request_error", "code": _LIMIT, "message": message, "param": None}
    return msgspec.json.encode({"type": "error", "status": 400, "error": error})
