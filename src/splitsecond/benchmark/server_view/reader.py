"""The process that reads pages of metrics during a run: `python -m
splitsecond.benchmark.server_view.reader`.

Parsing a page takes milliseconds that a measuring process must not lose. The first line of the
standard input has the pages; each further line asks for a reading now. All pages are read once a
second, and each gives a line of output. A reading that was asked for ends with an empty line. The
process ends with its standard input.
"""

import os
import select
from concurrent.futures import ThreadPoolExecutor

import msgspec

from splitsecond.benchmark.server_view.engines import engines, values_of
from splitsecond.benchmark.server_view.gpus import Gpus
from splitsecond.benchmark.server_view.samples import ServerSample
from splitsecond.core import clock
from splitsecond.routing.configuration.discovery import LIST_ERRORS, fetch

EVERY_NS = clock.NS_PER_S
TIMEOUT_S = 1.0
MAX_PAGE = 8 << 20


class MetricsPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page to read. `engines`: those whose metrics it has; none: the GPUs of this machine.

    `headers` may have a key.
    """

    number: int
    engines: tuple[str, ...]
    url: str = ""
    headers: dict[str, str] = {}


class PageReader:
    """Reads one page. The GPUs are opened once."""

    def __init__(self, page: MetricsPage) -> None:
        self._page = page
        self._gpus: Gpus | None = None

    def read(self) -> ServerSample:
        begin_ns = clock.now_ns()
        values: dict[str, float] = {}
        failed = ""
        try:
            values = self._values()
        except LIST_ERRORS as error:
            failed = type(error).__name__
        middle_ns = (begin_ns + clock.now_ns()) // 2
        return ServerSample(source=self._page.number, at_ns=middle_ns, values=values, failed=failed)

    def _values(self) -> dict[str, float]:
        page = self._page
        if not page.engines:
            self._gpus = self._gpus or Gpus()
            return self._gpus.values()
        body = fetch(page.url, timeout_s=TIMEOUT_S, headers=page.headers, most=MAX_PAGE)
        text, values = body.decode("utf-8", "replace"), dict[str, float]()
        for name in page.engines:
            values |= values_of(text, engines()[name])
        return values


def main() -> None:
    received = b""
    # not by a buffered file, which would take later lines with the first
    while b"\n" not in received:
        if not (data := os.read(0, 1 << 16)):
            return
        received += data
    first, _, later = received.partition(b"\n")
    readers = [PageReader(page) for page in msgspec.json.decode(first, type=list[MetricsPage])]
    encoder = msgspec.json.Encoder()
    due_ns, requests = clock.now_ns(), later.count(b"\n")
    with ThreadPoolExecutor(len(readers)) as pool:
        while True:
            left_s = max(due_ns - clock.now_ns(), 0) / clock.NS_PER_S
            if select.select([0], [], [], left_s)[0]:
                if not (data := os.read(0, 4096)):
                    return
                requests += data.count(b"\n")
            due_ns = clock.now_ns() + EVERY_NS
            lines = [encoder.encode(sample) for sample in pool.map(PageReader.read, readers)]
            os.write(1, b"\n".join([*lines, *[b""] * requests, b""]))
            requests = 0
