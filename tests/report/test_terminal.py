import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.report.invented import invented_run, priced

from splitsecond.benchmark.findings.compare import RunData, compare
from splitsecond.benchmark.report.terminal import comparison_table, run_table
from splitsecond.benchmark.rows.records import Run
from splitsecond.core.catalog.price import Price
from splitsecond.core.observation import Observation
from splitsecond.core.pages import figure_cells

Invented = tuple[Run, Sequence[Observation]]
PAIR = ("groq/llama-3.1-70b-versatile", "together/meta-llama-3.1-70b-instruct-turbo")


def printed(run: Run, width: int = 140, files: Sequence[Path] = ()) -> str:
    console = Console(file=io.StringIO(), width=width)
    run_table(run, console, files)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_table_per_concurrency_with_intervals(invented: Invented) -> None:
    run, _ = invented
    text = printed(run, width=240)
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


def test_invalid_row_is_marked_with_its_reason_below(invented: Invented) -> None:
    run, _ = invented
    lines = printed(run, width=200).splitlines()
    marked = next(i for i, line in enumerate(lines) if "replicate/meta-llama-3-70b INVALID" in line)
    assert "client overloaded" in " ".join(lines[marked + 1 :])


def test_server_times_are_shown_beside_measured_ones(invented: Invented) -> None:
    run, _ = invented
    first, *others = run.conditions
    said = msgspec.structs.replace(first, server_ms={"queue": 3.0, "prompt_eval": 19.5})
    text = printed(msgspec.structs.replace(run, conditions=[said, *others]), width=200)
    ours = (
        f"TTFT {figure_cells.number(first.ttft_ms.p50)}, E2E "
        f"{figure_cells.number(first.e2e_ms.p50)}"
    )
    words = (
        f"the server's own times, p50 in ms: queue 3.00, prompt eval 19.5; measured here: {ours}."
    )
    assert f"{first.target}: {words}" in text


@pytest.mark.parametrize(("width", "form"), [(80, "below"), (200, "beside")])
def test_table_of_cache_savings_precedes_the_sentences(width: int, form: str) -> None:
    run, _ = invented_run(PAIR, concurrencies=(1, 8), reuse=True)
    text = printed(run, width=width)
    assert all(len(line) <= width for line in text.splitlines())
    headings = [line.strip() for line in text.splitlines() if line.startswith("Concurrency")]
    assert headings == [
        "Concurrency 1",
        "Concurrency 1, cache reuse",
        "Concurrency 8",
        "Concurrency 8, cache reuse",
    ]
    table = text[text.index("What prompt caching saves") : text.index("\n• ")]
    found = run.cache_savings[0].ttft[0]
    assert found.change == pytest.approx(-0.6, abs=0.05)
    for part in (
        f"{found.before:.0f} → {figure_cells.number(found.after)}",
        "93.8%",
        "in 80 of 80",
        "0.302 → 0.0669",
    ):
        assert part in table
    assert ("−0.235" in table, "unreported" in table) == (True, False)
    assert any("93.8%" in line and "in 80 of 80" in line for line in table.splitlines()) == (
        form == "beside"
    )
    assert table.count("in 0 of 80") == 2  # the provider that caches nothing
    sentences = " ".join(text[text.index("\n• ") :].split()).split("• ")
    assert "n = 80 in fewer than five rounds could show" in sentences[2]
    assert "The prompt cache saves $0.235 per 1,000 requests." in sentences[2]


def test_narrow_console_shows_savings_as_sentences() -> None:
    run, _ = invented_run(PAIR, concurrencies=(1,), requests=8, reuse=True)
    text = printed(run, width=50)
    assert "What prompt caching saves" not in text
    assert "The prompt cache saves" in " ".join(text.split())


