"""The front endpoint: calls (`calls`), pages for clients and operators, and refusals.

The handler of the routed path decides about access, so neither the client's Host header nor another
spelling of a path gets around a key.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

import msgspec

from splitsecond.core.errors import CallerFault, Fault, InternalFault
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.money.closed_early import Billing
from splitsecond.core.serving.request_cycle import ClientLeft, RequestCycle
from splitsecond.core.wire.client_format import listing_at
from splitsecond.core.wire.ollama import SERVED_VERSION
from splitsecond.gateway.dashboard.collection import DashboardData
from splitsecond.gateway.http.calls import Calls
from splitsecond.gateway.http.client_keys import ClientKeys
from splitsecond.gateway.http.headers import (
    LONGEST_HINT,
    id_headers,
    is_json,
)
from splitsecond.gateway.http.operator_pages import OperatorPages, not_found
from splitsecond.gateway.http.origins import Origins, stranger
from splitsecond.gateway.http.wrong_keys import WrongKey, WrongKeys
from splitsecond.gateway.records.access_log import AccessLog
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.gateway.records.session_budgets import (
    ALLOW,
    SessionBudgets,
)
from splitsecond.gateway.records.sessions import Sessions
from splitsecond.routing.configuration.settings import Listen
from splitsecond.routing.requests.endpoints import Endpoint, endpoint_at, format_at
from splitsecond.routing.requests.error_response import error_response
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.routing.router.routes import Routes
from splitsecond.routing.router.settings import ClientKey
from splitsecond.routing.targets.conversations import Conversations

_SESSION_ID = re.compile("[0-9a-f]{16}")
_UPGRADE_REQUIRED = ((b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade"))
"""Headers of a response with status 426, which must name the protocol to use (RFC 9110)."""


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
        self._metrics = metrics or Metrics()
        self._calls = Calls(
            tracker=tracker or CallTracker(),
            metrics=self._metrics,
            owners=owners or ResponseOwners(),
            sessions=sessions or Sessions(),
            conversations=conversations,
        )
        self._pages = OperatorPages(lambda cycle: self._keys.key(cycle), self._metrics, dashboard)
        self._access_log = access_log
        self._wrong_keys = WrongKeys()
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
        self._keys = ClientKeys(keys, listen.client)
        self._budgets = budgets
        self._advise = advise or (lambda fault: fault)
        self._origins = Origins(listen.cors)
        self._pages.use(routes, listen.metrics)
        self._calls.use(
            routes,
            self._keys,
            listen,
            limits=limits,
            budgets=budgets,
            billing=billing or Billing(),
            advise=self._advise,
        )

    async def __call__(self, cycle: RequestCycle) -> None:
        try:
            endpoint = endpoint_at(cycle.path)
            if b"origin" in cycle.headers:
                self._check_origin(cycle)
            if endpoint is not None and cycle.method == "POST":
                try:
                    await self._calls.serve(cycle, endpoint)
                finally:
                    if cycle.held_bytes:
                        self._calls.bodies.release(cycle)
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
        response = error_response(self._advise(fault), form)
        identity = self._calls.new_id()
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
            requested_headers = cycle.header(b"access-control-request-headers")
            await cycle.answer(204, b"", self._origins.preflight(methods[0], requested_headers))
        elif (
            handler is not None and cycle.method in methods
        ):  # the connection leaves out the body for HEAD
            await handler(cycle)
        else:
            cycle.extra = [*cycle.extra, (b"allow", ", ".join(methods).encode())]
            message = f"{cycle.path} takes {methods[0]}, got {cycle.method}"
            raise CallerFault(message, kind="method_not_allowed", status=405)

    def _handler(self, cycle: RequestCycle) -> Callable[[RequestCycle], Awaitable[None]] | None:
        handler = self._handlers.get(cycle.path)
        if handler is None and listing_at(cycle.path, cycle.headers) is not None:
            return self._models
        return handler

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
        if not is_json(cycle):
            raise CallerFault("the request is not JSON", kind="unsupported_media_type", status=415)
        session = dict(parse_qsl(cycle.query.decode("latin-1"))).get("session", "")
        is_allowed = (
            self._budgets is not None
            and _SESSION_ID.fullmatch(session)
            and self._budgets.allow(session)
        )
        if not is_allowed:
            words = "no session with this id has reached a budget"
            raise CallerFault(words, kind="unknown_session", status=404)
        await cycle.answer(200, msgspec.json.encode({"session": session, "allowed": True}))

    async def _models(self, cycle: RequestCycle) -> None:
        match, key = listing_at(cycle.path, cycle.headers), self._keys.key(cycle)
        if match is None:
            raise not_found(cycle)
        listing, name = match
        if name and listing.model is not None:
            self._routes.service(name, key)  # raises if there is none
            body = msgspec.json.encode(listing.model(name))
        else:
            body = listing.whole(self._routes.names(key))
        form = format_at(cycle.path, cycle.headers)
        await cycle.answer(200, body, id_headers(self._calls.new_id().encode(), form))
