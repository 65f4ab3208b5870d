"""The front endpoint: it authenticates clients, reads their requests and sends the responses.

Nothing is sent before the first token, so a policy can still choose another target and a failure
has its own status. After it, a failure ends the stream with an error event, so that a broken stream
never looks complete. That also holds if the first token and the failure arrive in one read. No
header of the client goes to a provider (except ``anthropic-beta`` and ``anthropic-version`` to
targets with Anthropic's format), and no header of the provider to the client. When a client leaves,
its call is cancelled, and that closes its connections to providers.

The handler of the routed path decides about access, so neither the client's Host header nor another
spelling of a path gets around a key. Only targets that are called with the client's own credentials
get these. `headers.HINTS` lists the few headers that policies see.
"""

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import lru_cache, partial
from random import Random
from typing import NamedTuple
from urllib.parse import parse_qsl

import msgspec

from splitsecond.core import clock
from splitsecond.core.client_credentials import (
    SUBSCRIPTION_HEADER,
    VENDORS,
    ClientCredentials,
    client_credentials,
)
from splitsecond.core.errors import CallerFault, Fault, InternalFault
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.large_bodies import LARGE_BYTES, off_loop
from splitsecond.core.money.closed_early import Billing
from splitsecond.core.observation import Observation
from splitsecond.core.service import WHOLE_OPERATIONS, Call, OutputMeter, Reply, Service
from splitsecond.core.serving.request_cycle import ClientLeft, RequestCycle
from splitsecond.core.wire.client_format import ClientFormat, listing_at
from splitsecond.core.wire.ollama import SERVED_VERSION
from splitsecond.core.wire.stored_ids import CONTINUES, FIELDS, KeptAnswers, ids_in_request
from splitsecond.core.wire.translation import nested_too_deeply, short
from splitsecond.gateway.dashboard.collection import DashboardData
from splitsecond.gateway.http.counting import count_tokens
from splitsecond.gateway.http.headers import (
    HINT_HEADERS,
    LONGEST_HINT,
    call_headers,
    header_value,
    hints,
    id_headers,
)
from splitsecond.gateway.http.held_bodies import HeldBodies
from splitsecond.gateway.http.operator_pages import OperatorPages, not_found
from splitsecond.gateway.http.origins import Origins, stranger
from splitsecond.gateway.http.own_answer import OwnAnswer
from splitsecond.gateway.http.response_sending import send_stream, send_whole
from splitsecond.gateway.http.wrong_keys import WrongKey, WrongKeys
from splitsecond.gateway.records.access_log import AccessLog
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.gateway.records.reservation import estimated
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.gateway.records.session_budgets import (
    ALLOW,
    ALLOW_HEADER,
    BudgetOwner,
    BudgetReached,
    OpenBudgets,
    SessionBudgets,
)
from splitsecond.gateway.records.sessions import Sessions, target_hash
from splitsecond.log.store.call_record import OWN_TARGET
from splitsecond.routing.configuration.settings import Listen
from splitsecond.routing.construction.expression import Expression, targets
from splitsecond.routing.requests import parsed_request
from splitsecond.routing.requests.endpoints import Endpoint, endpoint_at, format_at
from splitsecond.routing.requests.error_response import error_response
from splitsecond.routing.requests.parsed_request import ParsedRequest
from splitsecond.routing.requests.repeated_calls import MIN_REPEATED, repeated_call
from splitsecond.routing.router.call_tracker import CallTracker, OpenCall
from splitsecond.routing.router.routes import Routes
from splitsecond.routing.router.settings import ClientKey
from splitsecond.routing.targets.conversations import Conversations

