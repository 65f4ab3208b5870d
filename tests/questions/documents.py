"""Rows of docs/reference/articles.md: each claim of the five articles, with a command, what it
shows and a verdict.

A row is made from what the software has: the catalogue of published speeds, the experiments of
docs/reference/claims.md, and the questions of docs/questions.md, whose commands run as tests. So a
row changes, and the page with it, when one of them does.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from splitsecond.core.catalog.model import Figure, PublishedSpeed
from splitsecond.core.catalog.model_names import identify
from splitsecond.core.catalog.provider import names, provider
from splitsecond.core.timing.uses import USES
from splitsecond.core.wording import change, number, ratio

ROOT = Path(__file__).parents[2]
ARTICLE = "Inference speed article with live API benchmarks"
CRAZYROUTER = "Crazyrouter, AI Inference Speed Benchmark 2026"
STRAIVE = "Straive, How fast are LLMs in production?"
COMPUTE = "General Compute, LLM Token Generation Speed"
FLO2 = "flo2, Fastest LLM Inference"
DOCUMENTS = (ARTICLE, CRAZYROUTER, STRAIVE, COMPUTE, FLO2)
ALIASES = {"How fast are LLMs in production?": STRAIVE}
AS_CLAIMED, LESS, MORE, UNCLEAR = "as claimed", "less", "more", "cannot tell"
PUBLISHED, ANSWERED = "in the catalogue", "answered"
Range = tuple[float, float]


class Row(Struct, frozen=True):
    """One claim. `command` shows it; `shows`: what that printed, or what follows from it."""

    document: str
    says: str
    command: str
    shows: str
    verdict: str


def rows() -> list[Row]:
    """Return the rows of all documents, those of one document together."""
    found = [*published(), *compared(), *tried(), *asked(), *required()]
    return sorted(found, key=lambda row: DOCUMENTS.index(row.document))


# the speeds that the documents publish


def speeds() -> Iterator[tuple[str, str, PublishedSpeed]]:
    """Yield provider, target and figures of each published speed of the five documents."""
    for name in names():
        for model, entry in provider(name).models.items():
            for speed in entry.speeds:
                if _document(speed.source):
                    yield name, f"{name}/{model}", speed


def published() -> Iterator[Row]:
    for name, target, speed in speeds():
        yield Row(
            _document(speed.source),
            f"{target}: {speed.summary}",
            f"splitsecond models {name}",
            speed.summary,
            PUBLISHED,
        )
    for name in names():
        for each in provider(name).distances:
            yield Row(
                _document(each.source),
                f"{provider(name).title}: {each.summary}",
                f"splitsecond providers {name}",
                each.summary,
                PUBLISHED,
            )
        hardware = provider(name).hardware
        if hardware is not None and (document := _document(hardware.source)):
            yield Row(
                document,
                f"{provider(name).title} runs models on {hardware.kind}",
                f"splitsecond providers {name}",
                hardware.kind,
                PUBLISHED,
            )


def _document(source: str) -> str:
    return next((each for each in DOCUMENTS if source.startswith(each)), "")


# what the documents conclude from their own speeds


def speed_of(document: str, target: str, concurrency: int | None = None) -> PublishedSpeed:
    """Return a published speed. Raises `StopIteration` if the catalogue lacks it."""
    return next(
        speed
        for _, name, speed in speeds()
        if name == target
        and _document(speed.source) == document
        and concurrency in (None, speed.concurrency)
    )


def _range(figure: Figure | None) -> Range:
    assert figure is not None
    return figure if isinstance(figure, tuple) else (figure, figure)


def _times(first: Figure | None, second: Figure | None) -> Range:
    """Return the ratio of the middles of two ranges, or that of their ends if one is open."""
    (a, b), (c, d) = _range(first), _range(second)
    if math.isinf(b) or not c:
        return a / d, b / c if c else math.inf
    return (a + b) / (c + d), (a + b) / (c + d)


def _within(found: Range, claimed: Range) -> str:
    """Return the verdict on a range: where all of it lies."""
    if claimed[0] <= found[0] and found[1] <= claimed[1]:
        return AS_CLAIMED
    if found[1] < claimed[0]:
        return LESS
    return MORE if found[0] > claimed[1] else UNCLEAR


def _words(found: Range) -> str:
    low, high = found
    if math.isinf(high):
        return f"at least {ratio(low)} times"
    return f"{ratio(low)} times" if low == high else f"{ratio(low)} to {ratio(high)} times"


GPT4, OPUS = "openai/gpt-4-turbo", "anthropic/claude-opus-4-6"
GPT4O, GPT35 = "openai/gpt-4o", "openai/gpt-3.5-turbo"
RATIOS: Sequence[tuple[str, str, str, str, Range]] = (
    (ARTICLE, "Claude is slightly slower than GPT-4", OPUS, GPT4, (0.7, 1.0)),
    (ARTICLE, "GPT-4o is faster than GPT-4 Turbo", GPT4O, GPT4, (1.0, math.inf)),
    (ARTICLE, "GPT-3.5 Turbo is 2 to 3 times as fast as GPT-4 Turbo", GPT35, GPT4, (2.0, 3.0)),
    (ARTICLE, "Haiku is 2 times as fast as Opus", "anthropic/claude-haiku-4-5", OPUS, (1.5, 2.5)),
    (ARTICLE, "Sonnet is faster than Opus", "anthropic/claude-sonnet-4-6", OPUS, (1.0, math.inf)),
    (
        ARTICLE, "Groq is dramatically faster than GPU-based providers", "groq/mixtral-8x7b-32768",
        "together/mistralai/Mixtral-8x7B-Instruct-v0.1", (2.0, math.inf),
    ),
    (
        ARTICLE, "Lambda's speed is comparable to RunPod's",
        "lambda/mistralai/Mistral-7B-Instruct-v0.2",
        "runpod/mistralai/Mistral-7B-Instruct-v0.2", (0.75, 1.25),
    ),
)  # fmt: skip
"""What a document says of the TPS of two targets, and the ratio that it means."""
COMPUTED_70B = "llama-3.1-70b"


def compared() -> Iterator[Row]:
    for document, says, first, second, claimed in RATIOS:
        times = _times(speed_of(document, first).tps, speed_of(document, second).tps)
        command = f"splitsecond models {first.partition('/')[0]}"
        yield Row(
            document, says, command, f"published TPS: {_words(times)}", _within(times, claimed)
        )
    yield from _production()
    yield from _under_load()
    yield from _of_all()
    yield from _for_uses()


def _for_uses() -> Iterator[Row]:
    """Return the recommendations of Crazyrouter's tables, by the figures that it publishes."""
    own = {t: s for _, t, s in speeds() if _document(s.source) == CRAZYROUTER}
    for says, chosen, limit_ms in (
        ("Voice: Gemini 2.5 Flash Lite or Claude Haiku 4.5, TTFT below 200 ms",
         ("gemini-2.5-flash-lite", "claude-haiku-4-5"), 200),
        ("Code completion: GPT-5 Mini or Gemini 2.5 Flash, TTFT below 350 ms",
         ("gpt-5-mini", "gemini-2.5-flash"), 350),
    ):  # fmt: skip
        within = sorted(t for t, s in own.items() if s.ttft_ms and s.ttft_ms < limit_ms)
        met = all(any(t.endswith(f"/{each}") for t in within) for each in chosen)
        yield Row(
            CRAZYROUTER, says, "splitsecond recommend RUN voice completion",
            f"published TTFT below {limit_ms} ms: {', '.join(within)}", AS_CLAIMED if met else LESS,
        )  # fmt: skip
    for says, name in (
        ("Gemini 2.5 Flash Lite has the highest TPS (240)", "gemini/gemini-2.5-flash-lite"),
        ("Long-form: DeepSeek V3.2, fast TPS for long outputs", "deepseek/deepseek-v3.2"),
    ):
        faster = sorted(
            (t for t, s in own.items() if _range(s.tps)[0] > _range(own[name].tps)[0]),
            key=lambda t: -_range(own[t].tps)[0],
        )
        yield Row(
            CRAZYROUTER, says, "splitsecond recommend RUN long-form",
            f"published TPS: {own[name].summary}; faster: {', '.join(faster) or 'none'}",
            LESS if faster else AS_CLAIMED,
        )  # fmt: skip


