"""The family of failures. The type tells who is at fault, the `phase` how far the request had come.

A `Fault` is raised where a caller waits, and passed as a value (`events.Broken`) where a stream is
read, so that an observation can be made of it in both cases. `kind` is a short fixed word that
reports count by. The message has three parts: what happened, with numbers (got, expected); where;
and, in `hint`, what to try. No fault contains a prompt or a key: what looks like a key is redacted,
and bytes of a provider are only quoted as a short, printable `excerpt`.
"""

import csv
import re
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Self

from splitsecond.core.redaction import redacted

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
"""How far a request had come: waiting in our queue, resolving, TCP, TLS, writing the request,
waiting for the status line, for the first token, for the next token. "total" is a deadline for all
of it."""

CLIENT_LEFT = 499
"""Status of a request whose client closed the connection, as nginx logs it."""
KEY_REFUSED = "key_refused"
"""Kind of a refusal of our key or account, by an error code of the provider. It locks all targets
of the key."""
NO_CREDIT = "no_credit"
"""Kind of a refusal of an account without credit or quota, whatever its status. 402 has the kind
``http_402``."""
USAGE_LIMIT = "usage_limit"
"""Kind of a refusal because the account has reached its own limit of spending, until a moment."""
NO_CLIENT_CREDENTIALS = "no_client_credentials"
"""Kind of a call without credentials of the client that its target may get. Nothing was sent."""
MODEL_NOT_SERVED = "model_not_served"
"""Kind of an error code that says, with a status other than 404, that the provider does not have
the model."""
LARGER_THAN_LIMIT = "larger_than_limit"
"""Kind of a request that alone exceeds the account's limit of tokens per minute. Another target may
serve it, waiting does not help, and smaller requests are not limited."""
CONTEXT_EXCEEDED = "context_length_exceeded"
"""Kind of a prompt that is longer than the target accepts."""
EXCERPT_BYTES = 600
LONGEST_MESSAGE = 4096
"""Characters. A message about a request can quote a name or a value of it, which has any length."""
_NOT_IN_WORDS = re.compile(r"[^A-Za-z0-9_.:+/-]")


def excerpt(data: bytes | str) -> str:
    start = data[: 4 * EXCERPT_BYTES]
    text = start.decode("utf-8", "replace") if isinstance(start, bytes) else start
    line: str = redacted(" ".join("".join(c if c.isprintable() else " " for c in text).split()))
    return line if len(line) <= EXCERPT_BYTES else line[: EXCERPT_BYTES - 1] + "…"


def provider_word(text: str, max_length: int) -> str:
    """Return the beginning of a provider's word, with _ for characters that such words do not have.

    A provider can send any text, and the word becomes a header, a label or a part of a page.
    """
    word = text[:max_length]
    return word if word.isascii() and word.isidentifier() else _NOT_IN_WORDS.sub("_", word)


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


class Fault(Exception):
    """A failure of a call. Raise one of the subclasses, which tell who is at fault.

    `kind`: a fixed word to count by: "http_429", "refused", "truncated", … `phase`: how far the
    request had come. `target`: where it happened, "" while that is unknown. `hint`: what to try, a
    sentence, or "". `on_trial`: the target was down, and the request was the probe that finds out
    whether it still is.
    """

    on_trial = False

    def __init__(
        self, message: str, *, kind: str, phase: Phase, target: str = "", hint: str = ""
    ) -> None:
        self.message: str = redacted(message)
        super().__init__(self.message)
        self.kind = kind
        self.phase: Phase = phase
        self.target = target
        self.hint: str = redacted(hint)

    def without_traceback(self) -> Self:
        """Remove the traceback, and return this fault. Call it before you store a fault.

        The frames of the traceback usually include the one that stores it: a reference cycle that
        keeps all of them.
        """
        return self.with_traceback(None)

    def __str__(self) -> str:
        where = f"{self.target}: " if self.target else ""
        hint = f" {self.hint}" if self.hint else ""
        # "queue" would tell the reader nothing
        phase = "" if self.phase == "queue" else f" (while: {self.phase})"
        # a message of a server, or of another process, can be a sentence already
        return f"{where}{self.message.removesuffix('.')}{phase}.{hint}"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.kind!r}, phase={self.phase!r}, "
            f"target={self.target!r}, {self.message!r})"
        )