MAX_CACHED_KEYS = 4096
"""Authorization headers that were valid, cached with their keys to save a hash for each request."""
LONGEST_CACHED_KEY = 1024
"""Longer headers are not cached: any number of spaces may precede a key."""
_KEY_HEADERS = (b"authorization", b"x-splitsecond-key", b"x-api-key", b"x-goog-api-key")
_SESSION_ID = re.compile("[0-9a-f]{16}")
_UPGRADE_REQUIRED = ((b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade"))
"""Headers of a response with status 426, which must name the protocol to use (RFC 9110)."""


class Held(NamedTuple):
    """What a call holds of the limits: `release` ends that, and `charge` counts the cost of an
    attempt for its session. `service` answers the call."""

    service: Service
    release: Callable[[], None] | None = None
    charge: Callable[[Observation], None] | None = None


class Gateway:
    """Serves requests. Call `use` before the first one. `draining`: it is about to stop, and says
    that it is not ready.

    `tracker` records each call. `owners`: the clients and targets of stored responses.
    `conversations`: learn from `sessions` what other workers know; None: there are none.
    `access_log`: gets the requests that are refused.
    """

    def __init__(
        self,
        *,
        tracker: CallTracker | None = None,
        metrics: Metrics | None = None,
        dashboard: DashboardData | None = None,
        owners: ResponseOwners | None = None,
        sessions: Sessions | None = None,
        conversations: Conversations | None = None,
        access_log: AccessLog | None = None,
    ) -> None:
        self.draining = False
        self._chance = Random()
        self._tracker = tracker or CallTracker()
        self._metrics = metrics or Metrics()
        self._pages = OperatorPages(self._key, self._metrics, dashboard)
        self._owners = owners or ResponseOwners()
        self._sessions = sessions or Sessions()
        self._conversations = conversations
        self._access_log = access_log
        self._wrong_keys = WrongKeys()
        self._bodies = HeldBodies()
        self._handlers: Mapping[str, Callable[[RequestCycle], Awaitable[None]]] = {
            "/": self._root,
            "/api/hello": self._live,
            "/api/version": self._version,
            ALLOW: self._allow_session,
            "/health": self._ready,
            "/health/live": self._live,
            "/health/ready": self._ready,
            **self._pages.handlers,
        }

    def use(
        self,
        routes: Routes,
        keys: tuple[ClientKey, ...] = (),
        *,
        listen: Listen | None = None,
        limits: KeyLimits | None = None,
        budgets: SessionBudgets | None = None,
        billing: Billing | None = None,
        advise: Callable[[Fault], Fault] | None = None,
    ) -> None:
        """Serve by these settings from the next request on. Requests in flight end with the old
        ones.

        `limits`: those of keys; `budgets`: those of sessions. `advise` adds hints to the failures
        that clients receive.
        """
        listen = listen or Listen()
        self._routes = routes
        self._keys = {digest: key for key in keys for digest in key.digests}
        self._cached_keys: dict[bytes, ClientKey] = {}
        self._limited = {key.name for key in keys if key.bearers}
        self._teams = {key.name: key.team.name for key in keys if key.team is not None}
        self._max_body_bytes = listen.max_body_mib << 20
        self._limits = limits
        self._budgets = budgets
        self._pages.use(routes, listen.metrics)
        self._origins = Origins(listen.cors)
        self._advise = advise
        self._billing = billing or Billing()
        self._takes_credentials = routes.takes_credentials
        self._unnamed = listen.client

    async def __call__(self, cycle: RequestCycle) -> None:
        try:
            endpoint = endpoint_at(cycle.path)
            if b"origin" in cycle.headers:
                self._check_origin(cycle)
            if endpoint is not None and cycle.method == "POST":
                try:
                    await self._complete(cycle, endpoint)
                finally:
                    if cycle.held_bytes:
                        self._bodies.release(cycle)
            else:
                await self._serve_other(cycle, endpoint)
        except Fault as fault:
            await self._refuse(cycle, fault)
        except ClientLeft:
            raise
        except Exception as error:
            if cycle.status:  # the response has begun: the connection is closed within it
                raise
            report_internal_error("request", error)
            await self._refuse(cycle, InternalFault())

    async def _refuse(self, cycle: RequestCycle, fault: Fault) -> None:
        if isinstance(fault, WrongKey):
            fault = await self._paused(cycle, fault)
        form = format_at(cycle.path, cycle.headers)
        response = error_response(self._advised(fault), form)
        identity = self._new_id()
        self._metrics.refused(response.status, cycle.client)
        if self._access_log is not None:
            self._access_log.refused(
                call=identity,
                client=cycle.client,
                method=cycle.method,
                path=cycle.path[:LONGEST_HINT],
                status=response.status,
                fault=fault.kind,
            )
        await cycle.refuse(response, id_headers(identity.encode(), form))

    async def _paused(self, cycle: RequestCycle, fault: WrongKey) -> CallerFault:
        if await self._wrong_keys.pause(cycle.peer):
            return fault
        cycle.keep_alive = False
        message = "too many wrong keys from this address"
        return CallerFault(
            message, kind="too_many_wrong_keys", status=429, hint="Send a valid key."
        )

    def _check_origin(self, cycle: RequestCycle) -> None:
        origin = cycle.header(b"origin")
        if not origin:
            return
        cycle.extra = self._origins.headers(origin)
        if not self._keys and not self._origins.allow(origin):
            raise stranger(origin)

    async def _serve_other(self, cycle: RequestCycle, endpoint: Endpoint | None) -> None:
        """Serve a request that is no call: one of our pages, a preflight request, or an error."""
        handler, origin = self._handler(cycle), cycle.header(b"origin")
        if endpoint is None and (handler is None or (cycle.method == "POST" and ":" in cycle.path)):
            raise not_found(cycle)  # an unknown method of a model is no list of models
        if endpoint is not None and cycle.header(b"upgrade").lower() == b"websocket":
            cycle.extra = [*cycle.extra, *_UPGRADE_REQUIRED]
            # Codex does so at once after this status; after 400 and 501 it gives up
            hint = "Send POST requests."
            raise CallerFault(
                f"{cycle.path} has no WebSocket",
                kind="websocket_unsupported",
                status=426,
                hint=hint,
            )
        methods = ("POST",) if endpoint or cycle.path == ALLOW else ("GET", "HEAD")
        if origin and cycle.method == "OPTIONS" and self._origins.allow(origin):
            wanted = cycle.header(b"access-control-request-headers")
            await cycle.answer(204, b"", self._origins.preflight(methods[0], wanted))
        elif (
            handler is not None and cycle.method in methods
        ):  # the connection leaves out the body for HEAD
            await handler(cycle)
        else:
            cycle.extra = [*cycle.extra, (b"allow", ", ".join(methods).encode())]
            message = f"{cycle.path} takes {methods[0]}, got {cycle.method}"
            raise CallerFault(message, kind="method_not_allowed", status=405)

    def _handler(self, cycle: RequestCycle) -> Callable[[RequestCycle], Awaitable[None]] | None:
        found = self._handlers.get(cycle.path)
        if found is None and listing_at(cycle.path, cycle.headers) is not None:
            return self._models
        return found

    async def _live(self, cycle: RequestCycle) -> None:
        await cycle.answer(200, b'{"status":"live"}')

    async def _root(self, cycle: RequestCycle) -> None:
        """Lead a browser to the dashboard. Programs that ask whether the gateway is there get the
        answer of ``/health/live``."""
        if b"text/html" in cycle.header(b"accept").lower():
            await cycle.answer(302, b"", [(b"location", b"/dashboard")], kind=b"text/plain")
        else:
            await self._live(cycle)

    async def _ready(self, cycle: RequestCycle) -> None:
        if self.draining:
            await cycle.answer(503, b'{"status":"draining"}')
        else:
            await cycle.answer(200, b'{"status":"ready"}')

    async def _version(self, cycle: RequestCycle) -> None:
        await cycle.answer(200, msgspec.json.encode({"version": SERVED_VERSION}))

    async def _allow_session(self, cycle: RequestCycle) -> None:
        """Let a session use its budget once more, for an operator. Only JSON: pages of other
        origins cannot send that type without a preflight request."""
        self._pages.check(cycle)
        if not _is_json(cycle):
            raise CallerFault("the request is not JSON", kind="unsupported_media_type", status=415)
        session = dict(parse_qsl(cycle.query.decode("latin-1"))).get("session", "")
        known = (
            self._budgets is not None
            and _SESSION_ID.fullmatch(session)
            and self._budgets.allow(session)
        )
        if not known:
            words = "no session with this id has reached a budget"
            raise CallerFault(words, kind="unknown_session", status=404)
        await cycle.answer(200, msgspec.json.encode({"session": session, "allowed": True}))

    async def _models(self, cycle: RequestCycle) -> None:
        found, key = listing_at(cycle.path, cycle.headers), self._key(cycle)
        if found is None:
            raise not_found(cycle)
        listing, name = found
        if name and listing.model is not None:
            self._routes.service(name, key)  # raises if there is none
            body = msgspec.json.encode(listing.model(name))
        else:
            body = listing.whole(self._routes.names(key))
        form = format_at(cycle.path, cycle.headers)
        await cycle.answer(200, body, id_headers(self._new_id().encode(), form))

    def _key(self, cycle: RequestCycle) -> ClientKey | None:
        """Return the key of a request; None if no keys are configured.

        Valid headers are cached in a dictionary, whose hashes are not known outside this process.
        Two values are compared only if their hashes are equal, so the time this takes reveals
        nothing about a key.
        """
        if not self._keys:
            cycle.client = self._unnamed
            return None
        authorization = cycle.headers.get(b"authorization", b"")
        found = self._cached_keys.get(authorization) or self._presented(cycle, authorization)
        if found is None:
            hint = "Send it as Authorization: Bearer KEY, or as x-api-key: KEY."
            kind = WrongKey if any(name in cycle.headers for name in _KEY_HEADERS) else CallerFault
            raise kind("no valid key", kind="invalid_api_key", status=401, hint=hint)
        cycle.client = found.name
        return found

    def _presented(self, cycle: RequestCycle, authorization: bytes) -> ClientKey | None:
        """Return the key in the `authorization` header, or in another of `_KEY_HEADERS`; None if
        none is valid."""
        found = self._find_key(_secret(authorization))
        if found is None:
            return self._find_key(
                next(
                    (cycle.headers[name] for name in _KEY_HEADERS[1:] if name in cycle.headers), b""
                )
            )
        if found.former:  # a former key may expire, so it is looked up again
            return found
        if len(self._cached_keys) < MAX_CACHED_KEYS and len(authorization) <= LONGEST_CACHED_KEY:
            self._cached_keys[authorization] = found
        return found

    def _find_key(self, presented: bytes) -> ClientKey | None:
        """Return the client key for a secret, looked up by its hash and compared in constant time,
        so that the time this takes reveals nothing about a key."""
        digest = hashlib.sha256(presented.strip()).digest()
        found = self._keys.get(digest)
        if found is None or hmac.compare_digest(found.digest, digest):
            return found
        now_s = clock.wall_time().timestamp()
        valid = (
            hmac.compare_digest(each.digest, digest)
            and (each.until_s is None or now_s < each.until_s)
            for each in found.former
        )
        return found if any(valid) else None

    def _credentials(self, cycle: RequestCycle, form: ClientFormat) -> ClientCredentials | None:
        """Return the client's own credentials for the vendor of its API; never a key of this
        gateway."""
        ours = [
            name
            for name in _KEY_HEADERS
            if self._keys and self._find_key(_secret(cycle.header(name)))
        ]
        return client_credentials(
            VENDORS.get(form.vendor) or VENDORS[form.name], cycle.headers, frozenset(ours)
        )

    async def _recognise(self, cycle: RequestCycle, call: Call, session: str, model: str) -> None:
        """Note the session of a call, and whether its agent repeats a tool call. `session`: that
        of the stored response which it continues, or ""."""
        began, large = self._sessions.began, call.notes.large
        known = (
            await off_loop(cycle.client, began, cycle.headers, call, session)
            if large
            else began(cycle.headers, call, session)
        )
        call.notes.session = known
        if known is None:
            return
        if self._conversations is not None and (known.turn > 1 or known.agent):
            among = self._targets(model)
            if len(among) > 1:  # with a single target there is nothing to compare
                self._conversations.receive(known.id, self._sessions.cached(known, among))
        if known.turn < MIN_REPEATED or "tools" not in call.body:
            return
        loop = await off_loop(cycle.client, repeated_call, call) if large else repeated_call(call)
        if loop is not None:
            call.notes.session = msgspec.structs.replace(known, repeated=loop[1])
            named = header_value(f"{loop[0]} x {loop[1]}")
            cycle.extra = [*cycle.extra, (b"x-splitsecond-loop", named)]

    async def _request(
        self, cycle: RequestCycle, endpoint: Endpoint, key: ClientKey | None
    ) -> tuple[ParsedRequest, bool]:
        """Return the request of `cycle`, and whether its body is large (`large_bodies`).

        Raises `CallerFault` for a body that cannot be read.
        """
        if key is None and not _is_json(cycle):
            # Pages of other origins cannot send this type or a key without a preflight request.
            raise CallerFault(
                "the request's body is not JSON",
                kind="unsupported_media_type",
                status=415,
                hint="Send Content-Type: application/json.",
            )
        form = endpoint.format
        body = await cycle.body(self._max_body_bytes, self._bodies)
        read, asked = parsed_request.read, (body, endpoint.model, endpoint.stream)
        if large := len(body) > LARGE_BYTES:
            request = await off_loop(cycle.client, read, *asked, streams=form.streams)
        else:
            request = read(*asked, streams=form.streams)
        subscribed = SUBSCRIPTION_HEADER in cycle.headers
        model = self._routes.named(request.model, form.vendor, subscribed=subscribed)
        if model != request.model:
            request = msgspec.structs.replace(request, model=model)
        return request, large

    def _stored_session(self, found: Iterable[tuple[str, str]]) -> str:
        stored = (self._owners.session(each) for field, each in found if field in CONTINUES)
        return next(filter(None, stored), "")

    async def _complete(self, cycle: RequestCycle, endpoint: Endpoint) -> None:
        form, key = endpoint.format, self._key(cycle)
        request, large = await self._request(cycle, endpoint, key)
        service, session = self._routes.service(request.model, key, request.routing_preferences), ""
        if endpoint.operation == "chat" and not FIELDS.isdisjoint(request.body):
            client = cycle.client
            ids = await off_loop(client, _ids_in, request) if large else _ids_in(request)
            service = self._continued(request.model, ids, client, service)
            session = self._stored_session(ids)
        if endpoint.details:
            await self._describe(cycle, request.model, form)
            return
        limits = self._limits if cycle.client in self._limited else None
        owners = [] if self._budgets is None else self._budgets.owners(cycle.client, request.model)
        if limits is not None and key is not None:
            cycle.extra = [*cycle.extra, *limits.admit(key)]
        call = self._call(cycle, endpoint, request, limits, owners)
        if large or form.incoming is not None:
            call = await _prepared(call, form, large=large)
        if endpoint.counts:
            await self._count_tokens(cycle, call, request.model, form)
            return
        if call.operation not in WHOLE_OPERATIONS:
            await self._recognise(cycle, call, session, request.model)
        held = Held(service)
        if limits is not None or owners:
            held = await self._hold(cycle, call, request.model, limits, owners, service)
        open_call = self._tracker.open(
            call, request.model, held.release, charged=limits is not None, charge=held.charge
        )
        await self._serve(cycle, request, open_call, held.service, form)

    def _call(
        self,
        cycle: RequestCycle,
        endpoint: Endpoint,
        request: ParsedRequest,
        limits: KeyLimits | None,
        owners: list[BudgetOwner],
    ) -> Call:
        """Return the call that `request` asks for. What it costs is counted while it arrives if its
        key has a spending limit in `limits`, or its session has `owners` of a budget: then it is
        not requested whole."""
        form = endpoint.format
        call = Call(
            id=self._new_id(),
            operation=endpoint.operation,
            body=request.body,
            api_format=form.name,
            start_ns=cycle.start_ns,
            stream=request.stream and endpoint.operation not in WHOLE_OPERATIONS,
            allow_whole=not (owners or (limits is not None and limits.counts(cycle.client))),
            client=cycle.client,
            hints={} if HINT_HEADERS.isdisjoint(cycle.headers) else hints(cycle.headers),
            credentials=self._credentials(cycle, form) if self._takes_credentials else None,
        )
        if request.dropped:
            call.notes.dropped.extend(request.dropped)
        if self._teams:
            call.notes.team = self._teams.get(cycle.client, "")
        return call

    async def _describe(self, cycle: RequestCycle, model: str, form: ClientFormat) -> None:
        if form.models is None or form.models.details is None:
            raise not_found(cycle)
        body = form.models.details(model, self._routes.context_tokens(model))
        await cycle.answer(200, body, id_headers(self._new_id().encode(), form))

    async def _count_tokens(
        self, cycle: RequestCycle, call: Call, model: str, form: ClientFormat
    ) -> None:
        target = None
        if form.incoming is None:
            target = self._routes.counting(model, call.api_format)
        body, headers = await count_tokens(target, call, form)
        await cycle.answer(200, body, [*call_headers(cycle, call), *headers])

    def _continued(
        self, model: str, found: Iterable[tuple[str, str]], client: str, service: Service
    ) -> Service:
        """Return the target that has stored what a request for `model` continues; `service` if it
        is not known.

        `found`: the ids in the request. Raises `CallerFault` if one of them belongs to another
        client, as for an id that does not exist.
        """
        target = None
        for field, identity in found:
            if self._owners.is_of_another(client, identity):
                raise CallerFault(
                    f"{field}: {short(identity)} was not found",
                    kind="of_another_client",
                    status=404,
                    hint="Send the whole conversation.",
                    code=CONTINUES.get(field, "item_not_found"),
                    param=field,
                )
            if target is None and field in CONTINUES:
                target = self._owners.target(identity, targets(self._routes.expression(model)))
        return service if target is None else self._routes.service(target)

    def _targets(self, route: str) -> tuple[str, ...]:
        return _targets(self._routes.expression(route))

    def _note_ids(
        self, client: str, session: str, kept: KeptAnswers, answer: bytes, target: str
    ) -> None:
        for identity in kept.ids(answer):
            self._owners.note(client, identity, target, session)

    def _new_id(self) -> str:
        return f"req-{self._chance.getrandbits(128):032x}"

    def _advised(self, fault: Fault) -> Fault:
        return fault if self._advise is None else self._advise(fault)

    async def _reserve(
        self, call: Call, model: str, limits: KeyLimits
    ) -> Callable[[], None] | None:
        """Reserve what `call` may cost, if the client's key or team has a spending limit. Return
        what releases it."""
        if not limits.counts(call.client):
            return None
        expression = self._routes.expression(model)
        await limits.cost_known(call.client, expression)
        reservation = limits.reserve(call, model, expression)
        if reservation is None:
            return None
        call.notes.meter = reservation.extend
        return reservation.release

    async def _hold(
        self,
        cycle: RequestCycle,
        call: Call,
        model: str,
        limits: KeyLimits | None,
        owners: list[BudgetOwner],
        service: Service,
    ) -> Held:
        """Reserve what `call` may cost, of its key and of its session, and count a turn of the
        session. At the limit of a session that asks, the gateway answers instead of `service`.
        Raises `BudgetReached` and `LimitReached`."""
        release, session = None, call.notes.session
        if limits is not None:
            release = await self._reserve(call, model, limits)
        if not owners or self._budgets is None or session is None:
            return Held(service, release)
        allow = cycle.header(ALLOW_HEADER) == b"session"
        with ExitStack() as undo:
            if release is not None:
                undo.callback(release)
            try:
                held = await self._budgets.begin(
                    call, session, owners, self._routes.expression(model), allow=allow
                )
            except BudgetReached as reached:
                if not reached.asks:
                    raise
                return Held(partial(_own_answer, str(reached)))
            undo.pop_all()
        cycle.extra = [*cycle.extra, *held.headers]
        if held.metered:
            meter = call.notes.meter
            call.notes.meter = held.extend if meter is None else partial(_both, meter, held.extend)
        return Held(service, partial(_release, release, held), held.charge)

    async def _serve(
        self,
        cycle: RequestCycle,
        request: ParsedRequest,
        open_call: OpenCall,
        service: Service,
        form: ClientFormat,
    ) -> None:
        call = open_call.call
        self._metrics.in_flight += 1
        try:
            await self._answer(cycle, request, open_call, service, form)
        except ClientLeft:
            raise
        except Exception as error:
            open_call.fault = InternalFault()
            if cycle.status:
                raise
            report_internal_error("request", error)
            await cycle.refuse(error_response(open_call.fault, form), call_headers(cycle, call))
        finally:
            self._metrics.in_flight -= 1
            self._tracker.close(open_call, cycle.status, complete=cycle.complete)
            entry = call.notes.session_entry
            if entry is not None and open_call.target != OWN_TARGET:
                self._sessions.ended(entry, open_call.end_ns, open_call.target)

    async def _answer(
        self,
        cycle: RequestCycle,
        request: ParsedRequest,
        open_call: OpenCall,
        service: Service,
        form: ClientFormat,
    ) -> None:
        call = open_call.call
        try:
            reply = await service(call)
        except Fault as fault:
            open_call.fault = fault.without_traceback()
            await cycle.refuse(
                error_response(self._advised(fault), form), call_headers(cycle, call)
            )
            return
        try:
            open_call.target = reply.target
            session = call.notes.session
            if (home := call.notes.home) and home != target_hash(reply.target):
                call.notes.left = _with_hash(home, self._routes.expression(open_call.route))
            if not reply.empty:
                open_call.first_token_ns = clock.now_ns()
            kept, note = form.kept, None
            if kept is not None and (not kept.requested_by or kept.requested_by in request.body):
                note = partial(
                    self._note_ids, call.client, "" if session is None else session.id, kept
                )
            if call.stream:
                await send_stream(cycle, open_call, reply, form, note, usage=request.usage)
            else:
                await send_whole(cycle, open_call, reply, form, note, self._billing)
        finally:
            await reply.aclose()


@lru_cache(maxsize=256)
def _targets(expression: Expression) -> tuple[str, ...]:
    return tuple(targets(expression))


@lru_cache(maxsize=256)
def _with_hash(home: int, expression: Expression) -> str:
    """Return the target of a policy that has this hash; "": none."""
    return next((name for name in targets(expression) if target_hash(name) == home), "")


async def _own_answer(text: str, call: Call) -> Reply:
    return OwnAnswer(call, text)


def _release(first: Callable[[], None] | None, budgets: OpenBudgets) -> None:
    budgets.release()
    if first is not None:
        first()


def _both(first: OutputMeter, second: OutputMeter, target: str, output_tokens: int) -> Fault | None:
    return first(target, output_tokens) or second(target, output_tokens)


def _is_json(cycle: RequestCycle) -> bool:
    return cycle.header(b"content-type").lower().startswith(b"application/json")


def _secret(value: bytes) -> bytes:
    return value[7:] if value[:7].lower() == b"bearer " else value


def _ids_in(request: ParsedRequest) -> list[tuple[str, str]]:
    return list(ids_in_request(request.body))


async def _prepared(call: Call, form: ClientFormat, *, large: bool) -> Call:
    """Return `call` with the body that `form` rewrites. A large one is rewritten and counted in a
    thread."""
    if form.incoming is not None:
        rewrite = form.incoming
        call = (
            await off_loop(call.client, _rewritten, rewrite, call)
            if large
            else _rewritten(rewrite, call)
        )
    if large:
        call.notes.large = True
        call.notes.estimate = await off_loop(call.client, estimated, call)
    return call


def _rewritten(rewrite: Callable[[Call], Call], call: Call) -> Call:
    """Return `call` as `rewrite` returns it. Raises `CallerFault` for a request that is nested too
    deeply."""
    try:
        return rewrite(call)
    except RecursionError:
        raise nested_too_deeply() from None
