"""The report of a run of sessions: its table, page and plots, and its sentences."""

import re
from collections.abc import Sequence
from io import StringIO
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.golden import Golden
from tests.report.invented_sessions import invented_sessions
from tests.report.page import Page

from splitsecond.api.results import BenchRun
from splitsecond.benchmark.report.plots.session_plots import session_plots, turn_parts
from splitsecond.benchmark.report.run_page import render_run
from splitsecond.benchmark.report.terminal import run_table
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.rows.sessions import explained_turns
from splitsecond.benchmark.statistics.steady import done_ns, due_ns
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.wording import LINE

Invented = tuple[Run, Sequence[Observation]]
ONE = ("fireworks/qwen3-coder-480b",)


@pytest.fixture(scope="module")
def two() -> Invented:
    """Two targets at two concurrencies."""
    return invented_sessions()


@pytest.fixture(scope="module")
def one() -> Invented:
    return invented_sessions(ONE, (4,))


def on_terminal(run: Run, width: int) -> str:
    text = StringIO()
    run_table(run, Console(file=text, width=width))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def test_terminal_shows_a_table_of_sessions(two: Invented, golden: Golden) -> None:
    text = on_terminal(two[0], 100)
    golden.check(
        text[text.index("Sessions at concurrency 4") : text.index("Which target for which use")]
    )


def test_wide_terminal_shows_all_columns_of_sessions(two: Invented) -> None:
    text = on_terminal(two[0], 140)
    for heading in ("of ideal", "session", "TTFT p95", "broke"):
        assert (
            heading
            in text[text.index("Sessions at") :].split("\n\n")[0]
            + text[text.index("Sessions at") :][:900]
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_terminal(two: Invented, width: int) -> None:
    assert max(map(len, on_terminal(two[0], width).splitlines())) <= width


def test_each_finding_of_sessions_fits_a_line(one: Invented, two: Invented) -> None:
    alone = [
        each
        for each in one[0].statements
        if each.startswith(("A session", "Each cache", "New input", "The prompt"))
    ]
    assert len(alone) >= 5
    assert max(map(len, alone)) <= LINE
    rows = [
        each
        for each in two[0].short_statements
        if ":\nA session" in each or ":\nEach cache" in each
    ]
    facts = [line for each in rows for line in each.split("\n")[1:]]
    assert len(facts) >= 10
    assert max(map(len, facts)) <= LINE


def test_a_cache_miss_has_its_cost_in_a_sentence(one: Invented) -> None:
    (sentence,) = [each for each in one[0].statements if each.startswith("Each cache miss")]
    assert re.fullmatch(
        r"Each cache miss costs [\d.]+ s; \d+ of \d+ turns missed; this is \d+% of the time that "
        r"users wait\.",
        sentence,
    )


def test_words_of_a_page_of_sessions(one: Invented, golden: Golden) -> None:
    page = render_run(*one)
    sections = re.findall(
        r'<section id="(?:sessions|slowest-session)".*?</section>', page, re.DOTALL
    )
    golden.check("".join(Page(section).words for section in sections))


def test_a_page_of_sessions_has_its_plots(two: Invented) -> None:
    assert [plot.name for plot in session_plots(*two)] == [
        "turns-concurrency-4",
        "turns-concurrency-8",
        "cached-concurrency-4",
        "cached-concurrency-8",
        "session-0",
        "session-1",
    ]
    page = render_run(*two)
    assert len(page) < 250_000
    assert 'class="chart" id="plot-session-1"' in page


def test_a_page_without_sessions_has_nothing_of_them(invented: Invented) -> None:
    page = Page(render_run(*invented))
    assert "Session time" not in page.text
    assert "slowest session" not in page.text.lower()


def test_parts_of_a_turn_add_up(one: Invented) -> None:
    _, observations = one
    explained = explained_turns(observations)
    missed = [each for each in explained if each.miss_s]
    assert missed
    for each in explained:
        begin = due_ns(each.turn) - (each.turn.turn.wait_ns if each.turn.turn else 0)
        parts = turn_parts(each.turn, each, begin)
        assert parts[-1].end_s == pytest.approx((done_ns(each.turn) - begin) / NS_PER_S)
        assert all(a.end_s == b.begin_s for a, b in pairwise(parts))
        assert ("cache miss" in {part.name for part in parts}) <= bool(each.miss_s)
    costs = [each.miss_s for each in missed]
    row = one[0].conditions[0].session
    assert row is not None
    assert sum(costs) / len(costs) == pytest.approx(row.miss_s.value)


def test_a_turn_shows_its_network_and_the_queue_of_the_server(one: Invented) -> None:
    _, observations = one
    plain = max(explained_turns(observations), key=lambda each: each.ideal_s - each.new_s)
    o = msgspec.structs.replace(
        plain.turn, rtt_ns=NS_PER_S // 100, server_timings={"queue_time": 0.02}
    )
    before, after = (turn_parts(each, plain, due_ns(o)) for each in (plain.turn, o))
    (network,) = [part for part in after if part.name == "network and queue"]
    assert network.end_s - network.begin_s == pytest.approx(0.03)
    assert "network and queue" not in {part.name for part in before}
    assert before[-1].end_s == after[-1].end_s


def test_run_json_has_sessions_and_turns(one: Invented) -> None:
    run = msgspec.json.decode(msgspec.json.encode(one[0]))
    (row,) = run["conditions"]
    assert (row["sessions"] > 20, row["turns"]) == (True, row["requests"])
    assert row["session"]["prefill_tokens_per_s"]["ci95"][0] < row["prefill_tokens_per_s"]
    low, high = row["session"]["session_s"]["ci95"]
    assert low < row["session_s"] < high
    assert 0 < row["cached_share"] < row["ideal_cached_share"] < 1
    assert (
        msgspec.json.decode(msgspec.json.encode(one[0]), type=Run).conditions[0].session is not None
    )


def test_data_frame_of_sessions_adds_up_to_the_row(one: Invented) -> None:
    frame = BenchRun(*one, Path()).to_frame(per="session", backend="pandas")
    row = one[0].conditions[0].session
    assert row is not None
    assert (frame["finished"].sum(), frame["broken"].sum()) == (row.finished, row.broken)
    assert frame["turns"].sum() == row.turns
    spent = frame[["waiting_s", "generating_s", "tools_s"]].sum()
    seconds, finished = (
        sum(part[at] for part in row.by_round["session_s"].values()) for at in (0, 1)
    )
    assert spent.sum() == pytest.approx(seconds)
    assert finished == (frame["finished"] & ~frame["ends_round"]).sum()
    assert spent["waiting_s"] / finished == pytest.approx(row.waiting_s.value)


def test_data_frame_has_the_session_of_each_turn(one: Invented) -> None:
    frame = BenchRun(*one, Path()).to_frame(backend="pandas")
    assert {"session", "branch", "turn", "new_tokens", "reusable_tokens", "tools_s"} <= set(
        frame.columns
    )
    assert frame.groupby("session").size().sum() == len(frame)
    later = frame[(frame["turn"] > 1) & (frame["outcome"] == "ok")]
    assert later["ttft_later_turns_ms"].equals(later["ttft_ms"])
    assert frame["ttft_later_turns_ms"].notna().sum() == len(later)
