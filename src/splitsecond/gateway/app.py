"""The front door: who asks, for what, and how the answer goes back.

Nothing is sent before the first token, so a policy may change its mind and a failure still has its own status. After it
a failure ends the stream with an error event, never with an end that looks whole; so it does where token and failure
came in one read, and nothing but the failure is left to send. Of the client's headers none goes to a provider (but
``anthropic-beta`` to Anthropic), and of the provider's none to the client. When a client leaves, whatever is done for
it is cancelled, and its upstream connections are closed as that unwinds.

Who may do what is decided by the path as it was routed, and inside what is routed to: neither the Host that the client
names nor another spelling of a path leads past a key. The few headers that say something to us are `_HINTS`.
"""

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from random import Random
from typing import Literal
from urllib.parse import parse_qsl

import msgspec

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault
from splitsecond.gateway import asked
from splitsecond.gateway.asked import Asked
from splitsecond.gateway.configuration.settings import ClientKey
from splitsecond.gateway.counting import count_tokens
from splitsecond.gateway.dashboard.page import GUARDED, HTML, dashboard_page
from splitsecond.gateway.doors import DOORS, Door, Way, assembly, dialect_at, way
from splitsecond.gateway.explain import PROMPT
from splitsecond.gateway.origins import Origins, addressed, stranger
from splitsecond.gateway.records.allowance import Allowance
from splitsecond.gateway.records.books import Books, Page, call_usd
from splitsecond.gateway.records.exposition import CONTENT_TYPE, exposed
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.gateway.refusal import Headers, refusal
from splitsecond.gateway.routes import Model, Routes
from splitsecond.gateway.visit import Visit
from splitsecond.service import Call, Reply, Service
from splitsecond.timing.observation import Observation

MetricsFor = Literal["loopback", "key", "off"]

MAX_BODY_BYTES = 32 << 20
LONGEST_HINT = 1024
LONGEST_SAID = 1024
ENDS_WITHIN_NS = 20 * clock.NS_PER_MS
"""Within which the body of an answer ends that has said everything, where its provider does not leave it open."""
MOST_KNOWN = 4096
"""Headers with a key that was right, and whose key that is: looked up there it costs no hash."""
_HINTS = (
    (b"x-splitsecond-complexity", "complexity"),
    (b"x-splitsecond-task", "task"),
    (b"x-splitsecond-region", "region"),
    (b"cache-control", "cache"),
    (b"anthropic-beta", "betas"),
)
"""Headers by which a client says more than its request does, and what policies call it."""
_HINTING = frozenset(name for name, _ in _HINTS)
_FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
"""Headers with which a proxy says that it asks for another."""


