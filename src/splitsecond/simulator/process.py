"""Simulated providers in a process of their own, for another program: a demo, a self-check, a test.

The simulator must not share a process with what measures it: both would wait for the same interpreter. It must not
outlive us, however we end: it leaves when its standard input closes, whose other end only we hold. It runs in a session
of its own, so Ctrl-C at the terminal reaches us alone, and we decide what is finished before it is stopped.
"""

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from splitsecond import clock
from splitsecond.errors import NetworkFault

START_NS = 30 * clock.NS_PER_S
STOP_S = 5.0


class Running(msgspec.Struct, frozen=True):
    """A simulated provider that answers. `origin` is its address without ``/v1``: where ``/truth`` is."""

    name: str
    base_url: str
    model: str

    @property
    def origin(self) -> str:
        """The base URL without its path."""
        return self.base_url.removesuffix("/v1")


@contextmanager
def running(*profiles: str, seed: int = 0, log: Path | None = None) -> Iterator[list[Running]]:
    """Start a process that serves `profiles` on free ports of this machine; stop it at the end.

    Gives one `Running` for each, in order, as soon as all answer. Raises `NetworkFault` with what the process said,
    if they do not.
    """
    command = [
        sys.executable,
        "-m",
        "splitsecond.simulator",
        *profiles,
        "--port",
        "0",
        "--seed",
        str(seed),
        "--until-eof",
    ]
    if log is not None:
        command += ["--log", str(log)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        ) as process,
    ):
        try:
            lines = _first_lines(process, len(profiles))
            if len(lines) < len(profiles):
                errors.seek(0)
                said = errors.read().decode("utf-8", "replace").strip()
                raise NetworkFault(
                    f"the simulator did not start ({len(lines)} of {len(profiles)} answer): {said or 'not a word'}",
                    kind="simulator_failed",
                    phase="connect",
                )
            yield [_read_ready(line) for line in lines]
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _first_lines(process: "subprocess.Popen[bytes]", count: int) -> Sequence[str]:
    """The first `count` lines that the process prints; fewer, if it ends or takes too long."""
    if process.stdout is None:
        raise ValueError("the process has no pipe")
    pipe = process.stdout.fileno()
    deadline_ns = clock.now_ns() + START_NS
    said = b""
    while said.count(b"\n") < count:
        left_ns = deadline_ns - clock.now_ns()
        if left_ns <= 0 or not select.select([pipe], [], [], left_ns / clock.NS_PER_S)[0]:
            break
        data = os.read(pipe, 65536)
        if not data:
            break
        said += data
    return [line.decode() for line in said.split(b"\n")[:-1]][:count]


def _read_ready(line: str) -> Running:
    _, name, url, model = line.split(" ", 3)
    return Running(name, url, model.removeprefix("model="))
