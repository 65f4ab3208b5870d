import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self
from uuid import uuid4

import msgspec

from splitsecond.benchmark.load.measured_call import MeasuredCall
from splitsecond.benchmark.runs.settings import Server
from splitsecond.benchmark.runs.targets import (
    LocalServers,
    advised,
    in_thread,
    resolve,
    server_spec,
)
from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.events import Finish, Token
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wording import ENGINE, SIMULATED
from splitsecond.routing.construction.expression import Expression, TargetName, parse, targets
from splitsecond.routing.router.router import ROUTE, Router
from splitsecond.routing.router.settings import TIMEOUTS, ProviderSettings, RouterSettings

ACCOUNT_S = 2.0
"""Longest wait for the observations of a call's attempts after its response has ended."""

Messages = str | Sequence[Mapping[str, Any]]
"""A prompt, or messages as in OpenAI's API."""


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """A complete response.

    `text` is the visible text, `reasoning` the model's reasoning, if it is shown. `observation` has
    the figures of the call (`ttft_ms`, `e2e_ms`, `tps`, …); `attempts` has those of each attempt of
    a policy. `target` answered.
    """

    text: str
    reasoning: str
    finish_reason: str
    target: str
    observation: Observation
    attempts: list[Observation]


class Connection:
    """Targets and a policy over them, ready for requests. Use it as an asynchronous context
    manager.

    It keeps connections open, learns how fast targets are, and skips those that are down.
    """

    def __init__(
        self,
        policy: str | Server,
        servers: Sequence[Server] = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Raises `CallerFault` for an invalid policy."""
        self._expression, self._servers = expression_of(policy, servers)
        self._headers = headers
        self._processes = ExitStack()
        self._router: Router | None = None
        self._specs: Mapping[str, TargetSpec] = {}

    def __repr__(self) -> str:
        return f"<Connection {self._expression!r}>"

    async def __aenter__(self) -> Self:
        settings = await resolved_settings(
            self._expression, self._servers, self._processes, self._headers
        )
        self._specs = settings.specs
        try:
            self._router = Router(settings)
            if settings.listed and not isinstance(self._expression, TargetName):
                await self._router.learn_prices(settings.listed)  # policies may choose by them
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._router is not None:
            self._router.close()
        self._router = None
        self._processes.close()

    async def chat(
        self, messages: Messages, *, timeout: float | None = None, **body: Any
    ) -> ChatReply:
        """Send a chat request and return the complete response.

        `timeout` is the longest time for all of it, in seconds. `body` has further fields of
        OpenAI's request: ``max_tokens``, ``temperature``, ``tools``, …. Raises a `Fault` if no
        target answers.
        """
        stream = self.stream(messages, timeout=timeout, **body)
        async for _ in stream:
            pass
        return stream.reply

    def stream(
        self, messages: Messages, *, timeout: float | None = None, **body: Any
    ) -> "ChatStream":
        """Return the response of a chat request as an asynchronous iterator over its pieces of
        text.

        After its end, `ChatStream.reply` is the complete response. Raises as `chat` does.
        """
        if self._router is None:
            raise RuntimeError("a connection is used inside `async with`")
        conversation = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        )
        now_ns = clock.now_ns()
        observations: list[Observation] = []
        expression = self._expression
        name = expression.name if isinstance(expression, TargetName) else repr(expression)
        measured = MeasuredCall(
            condition="", target=name, role="measured", emit=observations.append
        )
        call = Call(
            id=uuid4().hex,
            body={"messages": conversation, "stream": True, **body},
            start_ns=now_ns,
            deadline_ns=None if timeout is None else now_ns + round(timeout * clock.NS_PER_S),
            watched=True,
            notes=measured.notes(),
        )
        return ChatStream(self._router, call, measured, observations, self._specs)


class ChatStream:
    """A response that arrives: an asynchronous iterator over its pieces of visible text."""

    def __init__(
        self,
        router: Router,
        call: Call,
        measured: MeasuredCall,
        observations: list[Observation],
        specs: Mapping[str, TargetSpec],
    ) -> None:
        self._router = router
        self._specs = specs
        self._call = call
        self._measured = measured
        self._observations = observations
        self._reply: ChatReply | None = None
        self._pieces = self._run()

    def __aiter__(self) -> AsyncIterator[str]:
        return self._pieces

    @property
    def reply(self) -> ChatReply:
        """The complete response, after the end of the iteration."""
        if self._reply is None:
            raise RuntimeError("the response has not ended")
        return self._reply

    async def aclose(self) -> None:
        """End the request before the end of its response."""
        await self._pieces.aclose()

    async def _run(self) -> AsyncGenerator[str, None]:
        texts: dict[str, list[str]] = {"text": [], "reasoning": []}
        finish_reason = ""
        try:
            async with await self._router.service()(self._call) as reply:
                target, more = reply.target, True
                while more:
                    more = bool(await reply.read())
                    for event in reply.arrived():
                        if isinstance(event, Token) and event.index == 0 and event.kind in texts:
                            texts[event.kind].append(event.text)
                            if event.kind == "text" and event.text:
                                yield event.text
                        elif isinstance(event, Finish) and event.index == 0:
                            finish_reason = event.reason
        except Fault as fault:
            self._measured.ended(self._call, fault)
            raise advised(fault, self._specs.get(fault.target)) from None
        self._measured.ended(self._call)
        try:
            async with asyncio.timeout(ACCOUNT_S):
                await self._measured.complete.wait()
        except TimeoutError:
            self._measured.report()
        *attempts, observation = self._observations
        self._reply = ChatReply(
            text="".join(texts["text"]),
            reasoning="".join(texts["reasoning"]),
            finish_reason=finish_reason,
            target=target,
            observation=observation,
            attempts=attempts or [observation],
        )


def connect(
    policy: str | Server,
    servers: Sequence[Server] = (),
    *,
    headers: Mapping[str, str] | None = None,
) -> Connection:
    """Return a connection to a target, a policy or a `Server`, to be used with ``async with``.

    A policy may name the targets of the catalogue, simulated ones, and `servers` by their names.
    `headers` are sent with every request. Raises `CallerFault` for an invalid policy; entering it
    raises for unknown targets and missing keys.
    """
    return Connection(policy, servers, headers=headers)


class ResolvedSettings(RouterSettings, frozen=True, kw_only=True):
    """Settings of a router; `listed` are the targets of the catalogue."""

    specs: Mapping[str, TargetSpec]
    listed: frozenset[str]

    def spec(self, target: str) -> TargetSpec:
        return self.specs[target]

    def about(self, target: str) -> ProviderSettings:
        if target in self.listed:
            return super().about(target)
        return ProviderSettings(base_url=self.specs[target].base_url, account=target)


def expression_of(
    policy: str | Server, servers: Sequence[Server]
) -> tuple[Expression, Sequence[Server]]:
    if isinstance(policy, Server):
        return TargetName(server_spec(policy).name), [*servers, policy]
    return parse(policy), servers


async def resolved_settings(
    expression: Expression,
    servers: Sequence[Server],
    processes: ExitStack,
    headers: Mapping[str, str] | None = None,
) -> ResolvedSettings:
    """Return the settings of a router with the one route `ROUTE`. Raises as `resolve` does."""
    own = [server_spec(server).name for server in servers]
    names = [name for name in targets(expression) if name not in own]
    specs = await in_thread(
        lambda: resolve(names, servers, LocalServers(processes), headers=headers, timeouts=TIMEOUTS)
    )
    listed = frozenset(name for name in names if not name.startswith((SIMULATED, ENGINE)))
    return ResolvedSettings(
        routes={ROUTE: expression}, environment=os.environ, specs=specs, listed=listed
    )
