"""Several workers, as processes: they start, die, are started again, take new settings, and end with their parent."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import openai
import pytest
from tests.gateway.conftest import KEY, Served, gateway, heard, ready
from tests.gateway.test_reload import answer, endless, models, refuses, replaced, rest, until, written
from tests.gateway.test_served import ASK

from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.gateway.process.ports import bound, url
from splitsecond.gateway.process.supervisor import frame, framed
from splitsecond.policy.expression import parse


@pytest.fixture
def folder(tmp_path: Path, served: Served) -> Path:
    (tmp_path / "splitsecond.yaml").write_text(written(served, "one"))
    return tmp_path


def workers(process: "subprocess.Popen[bytes]") -> list[int]:
    """The processes that `process` has started and that live."""
    try:
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        return []
    return [int(pid) for pid in found if lives(int(pid))]


def lives(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def answers(url: str, model: str = "one", count: int = 8) -> int:
    """How many of as many new connections are answered."""
    done = 0
    for _ in range(count):
        with answer(url, model, max_tokens=2) as found:
            done += b'"choices"' in found.read()
    return done


def test_a_worker_that_dies_is_replaced_and_all_take_new_settings(folder: Path, served: Served) -> None:
    with gateway(folder, "--workers", "3") as process:
        url = ready(process)
        first = workers(process)
        assert len(first) == 3
        assert answers(url) == 8
        os.kill(first[0], signal.SIGKILL)
        assert "worker " in heard(process, "was ended by SIGKILL; another takes its place")
        assert answers(url) == 8  # those that the kernel deals to the dead one's seat wait for the next in it
        until(lambda: len(workers(process)) == 3, "the worker is not replaced")
        assert first[0] not in workers(process)

        replaced(folder / "splitsecond.yaml", written(served, "two"))
        heard(process, "is in force: 1 route, 1 key")
        assert [models(url) for _ in range(12)] == [["two"]] * 12
        replaced(folder / "splitsecond.yaml", "routes: [")
        assert heard(process, "stays in force").count("line 1") == 1
        assert answers(url, "two") == 8

        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""  # READY is said once
    assert not any(map(lives, first))


def test_what_is_under_way_ends_when_it_is_told_to_stop(folder: Path) -> None:
    with gateway(folder, "--workers", "2") as process:
        url = ready(process)
        left = workers(process)
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=10) as client:
            streams = [
                iter(client.chat.completions.create(model="one", messages=ASK, stream=True, max_tokens=200))
                for _ in range(6)
            ]
            for stream in streams:
                next(stream)
            process.send_signal(signal.SIGINT)
            until(lambda: refuses(url), "it still takes connections")
            ended = [sum(bool(chunk.choices[0].delta.content) for chunk in stream) for stream in streams]
        assert set(ended) <= {199, 200}
        assert process.wait(10) == 0
    assert not any(map(lives, left))


def test_a_second_signal_ends_all_at_once(folder: Path) -> None:
    with gateway(folder, "--workers", "2") as process:
        url = ready(process)
        with endless(url) as answer:
            process.send_signal(signal.SIGTERM)
            until(lambda: refuses(url), "it still takes connections")
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            assert b"[DONE]" not in rest(answer)


def test_none_is_left_behind_when_the_parent_is_killed(folder: Path) -> None:
    with gateway(folder, "--workers", "2") as process:
        ready(process)
        left = workers(process)
        process.kill()
        until(lambda: not any(map(lives, left)), "a worker has outlived its parent")


def test_workers_that_die_before_they_answer_are_given_up(folder: Path) -> None:
    with gateway(folder, "--workers", "2") as process:
        ready(process)
        until(lambda: dies(process), "it is not given up", within_s=60)
        assert process.returncode == 1
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert "5 in a row died before they answered" in said
    assert "Traceback" not in said


def dies(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it has ended, now that whatever it had started is killed."""
    for pid in workers(process) if process.poll() is None else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return process.poll() is not None


def test_two_gateways_at_one_port_notice_each_other(folder: Path) -> None:
    with bound_at_a_free_port() as taken:
        port = str(taken.getsockname()[1])
        with gateway(folder, "--workers", "2", "--port", port) as process:
            _, err = process.communicate(timeout=20)
        assert process.returncode == 2
        assert b"cannot listen on 127.0.0.1:" + port.encode() in err
        assert b"Choose another with --port." in err


def bound_at_a_free_port() -> socket.socket:
    (taken,) = bound("127.0.0.1", 0)
    return taken


def test_sockets_of_one_address() -> None:
    sockets = bound("127.0.0.1", 0, 3)
    try:
        assert len({url(each) for each in sockets}) == 1
        with pytest.raises(CallerFault, match="cannot listen"):
            bound("127.0.0.1", sockets[0].getsockname()[1], 2)
    finally:
        for each in sockets:
            each.close()
    with pytest.raises(CallerFault, match=r"cannot listen on no\.such\.host"):
        bound("no.such.host", 0)


def test_settings_go_through_a_pipe_in_any_pieces() -> None:
    told = [Settings(routes={"a": parse('race("x/a", "y/b")')}), Settings(environment={"KEY": "value"})]
    data = b"".join(map(frame, told))
    for size in (1, 7, len(data)):
        held, found = bytearray(), []
        for at in range(0, len(data), size):
            held += data[at : at + size]
            while (each := framed(held)) is not None:
                found.append(each)
        assert found == told


def test_a_worker_that_cannot_be_built_says_why() -> None:
    (listening,) = bound("127.0.0.1", 0)
    with listening:
        settings = Settings(routes={"any": parse('"openai/x"')})
        seat = '{"number": 1, "workers": 2}'
        command = [sys.executable, "-m", "splitsecond.gateway", str(listening.fileno()), seat]
        ended = subprocess.run(
            command, input=frame(settings), capture_output=True, pass_fds=(listening.fileno(),), timeout=30
        )
    assert ended.returncode == 2
    assert ended.stdout.startswith(b"REFUSED routes.any.policy: no key for openai: OPENAI_API_KEY is not set")
    assert ended.stderr == b""
