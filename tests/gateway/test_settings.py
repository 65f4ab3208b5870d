"""The configuration: what is taken, and for every kind of mistake where it is and what may be
meant."""

import contextlib
import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core import clock
from splitsecond.core.catalog.provider import provider
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.spec import Timeouts
from splitsecond.log.store.settings import LogSettings
from splitsecond.routing.configuration.file_schema import ConfigFile
from splitsecond.routing.configuration.reading import load, read
from splitsecond.routing.configuration.settings import GatewaySettings, Listen, check_reach
from splitsecond.routing.router.router import check_settings
from splitsecond.routing.router.settings import PriceConfig, ResumeSettings

KEY = "0123456789abcdef-web"
ENVIRONMENT = {
    "WEB_KEY": KEY,
    "OTHER_KEY": KEY + "2",
    "SHORT": "abc",
    "OURS": "sk-ours-1234",
    "GROQ_API_KEY": "gsk-1",
}
GOOD = """
listen: {host: 127.0.0.1, port: 8801}
keys:
  - {name: web, key: env:WEB_KEY, routes: [fast, groq/*]}
providers:
  ours:
    base_url: http://10.0.0.5:8000/v1
    api_key: env:OURS
    headers: {x-team: web, x-token: env:OURS}
    timeouts: {connect: 2s, stall: 10s}
routes:
  fast: {policy: 'fallback("ours/llama", "groq/llama-3.3-70b-versatile", ttft="2s")'}
"""


def test_a_whole_configuration() -> None:
    settings = read(GOOD, ENVIRONMENT)
    (key,) = settings.keys
    assert [key.allows(model) for model in ("fast", "groq/x", "ours/x", "other")] == [
        True,
        True,
        False,
        False,
    ]
    spec = settings.spec("ours/llama")
    assert (spec.base_url, spec.model, spec.headers) == (
        "http://10.0.0.5:8000/v1",
        "llama",
        {"x-team": "web", "x-token": "sk-ours-1234"},
    )
    assert (spec.timeouts.connect_ms, spec.timeouts.stall_ms) == (2000, 10_000)
    assert settings.environment[spec.api_key_env[0]] == "sk-ours-1234"
    assert KEY not in repr(settings.keys)
    assert list(settings.routes) == ["fast"]


def test_region_is_a_label_without_regional_addresses() -> None:
    settings = read(
        "providers: {groq: {region: eu}, qwen: {region: mars, base_url: 'http://x'}}", ENVIRONMENT
    )
    assert [settings.providers[name].region for name in ("groq", "qwen")] == ["eu", "mars"]
    assert settings.providers["qwen"].base_url == "http://x"


def test_key_in_a_similar_variable_gets_a_hint() -> None:
    with pytest.raises(CallerFault) as caught:
        read("routes: {fast: {policy: '\"openai/x\"'}}", {"OPENAI_KEY": "sk-123456789"})
    assert caught.value.hint == "OPENAI_KEY is set: is it that? export OPENAI_API_KEY=..."


def test_timeouts_have_defaults() -> None:
    text = (
        "providers: {x: {base_url: 'http://x'}, y: {base_url: 'http://y', timeouts: {head: 120s}}}"
    )
    settings = read(text, {"GROQ_API_KEY": "gsk-1234567890"})
    usual = Timeouts(
        connect_ms=5_000, head_ms=60_000, first_token_ms=60_000, stall_ms=30_000, total_ms=None
    )
    assert settings.spec("x/m").timeouts == settings.spec("groq/m").timeouts == usual
    assert settings.spec("y/m").timeouts == msgspec.structs.replace(usual, head_ms=120_000)


EXAMPLE = """
listen: {host: 127.0.0.1, port: 8800, workers: 1, cors: [], metrics: loopback, max_body_mib: 32}
keys:
  - {name: web, key: env:WEB_KEY, routes: [fast, smart], requests_per_minute: 600, usd_per_day: 50}
providers:
  groq: {api_key: env:GROQ_API_KEY}
  ours: {api_format: openai, base_url: http://10.0.0.5:8000/v1, price: {per_hour_usd: 2.69}}
  groq-2: {like: groq, api_key: env:OURS, account: second, region: eu}
  tuned:
    base_url: http://10.0.0.6/v1
    price: {input_usd: 1}
    models: {big: {context: 131072, price: {input_usd: 2, output_usd: 3}}}
routes:
  fast:
    policy: fallback(race("groq/llama-3.3-70b-versatile", "ours/llama-3.3-70b"),
      "groq-2/llama-3.3-70b", ttft="2s")
    resume: replay
    stall: 10s
  smart:
    policy: fallback("tuned/big", "ours/llama-3.3-70b")
log: sqlite:///splitsecond.db
seeds: [runs/2026-11-*]
"""


