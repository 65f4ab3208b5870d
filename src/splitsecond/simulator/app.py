"""The application of a simulated provider: serves the `endpoints`, the list of models, health and
the truth.

Each profile has its own `SimulatedProvider` at its own port, with its own requests in flight, draws
and faults. Faults before the first byte are acted out here, the others in `sender`.
"""

from array import array
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import parse_qs

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Overloaded
from splitsecond.core.pacing import Pacer
from splitsecond.core.serving.connection import ServerConnection
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.wire.client_format import listing_at
from splitsecond.simulator.content import faults
from splitsecond.simulator.content.replies import ReplyRules, parse_rules
from splitsecond.simulator.continued import whole_body
from splitsecond.simulator.endpoints import (
    ApiEndpoint,
    StreamUrlWriter,
    TokenCountEndpoint,
    endpoint_at,
    token_count_at,
)
from splitsecond.simulator.journal import JournalEntry, RequestJournal
from splitsecond.simulator.profile import ANY_MODEL, Profile
from splitsecond.simulator.rate_limit import SimulatedRateLimit
from splitsecond.simulator.replicas import Replica, Replicas
from splitsecond.simulator.request import (
    RejectedRequest,
    SimulatedRequest,
    check_model,
    count_request_tokens,
    error_code,
    full_path,
    read_request,
)
from splitsecond.simulator.response import (
    IN_STREAM_ERROR,
    renderer,
    send_error,
    send_stream,
    send_whole,
)
from splitsecond.simulator.sender import ResponseSender
from splitsecond.simulator.server_counts import ServerCounts
from splitsecond.simulator.truth import TruthLog, TruthRecord

MAX_BODY_BYTES = 32 << 20
MAX_WAITING = 1024
"""Maximum number of created streams that wait to be read; the oldest ones are dropped."""

_STREAMS = "/v1/streams/"
_BEFORE_HEADERS = ("http", "reset", "refused")


