"""The configuration: what is taken, and for every kind of mistake where it is and what may be meant."""

import re
from pathlib import Path

import msgspec
import pytest

from splitsecond.errors import CallerFault
from splitsecond.gateway.reading import load, read
from splitsecond.gateway.settings import Listen, Settings, check_reach

KEY = "0123456789abcdef-web"
ENVIRONMENT = {"WEB_KEY": KEY, "OTHER_KEY": KEY + "2", "SHORT": "abc", "OURS": "sk-ours-1234", "GROQ_API_KEY": "gsk-1"}
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
    assert [key.allows(model) for model in ("fast", "groq/x", "ours/x", "other")] == [True, True, False, False]
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


def test_no_file_serves_the_providers_whose_key_is_there() -> None:
    settings = Settings(environment=ENVIRONMENT)
    assert settings.spec("groq/x").api_key_env == ("GROQ_API_KEY",)
    with pytest.raises(CallerFault, match="OPENAI_API_KEY"):
        settings.spec("openai/x")
    assert read("", {}).listen == Listen()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("listen: [", "line 1, column 10: "),
        ("- 1", "the file: Expected `object`"),
        ("lisen: {}", "the file: .*`lisen`.* Did you mean listen?"),
        ("listen: {prot: 1}", "listen: .*`prot`.* Did you mean port"),
        ("listen: {port: x}", "listen.port: Expected `int`"),
        ("listen: {port: 70000}", "listen.port: "),
        ("listen: {}\nlisten: {}", "line 2, column 1: listen is given twice"),
        ("? [a]\n: b", ""),
        ("keys: [{name: a, key: sk-in-the-file-1234}]", r"keys\[0\].key: a secret must not .* env:NAME or file:PATH"),
        ("keys: [{name: a, key: 'env:NOT_SET'}]", r"keys\[0\].key: the environment variable NOT_SET is not set"),
        ("keys: [{name: a, key: 'file:/not/there'}]", r"keys\[0\].key: cannot read"),
        ("keys: [{name: a, key: 'env:SHORT'}]", r"keys\[0\].key: it has 3 characters, expected 16"),
        ("keys: [{key: 'env:WEB_KEY'}]", r"keys\[0\]: .*`name`"),
        ("keys: [{name: a, key: 'env:WEB_KEY'}, {name: b, key: 'env:WEB_KEY'}]", r"keys\[1\].key: it is the same"),
        ("keys: [{name: a, key: 'env:WEB_KEY'}, {name: a, key: 'env:OTHER_KEY'}]", r"keys\[1\].name: a is given twice"),
        (GOOD.replace("[fast,", "[fats,"), r"keys\[0\].routes: there is no route fats. Did you mean fast?"),
        ("providers: {grok: {}}", "providers.grok: it is not in the catalogue.* Did you mean groq"),
        ("providers: {'a b': {base_url: 'http://x'}}", "providers.a b: a provider's name"),
        ("providers: {x: {base_url: 'ftp://x'}}", "providers.x.base_url: .*ftp"),
        ("providers: {x: {base_url: 'http://x', dialect: opnai}}", "x.dialect: got opnai.* Did you mean openai?"),
        ("providers: {x: {base_url: 'http://x', api_key: sk-12345678}}", "providers.x.api_key: a secret must not"),
        ("providers: {x: {base_url: 'http://x', headers: {x-key: abc}}}", "x.headers.x-key: a secret must not"),
        ("providers: {x: {base_url: 'http://x', headers: {Host: abc}}}", "x.headers.Host: this header cannot be set"),
        ("providers: {x: {base_url: 'http://x', timeouts: {stall: 10}}}", "x.timeouts.stall: Expected `str"),
        ("providers: {x: {base_url: 'http://x', timeouts: {stall: 1h}}}", "x.timeouts: stall is "),
        ('routes: {fast: {policy: \'rase("a/x", "b/x")\'}}', "fast.policy: at character 1: .* Did you mean race?"),
        ("routes: {fast: {policy: '\"gorq/x\"'}}", "fast.policy: unknown provider 'gorq'.* Did you mean groq"),
        ("routes: {fast: {policy: '\"openai/x\"'}}", "fast.policy: no key for openai: OPENAI_API_KEY is not set"),
        ("routes: {fast: {policy: '\"groq\"'}}", "fast.policy: 'groq' is not a target"),
        ("routes: {a/b: {policy: '\"groq/x\"'}}", "routes.a/b: a route's name"),
        ("routes: {fast: {}}", "routes.fast: .*`policy`"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(CallerFault) as caught:
        read(text, ENVIRONMENT)
    assert caught.value.kind == "bad_config"
    assert re.search(complaint.replace("?", r"\?") if complaint else "", str(caught.value)), str(caught.value)
    assert "sk-" not in str(caught.value)


def test_a_file_says_its_name_and_holds_secrets_beside_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    file = tmp_path / "splitsecond.yaml"
    file.write_text("keys: [{name: a, key: 'file:key'}]")
    assert len(load(file, {}).keys) == 1
    file.write_text("keys: 3")
    with pytest.raises(CallerFault, match=r"splitsecond.yaml: keys: "):
        load(file, {})
    with pytest.raises(CallerFault, match="cannot read"):
        load(tmp_path / "none.yaml", {})


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_without_keys_only_this_machine_may_reach_it(host: str, only_here: bool) -> None:
    settings = Settings(listen=Listen(host=host))
    if only_here:
        check_reach(settings)
    else:
        with pytest.raises(CallerFault, match="without keys"):
            check_reach(settings)
    check_reach(msgspec.structs.replace(read(GOOD, ENVIRONMENT), listen=Listen(host=host)))
