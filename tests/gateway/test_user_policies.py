"""Policies of users in the gateway: in its configuration, its workers, its reloads and its
responses."""

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.gateway.conftest import KEY, ServedGateway, gateway, heard, ready
from tests.gateway.test_reload import KEYS, replaced
from tests.waiting import WITHIN_S, until

from splitsecond.core.errors import CallerFault
from splitsecond.gateway.process.reload import ConfigSource
from splitsecond.routing.configuration.checkup import checkup
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.configuration.settings import GatewaySettings, decode, encode
from splitsecond.routing.construction.user_policies import PolicyFailed
from splitsecond.routing.requests.error_response import error_response

POLICY = """
import splitsecond as ss

@ss.policy
async def mine(call, a, b):
    return await b(call)
"""
TEXT = """
policies: mine.py
providers: {a: {base_url: "http://127.0.0.1:9/v1"}, b: {base_url: "http://127.0.0.1:9/v1"}}
routes: {fast: {policy: 'fallback(mine("a/x", "b/x"), "a/x")'}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "splitsecond.yaml").write_text(TEXT)
    return tmp_path


def load(folder: Path, policies: Path | None = None) -> GatewaySettings:
    return ConfigSource(folder / "splitsecond.yaml", {}, policies=policies).load()


def test_routes_name_the_policies_of_the_file(folder: Path) -> None:
    settings = load(folder)
    assert repr(settings.routes["fast"]) == 'fallback(mine("a/x", "b/x"), "a/x")'
    assert settings.files == (folder / "mine.py",)  # so that a change is noticed
    assert decode(encode(settings)) == settings
    assert f"policies of {folder / 'mine.py'}: mine" in checkup(settings)
    with pytest.raises(
        CallerFault, match=r"routes\.fast\.policy: at character 10: unknown policy mine"
    ):
        read(TEXT.replace("policies: mine.py", ""), {})
    with pytest.raises(CallerFault, match="policies: Expected `str`"):
        read(TEXT.replace("mine.py", "[mine.py]"), {}, folder=folder)


def test_option_policies_replaces_the_configured_file(folder: Path) -> None:
    other = folder / "other.py"
    other.write_text(POLICY.replace("b(call)", "a(call)"))
    settings = load(folder, policies=other)
    assert settings.files == (other,)
    assert settings.routes != load(folder).routes
    with pytest.raises(CallerFault, match="policies are for the routes of a configuration"):
        ConfigSource(None, {}, policies=other).load()


def test_routes_change_only_if_the_policy_file_changes(folder: Path) -> None:
    first, again = load(folder), load(folder)
    assert first == again
    replaced(folder / "mine.py", POLICY.replace("b(call)", "a(call)"))
    assert load(folder).routes != first.routes
    replaced(folder / "mine.py", POLICY + "\n1 / 0\n")
    with pytest.raises(CallerFault, match=r"mine\.py, line 8: ZeroDivisionError"):
        load(folder)


def test_clients_do_not_learn_the_code_of_a_policy() -> None:
    fault = PolicyFailed(
        "the policy mine failed: KeyError: 'x'", kind="policy_failed", phase="queue", hint="at m.py"
    )
    response = error_response(fault)
    assert response.status == 500
    assert json.loads(response.body)["error"]["message"] == "the route's policy failed."


def answered_by(url: str) -> str:
    """The target that answers a request of the route `fast`; the error's code if none does."""
    body = {"model": "fast", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            return str(answer.headers["x-splitsecond-target"])
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code} {json.load(error)['error']['code']}"


@pytest.mark.system
@pytest.mark.parametrize("workers", ["1", "2"])
def test_all_workers_run_the_file_and_take_its_changes(
    tmp_path: Path, served: ServedGateway, workers: str
) -> None:
    url = served.simulated.base_url
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "splitsecond.yaml").write_text(
        f"{KEYS}policies: mine.py\nproviders: {{a: {{base_url: {url}}}, b: {{base_url: {url}}}}}\n"
        'routes: {fast: {policy: \'mine("a/quick", "b/quick")\'}}\n'
    )
    with gateway(tmp_path, "--workers", workers) as process:
        url = ready(process)
        assert {answered_by(url) for _ in range(8)} == {"b/quick"}

        replaced(tmp_path / "mine.py", POLICY.replace("b(call)", "a(call)"))
        until(
            lambda: {answered_by(url) for _ in range(8)} == {"a/quick"},
            "the changed policy does not serve",
        )

        replaced(tmp_path / "mine.py", POLICY.replace("return", "retrun"))
        assert "mine.py, line 6: invalid syntax. Correct the file. The old configuration" in heard(
            process, "mine.py"
        )
        assert answered_by(url) == "a/quick"

        replaced(tmp_path / "mine.py", POLICY.replace("await b(call)", "1 / 0"))
        until(lambda: answered_by(url) == "500 policy_failed", "the changed policy does not serve")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
