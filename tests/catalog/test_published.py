"""The catalogue against the tables that it quotes: each figure is under its model.

The tables are written here as they were published, and read by code that has nothing in common with
the catalogue's.
"""

import math

import pytest
from tests.cases import each_case

from splitsecond.core.catalog.model import Figure, PublishedCost, PublishedSpeed
from splitsecond.core.catalog.provider import names, provider, split_target

COMPUTE = "General Compute, LLM Token Generation Speed: How Providers Compare in 2025"
CRAZYROUTER = "Crazyrouter, AI Inference Speed Benchmark 2026: Tokens Per Second Compared"
STRAIVE = "Straive, How fast are LLMs in production?"
ARTICLE = "Inference speed article with live API benchmarks"

SERVED_70B = {
    "GeneralCompute": "generalcompute/llama-3.1-70b-instruct",
    "Groq": "groq/llama-3.1-70b-versatile",
    "Fireworks AI": "fireworks/accounts/fireworks/models/llama-v3p1-70b-instruct",
    "Together AI": "together/meta-llama/Meta-Llama-3.1-70B-Instruct-Turbo",
    "Replicate": "replicate/meta/meta-llama-3.1-70b-instruct",
}
BY_LOAD = """
1  | GeneralCompute | 180   | 310 | 220   | 295
1  | Groq           | 230   | 215 | 290   | 200
1  | Fireworks AI   | 410   | 110 | 580   | 95
1  | Together AI    | 480   | 85  | 720   | 75
1  | Replicate      | 620   | 65  | 1,100 | 55
8  | GeneralCompute | 210   | 285 | 310   | 255
8  | Groq           | 290   | 180 | 820   | 145
8  | Fireworks AI   | 520   | 95  | 960   | 78
8  | Together AI    | 610   | 70  | 1,350 | 55
8  | Replicate      | 890   | 48  | 2,200 | 35
32 | GeneralCompute | 280   | 245 | 450   | 210
32 | Groq           | 610   | 140 | 2,400 | 105
32 | Fireworks AI   | 780   | 72  | 1,800 | 55
32 | Together AI    | 950   | 52  | 2,900 | 38
32 | Replicate      | 1,400 | 30  | 4,100 | 22
"""
"""Concurrency, provider, TTFT p50 and TPS p50, TTFT p95 and TPS p95."""

BY_MODEL = """
openai/gpt-5.2                  | 850ms   | 62  | 128K
anthropic/claude-opus-4-6       | 1,100ms | 48  | 200K
gemini/gemini-3-pro-preview     | 720ms   | 71  | 1M
xai/grok-4-1-fast-non-reasoning | 450ms   | 95  | 128K
deepseek/deepseek-v3.2          | 380ms   | 110 | 64K
moonshot/kimi-k2-thinking       | 1,200ms | 35  | 128K
minimax/MiniMax-M2              | 520ms   | 88  | 1M
openai/gpt-5-mini               | 320ms   | 145 | 128K
anthropic/claude-sonnet-4-5     | 580ms   | 98  | 200K
anthropic/claude-haiku-4-5      | 180ms   | 180 | 200K
gemini/gemini-2.5-flash         | 250ms   | 190 | 1M
gemini/gemini-2.5-flash-lite    | 140ms   | 240 | 1M
deepseek/deepseek-v3.2-turbo    | 280ms   | 135 | 64K
qwen/qwen2.5-vl-72b-instruct    | 410ms   | 102 | 128K
"""
"""Model, TTFT, TPS, context window."""

