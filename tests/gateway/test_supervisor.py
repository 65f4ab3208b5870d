"""Several workers, as processes: they start, die, are started again, take new settings, and end
with their parent."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import openai
import pytest
from msgspec import structs
from tests.gateway.conftest import KEY, ServedGateway, gateway, heard, ready
from tests.gateway.test_reload import answer, endless, models, refuses, replaced, rest, written
from tests.gateway.test_served import ASK
from tests.gateway.test_settings import ENVIRONMENT, GOOD
from tests.waiting import WITHIN_S, until

from splitsecond.core.errors import CallerFault
from splitsecond.core.serving.listening import base_url, bind
from splitsecond.gateway.process.reload import ConfigSource
from splitsecond.gateway.process.slot import WorkerSlot
from splitsecond.gateway.process.supervisor import Supervisor
from splitsecond.routing.configuration.defaults import unconfigured
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.configuration.settings import GatewaySettings, decode, encode
from splitsecond.routing.construction.expression import LONGEST, parse
from splitsecond.testing.virtual_time import run_virtual


@pytest.fixture
def folder(tmp_path: Path, served: ServedGateway) -> Path:
    (tmp_path / "splitsecond.yaml").write_text(written(served, "one"))
    return tmp_path


def workers(process: "subprocess.Popen[bytes]", module: str = "splitsecond.gateway") -> list[int]:
    """The living processes that `process` has started and that run `module`."""
    try:
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        return []
    return [int(pid) for pid in found if lives(int(pid)) and module in command_of(int(pid))]


def command_of(pid: int) -> list[str]:
    """Return the command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


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


def test_dead_worker_is_replaced_and_all_take_new_settings(
    folder: Path, served: ServedGateway
) -> None:
    with gateway(folder, "--workers", "3") as process:
        url = ready(process)
        first = workers(process)
        assert len(first) == 3
        assert answers(url) == 8
        os.kill(first[0], signal.SIGKILL)
        assert "worker " in heard(process, "was ended by SIGKILL; a new one replaces it")
        assert answers(url) == 8  # connections of the dead worker wait for its replacement
        until(lambda: len(workers(process)) == 3, "the worker is not replaced")
        assert first[0] not in workers(process)

        replaced(folder / "splitsecond.yaml", written(served, "two"))
        heard(process, "is loaded: 1 route, 1 key")
        assert [models(url) for _ in range(12)] == [["two"]] * 12
        replaced(folder / "splitsecond.yaml", "routes: [")
        assert heard(process, "keeps running").count("line 1") == 1
        assert answers(url, "two") == 8

        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""  # READY is printed once
    assert not any(map(lives, first))


@pytest.mark.system
def test_streams_in_flight_end_normally_after_sigint(folder: Path) -> None:
    with gateway(folder, "--workers", "2") as process:
        url = ready(process)
        left = workers(process)
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
            streams = [
                iter(
                    client.chat.completions.create(
                        model="one", messages=ASK, stream=True, max_tokens=200
                    )
                )
                for _ in range(6)
            ]
            for stream in streams:
                next(stream)
            process.send_signal(signal.SIGINT)
            until(lambda: refuses(url), "it still takes connections")
            ended = [
                sum(bool(chunk.choices[0].delta.content) for chunk in stream) for stream in streams
            ]
        assert set(ended) <= {199, 200}
        assert process.wait(WITHIN_S) == 0
    assert not any(map(lives, left))


@pytest.mark.system
def test_second_sigterm_ends_a_gateway_with_a_stream_in_flight(folder: Path) -> None:
    with gateway(folder, "--workers", "2") as process:
        url = ready(process)
        with endless(url) as answer:
            process.send_signal(signal.SIGTERM)
            until(lambda: refuses(url), "it still takes connections")
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0
            assert b"[DONE]" not in rest(answer)


@pytest.mark.system
def test_workers_end_when_their_parent_is_killed(folder: Path) -> None:
    with gateway(folder, "--workers", "2") as process:
        ready(process)
        left = workers(process)
        process.kill()
        until(lambda: not any(map(lives, left)), "a worker has outlived its parent")


@pytest.mark.system
def test_gateway_ends_if_workers_die_before_any_is_ready(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path_factory.mktemp("broken")
    (broken / "sitecustomize.py").write_text(
        "import os, sys\nif 'splitsecond.gateway' in sys.orig_argv:\n    os._exit(3)\n"
    )
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(broken), os.environ.get("PYTHONPATH", "")])
    )
    with gateway(folder, "--workers", "2") as process:
        out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out) == (1, b"")
    assert "ended with exit code 3; 5 in a row died before they were ready" in err.decode()
    assert "Traceback" not in err.decode()


