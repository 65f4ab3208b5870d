"""A capacity search on the terminal, on the page and in plots."""

import io

from rich.console import Console
from tests.golden import Golden
from tests.report.drawing import texts, tips
from tests.report.page import Page
from tests.report.searched import TARGET, searched_run

from splitsecond.benchmark.findings.conclusion import conclusion
from splitsecond.benchmark.report.capacity import remarks, step_rows
from splitsecond.benchmark.report.plots.run_plots import plots_of
from splitsecond.benchmark.report.run_page import render_run
from splitsecond.benchmark.report.terminal import run_table
from splitsecond.core.money.cost import usd


def printed(width: int, *, spoilt: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width)
    run_table(searched_run(spoilt=spoilt)[0], console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_the_steps_are_one_table_from_light_to_heavy(golden: Golden) -> None:
    golden.check(printed(80).split("\n\n  ")[0] + "\n")


def test_a_narrow_console_loses_no_figure() -> None:
    assert "…" not in printed(50).split("•")[0]


def test_the_findings_follow_the_table() -> None:
    text = " ".join(printed(80).split())
    assert f"• {TARGET} handles c=6 with TTFT ≤ 300 ms, TPOT ≤ 20 ms in 95% (240 of 240" in text
    assert "The bottleneck is TTFT: at concurrency 8, 48 of 48 requests missed TTFT." in text
    assert "/M output." in text


def test_problems_of_a_step_name_its_load() -> None:
    text = " ".join(printed(80, spoilt=True).split())
    assert "c=6 INVALID: the client was too late." in text
    assert "c=8: 12 × refused: got refused, expected 200" in text
    assert "6 240 of 240 180" in text.replace("c=", "")


def test_heaviest_load_that_holds_is_highlighted() -> None:
    run, _ = searched_run()
    assert run.capacity is not None
    assert [(line.load, line.heaviest) for line in step_rows(run, run.capacity)] == [
        ("c=1", False),
        ("c=2", False),
        ("c=4", False),
        ("c=6", True),
        ("c=8", False),
    ]


def test_a_remark_on_several_steps_is_printed_once() -> None:
    run, _ = searched_run()
    assert [(remark.who, remark.text) for remark in remarks(run) if "too few" in remark.text] == [
        ("c=1, c=2, c=4, c=8", "too few requests for an interval of p95.")
    ]


def test_the_page_shows_the_steps_first(golden: Golden) -> None:
    page = render_run(*searched_run(spoilt=True))
    golden.check(Page(page).words)
    parts = ('id="capacity"', "<details>", 'id="figures"', 'id="throughput"')
    places = [page.index(words) for words in ("<h1>", 'id="invalid"', *parts)]
    assert places == sorted(places)
    assert 'class="bad">INVALID<' in page
    for absent in ('id="plot-ttft-concurrency-1"', "Single requests"):
        assert absent not in page


def test_a_plot_for_each_limit_and_one_of_the_throughput() -> None:
    run, observations = searched_run()
    drawn = plots_of(run, observations)
    assert [plot.name for plot in drawn[:3]] == [
        "capacity-ttft",
        "capacity-tpot",
        "capacity-throughput",
    ]
    assert {"limit: 300 ms", "capacity: 6"} <= {*texts(drawn[0])}
    assert sum("p95" in tip for tip in tips(drawn[0])) == 5 + 1, "the marks and their line"
    run, observations = searched_run(spoilt=True)
    # INVALID steps are left out, and most requests of c=8 failed: it has no p95
    assert sum("p95" in tip for tip in tips(plots_of(run, observations)[0])) == 3 + 1


def test_cost_is_that_of_the_heaviest_load_that_holds() -> None:
    run, _ = searched_run()
    assert run.capacity is not None
    assert run.capacity.holds == 6
    cost = {row.concurrency: row.usd_per_million for row in run.conditions}
    assert cost[6] is not None
    assert cost[8] != cost[6]
    run.conditions.sort(key=lambda row: row.concurrency or 0)
    assert f"million tokens cost {usd(cost[6])} " in conclusion(run, [])[-1]
