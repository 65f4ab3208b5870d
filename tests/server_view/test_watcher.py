"""The process that reads pages during a run: what it passes on, and what happens when it ends."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.http_server import Received, Response, http_server
from tests.waiting import WITHIN_S

from splitsecond.benchmark.server_view import watcher as watcher_module
from splitsecond.benchmark.server_view.reader import MetricsPage
from splitsecond.benchmark.server_view.samples import ServerSample
from splitsecond.benchmark.server_view.watcher import READER_COMMAND, ServerWatcher

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the process time to start on a busy machine."""
    monkeypatch.setattr(watcher_module, "EDGE_S", WITHIN_S)


PAGE = (Path(__file__).parent / "pages/vllm.txt").read_bytes()


def read_twice(
    page: MetricsPage, command: Sequence[str] = READER_COMMAND, ends: list[str] | None = None
) -> list[ServerSample]:
    """The samples that have come when two readings were asked for, one after another; `ends` gets
    why they ended."""
    samples: list[ServerSample] = []
    ends = [] if ends is None else ends

    async def watch() -> list[ServerSample]:
        watcher = ServerWatcher([page], samples.append, ends.append, command)
        async with asyncio.timeout(WITHIN_S), watcher:
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
            MetricsPage(
                number=3, engines=("vllm",), url=f"{url}/metrics", headers={"authorization": "k"}
            )
        )
    assert len(samples) >= 2
    assert {(each.source, each.values["output_tokens"], each.failed) for each in samples} == {
        (3, 7132, "")
    }
    assert [each.at_ns for each in samples] == sorted(each.at_ns for each in samples)
    assert {each.headers["authorization"] for each in received} == {"k"}


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/metrics", ""])
def test_page_that_cannot_be_read_is_a_sample_without_values(system: None, url: str) -> None:
    """An address where nothing listens, and the GPUs of a machine without any."""
    samples = read_twice(MetricsPage(number=0, engines=("vllm",) if url else (), url=url))
    assert {(bool(each.values), bool(each.failed)) for each in samples} == {(False, True)}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((sys.executable, "-c", "pass"), "metrics are no longer read: process"),
        (
            ("/no/such/program",),
            "the process that reads metrics cannot be started: No such file or directory",
        ),
    ],
)
def test_run_goes_on_when_nothing_reads(system: None, command: Sequence[str], words: str) -> None:
    ends: list[str] = []
    page = MetricsPage(number=0, engines=("vllm",), url="http://127.0.0.1:9/metrics")
    assert read_twice(page, command, ends) == []
    assert [end[: len(words)] for end in ends] == [words]


def test_watcher_without_pages_starts_no_process() -> None:
    async def watch() -> None:
        async with ServerWatcher([], lambda sample: None, command=("no-such-program",)) as watcher:
            await watcher.read_now()

    asyncio.run(watch())