def _production() -> Iterator[Row]:
    for says, first, second, claimed in (
        ("OpenAI serves GPT 3.5 Turbo at 3 times the speed of Azure", GPT35,
         "azure/gpt-3.5-turbo", (2.5, math.inf)),
        ("Azure's GPT 4o is about twice as slow as OpenAI's", GPT4O, "azure/gpt-4o", (1.5, 2.5)),
        ("GPT 4o and GPT 4o mini have about the same speed", GPT4O, "openai/gpt-4o-mini",
         (0.8, 1.25)),
    ):  # fmt: skip
        times = _times(speed_of(STRAIVE, first).total_tps, speed_of(STRAIVE, second).total_tps)
        yield Row(
            STRAIVE, says, "splitsecond speed --by host",
            f"published total TPS: {_words(times)}; of your own requests, the report compares "
            "equal hours and lengths",
            _within(times, claimed),
        )  # fmt: skip

    yield Row(
        STRAIVE, "Gemini 1.5 Flash is much, much slower than the benchmarks",
        "splitsecond speed --against runs/monday",
        "each target's TTFT and TPS in production against a run, with ratio and interval, and what "
        "else differs", ANSWERED,
    )  # fmt: skip
    yield Row(
        STRAIVE, "GPU architecture is the biggest driver of speed", "splitsecond speed --drivers",
        "the share of the variation of TTFT and TPS that hardware, host, maker, model, prompt and "
        "hour go with: an association, of your own log", ANSWERED,
    )  # fmt: skip
    batch = [speed_of(ARTICLE, target).batch_tps for target in (OPUS, GPT4)]
    yield Row(
        ARTICLE, "Claude's batch performance lags OpenAI's",
        "splitsecond bench sim/anthropic-claude-opus-4.6-march-2026 sim/openai-gpt-4-turbo -c 1,16",
        f"published in parallel: over {_range(batch[0])[0]:g} and over {_range(batch[1])[0]:g} "
        "tokens/s, without an upper end", UNCLEAR,
    )  # fmt: skip