class CallerFault(Fault):
    """The request cannot be served: the caller must change it. `status` is the HTTP status of our
    response.

    `code` and `param` are the provider's names of the problem and of the field with it, "" for
    none.
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
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        super().__init__(message, kind=kind, phase=phase, target=target, hint=hint)
        self.status = status
        self.excerpt = excerpt
        self.code = code
        self.param = param


def say(message: str) -> None:
    """Print one line on standard error, without secrets and with control characters escaped:
    clients choose some of the text. Never raises: standard error may be closed, or a file on a full
    disk."""
    with suppress(OSError, ValueError):
        print(f"splitsecond: {printable(redacted(message))}", file=sys.stderr, flush=True)


def cannot_write(where: Path | str, error: OSError) -> str:
    return f"cannot write to {where}: {error.strerror or error}"


@contextmanager
def file_faults(words: str, *, kind: str, hint: str = "") -> Iterator[None]:
    """Raise errors of the system, text that is not UTF-8, and a broken gzip file as `CallerFault`.

    Its message begins with `words`, such as "cannot read X".
    """
    try:
        yield
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        why = isinstance(error, OSError) and error.strerror
        raise CallerFault(f"{words}: {why or error}", kind=kind, hint=hint) from None


MAX_FILE_CHARACTERS = 2**24


def read_file(path: Path) -> str:
    """Return the text of a file. Raises `OSError` if it is a pipe or a device, which may never end,
    or too large."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(f"{path} is not a regular file")
    with path.open(encoding="utf-8") as file:
        text = file.read(MAX_FILE_CHARACTERS + 1)
    if len(text) > MAX_FILE_CHARACTERS:
        raise OSError(f"{path} has more than {MAX_FILE_CHARACTERS:,} characters")
    return text


PARSER_ERRORS = (ValueError, RecursionError, OverflowError, csv.Error)
"""What parsers raise for content that they cannot read: `ValueError`, and others that are not their
own."""


@contextmanager
def content_faults(place: str, *, kind: str, hint: str = "") -> Iterator[None]:
    """Raise what a parser raises for content that it cannot read as `CallerFault`.

    Its message begins with `place`, such as "runs/1/run.json". Only the call of a parser belongs
    into the block.
    """
    try:
        yield
    except PARSER_ERRORS as error:
        raise CallerFault(f"{place}: {parser_words(error)}", kind=kind, hint=hint) from None


def parser_words(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else excerpt(str(error))


class ProviderFault(Fault):
    """The provider's response is an error, or is invalid.

    `status` is its HTTP status (200 for an error within a stream), `excerpt` quotes it, and
    `retry_after_ns` is how long it asks us to wait (None: it gave no time).
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
    """The connection failed: name not found, refused, reset, certificate not trusted, closed too
    early."""


class TimedOut(Fault):
    """A deadline passed; `phase` tells which. `after_ns`: how long the request waited."""

    def __init__(
        self,
        message: str,
        *,
        phase: Phase,
        kind: str = "",
        target: str = "",
        hint: str = "",
        after_ns: int = 0,
    ) -> None:
        kind = kind or "timeout_" + phase.replace(" ", "_")
        super().__init__(message, kind=kind, phase=phase, target=target, hint=hint)
        self.after_ns = after_ns


class Overloaded(Fault):
    """We reject the call ourselves, at once, and send nothing. The phase is "queue".

    Kind "overloaded": a limit is reached. Kind "ejected": the target is down, or asked us to wait.
    `status` is the HTTP status of our response: 429 if the provider's rate limit is used up, 502 if
    the provider refused our key.
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


class InternalFault(Fault):
    """This program has failed. `internal_errors` reports the exception, which can quote a
    prompt."""

    def __init__(self, *, phase: Phase = "queue", target: str = "") -> None:
        super().__init__("the gateway has failed", kind="internal", phase=phase, target=target)


class AllFailed(Fault):
    """Every branch of a policy failed. `causes` are in the order of the tries; the first one
    determines the phase."""

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
