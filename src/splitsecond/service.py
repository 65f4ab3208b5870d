"""The one contract: a service takes a call and gives a reply.

    reply = await service(call)

returns when the first token has arrived (or the stream ended well without one), or raises a `Fault`. Until it returns,
nothing has been shown to the client, so a policy may still change its mind. Once it returns, the reply belongs to the
caller: a stream of events that is closed exactly once.

So a race is the first await to return, a fallback is ``except Fault``, a deadline for the first token is a deadline on
the await. Cancelling the await closes the attempt's connection at once. Every service keeps the call's deadline itself,
while it waits and while its reply is read, so that a policy only has to set it.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from msgspec import Raw, Struct, field

from splitsecond.events import Event

Operation = Literal["chat", "completions", "embeddings"]
Spoken = Literal["openai", "anthropic", "responses"]
"""The dialects in which clients ask: OpenAI's chat and all else under its paths, Anthropic's Messages, and OpenAI's
Responses. Those of targets are more."""


class Notes(Struct, kw_only=True):
    """What those who served a call have to say of it, beside the answer: the only part of a call that changes.

    `attempts`: how many requests went to targets so far. Of targets that are watched over (`policy/targets/standing`):
    `asked`, in order, `refused`, those that were not asked because they are down, `barred`, those that are not to be
    asked (again), as their answer broke off or they could not go on with it, and `tried`, the last that was asked to
    find out whether it is well again. `cache`: "hit", "shared" (with an
    identical call under way), "miss", or "" where no cache stood in the way. `chosen`: why a policy chose the target
    that answers, in a few words. `dropped`: what of the request goes to no target; `left_out`: by targets, what could
    not be carried over to their dialect.
    """

    attempts: int = 0
    asked: list[str] = []
    refused: list[str] = []
    barred: list[str] = []
    tried: str = ""
    cache: str = ""
    chosen: str = ""
    dropped: list[str] = []
    left_out: dict[str, list[str]] = {}


class Call(Struct, frozen=True, kw_only=True):
    """What a client, or the bench, asks for.

    `body` holds the fields of the request as the client sent them: each value is either the raw JSON bytes (passed on
    unchanged, unknown fields included) or a plain Python value. `dialect` is the form of the body, and of the bytes
    that `Reply.read` gives: always the client's, whatever the target speaks. `due_ns` is when the schedule wanted it to
    leave and `start_ns` when the call came in; both monotonic, 0 where there is none. `deadline_ns` is absolute; None:
    no deadline.

    `token_due_ns`: until when whoever asks waits for the first token; it keeps that itself, so this only tells why an
    attempt was given up. None: it did not say.

    `stall_ns`: how long there may be no further token after the first; then whoever serves breaks the answer off. None:
    as long as the target's own settings allow.

    `stream`: the client wants the answer as a stream (a target may stream it to us either way). `watched`: whoever asks
    reads both the events of the reply and its bytes. `client`: whose call it is, so that what one client asked is never
    shown to another. `hints`: what the client said beside the request, by the names that policies know
    ("complexity", "task", "region", "cache"), as "betas" what it wants of Anthropic's that is not settled, and as
    "prompt_cache": "mark" that its system prompt, or without one all of it, is to be cached where a provider must be
    told so. `notes` is shared by all copies of a call.
    """

    id: str
    operation: Operation = "chat"
    body: Mapping[str, Raw | Any]
    dialect: Spoken = "openai"
    due_ns: int = 0
    start_ns: int = 0
    deadline_ns: int | None = None
    token_due_ns: int | None = None
    stall_ns: int | None = None
    stream: bool = True
    watched: bool = False
    client: str = ""
    hints: Mapping[str, str] = {}
    notes: Notes = field(default_factory=Notes)


class Reply(Protocol):
    """A stream of events, from the first one on, ending after `Done` or `Broken`. Closed exactly once."""

    @property
    def target(self) -> str:
        """The name of the target that answers."""
        ...

    @property
    def empty(self) -> bool:
        """The answer ended well without a single token; known as soon as there is a reply."""
        ...

    @property
    def token_ns(self) -> int:
        """When its latest token arrived (monotonic), 0 before the first."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Event: ...

    async def finished(self) -> None:
        """Read to the end without looking at each event: what a measurement wants, as nothing wakes up per token."""
        ...

    async def read(self) -> bytes:
        """The bytes of the body that came since the last `read`, as they came; b"" after the last of a whole answer.

        Where the target speaks another dialect than the call they are its answer told again, always as a stream.
        Raises the `Fault` that broke the answer, after all that came before it. Who reads bytes reads no events, unless
        the call is `watched`.
        """
        ...

    def arrived(self) -> list[Event]:
        """The events that came and were not read yet, without waiting; the last is `Done` or `Broken`.

        Of a `watched` call they hold all that the bytes given by `read` have brought: who wants both reads bytes, then
        takes the events.
        """
        ...

    async def aclose(self) -> None:
        """Done with it. Before its end this closes the provider's connection at once. Calling it again does nothing."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Service(Protocol):
    """Anything that answers calls: one target, or a policy over several."""

    async def __call__(self, call: Call) -> Reply: ...