@pytest.mark.system
@pytest.mark.parametrize("number", ["1", "2"])
def test_file_that_is_no_log_is_refused_in_one_sentence(folder: Path, number: str) -> None:
    (folder / "notes.txt").write_text("not a database, and longer than the header of one" * 20)
    with (folder / "splitsecond.yaml").open("a") as file:
        file.write("log: sqlite:///notes.txt\n")
    with gateway(folder, "--workers", number) as process:
        out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out) == (2, b"")
    (line,) = err.decode().splitlines()
    assert line.endswith(
        "notes.txt: file is not a database. Move the file away, or name another log."
    )


class Dying(Supervisor):
    """Workers without a process: each lives for a time, and has answered or not. The service ends
    after the last."""

    def __init__(self, spans: Sequence[tuple[float, bool]], listening: socket.socket) -> None:
        super().__init__(ConfigSource(None, {}), GatewaySettings(), [listening], [WorkerSlot()])
        self._spans = list(spans)
        self.began_s: list[float] = []

    async def _run_worker(self, slot: WorkerSlot, listening: socket.socket) -> tuple[str, bool]:
        self.began_s.append(asyncio.get_running_loop().time())
        lived_s, answered = self._spans.pop(0)
        if answered:
            self._been_ready.add(slot.number)
        await asyncio.sleep(lived_s)
        if not self._spans:
            self._ending.set()
        return "was ended by SIGKILL", answered

    def pauses_s(self, spans: Sequence[tuple[float, bool]]) -> list[float]:
        """How long each dead worker's place was empty."""
        run_virtual(self._run_slot(self._slots[0], self._sockets[0]))
        began = zip(self.began_s, self.began_s[1:], spans, strict=False)
        return [round(after - before - lived, 3) for before, after, (lived, _) in began]


@pytest.mark.parametrize(
    ("spans", "pauses_s"),
    [
        ([(1.0, True)] + 11 * [(0.4, False)], [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5, 5]),
        (
            [(1.0, True), (0.4, False), (0.4, False), (31.0, True), (0.4, False)],
            [0.1, 0.2, 0.4, 0.1],
        ),
    ],
    ids=["killed again and again", "well for a while"],
)
def test_dying_workers_are_restarted_after_growing_pauses(
    spans: list[tuple[float, bool]], pauses_s: list[float]
) -> None:
    with bound_at_a_free_port() as listening:
        service = Dying(spans, listening)
        assert service.pauses_s(spans) == pauses_s
        assert service._failure is None


def test_service_ends_after_5_deaths_before_any_worker_is_ready() -> None:
    spans = 12 * [(0.4, False)]
    with bound_at_a_free_port() as listening:
        service = Dying(spans, listening)
        assert service.pauses_s(spans) == [0.1, 0.2, 0.4, 0.8]
    assert service._failure is not None
    assert "5 in a row died before they were ready" in str(service._failure)


class Unable(Supervisor):
    """Workers that cannot start for the reasons given. The service ends after the last."""

    def __init__(self, reasons: Sequence[int], listening: socket.socket) -> None:
        super().__init__(ConfigSource(None, {}), GatewaySettings(), [listening], [WorkerSlot()])
        self._reasons = list(reasons)
        self.tries = 0

    async def _run_worker(self, slot: WorkerSlot, listening: socket.socket) -> tuple[str, bool]:
        self.tries += 1
        if len(self._reasons) == self.tries:
            self._ending.set()
        raise OSError(self._reasons[self.tries - 1], "no")