def test_example_configuration_is_read() -> None:
    settings = read(EXAMPLE, ENVIRONMENT, folder=Path("/etc/splitsecond"))
    (key,) = settings.keys
    assert (key.requests_per_minute, key.usd_per_day) == (600, 50.0)
    assert settings.resumes == {"fast": ResumeSettings(10 * clock.NS_PER_S)}
    assert settings.log == LogSettings("sqlite:////etc/splitsecond/splitsecond.db")
    assert settings.seeds == ("/etc/splitsecond/runs/2026-11-*",)
    assert settings.spec("groq-2/x").base_url == settings.spec("groq/x").base_url


WHOLE = """
listen: {host: 127.0.0.1, port: 8800, workers: 1, cors: [], metrics: loopback, max_body_mib: 32}
keys:
  - {name: web, key: env:WEB_KEY, routes: [fast, smart], requests_per_minute: 600, usd_per_day: 50}
providers:
  groq: {api_key: env:GROQ_API_KEY}
  ours: {api_format: openai, base_url: http://10.0.0.5:8000/v1, price: {per_hour_usd: 2.69}}
routes:
  fast:
    policy: fallback(race("groq/llama-3.3-70b-versatile", "ours/llama-3.3-70b"),
      "together/llama-3.3-70b", ttft="2s")
    resume: replay            # optional; stall: 10s
  cheap-but-quick:
    policy: >-
      cheapest("deepinfra/llama-3.3-70b", "together/llama-3.3-70b",
        "groq/llama-3.3-70b-versatile", within="voice")
  smart:
    policy: >-
      by_complexity(simple="groq/llama-3.1-8b-instant", medium="openai/gpt-4o",
        complex="anthropic/claude-opus-4-6")
log: sqlite:///splitsecond.db      # or {url: ..., keep_days: 31}; env:NAME for URLs with passwords
seeds: [runs/2026-11-*]            # run folders whose figures seed the estimates; optional
"""


