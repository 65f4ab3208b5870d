"""The HTTP side: what the `endpoints` are asked, models, health and the truth, as raw ASGI.

One `SimulatedProvider` for each profile, with its own requests in flight, draws and faults; `Simulator` hands each
request to the one whose port it came in by. Faults of the head are acted out here, those between tokens in `answer`.
"""

from array import array
from collections.abc import Mapping

import msgspec

from splitsecond import clock
from splitsecond.errors import Overloaded
from splitsecond.pacing import Pacer
from splitsecond.simulator import faults
from splitsecond.simulator.allowance import Allowance
from splitsecond.simulator.answer import Answer
from splitsecond.simulator.asgi import Receive, Scope, Send, read, refuse, respond
from splitsecond.simulator.asked import Asked, Refusal, counted, understand
from splitsecond.simulator.connection import EXTENSION, Connection
from splitsecond.simulator.content import renderer
from splitsecond.simulator.counting import Counting, counting_at
from splitsecond.simulator.delivery import IN_STREAM_ERROR, stream, whole
from splitsecond.simulator.endpoints import Created, Endpoint, endpoint_at
from splitsecond.simulator.feeds import feed_of
from splitsecond.simulator.profile import Profile
from splitsecond.simulator.prompt_cache import PromptCache, Recalled
from splitsecond.simulator.truth import Record, Truth

MAX_WAITING = 1024
"""How many streams may wait to be read; the oldest are forgotten."""

_STREAMS = "/v1/streams/"
_AT_THE_HEAD = ("http", "reset", "refused")


class Simulator:
    """The application: several providers, each at its own port."""

    def __init__(self, providers: "Mapping[int, SimulatedProvider]") -> None:
        self._providers = providers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._providers[scope["server"][1]](scope, receive, send)

    def refuses_connection(self, port: int) -> bool:
        """Whether the next connection to `port` is to be reset at once."""
        return self._providers[port].refuses_connection()

    def abandon(self) -> None:
        """Break every answer off: the server is going down."""
        for provider in self._providers.values():
            provider.abandon()


