"""Targets as services. `connect(spec, observer)` returns one that is ready to be called.

Each attempt ends in exactly one observation for the `observer`, whether it succeeded, failed or was
cancelled, even if the request could not be sent.
"""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Protocol
from urllib.parse import quote

import msgspec

from splitsecond import __version__
from splitsecond.core import clock
from splitsecond.core.catalog.provider import Auth
from splitsecond.core.client_credentials import KEYLESS, VENDORS
from splitsecond.core.errors import (
    NO_CLIENT_CREDENTIALS,
    CallerFault,
    Fault,
    InternalFault,
    ProviderFault,
    TimedOut,
    excerpt,
)
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.large_bodies import off_loop
from splitsecond.core.service import Call, Operation
from splitsecond.core.session import CONVERSATION
from splitsecond.core.timers import TimerWheel
from splitsecond.core.timing.timeline import Timeline
from splitsecond.core.trace_context import attempt_traceparent
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Origin, Request
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.attempt import Attempt
from splitsecond.core.upstream.attempt_config import AttemptConfig, Observer
from splitsecond.core.upstream.google_token import GoogleToken
from splitsecond.core.upstream.poll_request import PollRequest, stream_address
from splitsecond.core.upstream.spec import TargetSpec, api_key, redact_fault, secrets
from splitsecond.core.upstream.usage_check import unseen_tokens
from splitsecond.core.validation import read_json
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.core.wire.api_format import Encoded, Follow, Quirks
from splitsecond.core.wire.streaming import Count, Decoder
from splitsecond.core.wire.transcoder import Transcoder


class ApiFormat(Protocol):
    """The client side of an API format in `wire`."""

    def encode(self, call: Call, model: str, quirks: Quirks) -> Encoded: ...

    def decoder(self, operation: Operation) -> Decoder: ...

    def fault_from_response(
        self, status: int, headers: Mapping[str, str], body: bytes
    ) -> Fault: ...


API_FORMATS: Mapping[str, ApiFormat] = {
    "openai": openai,
    "anthropic": anthropic,
    "gemini": gemini,
    "ollama": ollama,
    "cohere": cohere,
    "responses": responses,
    "replicate": replicate,
}


class _Counted(msgspec.Struct):
    """The answer to a request to count tokens, in each API format that has such requests."""

    input_tokens: Count


_decode_counted = msgspec.json.Decoder(_Counted).decode
_REQUEST_ID = "x-client-request-id"
"""Providers log this id (OpenAI documents it), so that users can ask them about a slow request. The
simulator stores its record of what it sent under this id."""
_SESSION = "x-session-id"
"""Routers in front of several replicas read this header (SGLang's, Dynamo's, MLPerf's clients), to
keep a session where its prompt is cached."""