def test_policies_of_every_kind_can_be_built() -> None:
    named = ("TOGETHER_API_KEY", "DEEPINFRA_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
    settings = read(WHOLE, ENVIRONMENT | dict.fromkeys(named, "sk-1234567890"))
    check_settings(settings)
    assert list(settings.routes) == ["fast", "cheap-but-quick", "smart"]


def test_stream_false_sets_the_quirk_stream_whole() -> None:
    spec = read("providers: {x: {base_url: 'http://x', stream: false}}", {}).spec("x/m")
    assert spec.quirks == {"stream_whole": False}


@pytest.mark.parametrize(
    ("given", "quirks"),
    [
        (
            "",
            {
                "usage": "last_chunk",
                "reasoning_field": "content",
                "rate_limits": "x-ratelimit",
                "stream_options": False,
            },
        ),
        ("quirks: {stream_options: true}", {"usage": "last_chunk", "stream_options": True}),
        ("api_format: anthropic, quirks: {rate_limits: none}", {"rate_limits": "none"}),
        ("api_format: anthropic", {}),
    ],
)
def test_configured_quirks_override_the_catalogues(given: str, quirks: dict[str, object]) -> None:
    spec = read(
        f"providers: {{x: {{like: mistral, {given}}}}}", ENVIRONMENT | {"MISTRAL_API_KEY": "k"}
    ).spec("x/m")
    assert spec.quirks.items() >= quirks.items()
    assert ("usage" in spec.quirks) == ("usage" in quirks)


def test_region_of_the_catalogue_determines_the_address() -> None:
    text = "providers: {cn: {like: qwen, region: cn}, qwen-us: {timeouts: {stall: 9s}}}"
    settings = read(text, {"DASHSCOPE_API_KEY": "sk-1234567890"})
    for name, region in (("cn", "cn"), ("qwen-us", "us")):
        assert settings.spec(f"{name}/qwen-plus").base_url == provider(f"qwen-{region}").base_url
        assert settings.about(f"{name}/qwen-plus").region == region


def test_same_key_at_different_hosts_is_a_separate_account() -> None:
    text = "providers: {" + ", ".join(
        f"{name}: {{base_url: 'http://{host}/{name}', api_key: env:OURS}}"
        for name, host in (("a", "10.0.0.5:8000"), ("b", "10.0.0.6:8000"), ("c", "10.0.0.5:8000"))
    )
    settings = read(text + "}", {"OURS": "sk-1234567890"})
    a, b, c = (settings.about(f"{name}/m").account for name in "abc")
    assert a == c != b


def test_a_providers_prefill_overrides_the_catalogues() -> None:
    text = (
        "providers: {p: {base_url: 'http://x', prefill: prefix}, no: {like: groq, api_key: "
        "env:OURS, prefill: false}}"
    )
    settings = read(text, ENVIRONMENT)
    assert [settings.spec(target).prefill for target in ("p/x", "no/x", "groq/x")] == [
        "prefix",
        False,
        True,
    ]


def test_targets_have_like_account_region_and_price() -> None:
    settings = read(EXAMPLE, ENVIRONMENT)
    ours = settings.about("ours/llama-3.3-70b")
    assert (ours.like, ours.account, ours.price) == ("", "ours", PriceConfig(per_hour_usd=2.69))
    second = settings.about("groq-2/x")
    assert (second.like, second.account, second.region) == ("groq", "second", "eu")
    assert settings.about("groq/x").account == "GROQ_API_KEY at api.groq.com"
    assert settings.about("vllm/x").like == "vllm"
    assert [settings.about(f"tuned/{model}").price for model in ("big", "small")] == [
        PriceConfig(input_usd=2, output_usd=3),
        PriceConfig(input_usd=1),
    ]
    assert [settings.about("tuned/big").context_tokens(model) for model in ("big", "small")] == [
        131072,
        None,
    ]


def test_key_header_follows_the_api_format_of_a_provider() -> None:
    text = "providers: {x: {base_url: 'http://x/v1', api_format: anthropic, api_key: 'env:OURS'}}"
    assert read(text, ENVIRONMENT).spec("x/m").auth == "x-api-key"


def test_a_route_may_be_its_policy_alone() -> None:
    short, long = (
        read(text, ENVIRONMENT)
        for text in ("routes: {fast: groq/x}", "routes: {fast: {policy: groq/x}}")
    )
    assert short.routes == long.routes
    assert [*short.routes] == ["fast"]


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("off", None),
        ("sqlite:////var/log.db", LogSettings("sqlite:////var/log.db")),
        ("logs/a.db", LogSettings("sqlite:////etc/logs/a.db")),
        ("/var/log.db", LogSettings("sqlite:////var/log.db")),
        ("{url: a.db, keep_days: 7}", LogSettings("sqlite:////etc/a.db", 7)),
        ("{url: 'sqlite:///a.db', keep_days: 7}", LogSettings("sqlite:////etc/a.db", 7)),
        ("postgresql://logs@db/splitsecond", LogSettings("postgresql://logs@db/splitsecond")),
        ("env:LOG_URL", LogSettings("postgresql://logs:secret-1@db/splitsecond")),
    ],
)
def test_setting_log_determines_the_url(log: str, found: LogSettings | None) -> None:
    environment = ENVIRONMENT | {"LOG_URL": "postgresql://logs:secret-1@db/splitsecond"}
    settings = read(f"log: {log}", environment, folder=Path("/etc"))
    assert settings.log == found
    assert "secret-1" not in repr(settings.log)


def test_providers_with_a_key_are_served_without_a_file() -> None:
    settings = GatewaySettings(environment=ENVIRONMENT)
    assert settings.spec("groq/x").api_key_env == ("GROQ_API_KEY",)
    with pytest.raises(CallerFault, match="OPENAI_API_KEY"):
        settings.spec("openai/x")
    assert read("{}", {}).listen == Listen()


