"""What `serve --check` says: the trees, the names of keys but never a key, and what is probably
unintended."""

import re
from pathlib import Path

import pytest
from tests.cases import each_case
from tests.gateway.test_settings import ENVIRONMENT, EXAMPLE, KEY

from splitsecond.core.errors import CallerFault
from splitsecond.routing.configuration.checkup import checkup
from splitsecond.routing.configuration.error_messages import SeveralMistakes
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.configuration.warnings import misspelt, problems, unpriced


def test_checkup_lists_all_parts_of_the_example(tmp_path: Path) -> None:
    (tmp_path / "runs" / "2026-11-02").mkdir(parents=True)
    lines = checkup(read(EXAMPLE, ENVIRONMENT, folder=tmp_path))
    assert lines[:8] == [
        "route fast",
        '  fallback(ttft="2s")',
        "    race()",
        '      "groq/llama-3.3-70b-versatile"',
        '      "ours/llama-3.3-70b"',
        '    "groq-2/llama-3.3-70b"',
        "  a broken answer is continued at another target, also after 10 s without a token",
        "route smart",
    ]
    assert "keys of providers in the environment: GROQ_API_KEY" in lines
    text = "\n".join(lines)
    assert (
        "target ours/llama-3.3-70b: http://10.0.0.5:8000/v1, openai, no key, $2.69 an hour" in text
    )
    assert (
        "target groq-2/llama-3.3-70b: https://api.groq.com/openai/v1, "
        "openai, env:OURS, eu, $0.59 in, $0.79 out" in text
    )
    assert "target tuned/big: http://10.0.0.6/v1, openai, no key, $2 in, $3 out" in text
    assert "client web: fast, smart; 600 requests per minute; 50 USD per day" in text
    assert f"log: sqlite:///{tmp_path}/splitsecond.db, kept for 31 days" in text
    assert f"seeds: 1 run in {tmp_path}/runs/2026-11-*" in text
    assert lines[-1] == "ok: 2 routes, 1 key, listens on 127.0.0.1:8800, 1 worker"
    problems = [line for line in lines if line.startswith("problem")]
    assert all("retires it" in line for line in problems)
    assert not any(secret in text for secret in (KEY, "sk-ours-1234", "gsk-1"))


@each_case(
    ("text", "problem"),
    [
        (
            "providers: {openai: {timeouts: {stall: 9s}}}",
            "providers.openai: no key for openai: OPENAI_API_KEY is not set",
        ),
        (
            "providers: {x: {base_url: 'http://api.x.com', api_key: 'env:OURS'}}",
            "our key is sent to http://api.x.com un",
        ),
        (
            "providers: {x: {base_url: 'http://8.8.8.8', api_key: 'env:OURS'}}",
            "our key is sent to http://8.8.8.8 un",
        ),
        ("seeds: [nowhere-*]", "no folder matches nowhere-*"),
        ("{}", "there are no routes"),
        (
            "providers: {groq: {api_key: env:GROQ_API_KEY}}\n"
            "routes: {r: {policy: 'retry(\"groq/llama-3.3-70b-versatile\")'}}",
            r"routes\.r: the provider of groq/llama-3\.3-70b-versatile retires it on 2026-08-16; "
            r"its replacement is "
            r"openai/gpt-oss-120b\. See: splitsecond models groq",
        ),
        (
            'routes: {chat: {policy: \'split("sim/groq", "sim/together", by="key")\'}}',
            "routes.chat: it is split by key, and there are no keys",
        ),
    ],
)
def test_valid_but_probably_unintended_settings_are_problems(text: str, problem: str) -> None:
    said = "\n".join(problems(read(text, ENVIRONMENT)))
    assert re.search(problem, said), said


@each_case(
    ("model", "meant"),
    [
        ("groq/openai/gpt-oss-120", "Did you mean groq/openai/gpt-oss-120b?"),
        ("groq-2/openai/gpt-oss-120", "Did you mean groq-2/openai/gpt-oss-120b?"),
        # its replacement
        ("groq/llama-3.3-70b-versatil", "Did you mean groq/openai/gpt-oss-120b?"),
        ("groq/openai/gpt-oss-120b", ""),  # it is one
        ("groq/something-quite-new", ""),  # the list is older than what providers have
        ("groq/llama-3.3-70b-versatile", ""),  # its retirement is reported already
        ("ours/openai/gpt-oss-120", ""),
    ],
)
def test_misspelt_model_gets_the_nearest_name(model: str, meant: str) -> None:
    providers = "providers: {groq-2: {like: groq}, ours: {base_url: 'http://x'}}"
    text = f"{providers}\nroutes: {{r: {{policy: '\"{model}\"'}}}}"
    assert "".join(misspelt(read(text, ENVIRONMENT))) == (
        f"routes.r: {model} is unknown. {meant}" if meant else ""
    )


@pytest.mark.parametrize(
    "base_url", ["https://api.x.com", "http://10.0.0.5", "http://vllm:8000", "http://a.internal"]
)
def test_unencrypted_key_in_a_private_network_is_no_problem(base_url: str) -> None:
    settings = read(
        f"providers: {{x: {{base_url: '{base_url}', api_key: 'env:OURS'}}}}", ENVIRONMENT
    )
    assert not any("unencrypted" in each for each in problems(settings))


