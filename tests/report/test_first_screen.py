"""The first screen of a run: what was asked, how sure the answer is and what it costs, within about
30 lines."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from tests.report.invented import invented_run, priced

from splitsecond.benchmark.findings.conclusion import conclusion
from splitsecond.benchmark.findings.findings import Run
from splitsecond.benchmark.report.first_screen import first_screen
from splitsecond.core.observation import Observation

PAIR = ("generalcompute/llama-3.1-70b-instruct", "groq/llama-3.1-70b-versatile")


def screen(run: Run, width: int = 80, files: Sequence[Path] = ()) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    first_screen(run, console, files)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.fixture(scope="module")
def asked() -> tuple[Run, Sequence[Observation]]:
    return invented_run(PAIR, concurrencies=(1, 8), requests=160, in_rounds=True)


def test_first_screen_is_short_and_begins_with_the_answer(
    asked: tuple[Run, Sequence[Observation]],
) -> None:
    lines = screen(asked[0], files=[Path("runs/x/report.html")])
    assert len(lines) <= 38  # its names are longer than a column
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    assert lines[0].startswith("generalcompute/llama-3.1-70b-instruct is the fastest at ")
    assert "It is sure within the intervals (160 requests per row in 6 rounds)." in " ".join(
        text.split()
    )
    assert "arrival times" not in text
    assert lines[-1] == "runs/x/report.html has all figures and findings; --verbose prints them."


def test_answer_is_about_the_use_that_was_asked(asked: tuple[Run, Sequence[Observation]]) -> None:
    chat, *_ = conclusion(*asked, "chat")
    assert chat.startswith(
        "For chat, take generalcompute/llama-3.1-70b-instruct: it meets "
        "TTFT p95 within 3,000 ms at "
    )
    edge, *_ = conclusion(*asked, "edge")
    assert edge.startswith("For edge, no target meets TTFT p95 within 100 ms; generalcompute/")
    assert edge.endswith(" at concurrency 8).")


def test_too_few_requests_are_not_sure_and_say_how_many_would_be() -> None:
    run, observations = invented_run(PAIR, concurrencies=(1,), requests=4)
    assert conclusion(run, observations)[1].startswith("It is not sure: 4 requests per row")
    run, observations = invented_run(PAIR, concurrencies=(1,), requests=40, in_rounds=True)
    assert "a p95 needs -n 150" in conclusion(run, observations)[1]


def test_costs_are_the_third_sentence(asked: tuple[Run, Sequence[Observation]]) -> None:
    unknown, known = conclusion(*asked)[2], conclusion(priced(*asked), asked[1])[2]
    assert unknown == "What it costs is unknown without a price: name one with --price."
    assert known.startswith(("A million tokens cost $", "The run cost $"))


def test_hidden_columns_are_named(asked: tuple[Run, Sequence[Observation]]) -> None:
    wide, narrow = (" ".join(screen(asked[0], width)) for width in (140, 60))
    assert "Not shown here" not in wide
    assert "Not shown here: intervals" in narrow
    assert "p95" in narrow