@each_case(
    ("text", "complaint"),
    [
        ("# nothing but a comment\n", "the file: it has no entries"),
        ("listen: [", "line 1, column 10: "),
        ("- 1", "the file: Expected `object`"),
        ("lisen: {}", "the file: .*`lisen`.* Did you mean listen?"),
        ("listen: {prot: 1}", "listen: .*`prot`.* Did you mean port"),
        ("listen: {port: x}", "listen.port: Expected `int`"),
        ("listen: {port: 70000}", "listen.port: "),
        ("listen: {}\nlisten: {}", "line 2, column 1: listen is given twice"),
        ("? [a]\n: b", ""),
        (
            "keys: [{name: a, key: sk-in-the-file-1234}]",
            r"keys\[0\].key: the file must not contain a secret.* env:NAME or file:PATH",
        ),
        (
            "keys: [{name: a, key: 'env:NOT_SET'}]",
            r"keys\[0\].key: the environment variable NOT_SET is not set",
        ),
        ("keys: [{name: a, key: 'file:/not/there'}]", r"keys\[0\].key: cannot read"),
        (
            "keys: [{name: a, key: 'env:SHORT'}]",
            r"keys\[0\].key: the key has 3 characters, expected 16",
        ),
        ("keys: [{key: 'env:WEB_KEY'}]", r"keys\[0\]: .*`name`"),
        (
            "keys: [{name: a, key: 'env:WEB_KEY'}, {name: b, key: 'env:WEB_KEY'}]",
            r"keys\[1\].key: another client has the same",
        ),
        (
            "keys: [{name: a, key: 'env:WEB_KEY'}, {name: a, key: 'env:OTHER_KEY'}]",
            r"keys\[1\].name: a is given twice",
        ),
        (
            GOOD.replace("[fast,", "[fats,"),
            r"keys\[0\].routes: there is no route fats. Did you mean fast?",
        ),
        ("providers: {grok: {}}", "providers.grok: not in the catalogue.* Did you mean groq"),
        (
            "providers: {qwen-mars: {}}",
            "providers.qwen-mars: not in the catalogue.* Did you mean qwen-us",
        ),
        (
            "providers: {qwen: {region: mars}}",
            "providers.qwen.region: .* no region mars of .* It has cn, .*base_url",
        ),
        (
            "providers: {mine: {like: qwen, region: uk}}",
            "providers.mine.region: .* Did you mean us",
        ),
        (
            "providers: {mine: {like: qwen-uk}}",
            "providers.mine.like: qwen-uk is not in .* Did you mean qwen-us",
        ),
        (
            "providers: {groq: {api_key: 'env:GROQ_KEY'}}",
            "GROQ_KEY is not set.* GROQ_API_KEY is set: is it that?",
        ),
        ("providers: {'a b': {base_url: 'http://x'}}", "providers.a b: a provider's name"),
        ("providers: {x: {base_url: 'ftp://x'}}", "providers.x.base_url: .*ftp"),
        (
            "providers: {x: {base_url: 'http://x', api_format: opnai}}",
            "x.api_format: got opnai.* Did you mean openai?",
        ),
        (
            "providers: {x: {base_url: 'http://x', api_key: sk-12345678}}",
            "providers.x.api_key: the file must not contain a secret",
        ),
        (
            "providers: {x: {base_url: 'http://x', headers: {x-key: abc}}}",
            "x.headers.x-key: the file must not contain a secret",
        ),
        (
            "providers: {x: {base_url: 'http://x', headers: {Host: abc}}}",
            "x.headers.Host: this header cannot be set",
        ),
        (
            "providers: {x: {base_url: 'http://x', trusted: true, headers: {Traceparent: abc}}}",
            "x.headers.Traceparent: trusted: true gives each request its own traceparent",
        ),
        (
            "providers: {x: {base_url: 'http://x', timeouts: {stall: 10}}}",
            "x.timeouts.stall: Expected `str",
        ),
        ("providers: {x: {base_url: 'http://x', timeouts: {stall: 1w}}}", "x.timeouts: stall is "),
        (
            'routes: {fast: {policy: \'rase("a/x", "b/x")\'}}',
            "fast.policy: at character 1: .* Did you mean race",
        ),
        (
            "routes: {fast: {policy: '\"gorq/x\"'}}",
            "fast.policy: unknown provider 'gorq'.* Did you mean groq",
        ),
        (
            "routes: {fast: {policy: '\"ours/x\"'}}",
            r"'ours'\..* needs an entry .* providers: {NAME: {base_url: URL}}\.$",
        ),
        (
            "routes: {fast: {policy: '\"openai/x\"'}}",
            "fast.policy: no key for openai: OPENAI_API_KEY is not set",
        ),
        (
            "routes: {fast: {policy: '\"qwen-hk/x\"'}}",
            "DASHSCOPE_API_KEY is not set. export DASHSCOPE_API_KEY=",
        ),
        ("routes: {fast: {policy: '\"qwen-hkk/x\"'}}", "no region 'hkk'. Did you mean qwen-hk"),
        (
            "providers: {mine: {base_url: 'http://x'}}\nroutes: {fast: {policy: '\"mien/x\"'}}",
            "fast.policy: unknown provider 'mien'. Did you mean mine",
        ),
        (
            "routes: {fast: {policy: '\"groq\"'}}",
            "fast.policy: 'groq' is not a target.* {base_url: URL}}",
        ),
        ("routes: {a/b: {policy: '\"groq/x\"'}}", "routes.a/b: a route's name"),
        ("routes: {fast: {}}", "routes.fast: .*`policy`"),
        ("routes: {fast: 7}", "routes.fast: Expected `object`"),
        ("routes: {fast: 'race(groq/x, '}", "routes.fast.policy: "),
        (
            "routes: {fast: {policy: groq/x, at_limit: stop}}",
            "routes.fast.at_limit: at_limit has no effect .* Add usd_per_session or",
        ),
        (
            "routes: {fast: {policy: '\"groq/x\"', stall: 2s}}",
            "routes.fast.stall: stall has no effect without resume",
        ),
        (
            "routes: {fast: {policy: '\"groq/x\"', resume: replay, stall: 2}}",
            "routes.fast.stall: Expected `str",
        ),
        (
            "routes: {fast: {policy: '\"groq/x\"', resume: replay, stall: 2w}}",
            'fast.stall: "2w", expected a duration',
        ),
        (
            "routes: {fast: {policy: '\"groq/x\"', resume: rewind}}",
            "routes.fast.resume: Invalid enum value 'rewind'",
        ),
        (
            "routes: {fast: {policy: '\"groq/x\"', resume: prefill}}",
            "fast.resume: .*'prefill'. Expected one of replay",
        ),
        ("listen: {workers: 0}", "listen.workers: Expected `int` >= 1"),
        ("listen: {metrics: open}", "listen.metrics: Invalid enum value 'open'"),
        (
            "listen: {cors: [https://a.example/page]}",
            r"listen.cors\[0\]: https://a.example/page is not an origin",
        ),
        (
            "keys: [{name: a, key: 'env:WEB_KEY', usd_per_day: 0}]",
            r"keys\[0\].usd_per_day: Expected `float` > 0",
        ),
        (
            "keys: [{name: a, key: 'env:WEB_KEY', requests_per_min: 6}]",
            "Did you mean requests_per_minute",
        ),
        (
            "providers: {x: {like: grok}}",
            "providers.x.like: grok is not in the catalogue. Did you mean groq",
        ),
        (
            "providers: {x: {base_url: 'http://x', quirks: {strem_options: no}}}",
            "providers.x.quirks: .*strem_options.*Did you mean stream_options",
        ),
        (
            "providers: {x: {base_url: 'http://x', quirks: {usage: somewhere}}}",
            "providers.x.quirks.usage: .*somewhere",
        ),
        (
            "providers: {x: {base_url: 'http://x', price: {inputs: 1}}}",
            "providers.x.price: .* Did you mean input_usd",
        ),
        (
            "providers: {x: {base_url: 'http://x', price: {input: 1, output: 2}}}",
            "providers.x.price: .*`input`. Did you mean input_usd",
        ),
        (
            "providers: {x: {base_url: 'http://x', price: {input_usd: -1}}}",
            "providers.x.price.input_usd: Expected `float` >= 0",
        ),
        (
            "providers: {x: {base_url: 'http://x', models: {m: {contxt: 1}}}}",
            "Did you mean context or output?",
        ),
        (
            "providers: {x: {base_url: 'http://x', auth: basic}}",
            "providers.x.auth: Invalid enum value 'basic'",
        ),
        (
            "log: postgresql://a:sk-b@c/d",
            "log: the file must not contain a password.* Write env:NAME",
        ),
        ("log: {url: 'sqlite:///a', keep_day: 3}", "log: .*`keep_day`.* Did you mean keep_days?"),
        ("log: {url: 'env:NOT_SET'}", "log.url: the environment variable NOT_SET is not set"),
        ("log: 7", "log: Expected `object`"),
        (
            "keys: [{name: a, key: env:WEB_KEY, usd_per_day: 1e30}]",
            r"keys\[0\].usd_per_day: Expected `float` <= 1",
        ),
        (
            "keys: [{name: a, key: env:WEB_KEY, requests_per_minute: 9999999999}]",
            "Expected `int` <= 1000000000",
        ),
        (
            "keys: [{name: a, key: env:WEB_KEY, usd_per_day: .inf}]",
            "line 1, column 49: expected a finite number",
        ),
        (
            "providers: {groq: {price: {input_usd: 1e30}}}",
            "providers.groq.price.input_usd: Expected `float` <= 1",
        ),
        ("seeds: runs", "seeds: Expected `array`"),
        ("keys: {}", "keys: Expected `array`"),
        ("routes: []", "routes: Expected `object`"),
        ("listen: {port: 1:2:3:4:5:6:7:8:9e}", ""),
    ],
)
def test_mistake_is_reported_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(CallerFault) as caught:
        read(text, ENVIRONMENT)
    assert caught.value.kind == "bad_config"
    assert re.search(complaint.replace("?", r"\?") if complaint else "", str(caught.value)), str(
        caught.value
    )
    assert "sk-" not in str(caught.value)


