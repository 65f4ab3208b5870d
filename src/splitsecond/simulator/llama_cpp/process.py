"""Runs the engine in a separate process: a context manager for tests and for the demo.

The engine must not outlive the program, however that ends: it reads from a pipe whose writing end
only the program holds, and exits when that is closed.
"""

import re
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Self

from splitsecond.core.child_process import ServerProcess, server_process
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault, ProviderFault, TimedOut, excerpt
from splitsecond.core.loading import module_command

NOT_INSTALLED = "llama.cpp's engine is not installed:"
INSTALL = "pip install 'splitsecond[engine]'"

MODELS = ("tiny", "small")
"""One for tests, and one for demonstrations, at a pace closer to that of a real endpoint."""

_READY = re.compile(r"READY (http://\S+)/v1 model=(\S+)")
_START_S = 120


def available() -> bool:
    return all(find_spec(package) for package in ("xllamacpp", "gguf"))


def unavailable_reason() -> str:
    """Return why the engine cannot run here, "" if it can. Loads llama.cpp, whose libraries small
    images lack."""
    if not available():
        return f"{NOT_INSTALLED} {INSTALL}"
    try:
        import_module("xllamacpp")
    except ImportError as error:
        return f"llama.cpp cannot be loaded: {error}. On Debian: apt-get install libgomp1."
    return ""


class EngineProcess:
    """One engine on a free port of 127.0.0.1, serving while the context is open.

    `model` is one of `MODELS`. `slots` requests are decoded at once, each with room for `context`
    tokens in and out; others wait. With `prompt_cache` a slot reuses the common prefix of its last
    prompt. With an `api_key` all requests except health checks need it.

    Entering takes a fraction of a second. It raises `CallerFault` if the engine is not installed,
    `ProviderFault` if it ends before it is ready, and `TimedOut` if it is not ready within 120 s.
    """

    def __init__(
        self,
        model: str = "tiny",
        *,
        slots: int = 8,
        context: int = 2048,
        prompt_cache: bool = False,
        api_key: str = "",
    ) -> None:
        self.address = ""
        """``http://127.0.0.1:PORT``, with /health, /slots and /metrics; "" until it is ready."""
        self.model = ""
        """The name of the served model; "" until it is ready."""
        self._command = [
            *module_command("splitsecond.simulator.llama_cpp"),
            "--until-eof",
            f"--model={model}",
        ]
        self._command += [f"--slots={slots}", f"--context={context}"]
        self._command += ["--prompt-cache"] if prompt_cache else []
        self._command += [f"--api-key={api_key}"] if api_key else []
        self.pid: int | None = None
        """The engine's process id; None if it does not run."""
        self._running = ExitStack()

    def __repr__(self) -> str:
        return f"<EngineProcess {self.base_url if self.address else 'stopped'}>"

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    def __enter__(self) -> Self:
        if not available():
            raise CallerFault(
                NOT_INSTALLED.removesuffix(":"), kind="engine_missing", hint=f"Try: {INSTALL}"
            )
        with ExitStack() as running:
            started = running.enter_context(server_process(self._command, ready_s=_START_S))
            self.address, self.model = self._ready(started)
            self.pid = started.pid
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.pid, self.address = None, ""
        self._running.close()

    def _ready(self, started: ServerProcess) -> tuple[str, str]:
        if not started.lines and started.code is None:
            raise TimedOut(
                f"the engine was not ready after {_START_S} s",
                phase="connect",
                after_ns=_START_S * NS_PER_S,
            )
        if ready := _READY.fullmatch("".join(started.lines)):
            return ready[1], ready[2]
        raise ProviderFault(
            f"the engine ended with exit code {started.code} before it was ready: "
            f"{excerpt(started.errors)}",
            kind="engine_failed",
            phase="connect",
        )
