"""`splitsecond explain`: from a running gateway, or from the configuration if none runs."""

import urllib.error
import urllib.request
from pathlib import Path
from random import Random

import pytest
from tests.cli.conftest import Split
from tests.gateway.conftest import KEY, gateway, ready
from tests.policies.attempts import answered, closed
from tests.waiting import WITHIN_S

from splitsecond.cli.commands.explain import _figures
from splitsecond.core import clock
from splitsecond.routing.router.explain import TargetExplained
from splitsecond.routing.targets.estimate import SpeedEstimate
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_state import AccountKey, TargetState

SETTINGS = """
listen: {{port: 1}}
keys: {keys}
providers: {{gone: {{base_url: "http://127.0.0.1:9/v1"}}, other: {{base_url: "http://127.0.0.1:9/v1"}}}}
routes:
  safe: {{policy: 'fallback("gone/m", "other/m")'}}
  hard: {{policy: 'by_complexity(simple="gone/m", complex="other/m")'}}
"""


def test_explain_without_a_gateway_simulates_a_new_one(split: Split, tmp_path: Path) -> None:
    Path("splitsecond.yaml").write_text(SETTINGS.format(keys=[]))
    ended = split("explain", "safe", "--json", "-")
    assert ended.code == 0
    assert ended.json["choices"] == [
        {"calls": 100, "targets": ["gone/m"], "why": "", "refused": "", "odds": None}
    ]
    assert [each["status"]["state"] for each in ended.json["targets"]] == ["untested", "untested"]
    assert "none runs" in ended.json["source"]
    shown = split("explain", "safe").out
    assert '  fallback()\n    "gone/m"\n    "other/m"\n' in shown
    assert "100%  gone/m" in shown
    assert "  gone/m\n    untested\n" in shown
    hard = split(
        "explain",
        "hard",
        "--prompt",
        "Prove step by step that there are infinitely many primes. " * 20,
    )
    assert "100%  other/m" in hard.out


def test_a_policy_of_the_user(split: Split) -> None:
    Path("mine.py").write_text(
        "import splitsecond as ss\n\n@ss.policy\nasync def mine(call, a, b):\n    return await "
        "b(call)\n"
    )
    Path("splitsecond.yaml").write_text(
        SETTINGS.format(keys=[]) + """  own: {{policy: 'mine("gone/m", "other/m")'}}\n""".format()
    )
    shown = split("explain", "own", "--policies", "mine.py").out
    assert '  mine()\n    "gone/m"\n    "other/m"\n' in shown
    assert "100%  other/m" in shown
    assert "unknown policy mine" in split("explain", "own").complaint


def test_explain_shows_the_price_of_a_target(split: Split) -> None:
    Path("splitsecond.yaml").write_text("""
providers:
  rented: {base_url: "http://127.0.0.1:9/v1", price: {per_hour_usd: 2.69}}
  sold: {base_url: "http://127.0.0.1:9/v1", price: {input_usd: 1, output_usd: 2}}
  other: {base_url: "http://127.0.0.1:9/v1"}
routes: {all: {policy: 'fallback("rented/m", "sold/m", "other/m")'}}
""")
    shown = [line for line in split("explain", "all").out.splitlines() if "in flight" in line]
    assert [line.split("speed unknown, ")[1] for line in shown] == [
        "$2.69 per hour",
        "$1 in, $2 out per million tokens, $1.25 blended",
        "no price",
    ]


def test_the_ttft_of_lost_races_is_a_lower_bound() -> None:
    lost, won = (TargetState("a/m", TargetInfo(), AccountKey(), Random(0)) for _ in range(2))
    for state, attempts in ((lost, [closed(213)] * 3), (won, [answered(213)] * 3)):
        state.estimates[True] = SpeedEstimate()
        for attempt in attempts:
            state.estimates[True].observe(attempt)
    shown = [
        _figures(TargetExplained(state.status(clock.now_ns()), state.info))[1]
        for state in (lost, won)
    ]
    assert shown == ["TTFT p50 > 213 ms, p95 > 213 ms", "TTFT p50 213 ms, p95 213 ms"]


@pytest.mark.system
def test_explain_uses_the_target_states_of_a_running_gateway(split: Split, tmp_path: Path) -> None:
    Path("splitsecond.yaml").write_text(SETTINGS.format(keys=[]))
    with gateway(tmp_path) as process:
        url = ready(process)
        ask = urllib.request.Request(
            f"{url}/chat/completions",
            b'{"model":"gone/m","messages":[]}',
            {"content-type": "application/json"},
        )
        for _ in range(6):
            try:
                urllib.request.urlopen(ask, timeout=WITHIN_S).close()
            except urllib.error.HTTPError as error:
                error.close()
        ended = split("explain", "safe", "--url", url, "--json", "-")
        assert ended.json["choices"][0]["targets"] == ["other/m"]
        assert ended.json["targets"][0]["status"]["state"] == "down"
        assert "\n    down (5 failures in a row" in split("explain", "safe", "--url", url).out
        assert "unknown model 'nothing'" in split("explain", "nothing", "--url", url).complaint


def test_unknown_routes_and_targets_are_reported(split: Split, tmp_path: Path) -> None:
    Path("splitsecond.yaml").write_text(SETTINGS.format(keys=[]))
    said = split("explain", "save").complaint
    assert (
        "there is no route 'save' in splitsecond.yaml. Did you mean safe? Routes: safe, hard."
        in said
    )
    assert "unknown provider 'faster'" in split("explain", "faster/m").complaint
    assert "no gateway answers" in split("explain", "safe", "--url", "http://127.0.0.1:9").complaint
    assert split("explain", "safe", "--config", "missing.yaml").code == 2


@pytest.mark.system
def test_gateway_with_keys_needs_a_key_for_all_routes(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_KEY", KEY)
    monkeypatch.setenv("SMALL_KEY", f"{KEY}-2")
    keys = "[{name: web, key: env:WEB_KEY}, {name: small, key: env:SMALL_KEY, routes: [safe]}]"
    text = SETTINGS.format(keys=keys).replace("{port: 1}", "{port: 1, metrics: key}")
    Path("splitsecond.yaml").write_text(text)
    with gateway(tmp_path) as process:
        url = ready(process)
        assert "no valid key" in split("explain", "safe", "--url", url).complaint
        assert (
            "all routes"
            in split("explain", "safe", "--url", url, "--api-key-env", "SMALL_KEY").complaint
        )
        assert split("explain", "safe", "--url", url, "--api-key-env", "WEB_KEY").code == 0