def _under_load() -> Iterator[Row]:
    by_provider: dict[str, dict[int, PublishedSpeed]] = {}
    for name, target, speed in speeds():
        if _document(speed.source) == COMPUTE and COMPUTED_70B in identify(target).model:
            by_provider.setdefault(name, {})[speed.concurrency or 0] = speed
    ours = by_provider["generalcompute"]
    ttft = (ours[8].ttft_ms or 0) / (ours[1].ttft_ms or 1) - 1
    tps = _range(ours[8].tps)[0] / _range(ours[1].tps)[0] - 1
    yield Row(
        COMPUTE, "From concurrency 1 to 8, GeneralCompute's TTFT rises about 17% and TPS drops "
        "about 8%", "splitsecond bench sim/generalcompute -c 1,8",
        f"published: TTFT {change(ttft)}, TPS {change(tps)}",
        AS_CLAIMED if round(ttft, 2) == 0.17 and round(tps, 2) == -0.08 else UNCLEAR,
    )  # fmt: skip
    for name, loads in by_provider.items():
        for light, heavy in pairwise(sorted(loads)):
            share = _range(loads[heavy].tps)[0] / _range(loads[light].tps)[0]
            doublings = math.log2(heavy / light)
            drop = share ** (1 / doublings) - 1
            yield Row(
                COMPUTE, f"Doubling concurrency roughly halves TPS ({provider(name).title}, "
                f"{light} to {heavy})", f"splitsecond bench sim/{name} -c {light},{heavy}",
                f"published: {change(drop)} for each doubling, where a split resource has −50%",
                _within((-drop, -drop), (0.4, 0.6)),
            )  # fmt: skip
    groq = by_provider["groq"]
    yield Row(
        COMPUTE, "Groq's p95 TTFT jumps at concurrency 8: queue time varies",
        "splitsecond bench sim/groq -c 1,8",
        f"published: p95 {number(groq[1].ttft_p95_ms)} to {number(groq[8].ttft_p95_ms)} ms, p50 "
        f"{number(groq[1].ttft_ms)} to {number(groq[8].ttft_ms)} ms",
        AS_CLAIMED if (groq[8].ttft_p95_ms or 0) > 2 * (groq[1].ttft_p95_ms or 0) else LESS,
    )  # fmt: skip
    gpus = {
        load: [
            _range(loads[load].tps)[0]
            for name, loads in by_provider.items()
            if (hardware := provider(name).hardware) and hardware.kind == "GPU"
        ]
        for load in (1, 32)
    }
    for load, claimed in ((1, (65.0, 110.0)), (32, (30.0, 72.0))):
        found = min(gpus[load]), max(gpus[load])
        yield Row(
            COMPUTE, f"GPU-based providers have {claimed[0]:g} to {claimed[1]:g} TPS at "
            f"concurrency {load}", "splitsecond speed --by hardware",
            f"published: {found[0]:g} to {found[1]:g}", _within(found, claimed),
        )  # fmt: skip
    quick = [name for name, loads in by_provider.items() if _range(loads[1].tps)[0] >= 100]
    yield Row(
        COMPUTE, "100 TPS at concurrency 1 on a 70B model is a quick filter",
        "splitsecond bench TARGET -c 1 --fail-if 'tps.p50 < 100'",
        f"published: {', '.join(sorted(quick))} pass", ANSWERED,
    )  # fmt: skip


