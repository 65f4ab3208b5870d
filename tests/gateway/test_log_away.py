"""A gateway whose log is in PostgreSQL, which is away when the gateway starts, and when it ends."""

import os
import signal
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import openai
import pytest
from tests.gateway.conftest import KEY, ServedGateway, gateway, heard, ready
from tests.gateway.test_served import ASK
from tests.gateway.test_supervisor import workers as children
from tests.store.server import Server
from tests.store.server import server as server
from tests.store.server import started_server as started_server
from tests.waiting import WITHIN_S, until

from splitsecond.core import clock
from splitsecond.gateway.hub.settings import MODULE
from splitsecond.log.store.log import Past

pytestmark = pytest.mark.system
CONFIGURATION = """
keys: [{{name: web, key: env:WEB_KEY}}]
providers: {{sim: {{base_url: {url}}}}}
routes: {{fast: {{policy: '"sim/quick"'}}}}
log: "{log}"
"""


@pytest.fixture
def log_url(server: Server) -> Iterator[str]:
    """A new database whose server is down."""
    url = server.database().replace(":unused-password", "")  # a configuration must not contain one
    server.stop()
    yield url
    server.ensure_running()


def call(base_url: str) -> str:
    """Make a call. Return its id."""
    with openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
        given = client.chat.completions.with_raw_response.create(
            model="fast", messages=ASK, max_tokens=2
        )
        return given.headers["x-request-id"]


def metric(base_url: str, name: str) -> float:
    """Return the sum of a metric over its labels."""
    with urllib.request.urlopen(
        base_url.removesuffix("/v1") + "/metrics", timeout=WITHIN_S
    ) as answer:
        lines = answer.read().decode().splitlines()
    begins = f"splitsecond_{name} ", f"splitsecond_{name}{{"
    values = [float(line.split()[-1]) for line in lines if line.startswith(begins)]
    assert any(line.startswith(f"# TYPE {begins[0]}") for line in lines), name
    return sum(values)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_records_wait_for_the_log_while_calls_are_served(
    server: Server, log_url: str, tmp_path: Path, served: ServedGateway, workers: str
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(
        CONFIGURATION.format(url=served.simulated.base_url, log=log_url)
    )
    with gateway(tmp_path, "--workers", workers) as process:
        base_url = ready(process)
        ids = [call(base_url) for _ in range(3)]
        assert "cannot write the log" in heard(process, "cannot write")
        until(
            lambda: metric(base_url, "log_failing") >= 1,
            "the metrics do not say that the log fails",
        )
        until(
            lambda: metric(base_url, "log_waiting") == len(ids),
            "the metrics do not count the records that wait",
        )
        server.start()
        assert "records lost so far: 0" in heard(process, "is written again")
        until(lambda: metric(base_url, "log_waiting") == 0, "the records are not written")
        until(
            lambda: metric(base_url, "log_failing") == 0, "the metrics still say that the log fails"
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    logged = [
        record.call
        for _, record in Past.open(log_url).calls(clock.wall_time() - timedelta(hours=1))
    ]
    assert sorted(logged) == sorted(ids)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_unwritten_records_are_logged_after_the_next_start(
    server: Server,
    log_url: str,
    tmp_path: Path,
    served: ServedGateway,
    workers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "tmp").mkdir()
    # where the records are kept, as they cannot be beside the log
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "splitsecond.yaml").write_text(
        CONFIGURATION.format(url=served.simulated.base_url, log=log_url)
    )
    with gateway(tmp_path, "--workers", workers) as process:
        base_url = ready(process)
        ids = [call(base_url) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        assert "kept in" in heard(process, "kept in")
        assert process.wait(WITHIN_S) == 0
    assert [*(tmp_path / "tmp").glob("splitsecond-log-*.unwritten-*")]
    server.start()
    with gateway(tmp_path, "--workers", workers) as process:
        ready(process)
        until(
            lambda: not [*(tmp_path / "tmp").glob("splitsecond-log-*")],
            "what was kept is not written",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    logged = [
        record.call
        for _, record in Past.open(log_url).calls(clock.wall_time() - timedelta(hours=1))
    ]
    assert sorted(logged) == sorted(ids)


def test_calls_of_a_gateway_killed_in_an_outage_are_logged_later(
    server: Server,
    log_url: str,
    tmp_path: Path,
    served: ServedGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its hub is killed as well, as if the machine had too little memory for both."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "splitsecond.yaml").write_text(
        CONFIGURATION.format(url=served.simulated.base_url, log=log_url)
    )

    def saved() -> bytes:
        return b"".join(file.read_bytes() for file in (tmp_path / "tmp").glob("splitsecond-log-*"))

    with gateway(tmp_path) as process:
        base_url = ready(process)
        ids = [call(base_url) for _ in range(3)]
        until(lambda: all(each.encode() in saved() for each in ids), "the calls are not saved")
        (pid,) = children(process, MODULE)
        os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait(WITHIN_S)
    server.start()
    with gateway(tmp_path) as process:
        ready(process)
        until(lambda: not saved(), "what was saved is not written")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    logged = [
        record.call
        for _, record in Past.open(log_url).calls(clock.wall_time() - timedelta(hours=1))
    ]
    assert sorted(logged) == sorted(ids)
