"""Starts the engine as a process of its own and stops it: a context manager for tests and for the demo.

The engine must not outlive us, however we end: it holds the reading end of a pipe whose writing end only we hold, and
leaves when that closes. It runs in a session of its own, so Ctrl-C at the terminal reaches us alone, and we decide
what is finished before the engine is stopped.
"""

import re
import select
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from types import TracebackType
from typing import IO, Self

from splitsecond.clock import NS_PER_S
from splitsecond.errors import CallerFault, ProviderFault, TimedOut, excerpt

NOT_INSTALLED = "llama.cpp's engine is not installed here:"
INSTALL = "pip install 'splitsecond[engine]'"

MODELS = ("tiny", "small")
"""For tests; and for a demonstration, at a pace nearer to that of a real endpoint."""

_READY = re.compile(r"READY (http://\S+)/v1 model=(\S+)\n")
_START_S = 30
_STOP_S = 5


def available() -> bool:
    """Whether the packages of the extra ``splitsecond[engine]`` are installed."""
    return all(find_spec(package) for package in ("xllamacpp", "gguf"))


class EngineProcess:
    """One engine on a free port of 127.0.0.1, serving while the context is open.

    `model` is one of `MODELS`. `slots` requests are decoded at once, each with room for `context` tokens in and out;
    others wait. With `prompt_cache` a slot reuses what it already knows of a prompt, with an `api_key` all but health
    checks need it.

    Entering takes a fraction of a second, and raises `CallerFault` where the engine is not installed,
    `ProviderFault` where it ends before it answers, `TimedOut` where it does not answer within 30 s.
    """

    def __init__(
        self, model: str = "tiny", *, slots: int = 8, context: int = 2048, prompt_cache: bool = False, api_key: str = ""
    ) -> None:
        self.address = ""
        """``http://127.0.0.1:PORT``, where /health, /slots and /metrics are; "" until it answers."""
        self.model = ""
        """The name that the engine serves its model by; "" until it answers."""
        self._command = [sys.executable, "-m", "splitsecond.testing.engine", "--until-eof", f"--model={model}"]
        self._command += [f"--slots={slots}", f"--context={context}"]
        self._command += ["--prompt-cache"] if prompt_cache else []
        self._command += [f"--api-key={api_key}"] if api_key else []
        self._process: subprocess.Popen[str] | None = None

    def __repr__(self) -> str:
        return f"<EngineProcess {self.base_url if self.address else 'stopped'}>"

    @property
    def base_url(self) -> str:
        """The base URL for OpenAI clients."""
        return f"{self.address}/v1"

    @property
    def pid(self) -> int | None:
        """The engine's process id; None while it does not run."""
        return self._process.pid if self._process else None

    def __enter__(self) -> Self:
        if not available():
            raise CallerFault(NOT_INSTALLED.removesuffix(":"), kind="engine_missing", hint=f"Try: {INSTALL}")
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,
            )
            try:
                self.address, self.model = self._ready(self._process, complaints)
            except BaseException:
                self.stop()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the engine, open requests and all, and wait until it is gone. Stopping again does nothing."""
        process, self._process, self.address = self._process, None, ""
        if process is None:
            return
        process.terminate()
        try:
            process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def _ready(self, process: subprocess.Popen[str], complaints: IO[str]) -> tuple[str, str]:
        """The engine's address and model, from the one line that it prints."""
        assert process.stdout
        readable, _, _ = select.select([process.stdout], [], [], _START_S)
        if not readable:
            raise TimedOut(
                f"the engine was not ready after {_START_S} s", phase="connect", after_ns=_START_S * NS_PER_S
            )
        line = process.stdout.readline()  # written at once, so it is whole; "" if the engine ended
        if ready := _READY.fullmatch(line):
            return ready[1], ready[2]
        process.wait(_STOP_S)
        complaints.seek(0)
        raise ProviderFault(
            f"the engine ended with exit code {process.returncode} before it was ready: {excerpt(complaints.read())}",
            kind="engine_failed",
            phase="connect",
        )