def _of_all() -> Iterator[Row]:
    own = [(target, speed) for _, target, speed in speeds() if _document(speed.source) == ARTICLE]
    apis = [(t, s) for t, s in own if not s.setup and s.ttft_ms is not None]
    first = min(apis, key=lambda each: each[1].ttft_ms or 0)
    yield Row(
        ARTICLE, "Gemini has the fastest TTFT of the cloud providers (180 ms)",
        "splitsecond models gemini groq",
        f"published: {first[0]} has {first[1].ttft_ms:g} ms",
        AS_CLAIMED if first[0].startswith("gemini") else LESS,
    )  # fmt: skip
    waits = [s.ttft_ms or 0.0 for _, s in apis]
    yield Row(
        ARTICLE, "TTFT varies from 120 to 320 ms between providers", "splitsecond models",
        f"published: {min(waits):g} to {max(waits):g} ms", _within((min(waits), max(waits)),
        (120, 320)),
    )  # fmt: skip
    fastest = max(apis, key=lambda each: _range(each[1].tps)[0])
    yield Row(
        ARTICLE, "Groq is the fastest in raw speed (500+ TPS)", "splitsecond models groq",
        f"published: {fastest[0]} has {fastest[1].summary}",
        AS_CLAIMED if fastest[0].startswith("groq") else LESS,
    )  # fmt: skip
    h100 = _range(speed_of(ARTICLE, "runpod/mistralai/Mistral-7B-Instruct-v0.2").tps)
    slower = [t for t, s in apis if _range(s.tps)[1] < h100[0]]
    yield Row(
        ARTICLE, "A self-hosted H100 is faster than most APIs",
        "splitsecond bench TARGET mine=URL --price-per-hour mine=2.69",
        f"published TPS: faster than {len(slower)} of {len(apis)}; with 7B against larger models",
        AS_CLAIMED if len(slower) > len(apis) / 2 else LESS,
    )  # fmt: skip


# docs/reference/claims.md


def tried() -> Iterator[Row]:
    page = (ROOT / "docs/reference/claims.md").read_text("utf-8")
    for section in page.split("\n## ")[1:]:
        quote = next(line[2:] for line in section.splitlines() if line.startswith("> "))
        says, _, source = quote.rpartition(" (")
        document = next(each for each in DOCUMENTS if each.partition(",")[0] in source)
        verdicts = Counter(re.findall(r"\*\*(as claimed|less|more|cannot tell)\*\*", section))
        shows = ", ".join(f"{verdict} in {count}" for verdict, count in verdicts.most_common())
        title = section.partition("\n")[0]
        yield Row(
            document,
            says,
            "python -m benchmarks.claims",
            f"[{title}](claims.md#{anchor(title)}), by case: {shows}",
            next(iter(verdicts)) if len(verdicts) == 1 else "by case",
        )


# docs/questions.md


VERDICTS = {
    "Reducing input tokens 10x improves": LESS,
    "Longer prompts increase": AS_CLAIMED,
    "These numbers have an inverse": AS_CLAIMED,
    "Negative correlation at scale": UNCLEAR,
    "Companies run their own models": AS_CLAIMED,
    "What is fastest for a 1k-token": AS_CLAIMED,
    "For short replies, TTFT dominates": AS_CLAIMED,
}
"""Verdicts of the session in tests/questions on claims that are no questions of method."""


def asked() -> Iterator[Row]:
    """Return the questions that quote a document and that claims.md does not try."""
    known = [row.says for row in tried()]
    answers = sections(ROOT / "docs/questions.md")
    command = ""
    for title, text in sections(Path(__file__).parent / "session.md").items():
        document, answer = "", answers[title]
        command = command_of(answer) or command_of(text) or command
        for block in re.findall(r"^(?:> .*\n)+", text, re.MULTILINE):
            quote = " ".join(line[2:] for line in block.splitlines())
            says, _, source = quote.rpartition(" (")
            source = source.rstrip(")")
            if source != "the same":
                document = ALIASES.get(source) or next(
                    each for each in DOCUMENTS if each.startswith(source.partition(" (")[0])
                )
            if any(says in each for each in known):
                continue
            verdict = next((v for start, v in VERDICTS.items() if says.startswith(start)), ANSWERED)
            shows = f"[{title}](../questions.md#{anchor(title)}) {answer_of(answer)}".strip()
            yield Row(document, says, command, shows, verdict)