LIVE = """
openai/gpt-4-turbo                              | 280 | 45-55   | 200+   | 6.50 + 19.50
anthropic/claude-opus-4-6                       | 320 | 35-45   | 150+   | 5.00 + 25.00
gemini/gemini-1.5-pro                           | 180 | 55-65   | 250+   | 1.25 + 2.50
groq/mixtral-8x7b-32768                         | 120 | 450-550 | 3,000+ | 0.50
together/mistralai/Mixtral-8x7B-Instruct-v0.1   | 200 | 100-150 | 800+   | 0.20
cohere/command-r-plus-08-2024                   | 250 | 60-80   | 300+   | 2.50 + 10.00
openai/gpt-4o                                   |     | 55-65   |        |
openai/gpt-3.5-turbo                            |     | 80-100  |        |
anthropic/claude-haiku-4-5                      |     | 60-80   |        |
anthropic/claude-sonnet-4-6                     |     | 45-55   |        |
ollama/phi:2.7b                                 |     | 85-120  |        |
ollama/mistral:7b                               |     | 25-35   |        |
ollama/llama2:7b                                |     | 28-38   |        |
ollama/llama2:70b                               |     | 4-8     |        |
runpod/mistralai/Mistral-7B-Instruct-v0.2       | 45  | 85-100  |        | 0.75-1.00
lambda/mistralai/Mistral-7B-Instruct-v0.2       | 50  | 80-95   |        | 1.00-1.30
ollama/mistral:7b                               | 100 | 60-75   |        | 0.002
"""
"""Model, TTFT in ms, TPS, TPS of many requests, US dollars a million tokens: in + out, or of
any."""

GRADES = {
    "groq/llama3-70b-8192": (100, math.inf),
    "groq/llama3-8b-8192": (100, math.inf),
    "anthropic/claude-3-haiku-20240307": (70, math.inf),
    "anthropic/claude-3-5-sonnet-20240620": (70, math.inf),
    "openai/gpt-4o": (50, 60),
    "openai/gpt-4o-mini": (50, 60),
    "openai/gpt-3.5-turbo": (50, 60),
    "gemini/gemini-1.5-flash": (30, 50),
    "gemini/gemini-1.5-pro": (30, 50),
    "azure/gpt-4o": (30, 50),
    "azure/gpt-3.5-turbo": (0, 20),
    "vertex-claude/claude-3-sonnet@20240229": (0, 20),
}
"""Output tokens by the whole time of a request, wait and connection included."""

FAR_AWAY = {
    "openai": ("US East", {"EU": (50, 200), "Asia": (100, 300)}),
    "anthropic": ("US West", {"EU": (80, 250), "Asia": (150, 400)}),
    "gemini": ("anywhere", {}),
    "xai": ("the US", {"outside the US": (100, 350)}),
    "deepseek": ("China", {"US and EU": (150, 400)}),
    "crazyrouter": ("several regions", {}),
}
BY_THE_HOUR = {
    "runpod": {"H100 SXM": 2.69, "H100 PCIe": 1.99},
    "lambda": {"H100 SXM": 3.78, "H100 PCIe": 2.86},
}


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _number(cell: str) -> float:
    return float(cell.replace(",", "").removesuffix("ms"))


def _figure(cell: str) -> Figure | None:
    if cell.endswith("+"):
        return (_number(cell[:-1]), math.inf)
    low, dash, high = cell.partition("-")
    return (_number(low), _number(high)) if dash else _number(cell) if cell else None


def _published(target: str, source: str) -> list[PublishedSpeed]:
    name, model = split_target(target)
    return [
        speed for speed in provider(name).model(model).speeds if speed.source.startswith(source)
    ]


@each_case("row", _rows(BY_LOAD), ids=" ".join)
def test_the_speed_under_each_load_with_its_tail(row: list[str]) -> None:
    concurrency, ttft, tps, ttft_p95, tps_p95 = (_number(cell) for cell in (row[0], *row[2:]))
    (speed,) = [
        each for each in _published(SERVED_70B[row[1]], COMPUTE) if each.concurrency == concurrency
    ]
    assert speed.date == "2025-06"
    assert (speed.ttft_ms, speed.tps, speed.ttft_p95_ms, speed.tps_p95) == (
        ttft,
        tps,
        ttft_p95,
        tps_p95,
    )


