"""The calls of clients: each request is read, admitted, routed and answered.

Nothing is sent before the first token, so a policy can still choose another target and a failure
has its own status. After it, a failure ends the stream with an error event, so that a broken stream
never looks complete. That also holds if the first token and the failure arrive in one read. No
header of the client goes to a provider (except ``anthropic-beta`` and ``anthropic-version`` to
targets with Anthropic's format), and no header of the provider to the client. When a client leaves,
its call is cancelled, and that closes its connections to providers.

Only targets that are called with the client's own credentials get these. `headers.HINTS` lists the
few headers that policies see.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import lru_cache, partial
from random import Random
from typing import NamedTuple

import msgspec

from splitsecond.core import clock
from splitsecond.core.client_credentials import (
    SUBSCRIPTION_HEADER,
)
from splitsecond.core.errors import CallerFault, Fault, InternalFault
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.large_bodies import LARGE_BYTES, off_loop
from splitsecond.core.money.closed_early import Billing
from splitsecond.core.observation import Observation
from splitsecond.core.service import WHOLE_OPERATIONS, Call, OutputMeter, Reply, Service
from splitsecond.core.serving.request_cycle import ClientLeft, RequestCycle
from splitsecond.core.wire.client_format import ClientFormat
from splitsecond.core.wire.stored_ids import CONTINUES, FIELDS, KeptAnswers, ids_in_request
from splitsecond.core.wire.translation import nested_too_deeply, short
from splitsecond.gateway.http.client_keys import ClientKeys
from splitsecond.gateway.http.counting import count_tokens
from splitsecond.gateway.http.headers import (
    HINT_HEADERS,
    call_headers,
    header_value,
    hints,
    id_headers,
    is_json,
)
from splitsecond.gateway.http.held_bodies import HeldBodies
from splitsecond.gateway.http.operator_pages import not_found
from splitsecond.gateway.http.own_answer import OwnAnswer
from splitsecond.gateway.http.response_sending import send_stream, send_whole
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.gateway.records.reservation import estimated
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.gateway.records.session_budgets import (
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
from splitsecond.routing.requests.endpoints import Endpoint
from splitsecond.routing.requests.error_response import error_response
from splitsecond.routing.requests.parsed_request import ParsedRequest
from splitsecond.routing.requests.repeated_calls import MIN_REPEATED, repeated_call
from splitsecond.routing.router.call_tracker import CallTracker, OpenCall
from splitsecond.routing.router.routes import Routes
from splitsecond.routing.router.settings import ClientKey
from splitsecond.routing.targets.conversations import Conversations


class Held(NamedTuple):
    """What a call holds of the limits: `release` ends that, and `charge` counts the cost of an
    attempt for its session. `service` answers the call."""

    service: Service
    release: Callable[[], None] | None = None
    charge: Callable[[Observation], None] | None = None


class Calls:
    """Serves the calls of clients. Call `use` before the first one.

    `tracker` records each call. `owners`: the clients and targets of stored responses.
    `conversations`: learn from `sessions` what other workers know; None: there are none. `bodies`:
    those in memory; the caller of `serve` releases that of its request.
    """

    def __init__(
        self,
        *,
        tracker: CallTracker,
        metrics: Metrics,
        owners: ResponseOwners,
        sessions: Sessions,
        conversations: Conversations | None,
    ) -> None:
        self._chance = Random()
        self._tracker = tracker
        self._metrics = metrics
        self._owners = owners
        self._sessions = sessions
        self._conversations = conversations
        self.bodies = HeldBodies()

    def use(
        self,
        routes: Routes,
        keys: ClientKeys,
        listen: Listen,
        *,
        limits: KeyLimits | None,
        budgets: SessionBudgets | None,
        billing: Billing,
        advise: Callable[[Fault], Fault],
    ) -> None:
        """See `Gateway.use`."""
        self._routes = routes
        self._keys = keys
        self._max_body_bytes = listen.max_body_mib << 20
        self._limits = limits
        self._budgets = budgets
        self._billing = billing
        self._advise = advise
        self._takes_credentials = routes.takes_credentials

    def new_id(self) -> str:
        return f"req-{self._chance.getrandbits(128):032x}"

    async def serve(self, cycle: RequestCycle, endpoint: Endpoint) -> None:
        """Answer a request for `endpoint`. Raises `Fault` for a call that is not admitted."""
        form, key = endpoint.format, self._keys.key(cycle)
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
        limits = self._limits if cycle.client in self._keys.limited else None
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

    async def _request(
        self, cycle: RequestCycle, endpoint: Endpoint, key: ClientKey | None
    ) -> tuple[ParsedRequest, bool]:
        """Return the request of `cycle`, and whether its body is large (`large_bodies`).

        Raises `CallerFault` for a body that cannot be read.
        """
        if key is None and not is_json(cycle):
            # Pages of other origins cannot send this type or a key without a preflight request.
            raise CallerFault(
                "the request's body is not JSON",
                kind="unsupported_media_type",
                status=415,
                hint="Send Content-Type: application/json.",
            )
        form = endpoint.format
        body = await cycle.body(self._max_body_bytes, self.bodies)
        read, arguments = parsed_request.read, (body, endpoint.model, endpoint.stream)
        if large := len(body) > LARGE_BYTES:
            request = await off_loop(cycle.client, read, *arguments, streams=form.streams)
        else:
            request = read(*arguments, streams=form.streams)
        subscribed = SUBSCRIPTION_HEADER in cycle.headers
        model = self._routes.serving_name(request.model, form.vendor, subscribed=subscribed)
        if model != request.model:
            request = msgspec.structs.replace(request, model=model)
        return request, large

    def _stored_session(self, ids: Iterable[tuple[str, str]]) -> str:
        stored = (self._owners.session(each) for field, each in ids if field in CONTINUES)
        return next(filter(None, stored), "")

    def _continued(
        self, model: str, ids: Iterable[tuple[str, str]], client: str, service: Service
    ) -> Service:
        """Return the target that has stored what a request for `model` continues; `service` if it
        is not known.

        `ids`: the ids in the request. Raises `CallerFault` if one of them belongs to another
        client, as for an id that does not exist.
        """
        target = None
        for field, identity in ids:
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
            id=self.new_id(),
            operation=endpoint.operation,
            body=request.body,
            api_format=form.name,
            start_ns=cycle.start_ns,
            stream=request.stream and endpoint.operation not in WHOLE_OPERATIONS,
            allow_whole=not (owners or (limits is not None and limits.counts(cycle.client))),
            client=cycle.client,
            hints={} if HINT_HEADERS.isdisjoint(cycle.headers) else hints(cycle.headers),
            credentials=self._keys.credentials(cycle, form) if self._takes_credentials else None,
        )
        if request.dropped:
            call.notes.dropped.extend(request.dropped)
        if self._keys.teams:
            call.notes.team = self._keys.teams.get(cycle.client, "")
        return call

    async def _recognise(self, cycle: RequestCycle, call: Call, session: str, model: str) -> None:
        """Note the session of a call, and whether its agent repeats a tool call. `session`: that
        of the stored response which it continues, or ""."""
        began, large = self._sessions.began, call.notes.large
        call_session = (
            await off_loop(cycle.client, began, cycle.headers, call, session)
            if large
            else began(cycle.headers, call, session)
        )
        call.notes.session = call_session
        if call_session is None:
            return
        if self._conversations is not None and (call_session.turn > 1 or call_session.agent):
            among = _targets(self._routes.expression(model))
            if len(among) > 1:  # with a single target there is nothing to compare
                self._conversations.receive(
                    call_session.id, self._sessions.cached(call_session, among)
                )
        if call_session.turn < MIN_REPEATED or "tools" not in call.body:
            return
        loop = await off_loop(cycle.client, repeated_call, call) if large else repeated_call(call)
        if loop is not None:
            call.notes.session = msgspec.structs.replace(call_session, repeated=loop[1])
            loop_header = header_value(f"{loop[0]} x {loop[1]}")
            cycle.extra = [*cycle.extra, (b"x-splitsecond-loop", loop_header)]

    async def _describe(self, cycle: RequestCycle, model: str, form: ClientFormat) -> None:
        if form.models is None or form.models.details is None:
            raise not_found(cycle)
        body = form.models.details(model, self._routes.context_tokens(model))
        await cycle.answer(200, body, id_headers(self.new_id().encode(), form))

    async def _count_tokens(
        self, cycle: RequestCycle, call: Call, model: str, form: ClientFormat
    ) -> None:
        target = None
        if form.incoming is None:
            target = self._routes.counting(model, call.api_format)
        body, headers = await count_tokens(target, call, form)
        await cycle.answer(200, body, [*call_headers(cycle, call), *headers])

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
            await cycle.refuse(error_response(self._advise(fault), form), call_headers(cycle, call))
            return
        try:
            open_call.target = reply.target
            session = call.notes.session
            if (home := call.notes.home) and home != target_hash(reply.target):
                call.notes.left = _with_hash(home, self._routes.expression(open_call.route))
            if not reply.empty:
                open_call.first_token_ns = clock.now_ns()
            storage, note = form.kept, None
            if storage is not None and (
                not storage.requested_by or storage.requested_by in request.body
            ):
                note = partial(
                    self._note_ids, call.client, "" if session is None else session.id, storage
                )
            if call.stream:
                await send_stream(cycle, open_call, reply, form, note, usage=request.usage)
            else:
                await send_whole(cycle, open_call, reply, form, note, self._billing)
        finally:
            await reply.aclose()

    def _note_ids(
        self, client: str, session: str, storage: KeptAnswers, answer: bytes, target: str
    ) -> None:
        for identity in storage.ids(answer):
            self._owners.note(client, identity, target, session)


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
