"""`splitsecond explain`: a gateway that runs is asked; where none does, what is written down."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.cli.conftest import Split
from tests.gateway.conftest import KEY, gateway, ready

SETTINGS = """
listen: {{port: 1}}
keys: {keys}
providers: {{gone: {{base_url: "http://127.0.0.1:9/v1"}}, other: {{base_url: "http://127.0.0.1:9/v1"}}}}
routes:
  safe: {{policy: 'fallback("gone/m", "other/m")'}}
  hard: {{policy: 'by_complexity(simple="gone/m", complex="other/m")'}}
"""


def test_without_a_gateway_it_says_what_a_new_one_would_do(split: Split, tmp_path: Path) -> None:
    Path("splitsecond.yaml").write_text(SETTINGS.format(keys=[]))
    ended = split("explain", "safe", "--json", "-")
    assert ended.code == 0
    assert ended.json["choices"] == [{"calls": 100, "targets": ["gone/m"], "why": "", "refused": ""}]
    assert [each["stands"]["state"] for each in ended.json["targets"]] == ["up", "up"]
    assert "none runs" in ended.json["source"]
    shown = split("explain", "safe").out
    assert '  fallback()\n    "gone/m"\n    "other/m"\n' in shown
    assert "100%  gone/m" in shown
    hard = split("explain", "hard", "--prompt", "Prove step by step that there are infinitely many primes. " * 20)
    assert "100%  other/m" in hard.out


def test_what_a_target_costs(split: Split) -> None:
    Path("splitsecond.yaml").write_text("""
providers:
  rented: {base_url: "http://127.0.0.1:9/v1", price: {per_hour_usd: 2.69}}
  sold: {base_url: "http://127.0.0.1:9/v1", price: {input: 1, output: 2}}
  other: {base_url: "http://127.0.0.1:9/v1"}
routes: {all: {policy: 'fallback("rented/m", "sold/m", "other/m")'}}
""")
    shown = [line for line in split("explain", "all").out.splitlines() if "under way" in line]
    assert [line.split("speed unknown, ")[1] for line in shown] == [
        "$2.69 an hour",
        "$1 in, $2 out a million tokens, $1.25 blended",
        "price unknown",
    ]


def test_a_running_gateway_says_what_it_has_seen(split: Split, tmp_path: Path) -> None:
    Path("splitsecond.yaml").write_text(SETTINGS.format(keys=[]))
    with gateway(tmp_path) as process:
        url = ready(process)
        ask = urllib.request.Request(
            f"{url}/chat/completions", b'{"model":"gone/m","messages":[]}', {"content-type": "application/json"}
        )
        for _ in range(6):
            try:
                urllib.request.urlopen(ask, timeout=20).close()
            except urllib.error.HTTPError as error:
                error.close()
        ended = split("explain", "safe", "--url", url, "--json", "-")
        assert ended.json["choices"][0]["targets"] == ["other/m"]
        assert ended.json["targets"][0]["stands"]["state"] == "down"
        assert "failures in a row" in split("explain", "safe", "--url", url).out
        assert "no model 'nothing'" in split("explain", "nothing", "--url", url).complaint


def test_what_cannot_be_explained(split: Split, tmp_path: Path) -> None:
    Path("splitsecond.yaml").write_text(SETTINGS.format(keys=[]))
    said = split("explain", "save").complaint
    assert "there is no route 'save' in splitsecond.yaml. Did you mean safe? Routes: safe, hard." in said
    assert "unknown provider 'faster'" in split("explain", "faster/m").complaint
    assert "no gateway answers" in split("explain", "safe", "--url", "http://127.0.0.1:9").complaint
    assert split("explain", "safe", "--config", "missing.yaml").code == 2


def test_a_gateway_for_others_wants_a_key_for_all_routes(
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
        assert "all routes" in split("explain", "safe", "--url", url, "--api-key-env", "SMALL_KEY").complaint
        assert split("explain", "safe", "--url", url, "--api-key-env", "WEB_KEY").code == 0