@each_case("row", _rows(BY_MODEL), ids=" ".join)
def test_speed_and_context_window_equal_the_article(row: list[str]) -> None:
    target, ttft, tps, context = row
    (speed,) = _published(target, CRAZYROUTER)
    tokens = int(context[:-1]) * {"K": 1_000, "M": 1_000_000}[context[-1]]
    assert speed.date == "2026-04"
    assert (speed.ttft_ms, speed.tps, speed.context_tokens) == (_number(ttft), _number(tps), tokens)
    name, model = split_target(target)
    # of which the public list has it
    assert provider(name).model(model).context_tokens or name == "deepseek"


@each_case("row", _rows(LIVE), ids=" ".join)
def test_speed_range_and_price_equal_the_article(row: list[str]) -> None:
    target, ttft, tps, batch, usd = row
    (speed,) = [each for each in _published(target, ARTICLE) if each.tps == _figure(tps)]
    assert speed.date == "2026-03"
    assert (speed.ttft_ms, speed.batch_tps) == (_number(ttft) if ttft else None, _figure(batch))
    cost = speed.cost or PublishedCost()
    if "+" in usd:
        assert (cost.input_usd, cost.output_usd) == tuple(_number(part) for part in usd.split("+"))
    else:
        assert (cost.input_usd, cost.million_usd) == (None, _figure(usd))


@pytest.mark.parametrize(("name", "machines"), BY_THE_HOUR.items(), ids=list(BY_THE_HOUR))
def test_a_machine_by_the_hour(name: str, machines: dict[str, float]) -> None:
    target = f"{name}/mistralai/Mistral-7B-Instruct-v0.2"
    (speed,) = _published(target, ARTICLE)
    assert speed.cost is not None
    assert speed.cost.per_hour_usd == machines
    price = provider(name).model(split_target(target)[1]).price
    assert price is not None
    assert (price.per_hour_usd, price.as_of, "H100 SXM" in price.source) == (
        machines["H100 SXM"],
        "2026-03",
        True,
    )


def test_a_machine_that_was_bought() -> None:
    costs = [speed.cost for speed in _published("ollama/mistral:7b", ARTICLE) if speed.cost]
    assert [cost.once_usd for cost in costs] == [1500]
    assert costs[0].summary == "$0.002 a million, $1500 once"


@each_case("target, grade", GRADES.items(), ids=list(GRADES))
def test_the_speed_in_production(target: str, grade: tuple[float, float]) -> None:
    (speed,) = _published(target, STRAIVE)
    assert (speed.date, speed.total_tps) == ("2024-09-01", grade)


@each_case("name, said", FAR_AWAY.items(), ids=list(FAR_AWAY))
def test_network_distance_equals_the_article(
    name: str, said: tuple[str, dict[str, tuple[float, float]]]
) -> None:
    (distance,) = provider(name).distances
    assert (distance.source, distance.date) == (CRAZYROUTER, "2026-04")
    assert (distance.best, distance.added_ms) == said


def test_catalogue_quotes_only_figures_of_the_tables() -> None:
    quoted = sum(len(model.speeds) for name in names() for model in provider(name).models.values())
    assert quoted == len(_rows(BY_LOAD)) + len(_rows(BY_MODEL)) + len(_rows(LIVE)) + len(GRADES)
    assert {name for name in names() if provider(name).distances} == set(FAR_AWAY)


def test_published_figures_have_summaries() -> None:
    (far,) = provider("openai").distances
    assert far.summary == "best from US East; EU +50–200 ms, Asia +100–300 ms"
    (turbo,) = _published("openai/gpt-4-turbo", ARTICLE)
    assert turbo.summary == "280 ms, 45–55 tok/s, over 200 tok/s in parallel (c=1)"
    assert turbo.cost is not None
    assert turbo.cost.summary == "$6.5 in, $19.5 out a million"
    (pod,) = _published("runpod/mistralai/Mistral-7B-Instruct-v0.2", ARTICLE)
    assert pod.cost is not None
    assert (
        pod.cost.summary == "$0.75–1 a million, $2.69 an hour (H100 SXM), $1.99 an hour (H100 PCIe)"
    )
