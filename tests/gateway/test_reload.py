"""Settings that change while the gateway runs: what is applied, what is not, and which requests it
affects."""

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPResponse, IncompleteRead
from pathlib import Path

import openai
import pytest
from msgspec import structs
from tests.gateway.conftest import KEY, ServedGateway, gateway, heard, ready
from tests.gateway.test_served import ASK
from tests.waiting import WITHIN_S, until

from splitsecond.core.errors import CallerFault, say
from splitsecond.gateway.process.reload import ConfigSource, ConfigWatcher, Stamp, reloadable
from splitsecond.gateway.process.service_manager import ServiceManager
from splitsecond.routing.configuration.reading import Check, read
from splitsecond.routing.configuration.settings import GatewaySettings

NO_MANAGER = ServiceManager(say, {})

KEYS = "keys: [{name: web, key: env:WEB_KEY}]\n"
ROUTE = "providers: {{sim: {{base_url: {url}}}}}\nroutes: {{{name}: {{policy: '\"sim/quick\"'}}}}\n"


def written(served: ServedGateway, name: str) -> str:
    """A configuration with the one route `name`."""
    return KEYS + ROUTE.format(url=served.simulated.base_url, name=name)


def replaced(file: Path, text: str) -> None:
    """As an editor does it: another file in its place."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


def models(url: str, key: str = KEY) -> list[str]:
    request = urllib.request.Request(f"{url}/models", headers={"authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        return [model["id"] for model in json.load(answer)["data"]]


@pytest.fixture
def file(tmp_path: Path, served: ServedGateway) -> Path:
    found = tmp_path / "splitsecond.yaml"
    found.write_text(written(served, "one"))
    return found


def test_valid_edit_is_applied_and_invalid_edit_is_reported(
    file: Path, served: ServedGateway
) -> None:
    text = written(served, "two")
    with gateway(file.parent) as process:
        url = ready(process)
        assert models(url) == ["one"]
        replaced(file, text)
        until(lambda: models(url) == ["two"], "the new route is not served")
        assert "is loaded: 1 route, 1 key" in heard(process)

        replaced(file, text.replace('"sim/quick"', '"sim/quick'))
        said = heard(process)
        assert "splitsecond.yaml: routes.two.policy: at character 1" in said
        assert "The old configuration keeps running." in said
        assert models(url) == ["two"]

        replaced(file, text.replace("WEB_KEY", "SMALL_KEY") + "listen: {port: 1, workers: 3}\n")
        assert "is loaded" in heard(process)
        assert "listen.workers has changed; restart the gateway to apply it" in heard(process)
        assert models(url, KEY + "-2") == ["two"]
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            models(url)
        refused.value.close()


HOSTILE = (
    'routes: {one: {policy: truefoundry/m}}',
    "log: {url: trueroute, keep_days: falsetto}",
    'listen: {host: "\\ud800"}',
    'keys: [{name: "\\udfff", key: env:WEB_KEY}]',
    'routes: {one: {policy: "\\"sim/\\ud800\\""}}',
    "keys: [{name: web, key: !!bool x}]",
    "listen: &a [*a]",
    "seeds: [2026-13-45, 0x, 1e999]",
    '"\\UFFFFFFFF"',
    "[" * 400,
    "keys: [{name: web, key: env:WEB_KEY, requests_per_minute: %s}]" % ("9" * 5000),
)  # fmt: skip


@pytest.mark.parametrize("workers", ["1", "2"])
def test_gateway_keeps_running_after_invalid_edits(
    workers: str, file: Path, served: ServedGateway
) -> None:
    with gateway(file.parent, "--workers", workers) as process:
        url = ready(process)
        for text in HOSTILE:
            replaced(file, text)
            process.send_signal(signal.SIGHUP)
            assert "Traceback" not in heard(process, "The old configuration keeps running.")
            assert models(url) == ["one"]
        replaced(file, written(served, "two"))
        process.send_signal(signal.SIGHUP)
        heard(process, "is loaded: 1 route, 1 key")
        until(lambda: models(url) == ["two"], "the new route is not served")


BROKEN = """
import sys
if "splitsecond.cli" in sys.orig_argv:
    from splitsecond.gateway.process.reload import ConfigSource
    load = ConfigSource.load
    def load_unless_broken(source, checks=()):
        if "# break" in source.path.read_text():
            raise KeyError("a secret")
        return load(source, checks)
    ConfigSource.load = load_unless_broken
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_errors_of_a_reload_are_shown_in_the_metrics(
    workers: str,
    file: Path,
    served: ServedGateway,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = tmp_path_factory.mktemp("broken")
    (broken / "sitecustomize.py").write_text(BROKEN)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(broken), os.environ.get("PYTHONPATH", "")])
    )
    with gateway(file.parent, "--workers", workers) as process:
        url = ready(process)
        replaced(file, "# break")
        said = heard(process, "The old configuration keeps running.")
        assert "internal error (KeyError)" in said
        counted = 'splitsecond_internal_errors_total{where="reload"} 1.0'
        until(lambda: counted in metrics(url), "the error is not counted")
        assert models(url) == ["one"]
        replaced(file, written(served, "two"))
        until(lambda: models(url) == ["two"], "the new route is not served")


