"""Messages to a service manager, received on a socket such as systemd's."""

import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.conftest import gateway
from tests.waiting import WITHIN_S

from splitsecond.gateway.process.service_manager import ServiceManager

PATIENCE_S = 180


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(str(tmp_path / "notify"))
        receiving.settimeout(PATIENCE_S)
        yield receiving


def test_messages_are_ready_reloading_and_stopping(channel: socket.socket) -> None:
    manager = ServiceManager(pytest.fail, {"NOTIFY_SOCKET": channel.getsockname()})
    manager.ready()
    manager.reloading()
    manager.stopping()
    received = [channel.recv(200).decode() for _ in range(3)]
    assert (received[0], received[2]) == ("READY=1", "STOPPING=1")
    assert received[1].startswith("RELOADING=1\nMONOTONIC_USEC=")


def test_messages_without_a_service_manager_are_ignored() -> None:
    ServiceManager(pytest.fail, {}).ready()


def test_manager_that_does_not_read_gets_later_messages(channel: socket.socket) -> None:
    said: list[str] = []
    manager = ServiceManager(said.append, {"NOTIFY_SOCKET": channel.getsockname()})
    while not said:
        manager.ready()
    while channel.recv(200) and select.select([channel], [], [], 0)[0]:
        pass
    manager.stopping()
    assert channel.recv(200) == b"STOPPING=1"
    assert len(said) == 1


def test_unreachable_manager_is_reported_once(tmp_path: Path) -> None:
    said: list[str] = []
    manager = ServiceManager(said.append, {"NOTIFY_SOCKET": str(tmp_path / "nothing")})
    manager.ready()
    manager.ready()
    assert len(said) == 1
    assert "cannot be reached" in said[0]


@pytest.mark.parametrize(
    ("address", "dashboard", "line"),
    [
        ("127.0.0.1:8800", True, "READY http://127.0.0.1:8800/v1 dashboard=http://127.0.0.1:8800"),
        ("0.0.0.0:8800", True, "READY http://0.0.0.0:8800/v1 dashboard=http://127.0.0.1:8800"),
        ("[::]:8800", True, "READY http://[::]:8800/v1 dashboard=http://[::1]:8800"),
        ("127.0.0.1:8800", False, "READY http://127.0.0.1:8800/v1"),
    ],
)
def test_ready_names_the_dashboard_if_there_is_one(
    capfd: pytest.CaptureFixture[str], address: str, dashboard: bool, line: str
) -> None:
    ServiceManager(pytest.fail, {}).announce(f"http://{address}/v1", dashboard=dashboard)
    assert capfd.readouterr().out == f"{line}{'/dashboard' if dashboard else ''}\n"


@pytest.mark.system
@pytest.mark.parametrize("number", ["1", "2"])
def test_a_gateway_under_a_service_manager(
    tmp_path: Path, channel: socket.socket, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", channel.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    (tmp_path / "splitsecond.yaml").write_text("routes: {}")

    def heard(message: str) -> None:
        while not channel.recv(200).decode().startswith(message):
            pass

    with gateway(tmp_path, "--workers", number) as process:
        heard("READY=1")
        heard("WATCHDOG=1")
        os.kill(process.pid, signal.SIGHUP)
        heard("RELOADING=1")
        heard("READY=1")
        process.terminate()
        heard("STOPPING=1")
        assert process.wait(WITHIN_S) == 0
