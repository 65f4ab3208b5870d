"""One model under the names of many providers, its maker, and the company that runs it."""

from tests.cases import each_case

from splitsecond.core.catalog.model_names import identify, model_name

ONE_MODEL = {
    "gpt-3.5-turbo": (
        "azure/gpt-35-turbo",
        "openai/gpt-3.5-turbo",
    ),
    "claude-3-sonnet-20240229": (
        "bedrock/anthropic.claude-3-sonnet-20240229-v1:0",
        "vertex-claude/claude-3-sonnet@20240229",
        "anthropic/claude-3-sonnet-20240229",
        "bedrock/us.anthropic.claude-3-sonnet-20240229-v1:0:200k",
        "openrouter/anthropic/claude-3-sonnet",
        "openrouter/anthropic/claude-3-sonnet:beta",
    ),
    "llama-3.3-70b": (
        "groq/llama-3.3-70b-versatile",
        "together/meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "fireworks/accounts/fireworks/models/llama-v3p3-70b-instruct",
        "cerebras/llama-3.3-70b",
        "bedrock/us.meta.llama3-3-70b-instruct-v1:0",
        "openrouter/meta-llama/llama-3.3-70b-instruct:free",
        "vertex/meta/llama-3.3-70b-instruct-maas",
        "ollama/llama3.3:70b",
        "ollama/llama3.3:70b-instruct-q4_K_M",
        "azure/Llama-3.3-70B-Instruct",
        "sambanova/Meta-Llama-3.3-70B-Instruct",
        "deepinfra/meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "nvidia/meta/llama-3.3-70b-instruct",
    ),
    "llama-3-70b": (
        "groq/llama3-70b-8192",
        "replicate/meta/meta-llama-3-70b-instruct",
        "bedrock/meta.llama3-70b-instruct-v1:0",
        "together/meta-llama/Llama-3-70b-chat-hf",
    ),
    "llama-3.1-8b": (
        "groq/llama-3.1-8b-instant",
        "cerebras/llama3.1-8b",
        "fireworks/accounts/fireworks/models/llama-v3p1-8b-instruct",
        "together/meta-llama/Meta-Llama-3.1-8B-Instruct-Turbo",
        "ollama/llama3.1:8b",
    ),
    "gpt-oss-120b": (
        "groq/openai/gpt-oss-120b",
        "ollama-cloud/gpt-oss:120b-cloud",
        "bedrock/openai.gpt-oss-120b-1:0",
        "cerebras/gpt-oss-120b",
        "fireworks/accounts/fireworks/models/gpt-oss-120b",
        "vertex/openai/gpt-oss-120b-maas",
    ),
    "qwen2.5-72b": (
        "openrouter/qwen/qwen-2.5-72b-instruct",
        "together/Qwen/Qwen2.5-72B-Instruct-Turbo",
        "ollama/qwen2.5:72b",
        "fireworks/accounts/fireworks/models/qwen2p5-72b-instruct",
    ),
    "claude-3-5-sonnet": (
        "openrouter/anthropic/claude-3.5-sonnet",
        "anthropic/claude-3-5-sonnet-latest",
    ),
    "claude-3-5-sonnet-20240620": (
        "anthropic/claude-3-5-sonnet-20240620",
        "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0",
        "vertex-claude/claude-3-5-sonnet@20240620",
    ),
    "claude-sonnet-4-5-20250929": (
        "anthropic/claude-sonnet-4-5",
        "openrouter/anthropic/claude-sonnet-4.5",
        "vertex-claude/claude-sonnet-4-5@20250929",
        "bedrock/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ),
    "deepseek-r1": (
        "bedrock/us.deepseek.r1-v1:0",
        "together/deepseek-ai/DeepSeek-R1",
        "fireworks/accounts/fireworks/models/deepseek-r1",
        "openrouter/deepseek/deepseek-r1:free",
        "azure/DeepSeek-R1",
    ),
    "deepseek-v3-0324": (
        "openrouter/deepseek/deepseek-chat-v3-0324",
        "deepinfra/deepseek-ai/DeepSeek-V3-0324",
    ),
    "mixtral-8x7b-instruct-v0.1": (
        "groq/mixtral-8x7b-32768",
        "together/mistralai/Mixtral-8x7B-Instruct-v0.1",
        "bedrock/mistral.mixtral-8x7b-instruct-v0:1",
        "openrouter/mistralai/mixtral-8x7b-instruct",
    ),
    "gemini-1.5-pro-002": (
        "gemini/gemini-1.5-pro-002",
        "vertex/gemini-1.5-pro-002",
        "vertex/google/gemini-1.5-pro@002",
    ),
    "gemma2-9b": (
        "groq/gemma2-9b-it",
        "openrouter/google/gemma-2-9b-it",
        "ollama/gemma2:9b",
    ),
    "kimi-k2-0905": (
        "groq/moonshotai/kimi-k2-instruct-0905",
        "openrouter/moonshotai/kimi-k2-0905",
    ),
    "llama-4-scout-17b-16e": (
        "groq/meta-llama/llama-4-scout-17b-16e-instruct",
        "together/meta-llama/Llama-4-Scout-17B-16E-Instruct",
        "openrouter/meta-llama/llama-4-scout",
        "bedrock/us.meta.llama4-scout-17b-instruct-v1:0",
        "fireworks/accounts/fireworks/models/llama4-scout-instruct-basic",
    ),
    "nova-pro": (
        "bedrock/amazon.nova-pro-v1:0",
        "openrouter/amazon/nova-pro-v1",
    ),
    "gpt-3.5-turbo-instruct": (
        "openai/gpt-3.5-turbo-instruct",
        "azure/gpt-35-turbo-instruct",
    ),
    "gpt-4o": (
        "openai/gpt-4o",
        "azure-eastus/gpt-4o",
        "azure:westeurope/gpt-4o",
        "github/openai/gpt-4o",
    ),
    "qwen-turbo": (
        "qwen-cn/qwen-turbo",
        "qwen/qwen-turbo",
    ),
    "mistral-large": (
        "mistral/mistral-large-latest",
        "openrouter/mistralai/mistral-large",
    ),
    "mistral-7b-instruct-v0.2": (
        "bedrock/mistral.mistral-7b-instruct-v0:2",
        "together/mistralai/Mistral-7B-Instruct-v0.2",
    ),
}
"""Names as providers write them (their model lists), by the regular name."""


@each_case("model", ONE_MODEL)
def test_one_model_has_one_name(model: str) -> None:
    assert {name: identify(name).model for name in ONE_MODEL[model]} == dict.fromkeys(
        ONE_MODEL[model], model
    )


@each_case(
    "first, other",
    [
        ("openai/gpt-4o", "openai/gpt-4o-mini"),
        ("openai/gpt-4o", "openai/gpt-4o-2024-05-13"),
        ("openai/gpt-3.5-turbo", "openai/gpt-3.5-turbo-instruct"),
        ("openai/gpt-3.5-turbo", "openai/gpt-3.5-turbo-16k"),
        ("anthropic/claude-3-5-sonnet-20240620", "anthropic/claude-3-5-sonnet-20241022"),
        ("anthropic/claude-2.1", "anthropic/claude-2.0"),
        ("groq/llama-3.1-8b-instant", "groq/llama3-8b-8192"),
        ("groq/llama-3.3-70b-versatile", "cerebras/llama3.1-70b"),
        ("together/deepseek-ai/DeepSeek-R1", "together/deepseek-ai/DeepSeek-R1-Distill-Llama-70B"),
        ("gemini/gemini-1.5-pro-001", "gemini/gemini-1.5-pro-002"),
        ("gemini/gemini-2.0-flash", "gemini/gemini-2.0-flash-lite"),
        ("qwen/qwen-turbo", "qwen/qwen-plus"),
        (
            "together/Qwen/Qwen3-235B-A22B-Instruct-2507",
            "together/Qwen/Qwen3-235B-A22B-Thinking-2507",
        ),
        (
            "openrouter/anthropic/claude-3.7-sonnet",
            "openrouter/anthropic/claude-3.7-sonnet:thinking",
        ),
        ("cohere/command-r", "cohere/command-r-plus"),
    ],
)
def test_two_models_have_two_names(first: str, other: str) -> None:
    assert identify(first).model != identify(other).model


@each_case(
    "model", sorted({name for names in ONE_MODEL.values() for name in names} | set(ONE_MODEL))
)
def test_a_regular_name_stays(model: str) -> None:
    regular = model_name(model.partition("/")[2] or model)
    assert model_name(regular) == regular


@each_case(
    "target, maker, host, hosting, region",
    [
        ("openai/gpt-4o", "OpenAI", "OpenAI", "run by the maker", ""),
        ("azure/gpt-4o", "OpenAI", "Microsoft", "run by another company", ""),
        ("azure-eu/gpt-35-turbo", "OpenAI", "Microsoft", "run by another company", "eu"),
        ("azure:westeurope/gpt-4o", "OpenAI", "Microsoft", "run by another company", "westeurope"),
        (
            "vertex-claude-us-east5/claude-3-sonnet@20240229",
            "Anthropic",
            "Google",
            "run by another company",
            "us-east5",
        ),
        ("gemini/gemini-1.5-flash", "Google", "Google", "run by the maker", ""),
        ("qwen-cn/qwen-plus", "Alibaba", "Alibaba", "run by the maker", "cn"),
        ("groq/llama-3.3-70b-versatile", "Meta", "groq", "run by another company", ""),
        (
            "nvidia/nvidia/llama-3.1-nemotron-70b-instruct",
            "NVIDIA",
            "NVIDIA",
            "run by the maker",
            "",
        ),
        ("vllm/Qwen/Qwen2.5-7B-Instruct", "Alibaba", "own machine", "run on own machines", ""),
        ("mine/finetune-7", "", "mine", "unknown maker", ""),
        ("alone", "", "alone", "unknown maker", ""),
    ],
)
def test_maker_and_host(target: str, maker: str, host: str, hosting: str, region: str) -> None:
    found = identify(target)
    assert (found.maker, found.host, found.hosting, found.region) == (maker, host, hosting, region)
