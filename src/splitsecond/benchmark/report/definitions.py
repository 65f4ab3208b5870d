from collections.abc import Iterable

from splitsecond.benchmark.rows.figures import FIGURES, TOTALS
from splitsecond.benchmark.rows.metric import Figure, Total

CONCEPTS = {
    "First token": (
        "The first event that carries content: visible text, reasoning, a refusal, an argument of "
        "a tool call, audio. "
        "Never headers, an event that only names the role, an empty event, a ping or a comment."
    ),
    "N": (
        "The provider's own count of tokens (usage); otherwise a tokenizer's; otherwise the number "
        "of events. “Counted by” shows which one it is."
    ),
    "p50, p95, p99": (
        "Exact percentiles with linear interpolation, never beyond the largest value. For times, "
        "95% of requests stayed below p95; for speeds, 95% of requests reached or exceeded it."
    ),
    "95% interval": (
        "A confidence interval from order statistics: it assumes nothing about the shape of the "
        "distribution. “?” is a bound that this number of requests cannot give. p50 needs 6 "
        "requests, p95 needs 72 and p99 needs 368."
    ),
    "Cost": (
        "Every kind of token at its own price: input, input from the provider's prompt cache, "
        "output with its reasoning. “≥” means that some attempts were closed before the provider "
        "counted their tokens. On a machine paid by the hour, a million tokens cost the hourly "
        "price divided by the tokens of an hour at the row's speed."
    ),
    "Cache reuse": (
        "A run can send two kinds of prompts in turn. With cache reuse, prompts share all but "
        "their last words, so the provider's prompt cache can hold them, and warm-ups fill it. "
        "Fresh prompts have the same length, and each begins differently. “Cached” is the input "
        "that the provider reports as cached."
    ),
    "The server's own times": (
        "Durations that a provider reports, by its own names: queue, prompt and completion (Groq, "
        "Cerebras), load, prompt eval and eval (Ollama), prompt and predicted (llama.cpp), "
        "processing (OpenAI, until its response began). The difference to our times is the network "
        "and the way to the model."
    ),
    "INVALID": (
        "A row whose figures may say more about this machine, or about a proxy, than about the "
        "target. The report gives the reason, and comparisons leave the row out."
    ),
    "Read lag": (
        "How long arrived bytes waited until this program read them. It is part of a figure only "
        "where arrival times are taken at the read, not where they are the kernel's."
    ),
}
METRICS: tuple[Figure | Total, ...] = (*FIGURES.values(), *TOTALS.values())


def definitions(*, sessions: bool, inputs: bool = False) -> dict[str, str]:
    """Return the definition of each figure and term; those of sessions, and those of embeddings and
    rankings, only for a run that has them."""
    hidden = {"Sessions": not sessions, "Inputs": not inputs}
    metrics = [metric for metric in METRICS if not hidden.get(metric.group)]
    return {
        metric.label[:1].upper() + metric.label[1:]: metric.definition for metric in metrics
    } | CONCEPTS


_OPENING = """\
# Figures

Every metric, by its name in `run.json`, `--fail-if` and the data frame. This page is generated
from the table in `src/splitsecond/benchmark/rows/figures.py`: change the table, then run
`pytest tests/report/test_definitions.py --update-golden`.

## Per request

A row of `run.json` has the distribution of each: `p50`, `p95`, `p99`, `mean`, `min`, `max`, with
95% intervals in `ci95`. A gate names one of these: `ttft_ms.p95 > +10%`.
"""
_TOTALS = """
## Per row

One number for each target and load. A gate names it alone: `errors > 0`.
"""


def figures_page() -> str:
    terms = "".join(f"\n**{term}.** {text}\n" for term, text in CONCEPTS.items())
    return (
        f"{_OPENING}{_table(FIGURES.values())}{_TOTALS}{_table(TOTALS.values())}\n## Terms\n{terms}"
    )


def _table(metrics: Iterable[Figure | Total]) -> str:
    better = {True: "higher", False: "lower", None: ""}
    rows = "".join(
        f"| `{m.name}` | {m.label} | {m.unit} | {better[m.higher_is_better]} | {m.definition} |\n"
        for m in metrics
    )
    return f"\n| name | label | unit | better | definition |\n|---|---|---|---|---|\n{rows}"