def metrics(url: str) -> str:
    request = urllib.request.Request(
        f"{url.removesuffix('/v1')}/metrics", headers={"authorization": f"Bearer {KEY}"}
    )
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        found: str = answer.read().decode()
    return found


def test_sighup_reloads_at_once_and_streams_in_flight_continue(
    file: Path, served: ServedGateway
) -> None:
    with gateway(file.parent) as process:
        url = ready(process)
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=WITHIN_S) as client:
            stream = iter(
                client.chat.completions.create(
                    model="one", messages=ASK, stream=True, max_tokens=400
                )
            )
            next(stream)
            file.write_text(KEYS)
            process.send_signal(signal.SIGHUP)
            assert "is loaded: 0 routes, 1 key" in heard(process)
            with pytest.raises(openai.NotFoundError):
                client.chat.completions.create(model="one", messages=ASK)
            assert sum(bool(chunk.choices[0].delta.content) for chunk in stream) == 400


def test_edit_of_a_secret_file_is_applied(tmp_path: Path, served: ServedGateway) -> None:
    canned = served.asked
    host = next(
        line
        for line in (served.folder / "splitsecond.yaml").read_text().splitlines()
        if "canned:" in line
    )
    (tmp_path / "key").write_text("sk-the-first-key")
    (tmp_path / "splitsecond.yaml").write_text(
        "providers:\n" + host.replace("env:OURS", "file:key")
    )
    with gateway(tmp_path) as process:
        url = ready(process)

        def key() -> str:
            canned.clear()
            with openai.OpenAI(
                base_url=url, api_key="none", max_retries=0, timeout=WITHIN_S
            ) as client:
                client.chat.completions.create(model="canned/m", messages=ASK)
            return canned[0][0]["authorization"]

        assert key() == "Bearer sk-the-first-key"
        (tmp_path / "key").write_text("sk-the-second-key")
        until(lambda: key() == "Bearer sk-the-second-key", "the new key is not used")
        (tmp_path / "key").unlink()
        assert "sk-the" not in heard(process, "cannot read the secret")
        assert key() == "Bearer sk-the-second-key"
        (tmp_path / "key").write_text("sk-the-third-key")
        until(lambda: key() == "Bearer sk-the-third-key", "the file that came back is not read")


def test_settings_that_need_a_restart_keep_their_values() -> None:
    running = read("listen: {port: 8801}\nlog: sqlite:////tmp/a.db", {})
    wanted = read("listen: {port: 8802, workers: 2, max_body_mib: 1}\nseeds: [runs/*]", {})
    found, waiting = reloadable(wanted, running)
    assert waiting == ["listen.port", "listen.workers", "log", "seeds"]
    assert (found.listen.port, found.listen.workers, found.listen.max_body_mib) == (8801, 1, 1)
    assert found.log == running.log


def test_edit_without_keys_is_refused_on_a_public_address() -> None:
    running = read("listen: {host: 0.0.0.0}\n" + KEYS, {"WEB_KEY": KEY})
    wanted = read("listen: {host: 127.0.0.1}", {})
    with pytest.raises(CallerFault, match="without keys"):
        reloadable(wanted, running)


def test_settings_that_cannot_be_built_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "splitsecond.yaml"
    file.write_text("routes: {}")
    source = ConfigSource(file, {})
    running = source.load()
    refused: list[GatewaySettings] = []

    async def take(found: GatewaySettings) -> None:
        refused.append(found)
        raise CallerFault("it cannot be built", kind="bad_policy")

    async def main() -> None:
        watch = ConfigWatcher(source, running, take, NO_MANAGER)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.run())
            file.write_text("routes: {any: {policy: '\"vllm/x\"'}}")
            while not refused:
                watch.now()
                await asyncio.sleep(0)
            assert watch.running == running
            watching.cancel()

    asyncio.run(main())
    assert "it cannot be built. The old configuration keeps running." in capsys.readouterr().err


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "splitsecond.yaml"
    file.write_text("routes: {old: {policy: '\"vllm/x\"'}}")

    class Emptied(ConfigSource, frozen=True):
        """An editor writes a part of the file before it is read, and the rest afterwards."""

        def load(self, checks: Sequence[Check] = ()) -> GatewaySettings:
            if b"new" in file.read_bytes():
                return super().load(checks)
            file.write_text("routes: {}")
            found = super().load(checks)
            file.write_text("routes: {new: {policy: '\"vllm/other\"'}}")
            return found

    taken: list[GatewaySettings] = []
    applied = asyncio.Event()

    async def take(found: GatewaySettings) -> None:
        taken.append(found)
        applied.set()

    async def main() -> None:
        watch = ConfigWatcher(Emptied(file, {}), ConfigSource(file, {}).load(), take, NO_MANAGER)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.run())
            watch.now()
            await applied.wait()
            watching.cancel()

    asyncio.run(main())
    assert [list(each.routes) for each in taken] == [["new"]]


