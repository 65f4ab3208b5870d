"""`sim/PROFILE` targets: one simulator for the whole gateway, started when it is needed and ended
with it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import gateway, ready
from tests.waiting import WITHIN_S

from splitsecond.api.batch import batch
from splitsecond.cli.commands.serve import check_profiles
from splitsecond.core.errors import CallerFault
from splitsecond.routing.configuration.checkup import checkup
from splitsecond.routing.configuration.defaults import unconfigured
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.settings import SIMULATED, simulated_profiles
from splitsecond.routing.router.target_directory import TargetDirectory

ROUTES = """routes: {fast: {policy: 'fallback("sim/groq", "sim/together")'}}\n"""
OWN = "providers: {sim: {base_url: http://127.0.0.1:9001/v1}}\n"


def test_profile_in_a_route_is_a_free_simulated_target() -> None:
    settings = read(ROUTES, {})
    assert simulated_profiles(settings) == {"groq": "fast", "together": "fast"}
    assert settings.spec("sim/groq").base_url.endswith("/{model}/v1")
    facts = TargetDirectory(settings).facts("sim/groq")
    assert facts.cost_usd(1, 1) == 0
    assert "target sim/groq: simulated, openai, no key, free" in checkup(settings)


def test_configured_provider_named_sim_takes_precedence() -> None:
    settings = read(OWN + ROUTES, {})
    assert not simulated_profiles(settings)
    assert settings.spec("sim/groq").base_url == "http://127.0.0.1:9001/v1"


def test_profiles_are_models_without_a_configuration() -> None:
    settings = unconfigured({}, "http://127.0.0.1:1")
    assert settings.spec("sim/groq").base_url.startswith("http://127.0.0.1:1/")
    assert SIMULATED in settings.providers


@pytest.mark.parametrize(
    ("profile", "hint"),
    [
        ("togeter", "Did you mean together or"),
        ("qqqq", "`splitsecond simulate --list` shows all."),
        ("own.toml", "Start your own with `splitsecond simulate`"),
    ],
)
def test_unknown_profile_is_refused_with_a_hint(profile: str, hint: str) -> None:
    with pytest.raises(CallerFault, match=f"^routes.a: sim/{profile} is ") as refused:
        check_profiles(read(f"routes: {{a: {{policy: sim/{profile}}}}}", {}))
    assert refused.value.kind == "unknown_profile"
    assert refused.value.hint.startswith(hint)


def ask(base_url: str, model: str) -> tuple[int, str]:
    """Return the status of one request and the target that answered it."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": 3,
        "messages": [{"role": "user", "content": "hi"}],
    }
    request = urllib.request.Request(
        f"{base_url}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            return answer.status, answer.headers["x-splitsecond-target"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def simulators(parent: int) -> list[int]:
    """Return the processes of the simulator that the gateway `parent` started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            owner = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"splitsecond.simulator" in command and owner == parent:
            found.append(int(entry.name))
    return found


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_all_workers_share_one_simulator_which_ends_with_them(
    tmp_path: Path, workers: str, system: None
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(ROUTES)
    with gateway(tmp_path, "--workers", workers) as process:
        base_url = ready(process)
        (started,) = simulators(process.pid)
        assert [ask(base_url, "fast") for _ in range(4)] == [(200, "sim/groq")] * 4
        assert ask(base_url, "sim/openai-gpt-5.2") == (200, "sim/openai-gpt-5.2")
        assert ask(base_url, "sim/unknown-profile")[0] == 502
        assert simulators(process.pid) == [started]
        process.terminate()
        process.wait(WITHIN_S)
        assert not Path(f"/proc/{started}").exists()


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
def test_simulator_starts_at_the_first_request_without_a_route(
    tmp_path: Path, system: None
) -> None:
    (tmp_path / "splitsecond.yaml").write_text("log: off\n")
    with gateway(tmp_path) as process:
        base_url = ready(process)
        assert simulators(process.pid) == []
        assert ask(base_url, "sim/groq") == (200, "sim/groq")
        assert len(simulators(process.pid)) == 1


@pytest.mark.system
def test_a_batch_may_name_a_profile(tmp_path: Path) -> None:
    body = {"model": "sim/groq", "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps({"custom_id": "1", "body": body}) + "\n")
    ended = subprocess.run(
        [sys.executable, "-m", "splitsecond.cli", "batch", "a.jsonl"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "a.answers.jsonl").read_text())["target"] == "sim/groq"


@pytest.mark.system
def test_a_batch_of_the_python_api_may_name_a_profile_of_a_route(tmp_path: Path) -> None:
    body = {"model": "fast", "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps({"custom_id": "1", "body": body}) + "\n")
    (tmp_path / "splitsecond.yaml").write_text(ROUTES)
    found = asyncio.run(
        batch(tmp_path / "a.jsonl", config=tmp_path / "splitsecond.yaml", progress=False)
    )
    assert found.result.answered == 1


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
def test_a_simulator_that_dies_is_replaced_at_the_next_request(
    tmp_path: Path, system: None
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(ROUTES)
    with gateway(tmp_path) as process:
        base_url = ready(process)
        (first,) = simulators(process.pid)
        os.kill(first, signal.SIGKILL)
        assert ask(base_url, "fast") == (200, "sim/groq")
        (second,) = simulators(process.pid)
        assert second != first
