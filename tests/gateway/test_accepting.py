"""What happens when file descriptors run out: new clients wait, and the process goes on."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.gateway.conftest import gateway, heard, ready

from splitsecond.core import clock
from splitsecond.core.serving.accepting import REPEAT_NS, Accepting

LIMIT = 200
LIVE = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"
WAIT_S = 60.0


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Open so many of them."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


def test_last_quarter_of_descriptors_is_kept_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 1
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns)
    said: list[str] = []
    accepting = Accepting(1000, said.append)
    assert (accepting.admit(749), accepting.paused) == (True, False)
    for _ in range(5):
        assert (accepting.admit(750), accepting.paused) == (False, True)
    (words,) = said
    assert "750 of 1,000" in words
    assert "ulimit" in words
    now_ns += REPEAT_NS + 1
    assert not accepting.admit(750)
    assert len(said) == 2


def test_accepting_resumes_when_enough_descriptors_are_free() -> None:
    free = os.dup(0)
    os.close(free)
    # resumes at about 20 more than are open now
    accepting = Accepting(16 * (free + 20) // 11, print)
    assert accepting.may_resume()
    with descriptors(40):
        assert not accepting.may_resume()
    assert accepting.may_resume()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def answered(client: socket.socket) -> bytes:
    client.sendall(LIVE)
    return client.recv(4096)


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="reads the processor time of another process"
)
@pytest.mark.system
def test_new_clients_wait_while_descriptors_are_exhausted(tmp_path: Path) -> None:
    (tmp_path / "splitsecond.yaml").write_text(
        "providers: {sim: {base_url: http://127.0.0.1:1/v1}}\nroutes: {fast: {policy: "
        "'sim/quick'}}\n"
    )
    limited = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")
    with gateway(tmp_path, before=limited) as process, ExitStack() as stack:
        port = urlsplit(ready(process)).port or 0
        clients = [stack.enter_context(closing(connect(port))) for _ in range(2 * LIMIT)]
        assert "file descriptors are in use" in heard(process)
        assert b" 200 " in answered(clients[0])
        waits = stack.enter_context(closing(connect(port)))
        before_s = cpu_s(process.pid)
        waits.sendall(LIVE)
        waits.settimeout(1)
        with pytest.raises(TimeoutError):
            waits.recv(1)
        assert cpu_s(process.pid) - before_s < 0.5
        for each in clients:
            each.close()
        waits.settimeout(WAIT_S)
        assert b" 200 " in waits.recv(4096)
        assert b" 200 " in answered(stack.enter_context(closing(connect(port))))


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
