"""`splitsecond run`: a program with a gateway of its own, before a simulated vendor."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.processes import Process
from tests.store.records import in_session
from tests.waiting import WITHIN_S, until

from splitsecond.cli.agents import NO_KEY, client_variables, command_line, vendor_addresses
from splitsecond.cli.commands.run import summary
from splitsecond.core.clock import NS_PER_S
from splitsecond.log.store.call_record import CallRecord
from splitsecond.simulator.process import RunningProvider, run_simulator

SECRET = "sk-canary-of-the-user-0123456789"
CLIENT = f"""
import json, os, sys, urllib.request
say = {{"messages": [{{"role": "user", "content": "hi"}}], "max_tokens": 9}}
asks = [
    ("ANTHROPIC_BASE_URL", "/v1/messages", {{"model": "claude-x", **say}}, "x-api-key"),
    ("OPENAI_BASE_URL", "/chat/completions", {{"model": "gpt-x", **say}}, "authorization"),
    ("OPENAI_BASE_URL", "/responses", {{"model": "gpt-y", "input": "hi"}}, "authorization"),
    ("GOOGLE_GEMINI_BASE_URL", "/v1beta/models/gemini-x:generateContent",
     {{"contents": [{{"parts": [{{"text": "hi"}}]}}]}}, "x-goog-api-key"),
    ("OLLAMA_HOST", "/api/chat", {{"model": "llama", "stream": False, **say}}, "authorization"),
]
for variable, path, body, header in asks:
    headers = {{header: "Bearer {SECRET}", "content-type": "application/json"}}
    content = json.dumps(body).encode()
    request = urllib.request.Request(os.environ[variable] + path, content, headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(request) as response:
        print(response.status, response.headers["x-splitsecond-target"])
sys.exit(7)
"""
TARGETS = [
    "anthropic/claude-x",
    "openai/gpt-x",
    "openai-responses/gpt-y",
    "gemini/gemini-x",
    "ollama/llama",
]
WAITS = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print(os.environ["ANTHROPIC_BASE_URL"], flush=True)
while True:
    signal.pause()
"""


def test_each_client_gets_the_end_of_the_address_it_expects() -> None:
    found = client_variables("http://127.0.0.1:1", {})
    assert (
        found["ANTHROPIC_BASE_URL"]
        == found["GOOGLE_GEMINI_BASE_URL"]
        == found["OLLAMA_HOST"]
        == "http://127.0.0.1:1"
    )
    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert "NO_PROXY" not in found
    assert client_variables("x", {"HTTPS_PROXY": "p", "NO_PROXY": "a"})["NO_PROXY"] == "a,127.0.0.1"


def test_a_variable_of_a_client_replaces_the_vendors_address() -> None:
    assert vendor_addresses({})["anthropic"] == "https://api.anthropic.com/v1"
    found = vendor_addresses(
        {"ANTHROPIC_BASE_URL": "https://proxy.example/", "OLLAMA_HOST": "127.0.0.1:1"}
    )
    assert found["anthropic"] == "https://proxy.example/v1"
    assert found["ollama"] == "http://127.0.0.1:1"
    assert found["openai"] == "https://api.openai.com/v1"


def test_keys_are_set_only_where_none_is() -> None:
    found = client_variables("x", {"OPENAI_API_KEY": "own"}, keys=True)
    assert "OPENAI_API_KEY" not in found
    assert found["ANTHROPIC_API_KEY"] == NO_KEY
    assert "ANTHROPIC_API_KEY" not in client_variables("x", {})


def test_codex_gets_the_address_as_an_argument() -> None:
    found = command_line(["/bin/codex", "exec"], "http://h")
    assert found[:3] == ["/bin/codex", "-c", 'openai_base_url="http://h/v1"']
    assert found[-1] == "exec"
    assert command_line(["claude", "-p"], "http://h") == ["claude", "-p"]


def test_overlapping_calls_are_waited_for_once() -> None:
    """Times of a call in the log count from its beginning."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)

    def call(start_s: int, end_s: int) -> tuple[datetime, CallRecord]:
        record = CallRecord(
            call="c", start_ns=0, end_ns=(end_s - start_s) * NS_PER_S, route="a/m", status=200
        )
        return begin + timedelta(seconds=start_s), record

    calls = [call(0, 10), call(5, 20), call(40, 50)]
    first, *_ = summary("agent", calls, 60.0, "log")
    assert "ran for 60 s and waited 30 s (50%) for 3 calls." in first


def test_sessions_that_are_not_shown_are_counted() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    calls = [
        (begin, CallRecord(call="c", start_ns=0, end_ns=1, route="a/m", status=200, session=each))
        for each in (in_session(session=f"{number:016x}") for number in range(10))
    ]
    *_, others, where = summary("agent", calls, 60.0, "log")
    assert others == "  and 2 other sessions"
    assert where.startswith("The log is log.")


@pytest.fixture(scope="module")
def vendor(system: None) -> Iterator[RunningProvider]:
    with run_simulator("mock") as (provider,):
        yield provider


def environment(vendor: RunningProvider, folder: Path) -> dict[str, str]:
    for name in ("data", "t"):
        (folder / name).mkdir(exist_ok=True)
    address = vendor.origin
    return os.environ | {
        "XDG_DATA_HOME": str(folder / "data"),
        "TMPDIR": str(folder / "t"),
        "ANTHROPIC_BASE_URL": address,
        "OPENAI_BASE_URL": f"{address}/v1",
        "GOOGLE_GEMINI_BASE_URL": address,
        "OLLAMA_HOST": address.removeprefix("http://"),
    }


def run(
    vendor: RunningProvider, folder: Path, *arguments: str, options: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "splitsecond.cli", "run", *options, "--", *arguments]
    return subprocess.run(
        command, env=environment(vendor, folder), capture_output=True, text=True, timeout=WITHIN_S,
        check=False,
        stdin=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip


@pytest.mark.system
def test_a_program_calls_each_vendor_with_its_own_credentials(
    vendor: RunningProvider, tmp_path: Path
) -> None:
    vendor.reset()
    ended = run(vendor, tmp_path, sys.executable, "-c", CLIENT)
    assert ended.returncode == 7, ended.stderr
    assert ended.stdout.splitlines() == [f"200 {target}" for target in TARGETS]
    headers = [request.headers for request in vendor.requests()]
    keys = ["x-api-key", "authorization", "authorization", "x-goog-api-key", "authorization"]
    assert [[name for name, value in each.items() if value == "[key]"] for each in headers] == [
        [key] for key in keys
    ]
    assert "for 5 calls." in ended.stderr
    assert all(f"{target}: 1 call, " in ended.stderr for target in TARGETS)
    assert "You waited " in ended.stderr
    stored = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert tmp_path / "data/splitsecond/runs.db" in stored
    assert [file for file in stored if SECRET.encode() in file.read_bytes()] == []
    assert SECRET not in ended.stderr


@pytest.mark.system
def test_a_route_takes_every_call(vendor: RunningProvider, tmp_path: Path) -> None:
    """Without credentials of the program, which gets keys that stand for them."""
    words = "import os; assert os.environ['ANTHROPIC_API_KEY']\n" + CLIENT
    ended = run(
        vendor,
        tmp_path,
        sys.executable,
        "-c",
        words,
        options=("--route", "sim/groq", "--log", "here.db"),
    )
    assert ended.returncode == 7, ended.stderr
    assert ended.stdout.splitlines() == ["200 sim/groq"] * 5
    assert (tmp_path / "here.db").exists()


@pytest.mark.system
def test_a_wrong_route_is_named_before_the_program_starts(
    vendor: RunningProvider, tmp_path: Path
) -> None:
    ended = run(vendor, tmp_path, "true", options=("--route", 'fallback("sim/groq"'))
    assert ended.returncode == 2
    assert ended.stderr.startswith("splitsecond: --route: ")


@pytest.mark.system
@pytest.mark.parametrize(
    ("program", "code"),
    [(["./missing"], 127), (["/dev/null"], 126), (["sh", "-c", "kill -KILL $$"], 137)],
)
def test_the_exit_code_is_that_of_a_shell(
    vendor: RunningProvider, tmp_path: Path, program: list[str], code: int
) -> None:
    assert run(vendor, tmp_path, *program, options=("--log", "off")).returncode == code


@contextmanager
def waiting(
    vendor: RunningProvider, folder: Path
) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
    """Run a program that waits. Yields the command, and the port of its gateway."""
    command = [sys.executable, "-m", "splitsecond.cli", "run", sys.executable, "-c", WAITS]
    pipe = subprocess.PIPE
    with Process[bytes](
        command, env=environment(vendor, folder), stdout=pipe, stdin=subprocess.DEVNULL
    ) as process:
        port = urlsplit(process.read_line().decode().strip()).port
        assert port
        yield process, port


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.system
def test_signals_are_passed_on_and_the_gateway_ends(
    vendor: RunningProvider, tmp_path: Path
) -> None:
    with waiting(vendor, tmp_path) as (process, port):
        assert listens(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 3
    assert not listens(port)


@pytest.mark.system
def test_the_gateway_ends_when_the_command_is_killed(
    vendor: RunningProvider, tmp_path: Path
) -> None:
    with waiting(vendor, tmp_path) as (process, port):
        process.kill()
    until(lambda: not listens(port), "the gateway serves on")


PRESSED = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # none can come before it is awaited
assert sys.stdin.isatty()
print("ready", flush=True)
signal.sigwait({signal.SIGINT})
sys.exit(41 + (signal.SIGINT in signal.sigpending()))
"""


@pytest.mark.system
def test_the_program_has_the_terminal_and_gets_its_ctrl_c_once(
    vendor: RunningProvider, tmp_path: Path
) -> None:
    ours, theirs = os.openpty()
    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "run",
        "--log",
        "off",
        sys.executable,
        "-c",
        PRESSED,
    ]
    with Process[bytes](
        command, env=environment(vendor, tmp_path), stdin=theirs, stdout=subprocess.PIPE,
        start_new_session=True,
        # no other thread of the test holds a lock
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:  # fmt: skip
        assert process.read_line() == b"ready\n"
        os.write(ours, b"\x03")
        assert process.wait(WITHIN_S) == 41
    os.close(ours)
    os.close(theirs)
