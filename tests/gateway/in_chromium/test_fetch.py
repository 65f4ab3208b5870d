"""A page in a browser that we did not write reads a stream from the gateway with `fetch`, while it
comes.

One small server is the page's own and the provider behind the gateway. The provider sends a chunk
only when the page has said that it has the one before: were a chunk held back anywhere, the page
would wait for ever.
"""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import KEY, gateway, ready
from tests.gateway.in_chromium.devtools import driven

pytestmark = pytest.mark.system

PATIENCE_S = 180.0
WORDS = ["one ", "two ", "three ", "four"]
PAGE = """<!doctype html><title>a page</title><iframe src="%(stranger)s"></iframe><script>
const tell = (what, value) => fetch("/" + what, {method: "POST", body: JSON.stringify(value)});
async function ask() {
  const reply = await fetch("%(gateway)s/chat/completions", {
    method: "POST",
    headers: {"content-type": "application/json", "authorization": "Bearer %(key)s",
      "x-splitsecond-task": "chat"},
    body: JSON.stringify({model: "%(model)s", stream: true,
      messages: [{role: "user", content: "hi"}]})});
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    text += next.value;
    await tell("got", text.split('"content":').length - 1);
  }
  return {status: reply.status, text, target: reply.headers.get("x-splitsecond-target")};
}
ask().then(found => tell("%(report)s", found), error => tell("%(report)s", {failed: error.name}));
</script>"""


class Outside(ThreadingHTTPServer):
    """The page's server, and the provider. `reports`: what the pages said in the end."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_address[1]
        self.gateway = ""
        self.received: queue.Queue[int] = queue.Queue()
        self.reports: queue.Queue[tuple[str, Any]] = queue.Queue()

    def page(self, *, stranger: bool) -> bytes:
        other = "about:blank" if stranger else f"http://localhost:{self.port}/stranger"
        report = "stranger" if stranger else "friend"
        values = {
            "gateway": self.gateway,
            "key": KEY,
            "model": "own/m",
            "report": report,
            "stranger": other,
        }
        return (PAGE % values).encode()


class Handler(BaseHTTPRequestHandler):
    server: Outside
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer("text/html", self.server.page(stranger=self.path == "/stranger"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/chat/completions"):
            self.stream()
            return
        if self.path == "/got":
            self.server.received.put(body)
        else:
            self.server.reports.put((self.path, body))
        self.answer("application/json", b"{}")

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for number, word in enumerate(WORDS, 1):
            self.chunk({"delta": {"content": word}, "finish_reason": None})
            while self.server.received.get(timeout=PATIENCE_S) < number:
                pass
        self.chunk({"delta": {}, "finish_reason": "stop"})
        self.wfile.write(b"data: [DONE]\n\n")

    def chunk(self, choice: dict[str, Any]) -> None:
        self.wfile.write(
            b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"
        )
        self.wfile.flush()

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads it."""


@contextmanager
def outside() -> Iterator[Outside]:
    with Outside() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_allowed_origin_reads_a_stream_and_other_origins_nothing(tmp_path: Path) -> None:
    with outside() as server:
        (tmp_path / "splitsecond.yaml").write_text(
            f"listen: {{cors: ['http://127.0.0.1:{server.port}']}}\n"
            "keys: [{name: web, key: env:WEB_KEY}]\n"
            f"providers: {{own: {{base_url: 'http://127.0.0.1:{server.port}/v1'}}}}\n"
        )
        with gateway(tmp_path) as process:
            server.gateway = ready(process)
            with driven(tmp_path) as page:
                page.open(f"http://127.0.0.1:{server.port}/")
                reports = dict(server.reports.get(timeout=PATIENCE_S) for _ in range(2))
    friend = reports["/friend"]
    assert (friend["status"], friend["target"]) == (200, "own/m")
    assert friend["text"].endswith("data: [DONE]\n\n")
    assert reports["/stranger"] == {"failed": "TypeError"}