def test_command_line_options_still_override_an_edited_file(tmp_path: Path) -> None:
    file = tmp_path / "splitsecond.yaml"
    file.write_text("listen: {port: 1, max_body_mib: 2}")
    source = ConfigSource(file, {}, {"port": 8803})
    running = source.load()
    assert (running.listen.port, running.listen.max_body_mib) == (8803, 2)
    file.write_text("listen: {port: 2, max_body_mib: 3}")
    found, waiting = reloadable(source.load(), running)
    assert waiting == []
    assert found == structs.replace(running, listen=structs.replace(running.listen, max_body_mib=3))


def test_unchanged_files_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitsecond.gateway.process.reload.POLL_S", 0.001)
    file, secret = tmp_path / "splitsecond.yaml", tmp_path / "key"
    file.write_text("keys: [{name: web, key: 'file:key'}]")
    secret.write_text(KEY)
    read_at: list[int] = []

    class Counting(ConfigSource, frozen=True):
        def load(self, checks: Sequence[Check] = ()) -> GatewaySettings:
            read_at.append(len(looks))
            return super().load(checks)

        def stamp(self, settings: GatewaySettings) -> Stamp:
            looks.append(len(settings.keys))
            looked.set()
            return super().stamp(settings)

    looks: list[int] = []
    looked = asyncio.Event()
    source = Counting(file, {"A": KEY, "B": KEY + "b"})
    running = source.load()

    async def take(found: GatewaySettings) -> None:
        """Whatever it is."""

    async def look(times: int) -> None:
        for _ in range(times):
            looked.clear()
            await looked.wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(ConfigWatcher(source, running, take, NO_MANAGER).run())
            await look(20)
            assert len(read_at) == 2  # at the start, and at the first look
            # and no secret's file
            file.write_text("keys: [{name: a, key: env:A}, {name: b, key: env:B}]")
            while looks[-1] == 1:
                await look(1)
            times = len(read_at)
            await look(20)
            assert len(read_at) == times
            watching.cancel()

    asyncio.run(main())


@pytest.mark.system
def test_second_sigterm_ends_the_gateway_at_once(file: Path) -> None:
    with gateway(file.parent) as process:
        url = ready(process)
        with endless(url) as answer:
            process.send_signal(signal.SIGTERM)
            until(lambda: refuses(url), "it still takes connections")
            assert b"data: " in answer.readline() + answer.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0
            assert b"[DONE]" not in rest(answer)


def endless(url: str) -> HTTPResponse:
    """The answer to a request for more tokens than any test waits for."""
    return answer(url, stream=True, max_tokens=30_000)


def answer(url: str, model: str = "one", **fields: object) -> HTTPResponse:
    """The answer to a chat, on a connection of its own."""
    body = {"model": model, "messages": ASK, **fields}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    found: HTTPResponse = urllib.request.urlopen(request, timeout=WITHIN_S)
    return found


def rest(answer: HTTPResponse) -> bytes:
    """What still came of it before its connection ended."""
    try:
        return answer.read()
    except IncompleteRead as cut:
        return cut.partial
    except ConnectionError:
        return b""


def refuses(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/models", timeout=WITHIN_S)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return True
    return False


def test_a_change_of_any_file_is_seen(tmp_path: Path) -> None:
    file, secret = tmp_path / "splitsecond.yaml", tmp_path / "key"
    file.write_text("keys: [{name: web, key: 'file:key'}]")
    secret.write_text(KEY)
    source = ConfigSource(file, {})
    settings = source.load()
    seen = [source.stamp(settings)]
    for change in (
        lambda: secret.write_text(KEY + "2"),
        lambda: replaced(secret, KEY + "2"),
        lambda: os.utime(file, ns=(1, 1)),
        lambda: secret.unlink(),
    ):
        change()
        seen.append(source.stamp(settings))
    assert all(seen.count(each) == 1 for each in seen)


def test_reload_keeps_the_keys_when_the_file_lost_its_end() -> None:
    with_keys = read("keys: [{name: a, key: env:KEY}]", {"KEY": "a-key-that-is-long-enough"})
    with pytest.raises(CallerFault, match="no keys any more"):
        reloadable(read("routes: {}", {}), with_keys)
    assert reloadable(with_keys, read("routes: {}", {}))[0].keys