def test_worker_start_is_retried_while_resources_are_short(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with bound_at_a_free_port() as listening:
        service = Unable(20 * [errno.EAGAIN, errno.ENOMEM, errno.EMFILE], listening)
        run_virtual(service._run_slot(service._slots[0], listening))
    assert (service.tries, service._failure) == (60, None)
    assert "worker 0 cannot start: [Errno 11] no; it is tried again." in capsys.readouterr().err


def test_a_worker_whose_program_is_missing_ends_the_service() -> None:
    with bound_at_a_free_port() as listening:
        service = Unable(20 * [errno.ENOENT], listening)
        run_virtual(service._run_slot(service._slots[0], listening))
    assert service.tries == 5
    assert "cannot start: [Errno 2] no" in str(service._failure)


@pytest.mark.system
def test_next_gateway_removes_files_of_a_killed_gateway(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    with gateway(folder, "--workers", "2") as process:
        ready(process)
        (left,) = place.iterdir()
        workers_left = workers(process)
        process.kill()
        until(lambda: not any(map(lives, workers_left)), "a worker has outlived its parent")
    with gateway(folder, "--workers", "2") as process:
        ready(process)
        (found,) = place.iterdir()
        assert found != left
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    assert list(place.iterdir()) == []


@pytest.mark.system
def test_two_gateways_at_one_port_notice_each_other(folder: Path) -> None:
    with bound_at_a_free_port() as taken:
        port = str(taken.getsockname()[1])
        with gateway(folder, "--workers", "2", "--port", port) as process:
            _, err = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 2
        assert b"cannot listen on 127.0.0.1:" + port.encode() in err
        assert b"Choose another port with --port" in err


def bound_at_a_free_port() -> socket.socket:
    (taken,) = bind("127.0.0.1", 0)
    return taken


def test_workers_bind_the_same_address() -> None:
    sockets = bind("127.0.0.1", 0, 3)
    try:
        assert len({base_url(each) for each in sockets}) == 1
        with pytest.raises(CallerFault, match="cannot listen"):
            bind("127.0.0.1", sockets[0].getsockname()[1], 2)
    finally:
        for each in sockets:
            each.close()
    with pytest.raises(CallerFault, match=r"cannot listen on no\.such\.host"):
        bind("no.such.host", 0)


KEYS = {"OPENAI_API_KEY": "a", "GROQ_API_KEY": "b"}


@pytest.mark.parametrize("settings", [read(GOOD, ENVIRONMENT), unconfigured(KEYS)])
def test_workers_receive_the_settings_of_the_supervisor(settings: GatewaySettings) -> None:
    settings = structs.replace(
        settings, files=(Path("/a/key"),), source=Path("/a/splitsecond.yaml")
    )
    line = encode(settings)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == settings


def test_longest_policy_without_spaces_reaches_workers() -> None:
    targets = ",".join(
        f'"{letter}{number:02}/m"' for letter in "abcdefghij" for number in range(49)
    )
    text = f"race({targets})"
    assert len(text) <= LONGEST < len(repr(parse(text)))
    settings = GatewaySettings(routes={"a": parse(text)})
    assert decode(encode(settings)) == settings


@pytest.mark.system
def test_worker_with_invalid_settings_reports_the_reason() -> None:
    (listening,) = bind("127.0.0.1", 0)
    with listening:
        settings = GatewaySettings(routes={"any": parse('"openai/x"')})
        seat = '{"number": 1, "workers": 2}'
        command = [sys.executable, "-m", "splitsecond.gateway", str(listening.fileno()), seat]
        ended = subprocess.run(
            command,
            input=encode(settings),
            capture_output=True,
            pass_fds=(listening.fileno(),),
            timeout=WITHIN_S,
        )
    assert ended.returncode == 2
    assert ended.stdout.startswith(
        b"REFUSED routes.any.policy: no key for openai: OPENAI_API_KEY is not set"
    )
    assert ended.stderr == b""


def test_signal_before_the_start_prevents_the_workers() -> None:
    async def run() -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            source = ConfigSource(None, {})
            supervisor = Supervisor(source, GatewaySettings(), [listening], [WorkerSlot()])
            supervisor._end()
            # the guard of fast tests refuses processes
            await supervisor._run_slot(WorkerSlot(), listening)

    asyncio.run(run())


def test_only_a_second_signal_ends_responses_at_once() -> None:
    """A service that has given up lets its responses end. The first signal then is no second
    one."""
    ended: list[int] = []

    class Worker:
        def terminate(self) -> None:
            ended.append(1)

    async def run() -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            supervisor = Supervisor(
                ConfigSource(None, {}), GatewaySettings(), [listening], [WorkerSlot()]
            )
            supervisor._workers[0] = Worker()  # type: ignore[assignment]
            supervisor._give_up("worker 1 died")
            supervisor._on_signal()
            assert len(ended) == 1
            supervisor._on_signal()
            assert len(ended) == 2

    asyncio.run(run())


@pytest.mark.system
def test_hub_loads_no_policy_and_no_api_format() -> None:
    program = "import sys, splitsecond.gateway.hub.process; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    others = (
        "splitsecond.core.transport",
        "splitsecond.routing.machinery",
        "splitsecond.routing.policies",
    )
    assert not [each for each in loaded if each.startswith(others)]


@pytest.mark.system
def test_gateway_without_fleet_and_log_loads_no_module_of_them() -> None:
    program = (
        "import sys, splitsecond.gateway.__main__, splitsecond.cli.commands.serve as _;"
        "from splitsecond.routing.configuration.reading import read;"
        "from splitsecond.gateway.process.worker import GatewayWorker;"
        "GatewayWorker(read('routes: {}', {})).close();"
        "names = sorted(sys.modules);"
        "print(*(each for each in names if each.startswith('splitsecond.gateway.fleet.') or each "
        "in ('psycopg', 'sqlalchemy', 'rich')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    # of messages
    assert found == [
        f"splitsecond.gateway.fleet.{each}" for each in ("learned", "settings", "view")
    ]
