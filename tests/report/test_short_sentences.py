"""Sentences of findings on one line of a terminal."""

from pathlib import Path

import pytest

from splitsecond.report.short_sentences import short_lines

SLOWER = (
    "At concurrency 8, a/x is first on TTFT: p50 214 ms, b/y 309 (1.44 times as fast, 95% interval 1.11 to 2.10, "
    "p = 0.021)."
)
GOLDEN = Path(__file__).parents[1] / "analysis/golden"


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (200, SLOWER),
        (100, "At concurrency 8, a/x is first on TTFT: p50 214 ms, b/y 309 (1.44×, 95%: 1.11 to 2.10, p = 0.021)."),
        (80, "At c=8, a/x is first on TTFT: p50 214 ms, b/y 309 (1.44×, 95%: 1.11 to 2.10)."),
        (68, "c=8: a/x is first on TTFT: p50 214 ms, b/y 309 (1.44×, 1.11–2.10)."),
        (59, "c=8: a/x leads in TTFT: p50 214 ms, b/y 309 (1.11–2.10×)."),
        (50, "At concurrency 8, a/x is first on TTFT: p50 214 ms, b/y 309 (1.44×, 95%: 1.11 to 2.10, p = 0.021)."),
    ],
)
def test_a_sentence_loses_only_what_it_must(width: int, line: str) -> None:
    """At 50 columns it takes two lines in its shortest form, too, so it loses less."""
    assert short_lines(SLOWER, width) == [line]


@pytest.mark.parametrize(
    ("first", "second"),
    [("sim/generalcompute", "sim/groq"), ("groq/openai/gpt-oss-120b", "cerebras/gpt-oss-120b")],
)
@pytest.mark.parametrize("figure", ["TTFT p50: {} 222 ms, {} 293", "TPS p50: {} 222 tokens/s, {} 193"])
def test_a_difference_that_is_not_clear_takes_one_line_with_its_values_and_interval(
    first: str, second: str, figure: str
) -> None:
    known = "1.32 times as fast, 95% interval 0.55 to 3.72, p = 0.35"
    more = "; this run could have seen 258%, 10% takes about -n 824 in 44 rounds"
    (line,) = short_lines(
        f"At concurrency 8, no clear difference in {figure.format(first, second)} ({known}){more}.", 98
    )
    assert len(line) <= 98
    for kept in ("c=8", first, second, "222", "93 (", "0.55–3.72"):
        assert kept in line


def test_each_sentence_has_its_line() -> None:
    finding = "From concurrency 1 to 8, sim/late.toml: TTFT p50 +30.2%. Requests queue (p < 0.001). It saw 3.5%. Yes."
    assert short_lines(finding, 200) == [
        "From concurrency 1 to 8, sim/late.toml: TTFT p50 +30.2%.",
        "Requests queue (p < 0.001).",
        "It saw 3.5%.",
        "Yes.",
    ]


def test_sentences_of_short_names_fit_a_hundred_columns() -> None:
    found = (GOLDEN / "test_statements/test_comparisons_in_sentences.txt").read_text("utf-8").splitlines()
    sentences = [line.strip() for line in found if line.startswith("  ")]
    assert len(sentences) > 10
    too_long = [line for each in sentences for line in short_lines(each, 98) if len(line) > 98]
    assert too_long == []


@pytest.mark.parametrize(
    ("sentence", "line"),
    [
        (
            "At concurrency 8 it delivers 439 system tokens/s, 39.9 good requests/s, TTFT p95 100 ms, TPS p50 100, "
            "$1.00 per million output tokens.",
            "At c=8: 439 system tokens/s, 39.9 good requests/s, TTFT p95 100 ms, TPS p50 100, $1.00/M output.",
        ),
        (
            "local/main handles concurrency 18 with TTFT ≤ 300 ms, TPOT ≤ 20 ms in 95% of requests (373 of 378), not "
            "19 (0 of 57).",
            "local/main handles c=18 with TTFT ≤ 300 ms, TPOT ≤ 20 ms in 95% (373 of 378), not 19 (0 of 57).",
        ),
        (
            "groq/openai/gpt-oss-120b at concurrency 1: TTFT p50 went from 200 to 242 ms (+20.6%, 95% interval +18% to "
            "+21.7%, p = 0.0026), for the worse.",
            "groq/openai/gpt-oss-120b at c=1: TTFT p50 200 → 242 ms (+20.6%, 95%: +18 to +21.7%), worse.",
        ),
        (
            "From concurrency 1 to 8, system tokens/s grow 6.41 times for sim/generalcompute, 6.10 times for "
            "sim/together, 5.41 times for sim/groq.",
            "c=1 to 8, system tokens/s: sim/generalcompute 6.41×, sim/together 6.10×, sim/groq 5.41×.",
        ),
        (
            "llama-3.1-70b at north/llama-3.1-70b is 1.42 times as fast as at south/llama-3.1-70b (1.39 to 1.45), at "
            "equal lengths.",
            "north/llama-3.1-70b is 1.42× as fast as at south/llama-3.1-70b (1.39–1.45), at equal lengths.",
        ),
        (
            "Speed and price show no clear correlation here (Spearman −0.49 over 6 targets, 95% interval −0.94 to "
            "0.58).",
            "Speed and price show no clear correlation (Spearman −0.49 over 6 targets, 95%: −0.94 to 0.58).",
        ),
    ],
)
def test_long_findings_fit_a_hundred_columns(sentence: str, line: str) -> None:
    assert len(line) <= 98
    assert short_lines(sentence, 98) == [line]
