"""Real HTTP servers of tests, each in a thread: a function answers every request."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from msgspec import Struct


class Received(Struct, frozen=True):
    """A request. `headers` have names in lower case; `url` is that of the server."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    url: str


class Response(Struct, frozen=True):
    """A response; `headers` beside its length."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


@contextmanager
def http_server(respond: Callable[[Received], Response]) -> Iterator[str]:
    """Serve on a free port of 127.0.0.1 while the context is open. Yields the URL, without a slash
    at its end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            response = respond(Received(self.path, headers, body, url))
            self.send_response(response.status)
            for name, value in {
                **response.headers,
                "content-length": str(len(response.body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()
