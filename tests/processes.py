"""Processes that tests start: with default signals, and ended with their context whatever happens.

A suite that is started in the background (`nohup … &`, a script) ignores SIGINT and SIGHUP, and so
would its children.
"""

import contextlib
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, AnyStr

from tests.waiting import START_S, WITHIN_S

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Process(subprocess.Popen[AnyStr]):
    """A process with default signals, but for those in `ignored`. Leaving its context terminates
    it, then kills it."""

    def __init__(
        self,
        command: Sequence[str | bytes | Path],
        *,
        ignored: Sequence[signal.Signals] = (),
        **options: Any,
    ) -> None:
        with _inherited(ignored):
            super().__init__(command, **options)

    def read_line(self, within_s: float = START_S) -> AnyStr:
        """Return the next line of standard output, empty at its end. Fail if none comes in
        `within_s` seconds.

        The line is read in a thread, which a failing test leaves behind: a line may be in a buffer
        already, so it is no use to wait for the pipe.
        """
        assert self.stdout is not None
        found = queue.SimpleQueue[AnyStr]()
        threading.Thread(
            target=lambda out: found.put(out.readline()), args=[self.stdout], daemon=True
        ).start()
        try:
            return found.get(timeout=within_s)
        except queue.Empty:
            raise AssertionError(f"no line within {within_s} s from {self.args!r}") from None

    def __exit__(self, *raised: Any) -> None:
        if self.poll() is None:
            self.terminate()
            try:
                self.wait(WITHIN_S)
            except subprocess.TimeoutExpired:
                self.kill()
        super().__exit__(*raised)


@contextlib.contextmanager
def _inherited(ignored: Sequence[signal.Signals]) -> Iterator[None]:
    """Let processes that are started in this context ignore the signals `ignored`, and no other
    ones of `SIGNALS`.

    A signal with a handler is one with the default action in a new program, so nothing need run in
    the child.
    """
    before = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        for each, handler in before.items():
            if each in ignored:
                signal.signal(each, signal.SIG_IGN)
            elif handler == signal.SIG_IGN:
                signal.signal(each, lambda *_: None)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
