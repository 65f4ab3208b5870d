"""A child process that cannot start for a while: it is tried again, and the gateway goes on."""

import asyncio
import contextlib
import errno
import os
import socket
import tempfile
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from tests.waiting import until

from splitsecond.core import scratch
from splitsecond.core.child_process import ChildProcess
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.hub import process
from splitsecond.gateway.hub.messages import ToWorker
from splitsecond.gateway.hub.settings import HubSettings
from splitsecond.gateway.process.hub_process import HubProcess, gateway_folder
from splitsecond.gateway.records.metric_fields import MetricCounts
from splitsecond.gateway.records.metrics import AskMetrics, Metrics
from splitsecond.log.store.hub_connection import HubConnection, frame
from splitsecond.log.store.settings import LogSettings
from splitsecond.testing.virtual_time import run_virtual


def test_failed_start_is_retried_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried_s: list[float] = []

    async def start(*command: str, **options: object) -> ChildProcess:
        tried_s.append(asyncio.get_running_loop().time())
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    async def serve() -> None:
        kept = HubProcess(HubSettings(socket="hub", log=LogSettings("sqlite:///log.db")))
        async with kept.running():
            await asyncio.sleep(30)

    monkeypatch.setattr(ChildProcess, "start", start)
    run_virtual(serve())
    pauses_s = [round(after - before, 3) for before, after in pairwise(tried_s)]
    assert pauses_s == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith(
        "The hub cannot start: [Errno 11] Resource temporarily unavailable; it is tried again, "
        "and records wait for it."
    )


def test_missing_temporary_folder_gets_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    monkeypatch.setattr(scratch, "_MEMORY", Path("/nonexistent"))
    with (
        contextlib.ExitStack() as stack,
        pytest.raises(CallerFault, match="needs a temporary folder: No usable") as caught,
    ):
        gateway_folder(stack)
    assert "TMPDIR" in caught.value.hint


@pytest.mark.parametrize("is_patient", [True, False])
def test_hub_tries_again_until_its_log_can_be_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_patient: bool,
) -> None:
    monkeypatch.setattr(process, "RETRY_S", 0.01)
    if not is_patient:
        monkeypatch.setattr(process, "PATIENCE_NS", 0)
    tries: list[int] = []
    end, close = os.pipe()

    def begin() -> tuple[socket.socket, None]:
        tries.append(1)
        if len(tries) < 3:
            raise CallerFault("the log cannot be opened", kind="log_unavailable")
        listening.listen()
        return listening, None

    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as worker:
        listening.bind(str(tmp_path / "hub"))
        thread = threading.Thread(target=process.Hub(begin, end).run)
        thread.start()
        until(lambda: len(tries) == 3, "it gives up")
        until(lambda: not worker.connect_ex(str(tmp_path / "hub")), "nobody can connect")
        worker.shutdown(socket.SHUT_WR)
        assert worker.recv(1) == b""
        os.close(close)
        thread.join()
    os.close(end)
    words = "splitsecond: the log cannot be opened. Records wait for that.\n"
    assert capsys.readouterr().err == ("" if is_patient else words)


def test_hub_closes_a_connection_that_does_not_begin_with_hello(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end, close = os.pipe()
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as worker:
        listening.bind(str(tmp_path / "hub"))
        listening.listen()
        thread = threading.Thread(target=process.Hub(lambda: (listening, None), end).run)
        thread.start()
        worker.connect(str(tmp_path / "hub"))
        worker.sendall(frame(AskMetrics()))
        assert worker.recv(1) == b""
        os.close(close)
        thread.join()
    os.close(end)
    assert (
        "a worker sent what is no message (its first message is no Hello)"
        in capsys.readouterr().err
    )


def test_a_message_larger_than_the_socket_takes_arrives_whole(tmp_path: Path) -> None:
    """Each way: the metrics of a worker, and the answer to another that asks for them."""
    counts = MetricCounts(
        requests={("fast", f"client {each}", 200): each for each in range(50_000)}
    )
    end, close = os.pipe()

    async def main() -> None:
        one, two = (HubConnection(tmp_path / "hub", number, ToWorker) for number in range(2))
        metrics, other = Metrics(hub=one), Metrics(hub=two)
        other.counts.merge(counts)
        other._send()
        assert two.rest
        while two.rest:
            await asyncio.sleep(0)
            two.send(())

        async def arrived() -> bool:
            return (
                sum(each.counts.requests == counts.requests for each in await metrics.others()) == 1
            )

        while not await arrived():
            pass
        for each in (metrics, other):
            each.close()
        for connection in (one, two):
            connection.close()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "hub"))
        listening.listen()
        thread = threading.Thread(target=process.Hub(lambda: (listening, None), end).run)
        thread.start()
        asyncio.run(main())
        os.close(close)
        thread.join()
    os.close(end)
