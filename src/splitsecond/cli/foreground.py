"""A program that runs in the foreground in our place: it has the terminal, and gets our signals.

Both are in one process group, so signals of the terminal (Ctrl-C, Ctrl-Z, its size) reach the
program without us. We outlive them by handlers that do nothing, because the program would inherit
ignored signals. Other signals are passed on. If the program stops itself, we stop too, so that the
shell gets the terminal.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType

from splitsecond.core.errors import CallerFault

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell for a program that cannot be started."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class CannotStart(CallerFault):
    """The program cannot be started. `exit_code`: that of a shell."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message, kind="program_not_started")
        self.exit_code = exit_code


def run_in_foreground(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `command` and return its exit code, or 128 plus the number of the signal that ended it.

    Raises `CannotStart`.
    """
    process: subprocess.Popen[bytes] | None = None
    pending: list[int] = []
    shared = _in_foreground()

    def pass_on(number: int, _: FrameType | None) -> None:
        if number in _OF_TERMINAL and shared:
            return  # the terminal sends them to the program as well
        if process is None:
            pending.append(number)
        elif process.returncode is None:
            os.kill(process.pid, number)

    before = {number: signal.signal(number, pass_on) for number in (*_OF_TERMINAL, *_PASSED_ON)}
    try:
        process = subprocess.Popen(command, env=environment)
        for number in pending:
            os.kill(process.pid, number)
        return _wait(process)
    except FileNotFoundError:
        raise CannotStart(f"{command[0]}: the program was not found", NOT_FOUND) from None
    except OSError as error:
        raise CannotStart(f"{command[0]}: {error.strerror or error}", NOT_EXECUTABLE) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether the terminal sends its signals to our process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # the process has no terminal
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def _wait(process: "subprocess.Popen[bytes]") -> int:
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            # the shell continues the group, and so the program
            os.kill(os.getpid(), signal.SIGSTOP)
            continue
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        return code if code >= 0 else 128 - code