def test_password_of_the_log_url_is_not_shown() -> None:
    environment = ENVIRONMENT | {"LOG_URL": "postgresql://logs:secret-1@db:5432/splitsecond"}
    (line,) = [
        each for each in checkup(read("log: env:LOG_URL", environment)) if each.startswith("log")
    ]
    assert line == "log: postgresql://db:5432/splitsecond, kept for 31 days"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "shared: env:URL\nlog: env:URL\n"
            "keys: [{name: web, key: env:WEB_KEY, usd_per_day: 5}, {name: free, key: "
            "env:OTHER_KEY}]",
            "shared: the limits of 1 key, what workers learn about targets, turns of probes and "
            "the log, "
            "at postgresql://db:5432/fleet",
        ),
        (
            "shared: env:URL\nlog: off",
            "shared: what workers learn about targets and turns of probes, at postgresql://db:5432/fleet",
        ),
    ],
)
def test_checkup_lists_what_a_fleet_shares_and_where(text: str, line: str) -> None:
    environment = ENVIRONMENT | {
        "URL": "postgresql://fleet:secret-2@db:5432/fleet?sslpassword=secret-3"
    }
    lines = checkup(read(text, environment))
    assert line in lines
    assert not any("secret-" in each for each in lines)


def test_a_key_in_a_url_is_redacted() -> None:
    given = """
providers: {mine: {base_url: "http://host.example.com/v1?api-version=1&key=SECRET",
  api_key: "env:MINE"}}
routes: {one: {policy: '"mine/m"'}}
"""
    lines = "\n".join(checkup(read(given, {"MINE": "a-key-of-mine"})))
    assert "SECRET" not in lines
    # its target and the problem with it
    assert lines.count("http://host.example.com/v1?api-version=1&key=[key]") == 2


MISTAKEN = """
listen: {prot: 8800}
keys:
  - {name: web, key: env:WEB_KEY, routes: [fst]}
  - {name: other, key: env:NOT_SET}
providers:
  grok: {api_key: env:X}
  ours: {base_url: "ftp://x", api_format: opnai, headers: {Host: x}, timeouts: {connect: fast}}
  spaced: {base_url: "http://h h/v1"}
routes:
  fast: {policy: 'race("groq/m", "ours/x")'}
  slow: {policy: 'rase("groq/m")'}
  third: {policy: 'fallback("nobody/x", "deepinfra/m")', stall: 3s}
lgo: off
"""


def test_all_mistakes_are_found_at_once() -> None:
    with pytest.raises(SeveralMistakes) as raised:
        read(MISTAKEN, ENVIRONMENT)
    places = [fault.message.partition(": ")[0] for fault in raised.value.mistakes]
    assert places == [
        "the file",
        "listen",
        "providers.grok",
        "providers.ours.api_format",
        "providers.ours.base_url",
        "providers.ours.headers.Host",
        "providers.ours.timeouts",
        "providers.spaced.base_url",
        "routes.slow.policy",
        "routes.third.stall",
        "routes.third.policy",
        "routes.third.policy",
        "keys[0].routes",
        "keys[1].key",
    ]
    assert "unknown field `lgo`" in raised.value.message
    assert raised.value.hint.endswith(
        "The file has 13 other mistakes: `splitsecond serve --check` lists all."
    )


def test_single_mistake_is_raised_unwrapped() -> None:
    with pytest.raises(CallerFault) as raised:
        read("routes: {one: {policy: 'rase(\"groq/m\")'}}", ENVIRONMENT)
    assert not isinstance(raised.value, SeveralMistakes)
    assert "other mistake" not in str(raised.value)


def test_prices_of_the_catalogue_are_shown_with_their_day() -> None:
    text = (
        "providers: {ours: {base_url: 'http://x', like: groq}}\nroutes: {r: {policy: "
        "'\"%s/openai/gpt-oss-120b\"'}}"
    )
    for provider in ("groq", "ours"):
        lines = checkup(read(text % provider, ENVIRONMENT))
        (line,) = [each for each in lines if each.startswith("target")]
        assert re.search(r"\$[\d.]+ in, \$[\d.]+ out \(listed 20\d\d-\d\d-\d\d\)$", line)


LIMITED = """
keys: [{name: web, key: env:WEB_KEY, usd_per_day: 5}]
providers:
  bought: {base_url: 'https://x.test/v1', api_key: env:OURS}
  own: {base_url: 'http://10.0.0.5/v1'}
  half: {base_url: 'http://10.0.0.6/v1', price: {input_usd: 1}}
routes: {one: {policy: 'race("groq/no-such-model", "groq/llama-3.3-70b-versatile", "own/x",
  "bought/x", "half/x")'}}
"""


def test_missing_prices_are_problems_only_with_a_spending_limit() -> None:
    settings = read(LIMITED, ENVIRONMENT)
    assert [each.partition(":")[0] for each in problems(settings)] == [
        "providers.bought",
        "providers.own",
        "routes.one",
    ]
    assert [each.split(" ")[1] for each in unpriced(settings)] == ["groq/no-such-model", "half/x"]
    strict = read(f"{LIMITED}\nrequire_prices: true", ENVIRONMENT)
    assert [each.split(" ")[1] for each in unpriced(strict)] == [
        "groq/no-such-model",
        "own/x",
        "bought/x",
        "half/x",
    ]
    assert not any("is free" in each for each in problems(strict))
    unlimited = read(LIMITED.replace(", usd_per_day: 5", ""), ENVIRONMENT)
    assert not any("price" in each for each in (*problems(unlimited), *unpriced(unlimited)))