def test_empty_sections_equal_absent_ones() -> None:
    empty = read("listen:\nkeys:\nproviders:\n  groq:\nroutes:\nlog:\nseeds:\n", ENVIRONMENT)
    assert empty.spec("groq/x") == GatewaySettings(environment=ENVIRONMENT).spec("groq/x")
    assert (empty.listen, empty.keys, empty.routes, empty.log, empty.seeds) == (
        Listen(),
        (),
        {},
        None,
        (),
    )


def test_only_true_and_false_are_booleans() -> None:
    assert read("listen: {metrics: off}", {}).listen.metrics == "off"
    text = (
        "providers: {x: {base_url: 'http://x', quirks: {stream_options: false}, headers: "
        "{x-answer: yes}}}"
    )
    spec = read(text, {}).spec("x/m")
    assert (spec.quirks, spec.headers) == ({"stream_options": False}, {"x-answer": "yes"})


@given(
    st.text() | st.dictionaries(st.sampled_from(ConfigFile.__struct_fields__), st.text()).map(str)
)
def test_any_text_gives_settings_or_a_caller_fault(text: str) -> None:
    with contextlib.suppress(CallerFault):
        read(text, ENVIRONMENT)


def test_file_is_named_in_errors_and_secrets_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    file = tmp_path / "splitsecond.yaml"
    file.write_text("keys: [{name: a, key: 'file:key'}]")
    assert len(load(file, {}).keys) == 1
    file.write_text("keys: 3")
    with pytest.raises(CallerFault, match=r"splitsecond.yaml: keys: "):
        load(file, {})
    with pytest.raises(CallerFault, match="cannot read"):
        load(tmp_path / "none.yaml", {})


@each_case(
    ("host", "only_here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
    ],
)
def test_public_address_requires_keys(host: str, only_here: bool) -> None:
    settings = GatewaySettings(listen=Listen(host=host))
    if only_here:
        check_reach(settings)
    else:
        with pytest.raises(CallerFault, match="without keys"):
            check_reach(settings)
    check_reach(msgspec.structs.replace(read(GOOD, ENVIRONMENT), listen=Listen(host=host)))


def test_a_providers_api_format_has_an_older_name() -> None:
    for field in ("api_format", "dialect"):
        spec = read(f"providers: {{own: {{base_url: 'http://x', {field}: ollama}}}}", {}).providers[
            "own"
        ]
        assert spec.api_format == "ollama"


def test_pipes_devices_and_endless_files_are_refused(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(2**24 + 1)
    for path in (pipe, Path("/dev/zero"), large):
        with pytest.raises(CallerFault, match=r"regular file|more than 16,777,216 characters"):
            load(path, {})
        with pytest.raises(
            CallerFault, match=r"keys.*(regular file|more than 16,777,216 characters)"
        ):
            read(f"keys: [{{name: a, key: 'file:{path}'}}]", {})
