import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from tests.report.invented import invented_run

from splitsecond.analysis.compare import RunData, compare
from splitsecond.analysis.findings import Run
from splitsecond.report.terminal import comparison_table, run_table
from splitsecond.timing.observation import Observation

Invented = tuple[Run, Sequence[Observation]]


def printed(run: Run, width: int = 140, files: Sequence[Path] = ()) -> str:
    console = Console(file=io.StringIO(), width=width)
    run_table(run, console, files)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_table_per_concurrency_with_intervals(invented: Invented) -> None:
    run, _ = invented
    text = printed(run)
    assert [line.strip() for line in text.splitlines() if line.startswith("Concurrency")] == [
        "Concurrency 1",
        "Concurrency 8",
        "Concurrency 32",
    ]
    first = next(line for line in text.splitlines() if "generalcompute" in line)
    spread = run.conditions[0].ttft_ms
    assert f"{spread.p50:.0f}  {spread.ci95['p50'][0]:.0f}–{spread.ci95['p50'][1]:.0f}" in first
    assert "3 of 80" in text
    assert "3 × http_429: HTTP 429: rate limit reached for model" in text


def test_an_invalid_row_is_marked_and_its_reason_stands_beneath(invented: Invented) -> None:
    run, _ = invented
    lines = printed(run, width=200).splitlines()
    marked = next(i for i, line in enumerate(lines) if "replicate/meta-llama-3-70b INVALID" in line)
    assert "the client was too late" in " ".join(lines[marked + 1 :])


def test_sentences_then_the_instrument_then_the_files(invented: Invented) -> None:
    run, _ = invented
    text = printed(run, files=[Path("runs/x/report.html")])
    order = ["• At concurrency 1", "conditions have arrival times from the kernel", "runs/x/report.html"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_a_narrow_console_loses_no_figure(invented: Invented) -> None:
    run, _ = invented
    text = printed(run, width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    spread = run.conditions[0].ttft_ms
    assert f"{spread.ci95['p50'][0]:.0f}–{spread.ci95['p50'][1]:.0f}" in text
    assert "…" not in text


def test_too_few_requests_are_said() -> None:
    run, _ = invented_run(concurrencies=(1,), requests=10)
    text = printed(run)
    assert "n < 72" in text
    assert "too few requests" in text


def test_nothing_succeeded_and_nothing_at_all(nothing_succeeded: Invented) -> None:
    text = printed(nothing_succeeded[0])
    assert "3 of 3" in text
    assert "–" in text
    assert "stopped before its end" in printed(Run(id="r", began="", began_ns=0))


def test_a_whole_run_that_is_invalid_says_so(invented: Invented) -> None:
    run, _ = invented
    assert "INVALID: no clock" in printed(msgspec.structs.replace(run, invalid=["no clock"]))


def test_a_provider_cannot_steer_the_terminal() -> None:
    run, _ = invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(1,), requests=2)
    condition = run.conditions[0]
    condition.target = "a/[red]x\x1b[2J"
    condition.notes = ["\x1b]0;title\x07 [bold]"]
    text = printed(run)
    assert "\x1b" not in text
    assert "a/[red]x [2J" in text
    assert "[bold]" in text


def test_a_comparison_shows_each_change_and_what_is_missing(invented: Invented) -> None:
    run, observations = invented
    slower = [
        msgspec.structs.replace(o, first_token_ns=o.first_token_ns + 90_000_000) if o.first_token_ns else o
        for o in observations
    ]
    after = msgspec.structs.replace(run, id="after", conditions=run.conditions[:2])
    comparison = compare(RunData(run, observations), RunData(after, slower))
    console = Console(file=io.StringIO(), width=140)
    comparison_table(comparison, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "generalcompute/llama-3.1-70b-instruct, c=1" in text
    line = next(line for line in text.splitlines() if "TTFT p50, ms" in line)
    assert "+50" in line.replace("+51", "+50").replace("+49", "+50")
    assert "TTFT from due" not in text.split("Only in")[0]
    assert "system tokens/s" in text
    assert "Only in the run before: groq/llama-3.1-70b-versatile at concurrency 1" in text
    assert "for the worse" in text
