"""A headless Chromium that a test drives: its own protocol (DevTools) over a pipe, one JSON text
after another."""

import json
import os
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from tests.processes import Process
from tests.report.browser import BROWSERS, browser

PATIENCE_S = 180.0


class Page:
    """One page of it. `messages`: what the browser has logged, so far."""

    def __init__(self, to: int, back: int) -> None:
        self._to = to
        self._back = os.fdopen(back, "rb", buffering=0)
        self._number = 0
        self._session = ""
        self._rest = b""
        self.messages: list[str] = []
        (target,) = [
            each for each in self.says("Target.getTargets")["targetInfos"] if each["type"] == "page"
        ]
        attached = self.says("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.says(f"{domain}.enable")

    def says(self, method: str, **given: Any) -> Any:
        """What it answers to `method`."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        os.write(
            self._to,
            json.dumps({"id": self._number, "method": method, "params": given, **session}).encode()
            + b"\0",
        )
        while (message := self._next()).get("id") != self._number:
            if message.get("method") in (
                "Log.entryAdded",
                "Runtime.exceptionThrown",
                "Runtime.consoleAPICalled",
            ):
                self.messages.append(json.dumps(message["params"]))
        assert "error" not in message, message
        return message["result"]

    def value(self, expression: str) -> Any:
        """That of an expression on the page."""
        said = self.says(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The value, once it is true."""
        until = time.monotonic() + PATIENCE_S
        while not (value := self.value(expression)):
            assert time.monotonic() < until, (
                f"{expression} does not come true: {self.value('document.body.innerText')}"
            )
            self.value("new Promise(done => setTimeout(done, 50))")
        return value

    def open(self, url: str) -> None:
        """Goes there, and returns when all of it is there."""
        self.says("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def looks(self, width: int, theme: str) -> None:
        """As on a screen of that width, for somebody who likes that theme."""
        self.says(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.says("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """All of the page."""
        shown = self.says("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(b64decode(shown["data"]))

    def close(self) -> None:
        self._back.close()
        os.close(self._to)

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            data = self._back.read(1 << 16)
            assert data, "the browser has gone"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def driven(folder: Path) -> Iterator[Page]:
    """A browser, with its profile in `folder`."""
    program = browser()
    assert program, f"no browser found, expected one of these on PATH: {', '.join(BROWSERS)}"
    command = [
        program,
        "--headless",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ]
    command += [
        "--disable-background-networking",
        "--disable-component-update",
        "--no-proxy-server",
    ]
    command += [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []  # as root it will not start with one
    reads, to = os.pipe()
    back, writes = os.pipe()
    # It wants them as its files 3 and 4, and Python gives files on only under the numbers that they
    # have.
    moved = [
        "/bin/bash",
        "-c",
        f'exec "$@" 3<&{reads} 4>&{writes}',
        "chromium",
        *command,
        "about:blank",
    ]
    with Process[bytes](moved, pass_fds=(reads, writes), stdout=DEVNULL, stderr=DEVNULL):
        os.close(reads)
        os.close(writes)
        page = Page(to, back)
        try:
            yield page
        finally:
            page.close()
