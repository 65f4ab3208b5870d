"""A gateway of several workers whose disk fills up or whose temporary folder is removed: it serves,
and limits hold."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.gateway.conftest import KEY, ServedGateway, gateway, heard, ready
from tests.gateway.test_hub import logged
from tests.gateway.test_log_away import metric
from tests.gateway.test_served import ASK
from tests.gateway.test_supervisor import workers
from tests.noon import noon as noon  # a fixture
from tests.noon import noon_of_processes as noon_of_processes  # a fixture
from tests.waiting import WITHIN_S, until

from splitsecond.gateway.hub.settings import MODULE
from splitsecond.log.store.log import Past

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("noon_of_processes")]
SETTINGS = """
keys: [{{name: web, key: env:WEB_KEY, usd_per_day: 4}}]
providers: {{sim: {{base_url: {url}, price: {{input_usd: 0, output_usd: 1000}}}}}}
routes: {{fast: {{policy: '"sim/quick"'}}}}
log: sqlite:///{folder}/log.db
"""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 2 MiB, with the temporary folder of the processes that the test starts."""
    folder = Path(tempfile.mkdtemp())
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        assert "CI" not in os.environ, mounted.stderr
        pytest.skip("this user may not mount a file system")
    try:
        monkeypatch.setenv("TMPDIR", str(folder))
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


def fill(disk: Path) -> None:
    """Fill the disk, which programs on it may have freed a little of since the last time."""
    with (disk / "filling").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def configure(folder: Path, served: ServedGateway, log_folder: Path) -> None:
    (folder / "splitsecond.yaml").write_text(
        SETTINGS.format(url=served.simulated.base_url, folder=log_folder)
    )


def respond(url: str) -> None:
    """Make requests for chats and for responses, each on a connection of its own, so that all
    workers get some."""
    for _ in range(6):
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
            assert client.chat.completions.create(model="fast", messages=ASK, max_tokens=1).choices
            assert client.responses.create(model="fast", input="hi", max_output_tokens=1).output


def kill_in_flight(process: "subprocess.Popen[bytes]", url: str) -> None:
    """Kill the workers while a call that may cost 3 USD is in flight, and wait until it is
    charged."""
    before = workers(process)
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
        stream = iter(
            client.chat.completions.create(model="fast", messages=ASK, stream=True, max_tokens=3000)
        )
        next(stream)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
    heard(process, "The 3.000000 USD that they had reserved are charged. Calls in the log: 1.")


def is_refused(url: str) -> bool:
    """Return whether a call is refused that fits into the limit if the killed one is free."""
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
        try:
            client.chat.completions.create(model="fast", messages=ASK, max_tokens=1)
        except openai.RateLimitError:
            return True
    return False


def until_counted(disk: Path, url: str, name: str) -> None:
    """Make calls on the full disk until the metric `name` counts."""

    def is_counted() -> bool:
        fill(disk)
        respond(url)
        return metric(url, name) > 0

    until(is_counted, f"{name} remains 0")


def ended(process: "subprocess.Popen[bytes]") -> str:
    """End the gateway, and return what it has said."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    return said.decode()


def test_calls_and_spending_limits_continue_when_the_disk_fills(
    disk: Path, tmp_path: Path, served: ServedGateway
) -> None:
    configure(tmp_path, served, disk)
    with gateway(tmp_path, "--workers", "2") as process:
        url = ready(process)
        respond(url)
        fill(disk)
        respond(url)
        until(lambda: metric(url, "requests_total") == 24, "the metrics lack calls of a worker")
        kill_in_flight(process, url)
        fill(disk)
        respond(url)
        kill_in_flight(process, url)
        assert is_refused(url)
        assert "Traceback" not in ended(process)


@pytest.mark.parametrize("number", ["1", "2"])
def test_a_gateway_starts_and_serves_on_a_full_disk(
    disk: Path, tmp_path: Path, served: ServedGateway, number: str
) -> None:
    configure(tmp_path, served, disk)
    fill(disk)
    with gateway(tmp_path, "--workers", number) as process:
        url = ready(process)
        until_counted(disk, url, "journal_missing_total")
        said = ended(process)
    assert "The journal of calls in flight cannot be written: No space left on device." in said
    assert "cannot write the log" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("number", ["1", "2"])
def test_a_gateway_starts_and_serves_with_a_read_only_log(
    disk: Path, tmp_path: Path, served: ServedGateway, number: str
) -> None:
    configure(tmp_path, served, disk)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with gateway(tmp_path, "--workers", number) as process:
        url = ready(process)
        respond(url)
        if number != "1":
            kill_in_flight(process, url)
        respond(url)
        said = ended(process)
    assert "records not written" in said
    assert "Traceback" not in said


def test_calls_lost_with_a_worker_and_the_hub_are_counted(
    disk: Path, tmp_path: Path, served: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    configure(tmp_path, served, disk)
    with gateway(tmp_path, "--workers", "2") as process:
        url = ready(process)
        fill(disk)
        for _ in range(5):
            respond(url)
        heard(process, "what waits cannot be saved")
        for pid in workers(process):
            os.kill(pid, signal.SIGKILL)
            heard(process, "was ended by SIGKILL")
        respond(url)
        (pid,) = workers(process, MODULE)
        os.kill(pid, signal.SIGKILL)
        heard(process, "its last records for the log are lost")
        respond(url)
        (disk / "filling").unlink()
        log = Past.open(f"sqlite:///{disk}/log.db")
        until(
            lambda: len(logged(log)) + metric(url, "log_dropped_total") == 84,
            "calls are neither logged nor counted",
        )
        assert "Traceback" not in ended(process)


def test_limits_hold_without_the_temporary_folder(
    tmp_path: Path, disk: Path, served: ServedGateway
) -> None:
    configure(tmp_path, served, tmp_path)
    with gateway(tmp_path, "--workers", "2") as process:
        url = ready(process)
        (scratch,) = disk.glob("splitsecond-*")
        shutil.rmtree(scratch)
        respond(url)
        kill_in_flight(process, url)
        respond(url)
        kill_in_flight(process, url)
        assert is_refused(url)
        assert "Traceback" not in ended(process)
