"""One family of failures. Who is at fault is the type; how far the request had come is the `phase`.

A `Fault` is raised where a caller waits, and carried as a value (`events.Broken`) where a stream is read, so that an
observation can be made of it either way. `kind` is a short fixed word that reports count by; the message has three
parts: what happened, with numbers (got, expected); where; and in `hint` what to try. No fault holds a key or a prompt:
whoever makes one from provider bytes passes an `excerpt` that is bounded and printable.
"""

from collections.abc import Sequence
from typing import Literal, Self

Phase = Literal[
    "queue",
    "dns",
    "connect",
    "tls",
    "send",
    "head",
    "first token",
    "between tokens",
    "total",
]
"""How far a request had come: waiting for us, resolving, TCP, TLS, writing the request, waiting for the status line,
for the first token, for the next token; "total" is a deadline over all of it."""

EXCERPT_BYTES = 600


def excerpt(data: bytes | str) -> str:
    """The first few hundred bytes of what a provider said, as one printable line, for a message."""
    text = data[: 4 * EXCERPT_BYTES].decode("utf-8", "replace") if isinstance(data, bytes) else data
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= EXCERPT_BYTES else line[: EXCERPT_BYTES - 1] + "…"


class Fault(Exception):
    """Something went wrong with a call. Never raised itself: use the type that says who is at fault.

    `kind`    a fixed word to count by: "http_429", "refused", "truncated", …
    `phase`   how far the request had come
    `target`  which target it happened at, "" while that is not known
    `hint`    what to try, a sentence, or ""
    `on_trial`  the target was known to be ill, and the request was to find out whether it still is
    """

    on_trial = False

    def __init__(self, message: str, *, kind: str, phase: Phase, target: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.phase: Phase = phase
        self.target = target
        self.hint = hint

    def kept(self) -> Self:
        """This fault, for whoever keeps it: without the frames that it came through.

        Among them is the keeper's own as a rule, and what is kept there: a cycle, which takes all that hangs on it.
        """
        return self.with_traceback(None)

    def __str__(self) -> str:
        where = f"{self.target}: " if self.target else ""
        hint = f" {self.hint}" if self.hint else ""
        phase = "" if self.phase == "queue" else f" (while: {self.phase})"  # before the first byte it says nothing
        return f"{where}{self.message}{phase}.{hint}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind!r}, phase={self.phase!r}, target={self.target!r}, {self.message!r})"


class CallerFault(Fault):
    """The request cannot be served as it is: the caller must change it. `status` is the HTTP status to answer with.

    `code` and `param` are the provider's own words for what is wrong, and for the field in which it is, "" for none.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "bad_request",
        phase: Phase = "queue",
        target: str = "",
        hint: str = "",
        status: int = 400,
        excerpt: str = "",
        code: str = "",
        param: str = "",
    ) -> None:
        super().__init__(message, kind=kind, phase=phase, target=target, hint=hint)
        self.status = status
        self.excerpt = excerpt
        self.code = code
        self.param = param


class ProviderFault(Fault):
    """The provider answered, and the answer is an error, or no valid answer.

    `status` is its HTTP status (200 where the error came inside a stream), `excerpt` what it said, `retry_after_ns`
    how long it asks us to wait (None where it did not say).
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        phase: Phase,
        target: str = "",
        hint: str = "",
        status: int = 0,
        excerpt: str = "",
        retry_after_ns: int | None = None,
    ) -> None:
        super().__init__(message, kind=kind, phase=phase, target=target, hint=hint)
        self.status = status
        self.excerpt = excerpt
        self.retry_after_ns = retry_after_ns


class NetworkFault(Fault):
    """The connection failed: name not found, refused, reset, certificate not trusted, closed too early."""


class TimedOut(Fault):
    """A deadline passed; `phase` says which. `after_ns` is how long was waited."""

    def __init__(
        self, message: str, *, phase: Phase, kind: str = "", target: str = "", hint: str = "", after_ns: int = 0
    ) -> None:
        kind = kind or "timeout_" + phase.replace(" ", "_")
        super().__init__(message, kind=kind, phase=phase, target=target, hint=hint)
        self.after_ns = after_ns


class Overloaded(Fault):
    """We refuse the call ourselves, at once, and nothing is sent. Phase is "queue".

    Kind "overloaded": a limit is reached. Kind "ejected": the target is down, or asked us to wait. `status` is the HTTP
    status to answer with: 429 where it is the provider's rate limit that is used up, 502 where it refused our key.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "overloaded",
        target: str = "",
        hint: str = "",
        retry_after_ns: int | None = None,
        status: int = 503,
    ) -> None:
        super().__init__(message, kind=kind, phase="queue", target=target, hint=hint)
        self.retry_after_ns = retry_after_ns
        self.status = status


class AllFailed(Fault):
    """Every branch of a policy failed. `causes` in the order in which they were tried; the first decides the phase."""

    def __init__(self, causes: Sequence[Fault], *, target: str = "") -> None:
        if not causes:
            raise ValueError("AllFailed needs at least one cause")
        super().__init__(
            "every target failed: " + "; ".join(str(c).rstrip(".") for c in causes),
            kind="all_failed",
            phase=causes[0].phase,
            target=target,
        )
        self.causes = tuple(causes)
