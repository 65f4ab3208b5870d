"""The section of a report about the server's own view."""

from msgspec.structs import replace
from tests.report.invented import PROVIDERS, invented_run

from splitsecond.benchmark.report import server_tables
from splitsecond.benchmark.report.run_page import render_run
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.rows.row_fields import ServerView, TtftCheck

TARGET = next(iter(PROVIDERS))
CHECK = TtftCheck(
    server_requests=20, requests=20, server_ms=100, network_ms=1, measured_ms=101, others=False
)
VIEW = ServerView(
    title="vLLM", samples=3, running=8, waiting=0, kv_use=0.5, ttft_ms=100, check=CHECK, power_w=300
)


def run_with(view: ServerView | None) -> tuple[Run, str]:
    """An invented run of one row, and its page."""
    run, observations = invented_run((TARGET,), concurrencies=(8,), requests=20)
    run = replace(run, conditions=[replace(c, server=view) for c in run.conditions])
    return run, render_run(run, observations)


def test_section_has_the_tables_and_the_check() -> None:
    run, page = run_with(VIEW)
    assert '<section id="server">' in page
    assert "The server while the load was up" in page
    assert "GPUs and energy" in page
    assert server_tables.sentences(run) == [
        f"{TARGET}: metrics of vLLM.",
        "The server's mean TTFT + network is the mean TTFT measured here, to 0 ms, in 1 of 1 row.",
        f"Fewer than 5 readings while the load was up: {TARGET} at concurrency 8 (3). Longer "
        "blocks (-n) give more.",
    ]


def test_row_whose_clocks_differ_has_its_own_sentence() -> None:
    run, _ = run_with(replace(VIEW, samples=9, check=replace(CHECK, measured_ms=140)))
    _, differs = server_tables.sentences(run)
    assert differs.startswith(
        f"{TARGET} at concurrency 8: the server's mean TTFT 100 ms + network 1 ms"
    )


def test_page_without_a_view_has_no_section() -> None:
    _, page = run_with(None)
    assert 'id="server"' not in page
    assert "what the server reported" not in page


def test_columns_that_no_row_has_are_left_out() -> None:
    _, page = run_with(VIEW)
    assert "waiting p50" in page
    assert "preemptions" not in page
    assert "J per output token" not in page
