"""A target as a service: `connect(spec, observer)` gives it, ready to be called.

Every attempt that is begun ends in exactly one observation, given to the `observer`: answered, failed, cancelled, also
where the request could not even be sent.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Protocol
from urllib.parse import quote

import msgspec

from splitsecond import __version__, clock
from splitsecond.alarms import Alarms
from splitsecond.catalog.provider import Auth
from splitsecond.errors import CallerFault, Fault
from splitsecond.service import Call, Operation
from splitsecond.timing.timeline import Timeline
from splitsecond.transport.client import Client
from splitsecond.transport.exchange import Origin, Request
from splitsecond.upstream import interpreter
from splitsecond.upstream.attempt import Attempt
from splitsecond.upstream.google_token import GoogleToken
from splitsecond.upstream.prelude import Prelude, followed
from splitsecond.upstream.spec import TargetSpec, api_key, own, secrets
from splitsecond.upstream.terms import Observer, Terms
from splitsecond.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.wire.dialect import Decoder, Encoded, Follow, Quirks
from splitsecond.wire.retelling import Retelling


class Dialect(Protocol):
    """What a dialect of `wire` offers in the client role."""

    def encode(self, call: Call, model: str, quirks: Quirks) -> Encoded: ...

    def decoder(self, operation: Operation, stream: bool) -> Decoder: ...

    def fault_from_response(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault: ...


DIALECTS: Mapping[str, Dialect] = {
    "openai": openai,
    "anthropic": anthropic,
    "gemini": gemini,
    "ollama": ollama,
    "cohere": cohere,
    "responses": responses,
    "replicate": replicate,
}


_REQUEST_ID = "x-client-request-id"
"""Providers log this id (OpenAI documents it), so that a slow request can be asked about; the simulator's own record of
what it sent when is found by it."""


class Target:
    """One target as a service. Owns its connections; `close` it when done."""

    def __init__(
        self,
        spec: TargetSpec,
        observer: Observer,
        *,
        key: str | None,
        client: Client,
        attempts: Iterator[int],
        raw: bool = False,
    ) -> None:
        if spec.dialect not in DIALECTS:
            raise CallerFault(
                f"unknown dialect {spec.dialect!r}: this version speaks {', '.join(DIALECTS)}",
                kind="unknown_dialect",
                target=spec.name,
            )
        self._spec = spec
        self._dialect = DIALECTS[spec.dialect]
        try:
            self._quirks = msgspec.convert(spec.quirks, Quirks)
        except msgspec.ValidationError as error:
            raise CallerFault(f"quirks: {error}", kind="bad_quirks", target=spec.name) from None
        self._origin, path = Origin.parse(spec.base_url.replace("{model}", quote(spec.model, safe="")))
        path, _, self._query = path.partition("?")  # an address may bring a query, such as Azure's api-version
        self._path = path.rstrip("/")
        self._client = client
        self._attempts = attempts
        self._connect_ns = spec.timeouts.connect_ms * clock.NS_PER_MS
        self._secrets = secrets(spec, key)
        self._lasting = len(self._secrets)
        self._terms = Terms(
            target=spec.name,
            timeouts=spec.timeouts,
            read_fault=self._dialect.fault_from_response,
            observer=observer,
            alarms=Alarms(),
            secrets=self._secrets,
            raw=raw,
        )
        self._token = GoogleToken(key) if key is not None and spec.auth == "google" else None
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "user-agent": f"splitsecond/{__version__}",
            **_with_key(spec.auth, key),
            **{name.lower(): value for name, value in spec.headers.items()},
        }
        self._headers.pop(_REQUEST_ID, None)
        self._headers_with: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
        """With those that a dialect adds, of which it has one or two sets."""

    def __repr__(self) -> str:
        return f'"{self._spec.name}"'

    async def warm(self, connections: int) -> int:
        """Opens idle connections before the first request; returns how many are open."""
        return await self._client.warm(self._origin, connections)

    async def __call__(self, call: Call) -> Attempt:
        """Sends the call. Returns when the first token has arrived or the answer ended well; raises `Fault`."""
        spec = self._spec
        dialect, quirks = self._dialect, self._quirks
        spoken = call.dialect == spec.dialect
        if spoken and spec.dialect == "openai":
            encoded = dialect.encode(call, spec.model, quirks)
        else:
            encoded = interpreter.request(
                call, spec.dialect, dialect.encode, spec.model, quirks, prefill=spec.prefill, target=spec.name
            )
        call.notes.attempts += 1
        identity = f"{call.id}.{next(self._attempts)}"
        timeline = Timeline(
            attempt=identity,
            call=call.id,
            target=spec.name,
            due_ns=call.due_ns,
            start_ns=call.start_ns,
            streamed=encoded.streamed,
        )
        attempt = Attempt(
            self._terms if call.stall_ns is None else _no_longer(self._terms, call.stall_ns),
            call,
            timeline,
            dialect.decoder(call.operation, encoded.streamed),
            None if spoken else self._retelling(call),
        )
        headers = self._headers_with.get(encoded.headers)
        if headers is None:
            headers = tuple({**self._headers, **dict(encoded.headers)}.items())
            self._headers_with[encoded.headers] = headers
        path = self._path + encoded.path
        if self._query:
            path += ("&" if "?" in encoded.path else "?") + self._query
        fresh: tuple[tuple[str, str], ...] = ((_REQUEST_ID, identity),)
        if encoded.fresh:
            fresh += tuple(each for each in encoded.fresh if each[0] not in self._headers)
        request = Request("POST", path, headers, encoded.body, fresh)
        connect_deadline_ns = clock.now_ns() + self._connect_ns
        if call.deadline_ns is not None:
            connect_deadline_ns = min(connect_deadline_ns, call.deadline_ns)
        origin = self._origin
        try:
            if self._token is not None:
                token = await self._token.value()
                if token not in self._secrets:
                    self._conceal(token)
                bearer = ("authorization", f"Bearer {token}")
                request = msgspec.structs.replace(request, fresh=(*request.fresh, bearer))
            if encoded.follow is not None:
                origin, request = await self._followed(encoded.follow, request, attempt, connect_deadline_ns)
            exchange = await self._client.send(origin, request, attempt, connect_deadline_ns=connect_deadline_ns)
            attempt.under_way(exchange)
            await attempt.first_token()
        except Fault as fault:
            attempt.abandon(fault, clock.now_ns())
            raise
        except asyncio.CancelledError:
            attempt.abandon(None, clock.now_ns())
            raise
        return attempt

    async def count_tokens(self, call: Call, due_ns: int) -> bytes:
        """What the provider answers to how many tokens `call` has, whose dialect is Anthropic's, as this target's is.

        Nothing is inferred, so this is no attempt and leaves no observation. Raises `Fault`, at the latest at `due_ns`.
        """
        encoded = anthropic.count(call, self._spec.model)
        headers = tuple({**self._headers, **dict(encoded.headers)}.items())
        fresh = tuple(each for each in encoded.fresh if each[0] not in self._headers)
        request = Request("POST", self._path + encoded.path, headers, encoded.body, fresh)
        prelude = Prelude()
        exchange = await self._client.send(self._origin, request, prelude, connect_deadline_ns=due_ns)
        await prelude.answered(exchange, due_ns, None)
        if not 200 <= prelude.status < 300:
            fault = self._dialect.fault_from_response(prelude.status, prelude.headers, bytes(prelude.body))
            raise own(fault, self._spec.name, self._secrets)
        return bytes(prelude.body)

    def _conceal(self, token: str) -> None:
        """Google's tokens change each hour. Of attempts under way one may still repeat the token before."""
        self._secrets[self._lasting :] = [*self._secrets[self._lasting :][-1:], token]

    def _retelling(self, call: Call) -> Retelling | None:
        """Who tells the answer's bytes in the dialect of `call`, which is another one; None where nobody reads them."""
        return interpreter.retelling(call, self._spec.model) if self._terms.raw or call.watched else None

    async def _followed(
        self, follow: Follow, request: Request, attempt: Attempt, connect_deadline_ns: int
    ) -> tuple[Origin, Request]:
        """Where the answer to `request` is, and the request for it. Raises the `Fault` of a refusal."""
        prelude = Prelude()
        exchange = await self._client.send(self._origin, request, prelude, connect_deadline_ns=connect_deadline_ns)
        attempt.preceded(exchange)
        head_ms = self._spec.timeouts.head_ms
        head_ns = None if head_ms is None else head_ms * clock.NS_PER_MS
        await prelude.answered(exchange, attempt.deadline_ns, head_ns)
        if not 200 <= prelude.status < 300:
            prelude.told(attempt)
            await attempt.first_token()
        origin, path = followed(follow(bytes(prelude.body)), self._origin)
        headers = self._headers if origin == self._origin else {"user-agent": self._headers["user-agent"]}
        wanted = {**headers, "accept": "text/event-stream", "cache-control": "no-store"}
        wanted.pop("content-type", None)
        return origin, Request("GET", path, tuple(wanted.items()), fresh=request.fresh)

    def close(self) -> None:
        """Closes every connection, at once."""
        self._client.close()