def test_sentences_then_the_instrument_then_the_files(invented: Invented) -> None:
    run, _ = invented
    text = printed(run, files=[Path("runs/x/report.html")])
    order = [
        "• c=1, ",
        "Not compared, because INVALID",
        "conditions have arrival times from the kernel",
        "runs/x/report.html",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_a_narrow_console_loses_no_figure(invented: Invented) -> None:
    run, _ = invented
    text = printed(run, width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    spread = run.conditions[0].ttft_ms
    assert f"{spread.ci95['p50'][0]:.0f}–{spread.ci95['p50'][1]:.0f}" in text
    assert "…" not in text


def test_too_few_requests_are_noted_once() -> None:
    run, _ = invented_run(concurrencies=(1,), requests=10)
    assert printed(run).count("all 5: too few requests for an interval of p95: use -n 150.") == 1


def test_runs_without_successes_or_rows_are_printed(nothing_succeeded: Invented) -> None:
    text = printed(nothing_succeeded[0])
    assert "3 of 3" in text
    assert "–" in text
    assert "stopped before its end" in printed(Run(id="r", began="", began_ns=0))


def test_invalid_run_is_marked_with_its_reason(invented: Invented) -> None:
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


def test_comparison_shows_changes_and_missing_rows(invented: Invented) -> None:
    run, observations = invented
    observations = [
        msgspec.structs.replace(o, round=at % 5 + 1) for at, o in enumerate(observations)
    ]
    slower = [
        msgspec.structs.replace(o, first_token_ns=o.first_token_ns + 90_000_000)
        if o.first_token_ns
        else o
        for o in observations
    ]
    after = msgspec.structs.replace(run, id="after", conditions=run.conditions[:2])
    comparison = compare([RunData(run, observations)], [RunData(after, slower)])
    console = Console(file=io.StringIO(), width=140)
    comparison_table(comparison, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "Concurrency 8: the second run, and how it differs from the first" in text
    before, ttft = run.conditions[0].ttft_ms.p50 or 0, comparison.conditions[0].figures[0]
    assert (ttft.figure, ttft.percentile, ttft.after) == ("ttft_ms", "p50", before + 90)
    line = next(
        line for line in text.splitlines() if "generalcompute/llama-3.1-70b-instruct" in line
    )
    assert f"{before + 90:.0f}  +{90 / before:.1%}"[:-1] in line
    assert (
        "Only in the run before: generalcompute/llama-3.1-70b-instruct at concurrency 32, groq/"
        in text
    )
    assert ", worse." in text


def test_comparison_shows_the_earlier_number_of_errors(invented: Invented) -> None:
    run, observations = invented
    better = msgspec.structs.replace(
        run, conditions=[msgspec.structs.replace(c, errors=0) for c in run.conditions]
    )
    console = Console(file=io.StringIO(), width=160)
    comparison_table(
        compare([RunData(run, observations)], [RunData(better, observations)]), console
    )
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("0  was 3 ") == 1


def test_long_name_is_broken_at_slashes_and_hyphens() -> None:
    run, _ = invented_run(("fireworks/llama-v3p1-70b-instruct",), concurrencies=(1,), requests=80)
    words = [
        line.split()[0]
        for line in printed(run, width=80).split("•")[0].splitlines()
        if line.split()
    ]
    assert {"fireworks/llama-", "v3p1-70b-instruct"} <= set(words)


def test_a_comparison_of_runs_with_nothing_in_common(invented: Invented) -> None:
    run, observations = invented
    other = msgspec.structs.replace(run, id="after", conditions=[])
    console = Console(file=io.StringIO(), width=80)
    comparison_table(compare([RunData(run, observations)], [RunData(other, [])]), console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith(
        f"Before: {run.id}. After: after.\nOnly in the run before: "
    )


GROQ = "groq/llama-3.1-70b-versatile"


@pytest.mark.parametrize(("width", "where"), [(78, "below"), (100, "column"), (160, "column")])
def test_cost_is_shown_in_a_column_or_below_the_table(width: int, where: str) -> None:
    run, observations = invented_run((GROQ, "together/meta-llama-3.1-70b-instruct-turbo"), (1,))
    assert "$" not in printed(run, width=width)
    run = priced(run, observations)
    text = printed(run, width=width)
    row = run.conditions[0]
    assert row.usd_per_million == pytest.approx((512 * 0.59 + 128 * 0.79) / 640)
    assert "$0.630" in text
    assert text.count("no price") == 1, "the other target"
    assert ("$/M tokens, and row: groq" in text) is (where == "below")
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    assert (
        "Prices of the test, 2026-01-02: groq/llama-3.1-70b-versatile $0.59 in, $0.79 out per "
        "million tokens." in words
    )


@pytest.mark.parametrize("width", [80, 160])
def test_a_comparison_shows_how_the_money_moved(width: int) -> None:
    run, observations = invented_run((GROQ,), (1,))
    before = priced(run, observations)
    row = before.conditions[0]
    dearer = msgspec.structs.replace(
        row,
        usd_per_million=(row.usd_per_million or 0) * 1.5,
        price=Price(input_usd=1.0, output_usd=2.0),
    )
    after = msgspec.structs.replace(before, conditions=[dearer])
    console = Console(file=io.StringIO(), width=width)
    comparison_table(
        compare([RunData(before, observations)], [RunData(after, observations)]), console
    )
    assert isinstance(console.file, io.StringIO)
    words = " ".join(console.file.getvalue().split())
    assert "$0.945" in words
    assert "+50%" in words
    assert (
        "the price differs: $0.59 in, $0.79 out per million tokens, then $1 in, $2 out per "
        "million tokens." in words
    )


@pytest.mark.parametrize(
    ("width", "form"), [(72, "narrow"), (90, "names"), (120, "figures"), (200, "wide")]
)
def test_tables_take_the_widest_form_that_fits(width: int, form: str) -> None:
    run, _ = invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(1,), requests=80)
    run.conditions[0].target = "groq/llama-3.1-70b"
    text = printed(run, width=width)
    spread = run.conditions[0].ttft_ms
    interval = f"{spread.ci95['p50'][0]:.0f}–{spread.ci95['p50'][1]:.0f}"
    assert (f"{spread.p50:.0f}  {interval}" in text) is (form == "wide")
    assert ("E2E p50" in text) is (form in ("figures", "wide"))
    assert ("groq/llama-3.1-70b " in text.split("•")[0]) is (form != "narrow")
    assert interval in text
    assert "…" not in text
    assert "TTFT p95" in text


def test_open_loop_states_the_start_of_its_ttft() -> None:
    run, _ = invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(1,), requests=8)
    run.conditions[0].concurrency, run.conditions[0].rate = None, 4.0
    assert "4 requests/s, TTFT from when a request was due" in printed(run, width=80)


def test_a_long_sentence_is_wrapped_under_its_first_word(invented: Invented) -> None:
    lines = printed(invented[0], width=80).splitlines()
    first = next(
        i for i, line in enumerate(lines) if line.startswith("• ") and "to 32, system" in line
    )
    assert lines[first + 1].startswith("  ")
    assert lines[first] == lines[first].rstrip()


def test_regions_have_a_column_and_the_machine_its_place() -> None:
    run, _ = invented_run(concurrencies=(1,), requests=20)
    assert "region" not in printed(run)
    run.conditions[0].region = "eastus"
    text = printed(msgspec.structs.replace(run, environment={"location": "Frankfurt"}), width=200)
    (heading, first, second) = [
        line
        for line in text.splitlines()
        if " region" in line or line.startswith((" general", " groq"))
    ][:3]
    assert (heading.split()[-1], first.split()[-1], second.split()[-1]) == ("region", "eastus", "–")
    assert "Measured from: Frankfurt." in text


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (72, ["TTFT p50", "TPS p50", "TTFT p95"]),
        (88, ["TTFT p50", "TPS p50", "TTFT p95", "TPS p95"]),
        (180, ["TTFT p50", "TPS p50", "TPOT p50", "E2E p50", "TTFT p95", "TPS p95"]),
    ],
)
def test_columns_depend_on_the_width_and_names_stay_whole(
    invented: Invented, width: int, headings: list[str]
) -> None:
    run, _ = invented
    table = printed(run, width=width).split("Which target")[0]
    heading = next(line for line in table.splitlines() if "TTFT p50" in line)
    assert [
        part.strip() for part in heading.replace("system", "").split("  ") if part.strip()
    ] == headings
    assert ("TPS p95 needs more columns." in table) is (width == 72)
    joined = "".join(
        line[1:].split("  ")[0].strip() for line in table.splitlines() if line.startswith(" ")
    )
    assert all(condition.target in joined for condition in run.conditions)
    assert "…" not in table


def test_a_very_narrow_console_has_a_line_for_each_row(invented: Invented) -> None:
    run, _ = invented
    words = " ".join(printed(run, width=60).split())
    ttft = run.conditions[0].ttft_ms
    assert all(
        f" {condition.target}: TTFT p50 ms " in words
        for condition in run.conditions
        if not condition.invalid
    )
    assert " replicate/meta-llama-3-70b INVALID: TTFT p50 ms " in words
    assert (
        f"TTFT p50 ms {ttft.p50:.0f} {ttft.ci95['p50'][0]:.0f}–{ttft.ci95['p50'][1]:.0f}, TPS p50"
        in words
    )
