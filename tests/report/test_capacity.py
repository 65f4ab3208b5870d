"""A search for capacity on the screen, on the page and in pictures."""

import io

import pytest
from rich.console import Console
from tests.report.searched import TARGET, searched_run

from splitsecond.report import html
from splitsecond.report.capacity import lines, remarks
from splitsecond.report.html import render
from splitsecond.report.pictures import charts
from splitsecond.report.terminal import run_table

TABLE = """\
127.0.0.1:8000/mine: the steps of the search, times in ms

            kept  TTFT  TTFT   TPS    system        good  TPOT
 load  to limits   p50   p95   p50  tokens/s  requests/s   p95  verdict
 ──────────────────────────────────────────────────────────────────────
 c=1    20 of 20  50.0  50.0   100      73.3        6.67  10.0   likely
 c=2    20 of 20  70.0  70.0  90.9       122        11.1  11.0   likely
 c=4    96 of 96   120   120  76.9       176        16.0  13.0    holds
 c=6    90 of 90   180   180  71.4       205        18.7  14.0    holds
 c=8     0 of 48   340   340  66.7       178           0  15.0    fails
"""


def printed(width: int, *, spoilt: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width)
    run_table(searched_run(spoilt=spoilt)[0], console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_the_steps_are_one_table_from_light_to_heavy() -> None:
    assert printed(80).startswith(TABLE)


def test_a_narrow_console_loses_no_figure() -> None:
    assert "…" not in printed(50).split("•")[0]


def test_the_sentences_stand_beneath_it() -> None:
    text = " ".join(printed(80).split())
    assert f"• {TARGET} bears concurrency 6 with TTFT ≤ 300 ms, TPOT ≤ 20 ms in 95 % of requests (90 of 90 kept" in text
    assert "What gives first is TTFT: at concurrency 8 requests missed TTFT in 48 of 48." in text
    assert "a million output tokens" in text


def test_what_spoilt_a_step_is_said_by_its_load() -> None:
    text = " ".join(printed(80, spoilt=True).split())
    assert "c=6 INVALID: the client was too late." in text
    assert "c=8: 12 × refused: got refused, expected 200" in text
    assert "6 90 of 90 180" in text.replace("c=", "")


def test_the_heaviest_load_that_holds_stands_out() -> None:
    run, _ = searched_run()
    assert run.capacity is not None
    assert [(line.load, line.heaviest) for line in lines(run, run.capacity)] == [
        ("c=1", False),
        ("c=2", False),
        ("c=4", False),
        ("c=6", True),
        ("c=8", False),
    ]


def test_what_holds_for_several_steps_is_said_once() -> None:
    run, _ = searched_run()
    assert [(said.who, said.text) for said in remarks(run) if "too few" in said.text] == [
        ("c=1, c=2, c=8", "too few requests for p95 (needs 72).")
    ]


def test_the_page_has_the_steps_first_and_the_figures_of_each_a_click_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_bundle", lambda: "")
    page = render(*searched_run(spoilt=True))
    headings = (">How much load it bears<", "The figures of each step", ">Figures<", ">One user or many<")
    places = [page.index(words) for words in ("How much load is borne by", 'id="invalid"', *headings)]
    assert places == sorted(places)
    assert 'class="bad">INVALID<' in page
    for absent in ('id="plot-ttft-concurrency-1"', "Single requests"):
        assert absent not in page


def test_a_picture_for_each_limit_and_one_of_the_throughput() -> None:
    run, observations = searched_run()
    pictures = charts(run, observations)
    assert list(pictures)[:3] == ["capacity-ttft", "capacity-tpot", "capacity-throughput"]
    text = str(pictures["capacity-ttft"].spec)
    assert "limit: 300 ms" in text
    assert "bears 6" in text
    assert text.count("'percentile': 'p95'") == 5
    run, observations = searched_run(spoilt=True)
    assert str(charts(run, observations)["capacity-ttft"].spec).count("'percentile': 'p95'") == 4
