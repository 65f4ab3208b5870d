"""Decides by the free file descriptors when a server accepts new connections.

A new descriptor gets the lowest free number, so the number tells how many are in use. Above a limit
new clients wait in the kernel's queue, which leaves descriptors for connections to providers, for
the log and for files. Without that, a full process cannot answer the clients it has, and an accept
that fails is tried again at once, for ever.
"""

import os
from collections.abc import Callable

from splitsecond.core import clock

MAX_FILES = 131_072
"""The limit of open files that the gateway requests: a stream takes two, one to the client and one
to the provider."""
_RESERVED_SHARE = 4
"""One descriptor in this many is reserved: client connections do not get it."""
_SLACK_SHARE = 16
"""One descriptor in this many must become free before accepting resumes, so that it does not
alternate all the time."""
REPEAT_NS = 600 * clock.NS_PER_S
"""The shortest time between two messages to the operator."""


class Accepting:
    def __init__(self, limit: int, say: Callable[[str], None]) -> None:
        self.paused = False
        self._limit = limit
        self._max_number = limit - limit // _RESERVED_SHARE
        self._resume_number = self._max_number - limit // _SLACK_SHARE
        self._say = say
        self._message_ns: int | None = None

    def admit(self, number: int) -> bool:
        if number < self._max_number:
            return True
        self.paused = True
        now_ns = clock.now_ns()
        if self._message_ns is None or now_ns - self._message_ns > REPEAT_NS:
            self._message_ns = now_ns
            self._say(
                f"{number:,} of {self._limit:,} file descriptors are in use: new clients wait "
                f"until some are closed. "
                "Raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd) or run more workers."
            )
        return False

    def may_resume(self) -> bool:
        try:
            number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        os.close(number)
        return number < self._resume_number
