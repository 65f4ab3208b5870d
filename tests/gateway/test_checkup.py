"""What `serve --check` says: the trees, the names of keys but never a key, and what is hardly meant."""

import re
from pathlib import Path

import pytest
from tests.gateway.test_settings import ENVIRONMENT, EXAMPLE, KEY

from splitsecond.gateway.configuration.checkup import checkup
from splitsecond.gateway.configuration.problems import misspelt, problems
from splitsecond.gateway.configuration.reading import read


def test_all_of_the_example(tmp_path: Path) -> None:
    (tmp_path / "runs" / "2026-11-02").mkdir(parents=True)
    lines = checkup(read(EXAMPLE, ENVIRONMENT, folder=tmp_path))
    assert lines[:8] == [
        "route fast",
        '  fallback(ttft="2s")',
        "    race()",
        '      "groq/llama-3.3-70b-versatile"',
        '      "ours/llama-3.3-70b"',
        '    "groq-2/llama-3.3-70b"',
        "  carried on elsewhere where it breaks off (replay), also after 10 s without a token",
        "route smart",
    ]
    assert "keys of providers in the environment: GROQ_API_KEY" in lines
    text = "\n".join(lines)
    assert "target ours/llama-3.3-70b: http://10.0.0.5:8000/v1, openai, no key" in text
    assert "target groq-2/llama-3.3-70b: https://api.groq.com/openai/v1, openai, env:OURS, eu" in text
    assert "target tuned/big: http://10.0.0.6/v1, openai, no key, $2 in, $3 out" in text
    assert "client web: fast, smart; 600 requests per minute; 50 USD per day" in text
    assert f"log: sqlite:///{tmp_path}/splitsecond.db, kept for 30 days" in text
    assert f"seeds: 1 run in {tmp_path}/runs/2026-11-*" in text
    assert lines[-1] == "ok: 2 routes, 1 key, listens on 127.0.0.1:8800, 1 worker"
    assert all("taken down" in line for line in lines if line.startswith("problem"))
    assert not any(secret in text for secret in (KEY, "sk-ours-1234", "gsk-1"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "providers: {openai: {timeouts: {stall: 9s}}}",
            "providers.openai: no key for openai: OPENAI_API_KEY is not set",
        ),
        ("providers: {x: {base_url: 'http://api.x.com', api_key: 'env:OURS'}}", "our key goes to http://api.x.com un"),
        ("providers: {x: {base_url: 'http://8.8.8.8', api_key: 'env:OURS'}}", "our key goes to http://8.8.8.8 un"),
        ("seeds: [nowhere-*]", "there is no .*nowhere-*"),
        ("{}", "there are no routes"),
        (
            "providers: {groq: {api_key: env:GROQ_API_KEY}}\n"
            "routes: {r: {policy: 'retry(\"groq/llama-3.3-70b-versatile\")'}}",
            r"routes\.r: groq/llama-3\.3-70b-versatile is taken down on 2026-08-16 by its provider, "
            r"which names openai/gpt-oss-120b in its place\. See: splitsecond models groq",
        ),
    ],
)
def test_what_is_hardly_meant(text: str, problem: str) -> None:
    said = "\n".join(problems(read(text, ENVIRONMENT)))
    assert re.search(problem, said), said


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("groq/openai/gpt-oss-120", "Did you mean groq/openai/gpt-oss-120b?"),
        ("groq-2/openai/gpt-oss-120", "Did you mean groq-2/openai/gpt-oss-120b?"),
        ("groq/llama-3.3-70b-versatil", "Did you mean groq/openai/gpt-oss-120b?"),  # what came in its place
        ("groq/openai/gpt-oss-120b", ""),  # it is one
        ("groq/something-quite-new", ""),  # the list is older than what providers have
        ("groq/llama-3.3-70b-versatile", ""),  # that it is taken down is said already
        ("ours/openai/gpt-oss-120", ""),
    ],
)
def test_a_model_that_is_called_almost_like_one_is_named(model: str, meant: str) -> None:
    providers = "providers: {groq-2: {like: groq}, ours: {base_url: 'http://x'}}"
    text = f"{providers}\nroutes: {{r: {{policy: '\"{model}\"'}}}}"
    assert "".join(misspelt(read(text, ENVIRONMENT))) == (
        f"routes.r: {model} is not known here. {meant}" if meant else ""
    )


@pytest.mark.parametrize("base_url", ["https://api.x.com", "http://10.0.0.5", "http://vllm:8000", "http://a.internal"])
def test_a_key_within_our_own_network_is_no_problem(base_url: str) -> None:
    settings = read(f"providers: {{x: {{base_url: '{base_url}', api_key: 'env:OURS'}}}}", ENVIRONMENT)
    assert not any("unencrypted" in each for each in problems(settings))


def test_the_password_of_a_log_is_not_shown() -> None:
    environment = ENVIRONMENT | {"LOG_URL": "postgresql://logs:secret-1@db:5432/splitsecond"}
    (line,) = [each for each in checkup(read("log: env:LOG_URL", environment)) if each.startswith("log")]
    assert line == "log: postgresql://db/splitsecond, kept for 30 days"
