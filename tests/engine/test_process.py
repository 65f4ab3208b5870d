"""Starting and stopping the engine: it reports what is wrong, and it does not outlive its
parent."""

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import NoReturn
from urllib.parse import urlsplit

import pytest
from tests.processes import Process
from tests.waiting import WITHIN_S, until

from splitsecond.core.errors import CallerFault, ProviderFault, TimedOut
from splitsecond.simulator.llama_cpp import EngineProcess, __main__, available, process

pytestmark = pytest.mark.system

COMMAND = [sys.executable, "-m", "splitsecond.simulator.llama_cpp"]


def listens(address: str) -> bool:
    parts = urlsplit(address)
    assert parts.hostname
    assert parts.port
    with socket.socket() as probe:
        return probe.connect_ex((parts.hostname, parts.port)) == 0


def test_serves_while_the_context_is_open() -> None:
    engine = EngineProcess(slots=1)
    assert repr(engine) == "<EngineProcess stopped>"
    with engine:
        address, pid = engine.address, engine.pid
        assert engine.base_url == f"{address}/v1"
        assert engine.model == "tiny"
        assert pid
        assert repr(engine) == f"<EngineProcess {engine.base_url}>"
        assert (
            urllib.request.urlopen(f"{address}/health", timeout=WITHIN_S).read()
            == b'{"status":"ok"}'
        )
    assert not listens(address)
    assert engine.pid is None
    engine.stop()  # again: does nothing


def test_request_without_the_key_is_refused() -> None:
    with EngineProcess(slots=1, api_key="sesame") as engine:
        request = urllib.request.Request(
            f"{engine.base_url}/completions", data=b'{"prompt":"the","max_tokens":1}'
        )
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(request, timeout=WITHIN_S)
        with refused.value as reply:
            assert b'"error":{' in reply.read()
        request.add_header("authorization", "Bearer sesame")
        assert urllib.request.urlopen(request, timeout=WITHIN_S).status == 200


def test_engine_ends_when_its_parent_is_killed() -> None:
    starter = (
        "from splitsecond.simulator.llama_cpp import EngineProcess\n"
        "with EngineProcess(slots=1) as engine:\n"
        "    print(engine.address, flush=True)\n"
        "    input()\n"
    )
    pipe = subprocess.PIPE
    with Process([sys.executable, "-c", starter], stdin=pipe, stdout=pipe, text=True) as parent:
        address = parent.read_line().strip()
        assert listens(address)
        parent.kill()
    until(lambda: not listens(address), "the engine still listens, although its parent was killed")


def test_engine_prints_its_address_and_ends_at_sigterm() -> None:
    with Process(COMMAND, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout
        assert engine.read_line().startswith("READY http://127.0.0.1:")
        engine.terminate()
        assert engine.wait(WITHIN_S) == -15
        assert engine.stdout.read() == ""


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, f"--port={port}"], capture_output=True, text=True, timeout=WITHIN_S
        )
    assert done.returncode == 1
    assert f"llama.cpp did not start on 127.0.0.1:{port}" in done.stderr


def test_engine_that_ends_at_once_reports_why() -> None:
    with (
        pytest.raises(ProviderFault, match="--slots: 0 is not from 1 to 256") as fault,
        EngineProcess(slots=0),
    ):
        pass
    assert fault.value.kind == "engine_failed"


def test_an_engine_that_is_not_ready_in_time_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_START_S", 0)
    engine = EngineProcess(slots=1)
    with pytest.raises(TimedOut, match="not ready after 0 s"), engine:
        pass
    assert engine.pid is None


def test_missing_package_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert available()
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert not available()
    with (
        pytest.raises(CallerFault, match=r"pip install 'splitsecond\[engine\]'") as fault,
        EngineProcess(),
    ):
        pass
    assert fault.value.kind == "engine_missing"
    monkeypatch.setattr(sys, "argv", ["engine"])
    assert __main__.main() == 3
    assert capsys.readouterr().err == (
        "llama.cpp's engine is not installed: pip install 'splitsecond[engine]'\n"
    )


def test_a_library_that_the_system_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> NoReturn:
        raise ImportError("libgomp.so.1: cannot open")

    monkeypatch.setattr(process, "import_module", fail)
    monkeypatch.setattr(sys, "argv", ["engine"])
    assert __main__.main() == 3
    said = (
        "llama.cpp cannot be loaded: libgomp.so.1: cannot open. On Debian: apt-get install "
        "libgomp1.\n"
    )
    assert capsys.readouterr().err == said
