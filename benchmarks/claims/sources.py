"""The articles whose claims are tried, and the profile of a provider of theirs."""

SPEED_ARTICLE = "Inference speed article with live API benchmarks, March 2026"
REGIONS_ARTICLE = "Crazyrouter, AI Inference Speed Benchmark 2026, April 2026"
GENERAL_COMPUTE = (
    "General Compute, LLM Token Generation Speed: How Providers Compare in 2025, June 2025"
)
FASTEST_ARTICLE = "flo2, Fastest LLM Inference: What Makes Models Fast & How to Get It"
OPUS = "anthropic-claude-opus-4.6-march-2026"