class SimulatedProvider:
    """One provider.

    `seed` determines its draws. `received_ns` maps the file descriptor of a connection to when the
    kernel received the bytes of its last read.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        seed: int,
        pacer: Pacer,
        truth: TruthLog,
        received_ns: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        refused = tuple(fault for fault in profile.faults if fault.kind == "refused")
        later = tuple(fault for fault in profile.faults if fault.kind != "refused")
        self.profile = msgspec.structs.replace(profile, faults=later)
        self._refused = refused
        self._pacer = pacer
        self._truth = truth
        self._received_ns = received_ns
        self._replicas = Replicas(profile, pacer, seed)
        self._rate_limit = (
            None if profile.rate_limits is None else SimulatedRateLimit(profile.rate_limits)
        )
        self._in_flight = 0
        self._senders: set[ResponseSender] = set()
        self._connections = 0
        self._counts: Counter[str] = Counter()
        self._rules = ReplyRules(profile.replies)
        self._journal = RequestJournal()
        self._server_counts = ServerCounts()
        # created streams, each read by a second request
        self._waiting: dict[str, SimulatedRequest] = {}

    def on_connect(self, connection: ServerConnection) -> None:
        """Reset a new connection if a fault `refused` strikes it."""
        self._connections += 1
        if faults.first_striking(self._refused, self._connections) is not None:
            connection.reset()

    def abandon(self) -> None:
        for sender in self._senders:
            sender.end("abandoned")

    async def __call__(self, cycle: RequestCycle) -> None:
        method, path = cycle.method, cycle.path
        token_count = token_count_at(path)
        endpoint = endpoint_at(path) if token_count is None else token_count.endpoint
        entry = None
        try:
            if endpoint is None and (page := await self._own_page(cycle)) is not None:
                await cycle.answer(200, page)
                return
            api_format = endpoint.format_name if endpoint is not None else ""
            entry = self._journal.add(
                method, path, cycle.query.decode("latin-1"), cycle.headers, api_format
            )
            self._check_key(cycle)
            if token_count is not None and method == "POST":
                await self._count_tokens(token_count, cycle, entry)
            elif endpoint is not None and method == "POST":
                await self._complete(endpoint, cycle, entry)
            elif (
                method == "GET"
                and (request := self._waiting.pop(path.removeprefix(_STREAMS), None)) is not None
            ):
                endpoint = request.endpoint
                await self._serve(request, cycle)
            else:
                await cycle.answer(200, self._models(cycle))
        except RejectedRequest as rejected:
            await send_error(cycle, rejected, endpoint)
        finally:
            if entry is not None:
                entry.status = cycle.status

    async def _own_page(self, cycle: RequestCycle) -> bytes | None:
        """Return a page of the simulator itself; None for any other path. Changes the replies and
        the journal."""
        match cycle.method, cycle.path:
            case "GET", "/health":
                return msgspec.json.encode(
                    {"status": "ok", "profile": self.profile.name, "in_flight": self._in_flight}
                )
            case "GET", "/metrics":
                return self._metrics()
            case "GET", "/truth":
                return self._truth.as_json(self.profile.name)
            case "DELETE", "/truth":
                self._truth.clear(self.profile.name)
            case "GET", "/_splitsecond/requests":
                return self._journal.as_json()
            case "DELETE", "/_splitsecond/requests":
                self._journal.clear()
            case "POST", "/_splitsecond/replies":
                try:
                    self._rules.add(parse_rules(await _read_body(cycle), "replies"))
                except CallerFault as fault:
                    raise RejectedRequest(400, str(fault), code=fault.kind) from fault
            case "DELETE", "/_splitsecond":
                self._rules.reset()
                self._counts.clear()
                self._journal.clear()
                self._truth.clear(self.profile.name)
            case _:
                return None
        return b"[]"

    def _metrics(self) -> bytes:
        """Return the page about the engine. Raises `RejectedRequest` if the profile has none."""
        engines = self._replicas.engines
        if not engines:
            raise RejectedRequest(
                404, "this provider has no engine to tell about", code="unknown_url"
            )
        from splitsecond.simulator.server_metrics import exposed  # which loads Prometheus' client

        return exposed(self.profile, engines, self._server_counts, clock.now_ns())

    def _check_key(self, cycle: RequestCycle) -> None:
        if self.profile.keys and presented_key(cycle) not in self.profile.keys:
            raise RejectedRequest(401, "Incorrect API key provided", code="invalid_api_key")

    def _models(self, cycle: RequestCycle) -> bytes:
        listing_and_name = listing_at(cycle.path, cycle.headers) if cycle.method == "GET" else None
        if listing_and_name is None:
            raise RejectedRequest(
                404, f"unknown URL: {cycle.method} {cycle.path}", code="unknown_url"
            )
        listing, name = listing_and_name
        if name and listing.model is not None:
            check_model(self.profile, name)
            return msgspec.json.encode(listing.model(name))
        return listing.whole(
            [self.profile.name if self.profile.model == ANY_MODEL else self.profile.model]
        )

    async def _count_tokens(
        self, endpoint: TokenCountEndpoint, cycle: RequestCycle, entry: JournalEntry
    ) -> None:
        body = await _read_body(cycle)
        self._journal.set_body(entry, body)
        await cycle.answer(
            200, count_request_tokens(self.profile, endpoint, full_path(cycle), body)
        )

    async def _complete(
        self, endpoint: ApiEndpoint, cycle: RequestCycle, entry: JournalEntry
    ) -> None:
        body = await _read_body(cycle)
        self._journal.set_body(entry, body)
        try:
            body = whole_body(body, self._journal)
        except CallerFault as fault:
            raise RejectedRequest(400, fault.message, code=fault.kind) from fault
        request = read_request(
            self.profile,
            self._rules,
            endpoint,
            cycle,
            body,
            count=self._count,
            received_ns=self._received_ns.get(cycle.descriptor, 0),
        )
        entry.model, entry.stream = request.parsed.model, request.parsed.stream
        entry.response_id, entry.script = request.response_id, request.script
        request = self._admit(request)
        if (
            endpoint.created is not None
            and request.parsed.stream
            and request.fault_kind not in _BEFORE_HEADERS
        ):
            await cycle.answer(201, self._create(request, endpoint.created, cycle))
        else:
            await self._serve(request, cycle)

    def _count(self, what: str) -> int:
        self._counts[what] += 1
        return self._counts[what]

    def _create(
        self, request: SimulatedRequest, created: StreamUrlWriter, cycle: RequestCycle
    ) -> bytes:
        """Keep the request until its stream is read, and return the response with the stream's
        URL."""
        self._waiting[request.response_id] = request
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        host = (cycle.header(b"host") or b"localhost").decode("latin-1")
        url = f"http://{host}{_STREAMS}{request.response_id}"
        return created(
            request.parsed.model, id=request.response_id, created=request.created, stream=url
        )

    def _admit(self, request: SimulatedRequest) -> SimulatedRequest:
        """Return the request with the state of the rate limits. Raises `RejectedRequest` if it
        exceeds one."""
        if self._rate_limit is None:
            return request
        exceeded = self._rate_limit.take(
            request.prompt_tokens + request.output_tokens, clock.now_ns()
        )
        request = msgspec.structs.replace(request, limits=self._rate_limit.state())
        if exceeded is None:
            return request
        self._record(request, "rate_limited")
        unit, wait_s = exceeded.unit, exceeded.wait_ns / clock.NS_PER_S
        raise RejectedRequest(
            429,
            f"Rate limit reached for {unit} per minute: limit {exceeded.limit}. Please try again "
            f"in {wait_s:.3f}s.",
            code="rate_limit_exceeded",
            type=unit,
            retry_after=wait_s,
            headers=request.limit_headers,
        )

    async def _serve(self, request: SimulatedRequest, cycle: RequestCycle) -> None:
        replica, cached = self._replicas.choose(request)
        self._in_flight += 1
        replica.in_flight += 1
        try:
            request = msgspec.structs.replace(request, cached=cached, replica=replica.number)
            await self._act(request, replica, cycle)
        finally:
            self._in_flight -= 1
            replica.in_flight -= 1

    async def _act(self, request: SimulatedRequest, replica: Replica, cycle: RequestCycle) -> None:
        fault = request.fault
        if fault is not None and fault.kind == "http":
            self._record(request, fault.kind)
            status = fault.status or 500
            message = f"a simulated error {status}"
            raise RejectedRequest(
                status, message, code=error_code(status), retry_after=fault.retry_after
            )
        if fault is not None and fault.kind in ("reset", "refused"):
            self._record(request, fault.kind)
            cycle.reset()
        else:
            await self._respond(request, replica, cycle)

    async def _respond(
        self, request: SimulatedRequest, replica: Replica, cycle: RequestCycle
    ) -> None:
        in_flight, evicted_tokens = self._in_flight, 0

        def store_prompt() -> None:
            nonlocal evicted_tokens
            evicted_tokens = replica.store(request.cached)
            times = sender.times(request.arrived_ns)
            self._server_counts.began(times, request.prompt_tokens, request.cached_tokens)

        endpoint, parsed = request.endpoint, request.parsed
        create = endpoint.writer or endpoint.api_format.StreamWriter
        writer = create(
            endpoint.operation, parsed.model, id=request.response_id, created=request.created
        )
        if request.script is not None:
            writer.stop_sequence = request.script.stop_sequence
        writer.read_tools(parsed.fields)
        sender = ResponseSender(
            request,
            self._pacer,
            render=renderer(request, writer),
            write=cycle.send_now,
            error=writer.error(*IN_STREAM_ERROR),
            on_first_token=store_prompt,
        )
        try:
            stop = replica.producer.start(
                sender,
                arrived_ns=request.arrived_ns,
                in_flight=in_flight,
                prompt_tokens=request.prompt_tokens,
                cached_tokens=request.cached_tokens,
            )
        except Overloaded as error:
            self._record(request, "full")
            status = self.profile.engine.full_status if self.profile.engine else 503
            raise RejectedRequest(
                status, error.message, code="overloaded", retry_after=1
            ) from error
        cycle.on_lost = sender.closed_by_client
        self._senders.add(sender)
        try:
            await sender.head_due(request.arrived_ns)
            if parsed.stream:
                await send_stream(request, sender, writer, cycle)
            else:
                await send_whole(request, sender, writer, cycle)
        finally:
            cycle.on_lost = None
            self._senders.discard(sender)
            sender.end("abandoned")
            stop()
            if sender.outcome == "complete":
                self._server_counts.completed(sender.times(request.arrived_ns))
            self._record(request, request.fault_kind, in_flight, sender, evicted_tokens)

    def _record(
        self,
        request: SimulatedRequest,
        fault: str,
        in_flight: int = 0,
        sender: ResponseSender | None = None,
        evicted_tokens: int = 0,
    ) -> None:
        self._truth.add(
            TruthRecord(
                request_id=request.request_id,
                profile=self.profile.name,
                session=request.session,
                replica=request.replica,
                in_flight=in_flight or self._in_flight,
                received_ns=request.received_ns,
                arrived_ns=request.arrived_ns,
                began_ns=sender.began_ns if sender else 0,
                planned_ns=sender.planned_ns if sender else array("q"),
                actual_ns=sender.actual_ns if sender else array("q"),
                first_written_ns=sender.first_written_ns if sender else 0,
                prompt_tokens=request.prompt_tokens,
                cached_tokens=request.cached_tokens,
                new_tokens=request.prompt_tokens - request.cached_tokens,
                evicted_tokens=evicted_tokens,
                preemptions=sender.preemptions if sender else 0,
                throttled_ns=sender.throttled_ns if sender else 0,
                cache_write_tokens=(request.cached.written_tokens if request.cached else None) or 0,
                output_tokens=request.output_tokens,
                fault=fault,
                ended_ns=clock.now_ns(),
                closed_by_client=sender is not None and sender.outcome == "closed_by_client",
            )
        )


def presented_key(cycle: RequestCycle) -> str:
    """Return the API key of a request, wherever its API format has it; "" if it has none."""
    authorization = cycle.header(b"authorization").decode("latin-1")
    scheme, _, bearer = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return bearer.strip()
    header_key = next(
        (
            key
            for name in (b"x-api-key", b"x-goog-api-key", b"api-key")
            if (key := cycle.header(name))
        ),
        b"",
    )
    return (
        header_key.decode("latin-1") or parse_qs(cycle.query.decode("latin-1")).get("key", [""])[0]
    )


async def _read_body(cycle: RequestCycle) -> bytes:
    """Read the body of a request. Raises `RejectedRequest` if it is too long or arrives too
    slowly."""
    try:
        return await cycle.body(MAX_BODY_BYTES)
    except CallerFault as fault:
        code = "body_too_long" if fault.status == 413 else fault.kind
        raise RejectedRequest(fault.status or 400, fault.message, code=code) from fault
