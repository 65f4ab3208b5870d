"""The central contract: a service takes a call and returns a reply.

    reply = await service(call)

The await returns when the first token has arrived (or when the stream has ended well without one),
or raises a `Fault`. Until it returns, the client has seen nothing, so a policy can still choose
another target. Once it returns, the reply belongs to the caller: a stream of events that is closed
exactly once.

Cancelling the await closes the attempt's connection at once. Every service keeps the call's
deadline itself, while it waits and while its reply is read; a policy only has to set it.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from msgspec import Raw, Struct, field

from splitsecond.core.client_credentials import ClientCredentials
from splitsecond.core.errors import Fault
from splitsecond.core.events import Event
from splitsecond.core.observation import Observation, Role
from splitsecond.core.session import CallSession

Operation = Literal["chat", "completions", "embeddings", "rerank", "moderations"]
WHOLE_OPERATIONS: frozenset[Operation] = frozenset({"embeddings", "rerank", "moderations"})
"""Operations whose answer is one JSON object without output tokens, never a stream."""
LOST = "another was faster"
"""The reason with which losers are cancelled: it tells them from attempts whose caller has left."""
Spoken = Literal["openai", "anthropic", "responses"]
"""The API formats that clients use: OpenAI's chat completions (with everything else under OpenAI's
paths), Anthropic's Messages, and OpenAI's Responses. Targets use more formats."""
OutputMeter = Callable[[str, int], Fault | None]
"""Takes the target of an answer that is arriving, and about how many output tokens it has so far.
Returns the fault that ends the answer, or None."""


class PromptEstimate(Protocol):
    @property
    def unbounded(self) -> bool: ...

    def within(self, context_tokens: int | None) -> int: ...


class RequestEstimate(Protocol):
    @property
    def prompt(self) -> PromptEstimate: ...

    @property
    def answers(self) -> int: ...

    @property
    def output_limit(self) -> int | None: ...

    @property
    def for_an_hour(self) -> bool: ...


class RoutingChoice(Struct, frozen=True):
    """The choice of a policy: `place` of the branch in the policy, from 0; `available`, the places
    that could be chosen, as bits; `odds`, the probability of this choice, 0 where it is unknown."""

    place: int
    available: int
    odds: float


class Notes(Struct, kw_only=True):
    """Facts about a call that services add while they serve it. The only part of a call that
    changes.

    `attempts`: how many requests were sent to targets so far. For guarded targets
    (`routing/targets/target_states`): `attempted`, the targets that a request was sent to, in
    order; `rejected`, the targets that were skipped because they are unavailable; `excluded`, the
    targets that must not be asked (again), because their answer was truncated or they cannot
    continue it; `probed`, the last target that was asked while it was suspected to be down.
    `cache`: "hit", "shared" (with an identical call in flight), "miss", or "" without a cache.
    `chosen`: why a policy chose the target that answers, in a few words. `choice`: the first choice
    of a policy, for the log; None without one. `dropped`: fields of the
    request that are sent to no target; `left_out`: by target, what could not be translated to its
    API format; `added`: by target, a field that its API format requires and the request lacked,
    with its value; `estimated`: targets whose streams begin with an estimate of the prompt's
    tokens.

    A measurement sets `condition` and `role`, which the observations of the call's attempts carry,
    and `observer`, which receives the observation of each attempt when the attempt ends. That can
    be after the call has ended: the observer has all observations when it has `attempts` of them.

    `session`: where in a session of the client the call stands; None if it was not looked for.
    `session_entry`: where the gateway's table has the session's agent, and the key of that entry.
    `home`: the hash of the target that answered the session's agent before; 0: none did.
    `left`: the target that answered the session's agent before, if it is not the one that answers
    now.

    `team`: that of the client's key, or "". `meter` is set for a call whose cost is limited.
    `large`: the body is large (`large_bodies`), so work on it goes to a thread. `estimate`: what it
    may use, estimated there; None: not yet.
    """

    attempts: int = 0
    attempted: list[str] = []
    rejected: list[str] = []
    excluded: list[str] = []
    probed: str = ""
    cache: str = ""
    chosen: str = ""
    choice: RoutingChoice | None = None
    dropped: list[str] = []
    left_out: dict[str, list[str]] = {}
    added: dict[str, str] = {}
    estimated: list[str] = []
    condition: str = ""
    role: Role = "measured"
    observer: Callable[[Observation], None] | None = None
    session: CallSession | None = None
    session_entry: tuple[int, int] | None = None
    team: str = ""
    home: int = 0
    left: str = ""
    meter: OutputMeter | None = None
    large: bool = False
    estimate: RequestEstimate | None = None


class RateFloor(Struct, frozen=True):
    """An answer with fewer than `tokens_per_s` over the last `over_ns` is too slow."""

    tokens_per_s: float
    over_ns: int


class Call(Struct, frozen=True, kw_only=True):
    """A request of a client or of the bench.

    `body` holds the fields of the request as the client sent them: each value is either the raw
    JSON bytes (passed on unchanged, unknown fields included) or a plain Python value. `api_format`
    is the API format of the body, and of the bytes that `Reply.read` returns: always the client's,
    whatever the target uses. `due_ns` is the time at which the schedule wanted to send the request
    and `start_ns` the time at which the call came in; both monotonic, 0 if unknown. `deadline_ns`
    is absolute; None: no deadline.

    `token_due_ns`: until when the caller waits for the first token. The caller enforces it itself;
    the field only tells why an attempt was given up. None: unknown.

    `stall_ns`: the longest time between two tokens; after that the service breaks the answer off.
    None: the limit in the target's settings. `floor`: the lowest rate of tokens; the service breaks
    a slower answer off. None: any rate.

    `stream`: the client wants the answer as a stream (a target may stream it to us either way).
    `allow_whole`: a target may be asked for a whole answer, where no policy needs the stream.
    `whole_ns`: the answer is requested whole, and may take so long beyond the limit for a first
    token; None: it is streamed if the target can. `watched`: the caller reads both the events of
    the reply and its bytes. `client`: the client whose call it is, so that one client never sees an
    answer to another. `hints`: what the client sent beside the body, by the names that policies
    know ("complexity", "task", "region", "cache"); also "traceparent", the client's trace; "betas"
    and "version", the beta features and the version of Anthropic's format; "prompt_cache": "mark"
    if its system prompt (or without one the whole prompt) should be cached by providers that cache
    on request only, "end" if the whole prompt should be; "session" for the id of a session, which
    is sent to the provider; and "translated" for a body that was rewritten as it came in.
    `credentials`: those of the client, for targets that are called with them; None: there are none,
    or no target takes them. `notes` is shared by all copies of a call.
    """

    id: str
    operation: Operation = "chat"
    body: Mapping[str, Raw | Any]
    api_format: Spoken = "openai"
    due_ns: int = 0
    start_ns: int = 0
    deadline_ns: int | None = None
    token_due_ns: int | None = None
    stall_ns: int | None = None
    floor: RateFloor | None = None
    stream: bool = True
    allow_whole: bool = False
    whole_ns: int | None = None
    watched: bool = False
    client: str = ""
    hints: Mapping[str, str] = {}
    credentials: ClientCredentials | None = None
    notes: Notes = field(default_factory=Notes)


class Reply(Protocol):
    """A stream of events from the first one on. It ends after `Done` or `Broken`, and is closed
    exactly once."""

    @property
    def target(self) -> str: ...

    @property
    def empty(self) -> bool:
        """Whether the answer ended well without a single token. Known as soon as there is a
        reply."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the whole answer has arrived and ended well. One more `read` returns the rest,
        and cannot fail."""
        ...

    @property
    def token_ns(self) -> int:
        """The arrival time of the latest token (monotonic), 0 before the first."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Event: ...

    async def finished(self) -> None: ...

    async def collected(self) -> list[Event]:
        """Return the events that were not read yet, when the answer has ended. The last is `Done`
        or `Broken`."""
        ...

    async def read(self) -> bytes:
        """Return the bytes of the body that arrived since the last `read`; b"" after the last of a
        complete answer.

        If the call is not streamed, it may wait until the answer is complete or long.

        If the target uses another API format than the call, the bytes are a translation, always as
        a stream. Raises the `Fault` that broke the answer, after all bytes before it were returned.
        A caller reads either bytes or events, unless the call is `watched`.
        """
        ...

    def pass_on(self, take: Callable[[bytes], bool]) -> None:
        """Offer bytes to `take` as they arrive while a `read` waits for them; what it refuses,
        `read` returns.

        This saves a reader the wait for its turn. `take` returns whether it took the bytes. It is
        called in the callback that reads the provider's socket; a `Fault` that it raises breaks the
        answer. Most replies never call it.
        """
        ...

    def arrived(self) -> list[Event]:
        """Return the events that arrived and were not read yet, without waiting. The last is `Done`
        or `Broken`.

        For a `watched` call they include all events of the bytes that `read` has returned. A caller
        that needs both reads bytes first, then takes the events.
        """
        ...

    async def aclose(self) -> None:
        """Close the reply. Before its end this closes the provider's connection at once. A second
        call does nothing."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ReplyBase:
    """Base class of replies: iterates over itself and closes itself as an asynchronous context
    manager."""

    __slots__ = ()

    @property
    def complete(self) -> bool:
        return False  # as far as is known

    def pass_on(self, take: Callable[[bytes], bool]) -> None:
        """Do nothing: `read` returns all bytes."""

    async def collected(self) -> list[Event]:
        return [event async for event in self]

    async def __anext__(self) -> Event:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class ForwardingReply(ReplyBase):
    """A reply that forwards everything to another reply. Subclasses override what they change."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    @property
    def target(self) -> str:
        return self._reply.target

    @property
    def empty(self) -> bool:
        return self._reply.empty

    @property
    def token_ns(self) -> int:
        return self._reply.token_ns

    async def __anext__(self) -> Event:
        return await self._reply.__anext__()

    async def finished(self) -> None:
        await self._reply.finished()

    async def collected(self) -> list[Event]:
        return await self._reply.collected()

    async def read(self) -> bytes:
        return await self._reply.read()

    def arrived(self) -> list[Event]:
        return self._reply.arrived()

    async def aclose(self) -> None:
        await self._reply.aclose()


class Service(Protocol):
    """Anything that answers calls: one target, or a policy over several targets."""

    async def __call__(self, call: Call) -> Reply: ...
