"""The hub of a gateway: it is killed or stopped, and no call is missing in the log or in it
twice."""

import os
import signal
from datetime import timedelta
from pathlib import Path

import openai
import pytest
from tests.gateway.conftest import KEY, ServedGateway, gateway, heard, ready
from tests.gateway.test_log_away import metric
from tests.gateway.test_served import ASK
from tests.gateway.test_supervisor import workers
from tests.waiting import WITHIN_S, until

from splitsecond.core import clock
from splitsecond.gateway.hub.settings import MODULE
from splitsecond.log.store.log import Past

pytestmark = pytest.mark.system
CONFIGURATION = """
keys: [{{name: web, key: env:WEB_KEY}}]
providers: {{sim: {{base_url: {url}}}}}
routes: {{fast: {{policy: '"sim/quick"'}}}}
log: sqlite:///log.db
"""


def logged(log: Past) -> list[str]:
    """Return the ids of the calls in the log."""
    return [record.call for _, record in log.calls(clock.wall_time() - timedelta(hours=1))]


@pytest.mark.parametrize("number", ["1", "2"])
def test_a_hub_that_is_killed_loses_nothing(
    tmp_path: Path, served: ServedGateway, number: str
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(CONFIGURATION.format(url=served.simulated.base_url))
    ids: list[str] = []
    with gateway(tmp_path, "--workers", number) as process:
        url = ready(process)
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
            for _ in range(3):
                for _ in range(8):
                    given = client.chat.completions.with_raw_response.create(
                        model="fast", messages=ASK, max_tokens=2
                    )
                    ids.append(given.headers["x-request-id"])
                # the new one may not yet
                (pid,) = until(lambda: workers(process, MODULE), "no hub runs")
                os.kill(pid, signal.SIGKILL)
                assert "a new one replaces it" in heard(process, "The hub")
        until(lambda: metric(url, "requests_total") == len(ids), "the metrics lack calls")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    assert sorted(logged(Past.open(f"sqlite:///{tmp_path}/log.db"))) == sorted(ids)


def saved(folder: Path) -> bytes:
    """Return what is in files for the log."""
    return b"".join(file.read_bytes() for file in folder.glob("log.db.unwritten-*"))


def test_a_worker_that_dies_without_a_hub_loses_nothing(
    tmp_path: Path, served: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub is stopped and then killed with what it has not read. A folder in the place of its
    socket keeps others from starting."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "splitsecond.yaml").write_text(CONFIGURATION.format(url=served.simulated.base_url))
    with gateway(tmp_path, "--workers", "2") as process:
        with openai.OpenAI(
            base_url=ready(process), api_key=KEY, max_retries=0, timeout=WITHIN_S
        ) as client:
            create = client.chat.completions.with_raw_response.create

            def call() -> str:
                return create(model="fast", messages=ASK, max_tokens=2).headers["x-request-id"]

            (socket,) = until(lambda: [*tmp_path.glob("splitsecond-*/hub")], "no hub runs")
            (pid,) = workers(process, MODULE)
            os.kill(pid, signal.SIGSTOP)
            ids = [call() for _ in range(20)]
            socket.rename(socket.with_name("away"))
            socket.mkdir()
            os.kill(pid, signal.SIGKILL)
            ids += [call() for _ in range(20)]
            until(
                lambda: all(each.encode() in saved(tmp_path) for each in ids),
                "the calls are not saved",
            )
            for each in workers(process):
                os.kill(each, signal.SIGKILL)
            heard(process, "worker 0 ")
            heard(process, "cannot be created")  # the socket of the next hub
            socket.rmdir()
            until(lambda: not saved(tmp_path), "the calls are not written")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    assert sorted(logged(Past.open(f"sqlite:///{tmp_path}/log.db"))) == sorted(ids)


def test_a_hub_that_is_stopped_loses_nothing(tmp_path: Path, served: ServedGateway) -> None:
    """More calls come than the socket takes."""
    (tmp_path / "splitsecond.yaml").write_text(CONFIGURATION.format(url=served.simulated.base_url))
    ids: list[str] = []
    with gateway(tmp_path) as process:
        with openai.OpenAI(
            base_url=ready(process), api_key=KEY, max_retries=0, timeout=WITHIN_S
        ) as client:
            (pid,) = until(lambda: workers(process, MODULE), "no hub runs")
            os.kill(pid, signal.SIGSTOP)
            while not saved(tmp_path):
                assert len(ids) < 5000, "nothing is saved"
                for _ in range(20):
                    given = client.chat.completions.with_raw_response.create(
                        model="fast", messages=ASK, max_tokens=2
                    )
                    ids.append(given.headers["x-request-id"])
            os.kill(pid, signal.SIGCONT)
            until(lambda: not saved(tmp_path), "the calls are not written")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    assert sorted(logged(Past.open(f"sqlite:///{tmp_path}/log.db"))) == sorted(ids)


def test_last_calls_of_a_killed_gateway_are_in_the_log(
    tmp_path: Path, served: ServedGateway
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(CONFIGURATION.format(url=served.simulated.base_url))
    with gateway(tmp_path) as process:
        with openai.OpenAI(
            base_url=ready(process), api_key=KEY, max_retries=0, timeout=WITHIN_S
        ) as client:
            create = client.chat.completions.create
            create(model="fast", messages=ASK, max_tokens=2)
            log = Past.open(f"sqlite:///{tmp_path}/log.db")
            until(lambda: len(logged(log)) == 1, "the hub has not started")
            create(model="fast", messages=ASK, max_tokens=2)
            # takes 50 ms, so the call before has been sent
            create(model="fast", messages=ASK, max_tokens=20)
        process.kill()
        process.wait(WITHIN_S)
        until(lambda: len(logged(log)) >= 2, "the hub has not written what the gateway had sent")