def sections(page: Path) -> dict[str, str]:
    """Return the text below each heading of a page that is a question."""
    text = re.sub(r"^## .+\n", "", page.read_text("utf-8"), flags=re.MULTILINE)
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def command_of(answer: str) -> str:
    """Return the first command of an answer; "" without one."""
    found = re.search(r"^(?:\$ )?(splitsecond (?:.*\\\n)*.*?)(?:\s+#.*)?$", answer, re.MULTILINE)
    inline = re.search(r"`(splitsecond \w[^`]+)`", answer)
    text = found[1] if found else inline[1] if inline else ""
    return " ".join(text.replace("\\\n", " ").split())


def answer_of(answer: str) -> str:
    """Return what an answer quotes as the output, or its first sentence; "" if it has neither."""
    quoted = re.findall(r"^> (.+(?:\n> .+)*)", answer, re.MULTILINE)
    if quoted:
        return " ".join(quoted[0].replace("\n> ", " ").split())
    if printed := re.search(r"```text\n(\w.*)\n", answer):
        return printed[1]
    prose = " ".join(re.sub(r"```.*?```", "", answer, flags=re.DOTALL).split())
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", prose)
    return f"{plain.partition('. ')[0].rstrip(':.')}." if plain else ""


def anchor(title: str) -> str:
    """Return the address of a heading within its page."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


# limits of uses


def required() -> Iterator[Row]:
    limits = {
        "edge": "Edge/IoT | <100ms", "translation": "Real-time translation | <200ms",
        "voice": "Voice agent | <300ms", "completion": "Code completion | <500ms",
        "chat": "Chatbot (web) | 1-3s",
    }  # fmt: skip
    for use, says in limits.items():
        limit = USES[use].ttft_ms
        claimed = [float(each) for each in re.findall(r"\d+", says.partition("|")[2])]
        stated = max(claimed) * (1000 if says.endswith("s") and "ms" not in says else 1)
        yield Row(
            CRAZYROUTER,
            says,
            f"splitsecond recommend RUN {use}",
            f"TTFT p95 within {limit:,.0f} ms",
            AS_CLAIMED if limit == stated else UNCLEAR,
        )
    for use, says, by in (
        ("voice", "For voice agents, TTFT under concurrency is what matters most", "ttft_ms"),
        ("completion", "For IDE autocomplete, TPS at low concurrency is the primary variable",
         "tps"),
        ("agent", "For agentic pipelines, both metrics compound", "agent_ms"),
        ("batch", "For batch processing, throughput per dollar is the right metric",
         "tokens_per_usd"),
    ):  # fmt: skip
        load = "lightest" if USES[use].alone else "heaviest"
        yield Row(
            COMPUTE, says, f"splitsecond recommend RUN {use}",
            f"ranked by {by}" + ("" if use == "batch" else f", at the {load} load of the run"),
            AS_CLAIMED if USES[use].by == by else UNCLEAR,
        )  # fmt: skip


# the page

INTRODUCTION = """\
# Claims of five articles

Five articles about fast inference, claim by claim: the command that shows it, what it shows, and a
verdict. This page is generated: run `pytest tests/test_document_claims.py --update-golden`. Each
row follows from the catalogue, from [claims.md](claims.md) or from [questions.md](../questions.md),
whose commands run as tests.

- *in the catalogue*: the figure is kept as published, and most simulated providers have theirs from
  it. Whether it is true today, only `splitsecond bench` tells.
- *as claimed*, *less*, *more*, *cannot tell*: the figures of this page against what the article
  says; *by case*: it depends on the case.
- *answered*: a question or a method, not a figure. The command answers it for your targets.
"""


def page() -> str:
    """Return docs/reference/articles.md."""
    parts = [INTRODUCTION]
    found = rows()
    for document in DOCUMENTS:
        own = [row for row in found if row.document == document]
        parts.append(
            f"## {document}\n\n| claim | command | what it shows | verdict |\n|---|---|---|---|\n"
        )
        parts[-1] += "".join(
            f"| {_cell(row.says)} | `{row.command}` | {_cell(row.shows)} | {row.verdict} |\n"
            for row in own
        )
    counts = Counter(row.verdict for row in found)
    total = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return "\n".join([*parts, f"{len(found)} claims: {total}.\n"])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