def _with_key(auth: Auth, key: str | None) -> dict[str, str]:
    """The header that carries the key; Google's tokens change, so each request brings its own."""
    if key is None or auth == "google":
        return {}
    return {"authorization": f"Bearer {key}"} if auth == "bearer" else {auth: key}


def _no_longer(terms: Terms, stall_ns: int) -> Terms:
    """`terms`, with no longer silence between two tokens than that."""
    stall_ms = max(stall_ns // clock.NS_PER_MS, 1)
    timeouts = msgspec.structs.replace(terms.timeouts, stall_ms=min(stall_ms, terms.timeouts.stall_ms or stall_ms))
    return msgspec.structs.replace(terms, timeouts=timeouts)


def connect(
    spec: TargetSpec,
    observer: Observer,
    *,
    environment: Mapping[str, str] = os.environ,
    client: Client | None = None,
    attempts: Iterator[int] | None = None,
    raw: bool = False,
) -> Target:
    """The service for a target. Raises `CallerFault` where its key, address or dialect is missing or wrong.

    `attempts` numbers its attempts: targets that may serve the same call must share one.
    `raw`: its replies keep the bytes of the body, for `Reply.read`, and no events. Of a watched call both are kept.
    """
    key = api_key(spec, environment)
    return Target(spec, observer, key=key, client=client or Client(), attempts=attempts or count(1), raw=raw)
