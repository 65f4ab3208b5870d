"""The first screen of a run: what was asked, how sure the answer is and what it costs, within about
30 lines."""

import copy
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.cases import each_case
from tests.report.invented import invented_run, priced

from splitsecond.benchmark.findings.conclusion import conclusion
from splitsecond.benchmark.findings.evidence import evidence_of_run
from splitsecond.benchmark.findings.load_shape import load_shape_statements, load_shapes
from splitsecond.benchmark.findings.recommendation import recommend
from splitsecond.benchmark.report import use_matrix
from splitsecond.benchmark.report.first_screen import first_screen
from splitsecond.benchmark.report.short_names import short_names
from splitsecond.benchmark.rows.records import Run
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
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    assert lines[0].startswith("generalcompute/llama-3.1-70b-instruct is the fastest at ")
    assert "It is sure within the intervals (160 requests per row in 6 rounds)." in " ".join(
        text.split()
    )
    assert "arrival times" not in text
    assert lines[-1] == "runs/x/report.html has all figures and findings; --verbose prints them."


def test_a_path_is_not_broken_by_a_narrow_terminal(
    asked: tuple[Run, Sequence[Observation]],
) -> None:
    path = Path("runs/20261129-020134-0ac/report.html")
    lines = screen(asked[0], width=60, files=[path])
    assert lines[-2:] == [str(path), "  has all figures and findings; --verbose prints them."]
    assert max(map(len, lines)) <= 60
    assert str(path) in screen(asked[0], width=30, files=[path])


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
    assert "Not shown" not in wide
    assert "Not shown: intervals" in narrow
    assert "p95" in narrow


def test_verdicts_on_uses_are_given_for_each_workload(
    asked: tuple[Run, Sequence[Observation]],
) -> None:
    run, observations = copy.deepcopy(asked)
    short = [replace(row, workload="512") for row in run.conditions]
    # on long prompts, each target has the TTFT that it had under load
    slow = {row.target: row.ttft_ms for row in run.conditions if row.concurrency == 8}
    long = [
        replace(row, workload="32k", condition=f"{row.condition}#32k", ttft_ms=slow[row.target])
        for row in run.conditions
        if row.concurrency == 1
    ]
    run.conditions = [*short, *long]
    run.uses = recommend(evidence_of_run(run.conditions))
    answer, *_ = conclusion(run, observations, "edge")
    assert "For edge on workload 512, no target meets" in answer
    assert "For edge on workload 32k, no target meets" in answer
    assert use_matrix.heading(run) == (
        "Uses at c=8 (completion c=1) on 512; c=1 on 32k, ★ is the first of a use"
    )
    assert {row.name for row in use_matrix.use_matrix(run)} == {
        f"{target} on {workload}" for target in PAIR for workload in ("512", "32k")
    }


def test_use_with_several_verdicts_names_the_workloads_of_each() -> None:
    def row(workload: str, *words: str) -> use_matrix.MatrixRow:
        cells = [use_matrix.MatrixCell(text=word, look="") for word in words]
        return use_matrix.MatrixRow(target="a/x", workload=workload, cells=cells)

    rows = [row("512", "yes", "★ yes"), row("8k", "no", "★ yes"), row("32k", "no", "★ yes")]
    assert list(use_matrix.verdicts(["voice", "chat"], rows)) == [
        "yes voice (512), ★ chat",
        "no voice (8k, 32k)",
    ]


def test_screen_of_five_targets_with_long_names_is_short() -> None:
    run, _ = invented_run(requests=50, in_rounds=True)
    makers = dict.fromkeys(row.target for row in run.conditions)
    run.conditions = [
        replace(row, target=f"sim/{row.target.partition('/')[0]}-llama-3.1-70b")
        for row in run.conditions
    ]
    run.uses = recommend(evidence_of_run(run.conditions))
    run.highlights = []
    run.state(load_shape_statements(load_shapes(run.conditions)))
    assert len(makers) == 5
    lines = screen(run)
    assert len(lines) <= 46  # five of them on an INVALID row and on failures
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "Names: sim/…-llama-3.1-70b." in " ".join(text.split())
    assert "\n groq " in text


def test_screen_of_five_valid_targets_has_about_thirty_lines() -> None:
    run, _ = invented_run(requests=160, in_rounds=True, concurrencies=(1, 8))
    run.conditions = [replace(row, invalid=[], errors=0, error_kinds={}) for row in run.conditions]
    run.uses = recommend(evidence_of_run(run.conditions))
    assert len({row.target for row in run.conditions}) == 5
    lines = screen(run, files=[Path("runs/x/report.html")])
    assert len(lines) <= 34
    assert max(map(len, lines)) <= 80
    assert "more findings" in " ".join(lines)  # what has no room is counted


@each_case(
    ("names", "short"),
    [
        (("groq/openai/gpt-oss-120b", "cerebras/gpt-oss-120b"), ["groq/openai", "cerebras"]),
        (("sim/groq-llama-3.1-70b", "sim/together-llama-3.1-70b"), ["groq", "together"]),
        (("openai/gpt-5-mini", "openai/gpt-5"), ["gpt-5-mini", "gpt-5"]),
        (("a/claude-haiku", "b/claude-haiku"), ["a/claude", "b/claude"]),
        (('race("a/x", "b/x")', "a/x"), ['race("a/x", "b/x")', "a/x"]),
        (("sim/groq",), ["sim/groq"]),
        (PAIR, ["generalcompute", "groq"]),
        (
            (*PAIR, "replicate/meta-llama-3-70b"),
            ["generalcompute", "groq", "replicate/meta-llama-3-70b"],
        ),
        ((PAIR[0], "openai/gpt-5"), [PAIR[0], "openai/gpt-5"]),
        ((*PAIR, "groq/llama-3.3-70b"), [*PAIR, "groq/llama-3.3-70b"]),
    ],
)
def test_short_names_can_be_recognised(names: Sequence[str], short: list[str]) -> None:
    found = short_names(names)
    assert list(found.names.values()) == short
    assert bool(found.pattern) == (list(names) != short)
    assert found.within(" and ".join(names)) == " and ".join(short)
