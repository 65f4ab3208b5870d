"""Runs the simulator in a separate process for another program: a demo, a self-check, a test.

The simulator must not share a process with its client, because both would wait for the same
interpreter. It must not outlive the program, however that ends: it exits when its standard input
closes, whose other end only the program holds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from splitsecond.core.child_process import server_process
from splitsecond.core.errors import CallerFault, NetworkFault
from splitsecond.core.loading import module_command

CONTROL_S = 60.0
"""How long a request to the simulator itself may take, on a machine that is busy with other
tests."""
START_S = 120.0


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A request that a simulated provider has received.

    `api_format` is that of its path, "" for an unknown path. `body` is the value of its JSON, or
    text, or None. `status` is that of the response: 0 before it, and after a reset. `response_id`
    is "" if the request was rejected. Values of headers that hold keys are replaced.
    """

    number: int
    at: datetime
    method: str
    path: str
    query: str
    headers: dict[str, str]
    api_format: str
    body: Any
    model: str
    stream: bool
    status: int
    response_id: str


class RunningProvider(msgspec.Struct, frozen=True):
    """A simulated provider that is ready for requests, and the handle by which a test sets its
    replies."""

    name: str
    base_url: str
    model: str

    @property
    def origin(self) -> str:
        return self.base_url.removesuffix("/v1")

    def requests(self) -> list[ReceivedRequest]:
        """Return the requests since the start or the last `reset`, oldest first, at most 1,000."""
        return msgspec.json.decode(self._control("GET", "requests"), type=list[ReceivedRequest])

    def reply(self, text: str | None = None, **rule: Any) -> None:
        """Add a rule for replies, with the keys of ``[[replies]]``. The first that fits a request
        is used.

        Raises `CallerFault` for a rule that is wrong.
        """
        full_rule = {"text": text, **rule} if text is not None else rule
        self._control("POST", "replies", msgspec.json.encode(full_rule))

    def fail(self, status: int, *, times: int | None = None, **rule: Any) -> None:
        """Answer requests with an error in their API format: the next `times`, or all that fit the
        `rule`.

        `message`, `code`, `type` and `retry_after` belong to the error, all other keys to the rule.
        """
        details = {
            name: rule.pop(name)
            for name in ("message", "code", "type", "retry_after")
            if name in rule
        }
        if times is not None:
            rule["times"] = times
        self.reply(error={"status": status, **details}, **rule)

    def reset(self) -> None:
        """Forget all requests and all added rules, and count from the beginning again."""
        self._control("DELETE", "")

    def _control(self, method: str, path: str, body: bytes | None = None) -> bytes:
        import urllib.error  # slow to import, and only tests need it
        import urllib.request

        request = urllib.request.Request(
            f"{self.origin}/_splitsecond/{path}".rstrip("/"), body, method=method
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=CONTROL_S) as response:
                answer: bytes = response.read()
        except urllib.error.HTTPError as error:
            with error:
                message = msgspec.json.decode(error.read())["error"]["message"]
            raise CallerFault(message, kind="bad_reply") from None
        return answer


@contextmanager
def run_simulator(
    *profiles: str, seed: int = 0, log: Path | None = None
) -> Iterator[list[RunningProvider]]:
    """Serve `profiles` on free ports of this machine, in a process that runs while the context is
    open.

    Yields a `RunningProvider` for each profile, in order, when all are ready. Raises `NetworkFault`
    with the process's error output if they do not become ready.
    """
    command = [
        *module_command("splitsecond.simulator"),
        *profiles,
        "--port",
        "0",
        "--seed",
        str(seed),
    ]
    command.append("--until-eof")
    if log is not None:
        command += ["--log", str(log)]
    with server_process(command, lines=len(profiles), ready_s=START_S) as started:
        if len(started.lines) < len(profiles):
            ready = f"{len(started.lines)} of {len(profiles)} ready"
            raise NetworkFault(
                f"the simulator did not start ({ready}): {started.errors or 'no output'}",
                kind="simulator_failed",
                phase="connect",
            )
        yield [_read_ready(line) for line in started.lines]


def _read_ready(line: str) -> RunningProvider:
    _, name, url, model = line.split(" ", 3)
    return RunningProvider(name, url, model.removeprefix("model="))
