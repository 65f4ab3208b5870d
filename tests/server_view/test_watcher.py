"""The process that reads pages during a run: what it passes on, and what happens when it ends."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.http_server import Received, Response, http_server
from tests.waiting import WITHIN_S

from splitsecond.benchmark.server_view.reader import MetricsPage
from splitsecond.benchmark.server_view.samples import ServerSample
from splitsecond.benchmark.server_view.watcher import READER_COMMAND, ServerWatcher

pytestmark = pytest.mark.system

PAGE = (Path(__file__).parent / "pages/vllm.txt").read_bytes()


def read_twice(page: MetricsPage, command: Sequence[str] = READER_COMMAND) -> list[ServerSample]:
    """The samples that have come when two readings were asked for, one after another."""
    samples: list[ServerSample] = []

    async def watch() -> list[ServerSample]:
        async with asyncio.timeout(WITHIN_S), ServerWatcher([page], samples.append, command) as watcher:
            await watcher.read_now()
            await watcher.read_now()
            return list(samples)

    return asyncio.run(watch())


def test_reading_that_was_asked_for_has_come_when_it_returns(system: None) -> None:
    received: list[Received] = []

    def respond(request: Received) -> Response:
        received.append(request)
        return Response(PAGE)

    with http_server(respond) as url:
        samples = read_twice(
            MetricsPage(number=3, engines=("vllm",), url=f"{url}/metrics", headers={"authorization": "k"})
        )
    assert len(samples) >= 2
    assert {(each.source, each.values["output_tokens"], each.failed) for each in samples} == {(3, 7132, "")}
    assert [each.at_ns for each in samples] == sorted(each.at_ns for each in samples)
    assert {each.headers["authorization"] for each in received} == {"k"}


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/metrics", ""])
def test_page_that_cannot_be_read_is_a_sample_without_values(system: None, url: str) -> None:
    """An address where nothing listens, and the GPUs of a machine without any."""
    samples = read_twice(MetricsPage(number=0, engines=("vllm",) if url else (), url=url))
    assert {(bool(each.values), bool(each.failed)) for each in samples} == {(False, True)}


def test_run_goes_on_when_the_reader_ends(system: None) -> None:
    page = MetricsPage(number=0, engines=("vllm",), url="http://127.0.0.1:9/metrics")
    assert read_twice(page, (sys.executable, "-c", "pass")) == []


def test_watcher_without_pages_starts_no_process() -> None:
    async def watch() -> None:
        async with ServerWatcher([], lambda sample: None, ("no-such-program",)) as watcher:
            await watcher.read_now()

    asyncio.run(watch())