class Target:
    """One target as a service. It owns its connections; `close` it when done."""

    def __init__(
        self,
        spec: TargetSpec,
        observer: Observer,
        *,
        key: str | None,
        client: Client,
        raw: bool = False,
    ) -> None:
        if spec.api_format not in API_FORMATS:
            raise CallerFault(
                f"unknown api_format {spec.api_format!r}: this version speaks "
                f"{', '.join(API_FORMATS)}",
                kind="unknown_api_format",
                target=spec.name,
            )
        self._spec = spec
        self._api_format = API_FORMATS[spec.api_format]
        self._quirks = quirks_of(spec)
        self._encoded = partial(
            transcoding.request,
            api_format=spec.api_format,
            model=spec.model,
            quirks=self._quirks,
            prefill=spec.prefill,
            target=spec.name,
        )
        self._origin, path = Origin.parse(
            spec.base_url.replace("{model}", quote(spec.model, safe=""))
        )
        # an address may bring a query, such as Azure's api-version
        path, _, self._query = path.partition("?")
        self._path = path.rstrip("/")
        self._client = client
        self._connect_ns = spec.timeouts.connect_ms * clock.NS_PER_MS
        self._secrets = secrets(spec, key)
        self._permanent_secrets = len(self._secrets)
        self._config = AttemptConfig(
            target=spec.name,
            timeouts=spec.timeouts,
            read_fault=self._api_format.fault_from_response,
            observer=observer,
            timers=TimerWheel(),
            secrets=self._secrets,
            raw=raw,
            output_tokens=spec.output_tokens,
            of_client=spec.credentials == "client",
        )
        self._token = GoogleToken(key) if key is not None and spec.auth == "google" else None
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "user-agent": f"splitsecond/{__version__}",
            **_key_header(spec.auth, key),
            **{name.lower(): value for name, value in spec.headers.items()},
        }
        self._headers.pop(_REQUEST_ID, None)
        if self._config.of_client and "user-agent" not in map(str.lower, spec.headers):
            del self._headers["user-agent"]  # the client's own is sent
        self._headers_with: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
        """All headers, by those that the API format adds; a format has one or two sets."""

    def __repr__(self) -> str:
        return f'"{self._spec.name}"'

    async def warm(self, connections: int) -> int:
        """Open idle connections before the first request. Return how many are open."""
        return await self._client.warm(self._origin, connections)

    async def __call__(self, call: Call) -> Attempt:
        """Send the call. Return when the first token has arrived or the answer ended well; raise
        `Fault`."""
        spec = self._spec
        api_format = self._api_format
        credentials = self._credentials(call) if self._config.of_client else ()
        try:
            encoded = (
                await off_loop(call.client, self._encode, call)
                if call.notes.large
                else self._encode(call)
            )
        except Fault:
            raise
        except Exception as error:
            report_internal_error("request", error)
            raise InternalFault(target=spec.name) from None
        notes = call.notes
        notes.attempts += 1
        identity = f"{call.id}.{notes.attempts}"
        timeline = Timeline(
            attempt=identity,
            call=call.id,
            target=spec.name,
            condition=notes.condition,
            role=notes.role,
            due_ns=call.due_ns,
            start_ns=call.start_ns,
            streamed=encoded.streamed,
        )
        decoder = api_format.decoder(call.operation)
        decoder.as_tool = encoded.as_tool
        attempt = Attempt.begin(
            self._config if call.stall_ns is None else _with_stall(self._config, call.stall_ns),
            call,
            timeline,
            decoder,
            None if call.api_format == spec.api_format else self._transcoder(call),
            len(encoded.body),
        )
        request = self._request(call, encoded, identity, credentials)
        connect_deadline_ns = clock.now_ns() + self._connect_ns
        if attempt.deadline_ns is not None:
            connect_deadline_ns = min(connect_deadline_ns, attempt.deadline_ns)
        origin = self._origin
        try:
            if self._token is not None:
                token = await self._access_token(self._token, call.start_ns, attempt.deadline_ns)
                bearer = ("authorization", f"Bearer {token}")
                request = msgspec.structs.replace(request, fresh=(*request.fresh, bearer))
            if encoded.follow is not None:
                origin, request = await self._stream_request(
                    encoded.follow, request, attempt, connect_deadline_ns
                )
            exchange = await self._client.send(
                origin, request, attempt, connect_deadline_ns=connect_deadline_ns
            )
            attempt.request_sent(exchange)
            await attempt.first_token()
        except Fault as fault:
            attempt.abandon(fault, clock.now_ns())
            raise
        except asyncio.CancelledError:
            attempt.abandon(None, clock.now_ns())
            raise
        except Exception as error:
            report_internal_error("request", error)
            failed = InternalFault(target=spec.name)
            attempt.abandon(failed, clock.now_ns())
            raise failed from None
        return attempt

    def _request(
        self, call: Call, encoded: Encoded, identity: str, credentials: tuple[tuple[str, str], ...]
    ) -> Request:
        """Return the request of the attempt `identity`."""
        headers = self._headers_with.get(encoded.headers)
        if headers is None:
            headers = tuple({**self._headers, **dict(encoded.headers)}.items())
            self._headers_with[encoded.headers] = headers
        fresh: tuple[tuple[str, str], ...] = ((_REQUEST_ID, identity), *credentials)
        if self._spec.trusted:
            parent = call.hints.get("traceparent", "")
            fresh += (("traceparent", attempt_traceparent(call.id, identity, parent)),)
        if hint := call.hints.get("session"):
            fresh += ((_SESSION, hint),)
        if self._quirks.session_header and call.notes.session is not None:
            fresh += ((self._quirks.session_header, call.notes.session.id),)
        if encoded.fresh:
            fresh += tuple(each for each in encoded.fresh if each[0] not in self._headers)
        return Request("POST", self._full_path(encoded.path), headers, encoded.body, fresh)

    def _encode(self, call: Call) -> Encoded:
        if self._quirks.session_field:
            call = _with_session(call, self._quirks.session_field)
        return self._encoded(call, encode=self._api_format.encode)

    async def count_tokens(self, call: Call, due_ns: int) -> bytes:
        """Return the provider's response to a request to count the tokens of `call`. Both use the
        target's API format.

        No model runs, so this is not an attempt and makes no observation. Raises `Fault`, at the
        latest at `due_ns`, also for a count that cannot be true.
        """
        count, model = transcoding.count, self._spec.model
        encoded = (
            await off_loop(call.client, count, call, model)
            if call.notes.large
            else count(call, model)
        )
        headers = tuple({**self._headers, **dict(encoded.headers)}.items())
        fresh = tuple(each for each in encoded.fresh if each[0] not in self._headers)
        if self._config.of_client:
            fresh += self._credentials(call)
        request = Request("POST", self._full_path(encoded.path), headers, encoded.body, fresh)
        poll = PollRequest()
        exchange = await self._client.send(self._origin, request, poll, connect_deadline_ns=due_ns)
        await poll.wait(exchange, due_ns, None)
        if not 200 <= poll.status < 300:
            fault = self._api_format.fault_from_response(
                poll.status, poll.headers, bytes(poll.body)
            )
            raise redact_fault(fault, self._spec.name, self._secrets)
        answer = bytes(poll.body)
        usage = read_json(answer, _decode_counted)
        if (
            usage is None
            or usage.input_tokens > len(encoded.body) + unseen_tokens(call, None).input
        ):
            words = f"the count of tokens cannot be true: {excerpt(answer)}"
            raise ProviderFault(
                words, kind="malformed", phase="head", status=poll.status, target=self._spec.name
            )
        return answer

    def _credentials(self, call: Call) -> tuple[tuple[str, str], ...]:
        """Return the headers with the client's own credentials. Raises `CallerFault` if this target
        may not get them: they are for the vendor whose API the client uses."""
        credentials, vendor = call.credentials, VENDORS.get(self._spec.api_format)
        if credentials is not None and credentials.vendor == vendor:
            return tuple(each for each in credentials.headers if each[0] not in self._headers)
        if credentials is None and vendor in KEYLESS:
            return ()
        why = (
            "the request has none"
            if credentials is None
            else f"those of the request are for {credentials.vendor}"
        )
        raise CallerFault(
            f"it is called with the client's own credentials, and {why}",
            kind=NO_CLIENT_CREDENTIALS,
            target=self._spec.name,
            status=401,
            hint=f"Send those of {vendor} in the client's own header, by the paths of its API.",
        )

    def _full_path(self, path: str) -> str:
        """Return `path` below the target's address, with the query of that address."""
        if self._query:
            path += ("&" if "?" in path else "?") + self._query
        return self._path + path

    async def _access_token(
        self, source: GoogleToken, start_ns: int, deadline_ns: int | None
    ) -> str:
        """Return an access token from `source`. Raises its faults, and `TimedOut` at `deadline_ns`,
        the deadline of the attempt."""
        try:
            async with asyncio.timeout_at(
                None if deadline_ns is None else deadline_ns / clock.NS_PER_S
            ):
                token = await source.value()
        except TimeoutError:
            waited_ns = (deadline_ns or 0) - start_ns
            waited_ms = waited_ns // clock.NS_PER_MS
            words = (
                f"no access token when the deadline of {waited_ms:,} ms for the whole call passed"
            )
            raise TimedOut(words, phase="total", after_ns=waited_ns) from None
        if token not in self._secrets:
            self._add_secret(token)
        return token

    def _add_secret(self, token: str) -> None:
        """Redact a new token of Google's. The previous token stays redacted, because responses in
        flight may repeat it."""
        self._secrets[self._permanent_secrets :] = [
            *self._secrets[self._permanent_secrets :][-1:],
            token,
        ]

    def _transcoder(self, call: Call) -> Transcoder | None:
        """Return the transcoder of an answer to `call`, which has another format; None if nobody
        reads its bytes."""
        if not (self._config.raw or call.watched):
            return None
        transcoder = transcoding.transcoder(call, self._spec.model)
        if transcoder.prompt_tokens is not None:
            call.notes.estimated.append(self._spec.name)
        return transcoder

    async def _stream_request(
        self, follow: Follow, request: Request, attempt: Attempt, connect_deadline_ns: int
    ) -> tuple[Origin, Request]:
        """Send `request`, and return the origin of and the request for its answer. Raises the
        `Fault` of a refusal."""
        poll = PollRequest()
        exchange = await self._client.send(
            self._origin, request, poll, connect_deadline_ns=connect_deadline_ns
        )
        attempt.record_first_request(exchange)
        head_ms = self._spec.timeouts.head_ms
        head_ns = None if head_ms is None else head_ms * clock.NS_PER_MS
        await poll.wait(exchange, attempt.deadline_ns, head_ns)
        if not 200 <= poll.status < 300:
            poll.forward_to(attempt)
            await attempt.first_token()
        origin, path = stream_address(
            follow(bytes(poll.body)), self._origin, self._quirks.stream_hosts
        )
        headers, fresh = self._headers, request.fresh
        if origin != self._origin:
            headers = {"user-agent": headers["user-agent"]}
            fresh = tuple(each for each in fresh if each[0] != "authorization")
        stream_headers = {**headers, "accept": "text/event-stream", "cache-control": "no-store"}
        stream_headers.pop("content-type", None)
        return origin, Request("GET", path, tuple(stream_headers.items()), fresh=fresh)

    def close(self) -> None:
        self._client.close()