class Gateway:
    """Called with each visit. `draining`: it is about to go down, and says so to those who ask whether it is ready.

    `books` keep what becomes of each call, and must be told of each attempt; `allowance`: what keys may use. `cors`:
    the origins whose pages may ask. `metrics_for`: who may read ``/metrics`` and ``/explain``: "loopback" is whoever
    comes from this machine or has a key for all routes, "key" the latter only. A proxy on this machine that does not
    say for whom it asks makes all its clients look as if they came from here. `overview`: the dashboard's data.
    """

    def __init__(
        self,
        routes: Routes,
        keys: tuple[ClientKey, ...] = (),
        *,
        max_body_bytes: int = MAX_BODY_BYTES,
        books: Books | None = None,
        allowance: Allowance | None = None,
        metrics: Metrics | None = None,
        metrics_for: MetricsFor = "loopback",
        cors: tuple[str, ...] = (),
        overview: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self.draining = False
        self._chance = Random()
        self._books = books or Books()
        self._metrics = metrics or Metrics()
        self._overview = overview
        self._pages: Mapping[str, Callable[[Visit], Awaitable[None]]] = {
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/v1/models": self._models,
            "/metrics": self._expose,
            "/explain": self._explain,
            "/dashboard": self._dashboard,
            "/dashboard/data": self._dashboard_data,
        }
        self.use(routes, keys, max_body_bytes=max_body_bytes, allowance=allowance, metrics_for=metrics_for, cors=cors)

    def use(
        self,
        routes: Routes,
        keys: tuple[ClientKey, ...] = (),
        *,
        max_body_bytes: int = MAX_BODY_BYTES,
        allowance: Allowance | None = None,
        metrics_for: MetricsFor = "loopback",
        cors: tuple[str, ...] = (),
        advise: Callable[[Fault], Fault] | None = None,
        cost: Callable[[Observation], float | None] | None = None,
    ) -> None:
        """Serves by these from the next request on; those under way end as they began.

        `advise`: adds to what a client is told of a failure what may help. `cost`: what an attempt cost in US dollars,
        None where that is not known.
        """
        self._routes = routes
        self._keys = {key.digest: key for key in keys}
        self._known: dict[bytes, ClientKey] = {}
        self._limited = {key.name for key in keys if (key.requests_per_minute, key.usd_per_day) != (None, None)}
        self._max_body_bytes = max_body_bytes
        self._allowance = allowance
        self._metrics_for: MetricsFor = metrics_for
        self._origins = Origins(cors)
        self._advise = advise
        self._cost = cost

    async def __call__(self, visit: Visit) -> None:
        try:
            door = DOORS.get(visit.path)
            if b"origin" in visit.headers:
                self._check_origin(visit)
            if door is not None and visit.method == "POST":
                await self._complete(visit, door)
            else:
                await self._tell(visit, door)
        except Fault as fault:
            no = refusal(self._advised(fault), dialect_at(visit.path))
            self._metrics.refused(no.status, visit.client)
            await visit.refuse(no)

    def _check_origin(self, visit: Visit) -> None:
        origin = visit.header(b"origin")
        if not origin:
            return
        visit.extra = self._origins.headers(origin)
        if not self._keys and not self._origins.allow(origin):
            raise stranger(origin)

    async def _tell(self, visit: Visit, door: Door | None) -> None:
        """Whatever is no call: a page of ours, or the word that there is none."""
        page, origin = self._pages.get(visit.path), visit.header(b"origin")
        if door is None and page is None:
            raise _nothing(visit)
        expected = "POST" if door else "GET"
        if origin and visit.method == "OPTIONS" and self._origins.allow(origin):
            asked_for = visit.header(b"access-control-request-headers")
            await visit.answer(204, b"", self._origins.preflight(expected, asked_for))
        elif page is not None and visit.method in ("GET", "HEAD"):  # whose body our connection leaves out
            await page(visit)
        else:
            words = f"{visit.path} takes {expected}, got {visit.method}"
            raise CallerFault(words, kind="method_not_allowed", status=405)

    async def _live(self, visit: Visit) -> None:
        await visit.answer(200, b'{"status":"live"}')

    async def _ready(self, visit: Visit) -> None:
        if self.draining:
            await visit.answer(503, b'{"status":"draining"}')
        else:
            await visit.answer(200, b'{"status":"ready"}')

    async def _models(self, visit: Visit) -> None:
        models = [Model(name) for name in self._routes.names(self._key(visit))]
        await visit.answer(200, msgspec.json.encode({"object": "list", "data": models}))

    async def _expose(self, visit: Visit) -> None:
        self._check_operator(visit)
        await visit.answer(200, exposed(self._metrics), kind=CONTENT_TYPE)

    async def _explain(self, visit: Visit) -> None:
        self._check_operator(visit)
        asked_for = dict(parse_qsl(visit.query.decode("latin-1")))
        found = await self._routes.explained(asked_for.get("route", ""), asked_for.get("prompt", PROMPT))
        await visit.answer(200, msgspec.json.encode(found))

    async def _dashboard(self, visit: Visit) -> None:
        if self._metrics_for == "off":
            raise _nothing(visit)
        await visit.answer(200, *dashboard_page(), kind=HTML)

    async def _dashboard_data(self, visit: Visit) -> None:
        self._check_operator(visit)
        if self._overview is None:
            raise _nothing(visit)
        await visit.answer(200, await self._overview(), GUARDED)

    def _check_operator(self, visit: Visit) -> None:
        """Raises `CallerFault` where this is none of the client's business. A page whose own name was made to point
        here comes from this machine, too, so the client must have asked for an address."""
        if self._metrics_for == "off":
            raise _nothing(visit)
        here = _is_loopback(visit.peer) and _FORWARDED.isdisjoint(visit.headers)
        here = here and addressed(visit.header(b"host"))
        if self._metrics_for == "key" or not here:
            key = self._key(visit)
            if key is None or "*" not in key.routes:
                words = "this takes a key for all routes"
                raise CallerFault(words, kind="not_allowed", status=403)

    def _key(self, visit: Visit) -> ClientKey | None:
        """Whose request it is; None where there are no keys.

        What was right once is found in a table of its own, whose hashes nobody outside this process can reckon: two
        values are compared only where these are equal, so that how long it takes says nothing of a key here either.
        """
        if not self._keys:
            return None
        said = visit.header(b"authorization")
        found = self._known.get(said) or self._holder(visit, said)
        if found is None:
            hint = "Send it as Authorization: Bearer KEY, or as x-api-key: KEY."
            raise CallerFault("no valid key", kind="invalid_api_key", status=401, hint=hint)
        visit.client = found.name
        return found

    def _holder(self, visit: Visit, said: bytes) -> ClientKey | None:
        """Whose key a request has, in its header of authorization (`said`) or in its other one."""
        scheme, _, presented = said.partition(b" ")
        found = self._named(presented) if scheme.lower() == b"bearer" else None
        if found is None:
            return self._named(visit.header(b"x-api-key"))
        if len(self._known) < MOST_KNOWN:
            self._known[said] = found
        return found

    def _named(self, presented: bytes) -> ClientKey | None:
        """Whose key that is. It is looked up by its hash and compared in constant time, so that how long it takes says
        nothing of a key to who does not know it."""
        digest = hashlib.sha256(presented.strip()).digest()
        found = self._keys.get(digest)
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None

    async def _complete(self, visit: Visit, door: Door) -> None:
        key = self._key(visit)
        if not visit.header(b"content-type").lower().startswith(b"application/json"):
            hint = "Send Content-Type: application/json."  # a browser's page of another origin cannot without asking
            raise CallerFault("the request's body is not JSON", kind="unsupported_media_type", status=415, hint=hint)
        request = asked.read(await visit.body(self._max_body_bytes))
        service = self._routes.service(request.model, key, request.wishes)
        limited = visit.client in self._limited
        if limited and key is not None and self._allowance is not None:
            visit.extra = [*visit.extra, *self._allowance.admit(key)]
        call = Call(
            id=f"req-{self._chance.getrandbits(128):032x}",
            operation=door.operation,
            body=request.body,
            dialect=door.dialect,
            start_ns=visit.start_ns,
            stream=request.stream and door.operation != "embeddings",
            client=visit.client,
            hints={} if _HINTING.isdisjoint(visit.headers) else _hints(visit.headers),
        )
        if request.dropped:
            call.notes.dropped.extend(request.dropped)
        if door.counts:
            body, headers = await count_tokens(self._routes.counting(request.model), call)
            await visit.answer(200, body, [*_said(visit, call), *headers])
            return
        release = self._reserve(call, request.model) if limited else None
        page = self._books.open(call, request.model, release, charged=limited)
        self._metrics.in_flight += 1
        try:
            await self._serve(visit, request, page, service)
        finally:
            self._metrics.in_flight -= 1
            self._books.close(page, visit.status, complete=visit.complete)

    def _advised(self, fault: Fault) -> Fault:
        return fault if self._advise is None else self._advise(fault)

    def _reserve(self, call: Call, model: str) -> Callable[[], None] | None:
        """Sets money aside, where the client may not spend more than so much."""
        if self._allowance is None or not self._allowance.counts(call.client):
            return None
        return self._allowance.reserve(call, self._routes.asked_for(model))

    async def _serve(self, visit: Visit, request: Asked, page: Page, service: Service) -> None:
        call = page.call
        try:
            reply = await service(call)
        except Fault as fault:
            page.fault = fault.kept()
            await visit.refuse(refusal(self._advised(fault), call.dialect), _said(visit, call))
            return
        try:
            page.target = reply.target
            if not reply.empty:
                page.first_token_ns = clock.now_ns()
            if call.stream:
                await _stream(visit, page, reply, way(call, page.target, usage=request.usage))
            else:
                await _whole(visit, page, reply, self._cost)
        finally:
            await reply.aclose()


def _nothing(visit: Visit) -> CallerFault:
    return CallerFault(f"there is no {visit.path[:200]!r} here", kind="not_found", status=404)


async def _stream(visit: Visit, page: Page, reply: Reply, relay: Way) -> None:
    """The head with the first bytes, then whatever comes as it comes."""
    visit.begin_stream(_head(visit, page))
    try:
        while data := await reply.read():
            if (whole := relay.feed(data)) and not visit.complete:
                await visit.send(whole, last=relay.done)  # one write the less than with an end of its own
        last = relay.rest()
    except Fault as fault:
        page.fault = fault.kept()
        last = relay.broken(refusal(fault, page.call.dialect))
    if not visit.complete:
        await visit.send(last, last=True)


async def _whole(visit: Visit, page: Page, reply: Reply, cost: Callable[[Observation], float | None] | None) -> None:
    """One answer, when all of it has come. By then another target may have answered, where the first broke off."""
    whole, body = assembly(page.call), b""
    try:
        while data := await reply.read():
            whole.feed(data)
        body = whole.answer()
    except Fault as fault:
        page.fault = fault.kept()
    page.target = reply.target
    if page.fault is None and len(page.attempts) < page.call.notes.attempts:
        await _accounted(reply)
    headers = _head(visit, page)
    if page.fault is not None:
        await visit.refuse(refusal(page.fault, page.call.dialect), headers)
        return
    if page.attempts:
        headers.append((b"server-timing", _timed(page.attempts[-1])))
    if cost is not None and (usd := call_usd(page, cost)) is not None:
        headers.append((b"x-splitsecond-cost-usd", f"{usd:.9f}".rstrip("0").rstrip(".").encode()))
    await visit.answer(200, body, headers)


async def _accounted(reply: Reply) -> None:
    """Waits a little for the end of the body: an attempt that has said everything is over, and its cost known, then."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDS_WITHIN_NS / clock.NS_PER_S):
            await reply.finished()


def _head(visit: Visit, page: Page) -> Headers:
    """What the head of an answer says: of its call so far, and who answers."""
    headers = _said(visit, page.call, page.first_token_ns, page.target)
    headers.append((b"x-splitsecond-target", _header_value(page.target)))
    return headers


def _timed(attempt: Observation) -> bytes:
    """Where the time of the attempt that has answered went: before its request left, and from there to its end."""
    sent_ns = attempt.sent_ns or attempt.start_ns
    connect_ms = (attempt.dns_ns + attempt.tcp_ns + attempt.tls_ns) / clock.NS_PER_MS
    return b"connect;dur=%.3f, upstream;dur=%.3f" % (connect_ms, (attempt.end_ns - sent_ns) / clock.NS_PER_MS)


def _said(visit: Visit, call: Call, token_ns: int | None = None, target: str = "") -> Headers:
    """What the head says of how the call went so far. `token_ns`: when its first token came, where one did; `target`:
    who answers."""
    notes, identity = call.notes, call.id.encode()
    waited_ms = ((token_ns or clock.now_ns()) - visit.start_ns) / clock.NS_PER_MS
    headers = [
        (b"x-request-id", identity),
        (b"x-splitsecond-attempts", b"%d" % notes.attempts),
        (b"server-timing", b"ttft;dur=%.3f" % waited_ms),
    ]
    if call.dialect == "anthropic":
        headers.append((b"request-id", identity))
    if notes.cache:
        headers.append((b"x-splitsecond-cache", _header_value(notes.cache)))
    if notes.chosen:
        headers.append((b"x-splitsecond-chosen", _header_value(notes.chosen)))
    if notes.dropped or target in notes.left_out:
        dropped = ", ".join([*notes.dropped, *notes.left_out.get(target, ())])
        headers.append((b"x-splitsecond-dropped", _header_value(dropped)))
    return headers


def _hints(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """What the client's headers say to policies. What is longer than a hint is cut."""
    return {hint: headers[name][:LONGEST_HINT].decode("latin-1").strip() for name, hint in _HINTS if name in headers}


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def _header_value(text: str) -> bytes:
    if text.isascii() and text.isprintable() and len(text) <= LONGEST_SAID:
        return text.encode()
    return "".join(c if " " <= c <= "~" else "?" for c in text[:LONGEST_SAID]).encode()
