"""`splitsecond providers` and `splitsecond models`: who can be called, whose key is here, what it
costs, how fast."""

import re
from datetime import UTC, datetime

import pytest
from tests.cases import each_case
from tests.cli.conftest import Split

from splitsecond.benchmark.runs.targets import advised
from splitsecond.cli.commands import providers
from splitsecond.core import clock
from splitsecond.core.catalog.provider import names, provider
from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wire.api_format import Quirks


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in names():
        for variable in provider(name).api_key_env:
            monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("no_keys")
def test_providers_list_names_of_keys_but_no_keys(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-very-secret")
    ended = split("providers", "--json", "-")
    assert "gsk-very-secret" not in ended.out
    found = {entry["name"]: entry for entry in ended.json}
    assert list(found) == names()
    groq, cohere, vllm = found["groq"], found["cohere"], found["vllm"]
    assert (groq["key"], groq["ready"], groq["why_not"]) == ("GROQ_API_KEY", True, "")
    assert (cohere["key"], cohere["ready"]) == ("", False)
    assert cohere["why_not"] == "CO_API_KEY or COHERE_API_KEY is not set"
    assert (vllm["key_names"], vllm["ready"]) == ([], True)
    assert found["qwen"]["regions"] == ["cn", "hk", "us"]


@pytest.mark.usefixtures("no_keys")
def test_key_without_its_endpoint_names_the_missing_variable(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    monkeypatch.setenv("VERTEX_ACCESS_TOKEN", "t")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    found = {entry["name"]: entry for entry in split("providers", "--json", "-").json}
    assert "AZURE_OPENAI_ENDPOINT" in found["azure"]["why_not"]
    assert "GOOGLE_CLOUD_PROJECT" in found["vertex-claude"]["why_not"]
    text = split("providers").words
    assert (
        "AZURE_OPENAI_API_KEY is set, but Azure OpenAI needs AZURE_OPENAI_ENDPOINT in the "
        "environment" in text
    )
    assert "Keys are set for: no provider." in text


@pytest.mark.usefixtures("no_keys")
def test_all_of_one_provider(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    lines = dict(line.split("  ", 1) for line in split("providers", "minimax").out.splitlines())
    facts = {name: fact.strip() for name, fact in lines.items()}
    assert facts["address of minimax-cn"] == "https://api.minimaxi.com/v1"
    assert facts["can be called"] == "no: MINIMAX_API_KEY is not set"
    assert (facts["closing stops billing"], facts["errors in a 200"]) == ("no", "possible")
    (openai,) = split("providers", "openai", "--json", "-").json
    assert (openai["auth"], openai["prefill"]) == ("bearer", False)
    assert (
        openai["quirks"].items()
        >= {
            "usage": "own_chunk",
            "rate_limits": "x-ratelimit",
            "max_tokens_field": "max_completion_tokens",
        }.items()
    )
    assert openai["distances"][0]["added_ms"] == {"EU": [50, 200], "Asia": [100, 300]}
    words = split("providers", "deepseek").words
    assert "token counts on the last chunk of the answer" in words
    assert "reasoning in the field reasoning_content" in words
    assert "rate limits not in headers" in words
    assert "earlier reasoning accepted, as reasoning_content" in words
    assert "rarely supported fields none" in words
    assert "reasoning effort thinking" in words
    assert (
        "reasoning effort *gpt-oss*: reasoning_effort, low to high"
        in split("providers", "groq").words
    )
    assert (
        "distance, 2026-04 best from China; US and EU +150–400 ms; lower in Asia (Crazyrouter, "
        in words
    )
    assert "note While a request waits, its stream has comments" in words
    ended = split("providers", "grog")
    assert (ended.code, "Did you mean groq?" in ended.words) == (2, True)


@pytest.mark.usefixtures("no_keys")
def test_every_provider_can_be_shown(split: Split) -> None:
    assert [name for name in names() if split("providers", name).code] == []


def test_every_quirk_has_words() -> None:
    assert {*Quirks.__struct_fields__} == {*providers._QUIRKS, "thinking"}


def test_the_table_fits_a_narrow_screen(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("GROQ_API_KEY", "gsk-very-secret")
    lines = split("providers").out.splitlines()
    assert max(len(line) for line in lines[: lines.index("Keys are set for: groq.")]) <= 80
    (groq,) = (line for line in lines if " groq " in line)
    assert groq.split()[:3] == ["✓", "groq", "GROQ_API_KEY"]
    assert "…" not in "".join(lines)


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize(
    ("columns", "qwen"),
    [
        (80, ["qwen", "DASHSCOPE_API_KEY", "openai"]),
        (120, ["qwen", "DASHSCOPE_API_KEY", "openai", "own chunk", "billed on", "partial"]),
        (
            200,
            [
                "qwen",
                "DASHSCOPE_API_KEY",
                "openai",
                "own chunk",
                "billed on",
                "partial",
                "cn, hk, us",
                "qwen-plus",
            ],
        ),
    ],
)
def test_a_wide_screen_shows_how_providers_differ(
    columns: int, qwen: list[str], split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = split("providers").out.splitlines()
    table = lines[: lines.index("Keys are set for: no provider.")]
    (row,) = (line for line in table if " qwen " in line)
    assert re.split(r"  +", row.strip()) == qwen
    assert max(map(len, table)) <= columns
    assert "…" not in "".join(table)


def test_models_have_price_context_and_published_speed(split: Split) -> None:
    found = {entry["target"]: entry for entry in split("models", "groq", "--json", "-").json}
    model = found["groq/llama-3.1-70b-versatile"]
    assert model["price"]["source"].startswith("genai-prices ")
    assert model["price"]["as_of"]
    assert model["blended_usd"] == pytest.approx(
        (3 * model["price"]["input_usd"] + model["price"]["output_usd"]) / 4
    )
    assert model["context_tokens"] == 131072
    assert [(speed["tps"], speed["ttft_p95_ms"]) for speed in model["published"]] == [
        (215, 290),
        (180, 820),
        (140, 2400),
    ]
    assert found["groq/openai/gpt-oss-20b"]["published"] == []
    assert found["groq/llama-3.3-70b-versatile"]["replaced_by"] == "openai/gpt-oss-120b"


def test_models_as_a_table_with_sources_once(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    with clock.using(
        clock.now_ns, lambda: int(datetime(2026, 8, 1, tzinfo=UTC).timestamp()) * clock.NS_PER_S
    ):
        words = split("models", "groq").words
    assert (
        "230 ms (p95 290), 215 tok/s (p95 200) (c=1); from US East, 512 tokens in, 512 out, "
        "2025-06 [1]" in words
    )
    assert words.count("General Compute, LLM Token Generation Speed") == 1
    assert "over 100 tok/s with the wait, 2024-09-01" in words
    assert "over 3000 tok/s in parallel (c=1); $0.5 a million, 2026-03" in words
    assert "groq/llama-3.3-70b-versatile" in words
    assert "until 2026-08-16, then openai/gpt-oss-120b" in words
    assert "gone since 2025-03-20" in words


def test_models_without_arguments_have_a_published_speed(split: Split) -> None:
    entries = split("models", "--json", "-").json
    assert all(entry["published"] for entry in entries)
    assert {"openai/gpt-5-mini", "runpod/mistralai/Mistral-7B-Instruct-v0.2"} <= {
        entry["target"] for entry in entries
    }


@each_case(
    ("words", "among", "all_of"),
    [
        (["groq/llama3"], {"groq/llama-3.3-70b-versatile", "groq/llama3-70b-8192"}, "groq/"),
        (["GROQ/Llama-3.3"], {"groq/llama-3.3-70b-versatile"}, "groq/llama-3.3"),
        (
            ["llama", "70b"],
            {"together/meta-llama/Llama-3.3-70B-Instruct-Turbo", "groq/llama3-70b-8192"},
            "",
        ),
        (["grok"], {"xai/grok-4.3"}, ""),
        (["openai/gpt-oss-120b"], {"openai/gpt-oss-120b"}, "openai/"),
        (["meta-llama/llama-3.3"], {"openrouter/meta-llama/llama-3.3-70b-instruct"}, ""),
        (["mistral", "7b"], {"ollama/mistral:7b", "lambda/mistralai/Mistral-7B-Instruct-v0.2"}, ""),
        (["qwen-cn"], {"qwen-cn/qwen-plus"}, "qwen-cn/"),
        (["qwen-cn/flash"], {"qwen-cn/qwen-flash"}, "qwen-cn/"),
        (["groq/claude"], set(), "-"),
    ],
)
def test_models_are_found_by_parts_of_their_names(
    words: list[str], among: set[str], all_of: str, split: Split
) -> None:
    ended = split("models", *words, "--json", "-")
    if not among:
        assert ended.code == 2
        assert "no known model has 'groq/claude' in its name. Unlisted models" in ended.complaint
        return
    found = {entry["target"] for entry in ended.json}
    assert among <= found
    assert all(target.startswith(all_of) for target in found)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            "cluade",
            "unknown provider 'cluade', and no known model has it in its name. Did you mean claude",
        ),
        ("groq/lama-3.9", "no known model has 'groq/lama-3.9' in its name. Did you mean llama"),
        ("openai/gpt-5-mnii", "has 'openai/gpt-5-mnii' in its name. Did you mean gpt-5-mini"),
        (
            "qwen-cm",
            "has no region 'cm', and no known model has it in its name. Did you mean qwen-cn",
        ),
    ],
)
def test_unknown_model_suggests_the_nearest_name(asked: str, said: str, split: Split) -> None:
    ended = split("models", asked)
    assert ended.code == 2
    assert said in ended.complaint


def test_provider_without_listed_models_accepts_every_model(split: Split) -> None:
    assert (
        "The catalogue lists no model of vllm, but every model can be called."
        in split("models", "vllm").words
    )


def test_a_long_name_of_a_model_breaks_after_a_slash(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [
        line.split()[0] for line in split("models", "fireworks").out.splitlines() if line.strip()
    ]
    name = lines.index("fireworks/accounts/fireworks/models/")
    assert lines[name + 1] == "deepseek-r1-0528"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("columns", [60, 72, 80, 120, 200])
def test_the_table_of_models_fits_the_screen(
    columns: int, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = split("models").out.splitlines()
    table = lines[
        : next(
            number for number, line in enumerate(lines) if line.startswith("Published speed of ")
        )
    ]
    assert max(map(len, table)) <= columns
    assert ("price of" in table[1]) == (columns > 80)
    assert "…" not in "".join(table)
    assert any(line.startswith(" anthropic/claude-3-5-sonnet-20240620 ") for line in table)


@each_case(
    ("target", "kind", "message", "near"),
    [
        (
            "groq/openai/gpt-oss-120",
            "http_404",
            "got status 404",
            "Did you mean groq/openai/gpt-oss-120b or groq/",
        ),
        (
            "groq/llama-3.3-70b-versatile",
            "http_404",
            "got status 404",
            "The provider's retirement date of this model is 2026-08-16. Did you mean "
            "groq/openai/gpt-oss-120b? ",
        ),
        (
            "openai/gpt-4-turbo",
            "http_404",
            "got status 404",
            "The provider's retirement date of this model is 2026-10-23. Did you mean "
            "openai/gpt-5.6-sol? ",
        ),
        ("qwen-cn/qwen-plsu", "http_400", "no such Model", "Did you mean qwen-cn/qwen-plus"),
        ("groq/openai/gpt-oss-120b", "http_404", "got status 404", "Check the name."),
        ("groq/openai/gpt-oss-120", "http_400", "max_tokens is too large", "Check the name."),
        ("groq/openai/gpt-oss-120", "http_500", "the model is down", "Check the name."),
        ("127.0.0.1:8000/mine", "http_404", "got status 404", "Check the name."),
    ],
)
def test_hint_suggests_the_nearest_model_for_a_refused_one(
    target: str, kind: str, message: str, near: str
) -> None:
    fault = ProviderFault(message, kind=kind, phase="head", target=target, hint="Check the name.")
    assert advised(fault).hint.startswith(near)


def test_hint_for_404_names_the_address() -> None:
    spec = TargetSpec(
        name="azure/mine", base_url="https://a.example/openai/v1/openai/v1", model="mine"
    )
    fault = ProviderFault(
        "got status 404", kind="http_404", phase="head", target="azure/mine", hint="Check the name."
    )
    assert advised(fault, spec).hint.endswith(
        "Check the name. The address was https://a.example/openai/v1/openai/v1."
    )


@pytest.mark.parametrize(
    ("set_here", "named"), [((), "B_KEY"), (("OTHER",), "B_KEY"), (("C_KEY",), "C_KEY")]
)
def test_hint_for_a_refused_key_names_its_variable(
    set_here: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in set_here:
        monkeypatch.setenv(variable, "secret")
    spec = TargetSpec(
        name="b/x", base_url="http://b.test", model="x", api_key_env=("B_KEY", "C_KEY")
    )
    fault = ProviderFault(
        "HTTP 401: no", kind="http_401", phase="head", target="b/x", hint="Check the API key."
    )
    assert advised(fault, spec).hint == f"Check the API key. The key comes from {named}."
    gemini = ProviderFault(
        "HTTP 400: API key not valid", kind="key_refused", phase="head", target="b/x", status=400
    )
    assert advised(gemini, spec).hint == f"The key comes from {named}."
    gone = CallerFault(
        "no access token from the credentials in [key]", kind="bad_key", target="b/x"
    )
    assert advised(gone, spec).hint == f"The key comes from {named}."


@pytest.mark.parametrize(("columns", "has_format"), [(60, False), (80, True)])
def test_a_narrow_list_of_providers_has_no_cut_column(
    split: Split, monkeypatch: pytest.MonkeyPatch, columns: int, has_format: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    heading = split("providers").out.splitlines()[1]
    assert heading.split() == ["provider", "key", *["format"] * has_format]
    assert len(heading) <= columns