def quirks_of(spec: TargetSpec) -> Quirks:
    """Return how a target differs from its API format. Raises `CallerFault` for unknown quirks."""
    try:
        return msgspec.convert({"default_max_tokens": spec.output_tokens, **spec.quirks}, Quirks)
    except msgspec.ValidationError as error:
        raise CallerFault(f"quirks: {error}", kind="bad_quirks", target=spec.name) from None


def _key_header(auth: Auth, key: str | None) -> dict[str, str]:
    """Return the header with the key. Google's tokens change, so each request has its own."""
    if key is None or auth == "google":
        return {}
    return {"authorization": f"Bearer {key}"} if auth == "bearer" else {auth: key}


def _with_session(call: Call, field: str) -> Call:
    """Return `call` with the id of its session in a field of a chat, unless the client sets the
    field.

    Calls that only begin alike have none: other sessions may share what a provider caches of them.
    """
    session = call.notes.session
    # of a bench, or of a client
    name = call.hints.get("session", "") if session is None else session.id
    if session is not None and session.source == CONVERSATION:
        return call
    if not name or field in call.body or call.api_format == "anthropic":
        return call
    return msgspec.structs.replace(call, body={**call.body, field: name})


def _with_stall(config: AttemptConfig, stall_ns: int) -> AttemptConfig:
    stall_ms = max(stall_ns // clock.NS_PER_MS, 1)
    timeouts = msgspec.structs.replace(
        config.timeouts, stall_ms=min(stall_ms, config.timeouts.stall_ms or stall_ms)
    )
    return msgspec.structs.replace(config, timeouts=timeouts)


def connect(
    spec: TargetSpec,
    observer: Observer,
    *,
    environment: Mapping[str, str] = os.environ,
    client: Client | None = None,
    raw: bool = False,
) -> Target:
    """Return the service of a target. Raises `CallerFault` if its key, address or API format is
    missing or wrong.

    `raw`: replies keep the bytes of the body for `Reply.read`, and no events; for a watched call
    they keep both.
    """
    key = api_key(spec, environment)
    return Target(spec, observer, key=key, client=client or Client(), raw=raw)