class SimulatedProvider:
    """One provider. `seed` decides its draws."""

    def __init__(self, profile: Profile, *, seed: int, pacer: Pacer, truth: Truth) -> None:
        refused = tuple(fault for fault in profile.faults if fault.kind == "refused")
        later = tuple(fault for fault in profile.faults if fault.kind != "refused")
        self.profile = msgspec.structs.replace(profile, faults=later)
        self._refused = refused
        self._pacer = pacer
        self._truth = truth
        self._feed = feed_of(profile, pacer, seed)
        self._prompts = None if profile.prompt_cache is None else PromptCache(profile.prompt_cache)
        self._allowance = None if profile.rate_limits is None else Allowance(profile.rate_limits)
        self._in_flight = 0
        self._answers: set[Answer] = set()
        self._connections = 0
        self._requests = 0
        self._waiting: dict[str, Asked] = {}  # streams that were asked for, and are to be read with another request

    def refuses_connection(self) -> bool:
        """Whether the next connection is to be reset at once."""
        self._connections += 1
        return faults.first_striking(self._refused, self._connections) is not None

    def abandon(self) -> None:
        """Break every answer off."""
        for answer in self._answers:
            answer.end("abandoned")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        counting = counting_at(path)
        endpoint = endpoint_at(path) if counting is None else counting.endpoint
        try:
            if counting is not None and method == "POST":
                await self._count(counting, scope, receive, send)
            elif endpoint is not None and method == "POST":
                await self._complete(endpoint, scope, receive, send)
            elif method == "GET" and (asked := self._waiting.pop(path.removeprefix(_STREAMS), None)) is not None:
                endpoint = asked.endpoint
                await self._serve(asked, scope, receive, send)
            else:
                await respond(send, 200, self._page(method, path))
        except Refusal as refusal:
            await refuse(send, refusal, endpoint)

    def _page(self, method: str, path: str) -> bytes:
        match method, path:
            case "GET", "/v1/models":
                model = {"id": self.profile.model, "object": "model", "created": 0, "owned_by": "splitsecond"}
                return msgspec.json.encode({"object": "list", "data": [model]})
            case "GET", "/health":
                return msgspec.json.encode({"status": "ok", "profile": self.profile.name, "in_flight": self._in_flight})
            case "GET", "/truth":
                return self._truth.as_json(self.profile.name)
            case "DELETE", "/truth":
                self._truth.clear(self.profile.name)
                return b"[]"
            case _:
                raise Refusal(404, f"there is no {method} {path} here", code="unknown_url")

    async def _count(self, counting: Counting, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read(receive)
        if body is not None:
            await respond(send, 200, counted(self.profile, counting, _full_path(scope), body))

    async def _complete(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read(receive)
        if body is None:
            return
        self._requests += 1
        asked = understand(
            self.profile,
            endpoint,
            _full_path(scope),
            dict(scope["headers"]),
            body,
            number=self._requests,
            arrived_ns=scope["extensions"][EXTENSION]["arrived_ns"],
        )
        asked = self._admit(asked)
        if endpoint.created is not None and asked.request.stream and asked.fault_kind not in _AT_THE_HEAD:
            await respond(send, 201, self._create(asked, endpoint.created, scope))
        else:
            await self._serve(asked, scope, receive, send)

    def _create(self, asked: Asked, created: Created, scope: Scope) -> bytes:
        """The stream that was asked for will be read later; where."""
        self._waiting[asked.answer_id] = asked
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        host = dict(scope["headers"]).get(b"host", b"localhost").decode("latin-1")
        url = f"http://{host}{_STREAMS}{asked.answer_id}"
        return created(asked.request.model, id=asked.answer_id, created=asked.created, stream=url)

    def _admit(self, asked: Asked) -> Asked:
        """The same request, with how the rate limits stand after it. Raises `Refusal` where they do not let it in."""
        if self._allowance is None:
            return asked
        short = self._allowance.take(asked.prompt_tokens + asked.output_tokens, clock.now_ns())
        asked = msgspec.structs.replace(asked, limits=self._allowance.state())
        if short is None:
            return asked
        self._note(asked, "rate_limited")
        wait_s = short.wait_ns / clock.NS_PER_S
        raise Refusal(
            429,
            f"Rate limit reached for {short.unit} per minute: limit {short.limit}. Please try again in {wait_s:.3f}s.",
            code="rate_limit_exceeded",
            type=short.unit,
            retry_after=wait_s,
            headers=asked.limit_headers,
        )

    async def _serve(self, asked: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        self._in_flight += 1
        try:
            asked = msgspec.structs.replace(asked, recalled=self._recall(asked))
            await self._act(asked, scope["extensions"][EXTENSION]["connection"], receive, send)
        finally:
            self._in_flight -= 1

    def _recall(self, asked: Asked) -> Recalled | None:
        if self._prompts is None:
            return None
        text = asked.request.prompt_text
        if asked.endpoint.marked_cache:
            return self._prompts.recall_marked(text, asked.request.cache_marks, clock.now_ns())
        return self._prompts.recall(text, clock.now_ns())

    def _keep(self, asked: Asked) -> None:
        """The prompt has been worked off: from now on its beginnings are known."""
        if self._prompts is not None and asked.recalled is not None:
            self._prompts.keep(asked.recalled.beginnings, clock.now_ns())

    async def _act(self, asked: Asked, connection: Connection, receive: Receive, send: Send) -> None:
        fault = asked.fault
        if fault is not None and fault.kind == "http":
            self._note(asked, asked.fault_kind)
            status = fault.status or 500
            raise Refusal(
                status, f"a {status}, as was asked for (simulated)", code="simulated", retry_after=fault.retry_after
            )
        if fault is not None and fault.kind in ("reset", "refused"):
            self._note(asked, asked.fault_kind)
            connection.reset()
        else:
            await self._answer(asked, connection, send)
        if connection.transport.is_closing():
            while (await receive())["type"] != "http.disconnect":  # uvicorn has to see it before we return
                pass

    async def _answer(self, asked: Asked, connection: Connection, send: Send) -> None:
        in_flight = self._in_flight
        writer = asked.endpoint.dialect.StreamWriter(
            asked.endpoint.operation, asked.request.model, id=asked.answer_id, created=asked.created
        )
        answer = Answer(
            tokens=asked.output_tokens,
            pacer=self._pacer,
            fault=asked.fault,
            render=renderer(asked, writer),
            write=connection.write_chunk,
            error=writer.error(*IN_STREAM_ERROR),
            malformed=asked.endpoint.malformed,
            held=not asked.request.stream,
            begun=lambda: self._keep(asked),
        )
        try:
            stop = self._feed.start(
                answer,
                arrived_ns=asked.arrived_ns,
                in_flight=in_flight,
                prompt_tokens=asked.prompt_tokens,
                cached_tokens=asked.cached_tokens,
            )
        except Overloaded as error:
            self._note(asked, "full")
            status = self.profile.engine.full_status if self.profile.engine else 503
            raise Refusal(status, error.message, code="overloaded", retry_after=1) from error
        connection.on_lost = answer.closed_by_client
        self._answers.add(answer)
        try:
            await answer.head_due(asked.arrived_ns)
            if asked.request.stream:
                await stream(asked, answer, writer, connection, send)
            else:
                await whole(asked, answer, connection, send)
        finally:
            connection.on_lost = None
            self._answers.discard(answer)
            answer.end("abandoned")
            stop()
            self._note(asked, asked.fault_kind, in_flight, answer)

    def _note(self, asked: Asked, fault: str, in_flight: int = 0, answer: Answer | None = None) -> None:
        self._truth.keep(
            Record(
                request_id=asked.request_id,
                profile=self.profile.name,
                in_flight=in_flight or self._in_flight,
                arrived_ns=asked.arrived_ns,
                began_ns=answer.began_ns if answer else 0,
                planned_ns=answer.planned_ns if answer else array("q"),
                actual_ns=answer.actual_ns if answer else array("q"),
                prompt_tokens=asked.prompt_tokens,
                cached_tokens=asked.cached_tokens,
                cache_write_tokens=(asked.recalled.written_tokens if asked.recalled else None) or 0,
                output_tokens=asked.output_tokens,
                fault=fault,
                ended_ns=clock.now_ns(),
                closed_by_client=answer is not None and answer.outcome == "closed_by_client",
            )
        )


def _full_path(scope: Scope) -> str:
    """With the query."""
    return f"{scope['path']}?{scope.get('query_string', b'').decode('latin-1')}"
