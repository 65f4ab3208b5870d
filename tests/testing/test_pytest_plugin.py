"""The pytest plugin: the fixtures for other programs, and a run without it, which loads nothing."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytestmark = pytest.mark.system

pytest_plugins = ["pytester"]
USES = """
import json
import urllib.request


def ask(provider, model="m"):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hello"}]}).encode()
    with urllib.request.urlopen(provider.base_url + "/chat/completions", body) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def test_one(splitsecond_simulator):
    splitsecond_simulator.reply("Hi.")
    assert ask(splitsecond_simulator) == "Hi."
    assert len(splitsecond_simulator.requests()) == 1


def test_other(splitsecond_simulator):
    assert splitsecond_simulator.requests() == []
    assert ask(splitsecond_simulator) == FIRST
"""
PROFILE = """
title = "Own"
model = "m"
[[table]]
concurrency = 1
ttft_ms = { p50 = 1, p95 = 1 }
tps = { p50 = 1000, p95 = 1000 }
[[replies]]
text = "Good day."
"""


@pytest.fixture
def options() -> list[str]:
    """The options of a pytest run that load the plugin, unless the installed package does that."""
    installed = entry_points(group="pytest11", name="splitsecond")
    return [
        "-p",
        "no:cacheprovider",
        *([] if installed else ["-p", "splitsecond.testing.pytest_plugin"]),
    ]


def test_a_profile_of_the_project(
    system: None, pytester: pytest.Pytester, options: list[str]
) -> None:
    pytester.makepyfile(USES.replace("FIRST", '"Good day."'))
    pytester.makeini("[pytest]\nsplitsecond_profile = mocks/own.toml\nfilterwarnings = error")
    pytester.mkdir("mocks").joinpath("own.toml").write_text(PROFILE)
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=2)


def test_a_profile_that_does_not_exist(
    system: None, pytester: pytest.Pytester, options: list[str]
) -> None:
    pytester.makepyfile(USES)
    pytester.makeini("[pytest]\nsplitsecond_profile = grok")
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*unknown profile 'grok'*groq*"])


def test_run_without_the_fixture_does_not_load_the_simulator(system: None) -> None:
    program = """
import sys, pytest
import splitsecond.testing.pytest_plugin
print(sorted(name for name in sys.modules if name.startswith(("splitsecond", "msgspec", "numpy"))))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (
        ended.stdout.strip()
        == "['splitsecond', 'splitsecond.testing', 'splitsecond.testing.pytest_plugin']"
    )
