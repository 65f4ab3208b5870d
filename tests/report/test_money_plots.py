"""Plots about choosing: only where a run has something to show, and with the targets of the
findings."""

import re

import msgspec
from tests.report.drawing import marks, texts, tips, xs, ys
from tests.report.invented import PROVIDERS, invented_run

from splitsecond.benchmark.report.plots.money_plots import break_even, choosing_plots, length
from splitsecond.benchmark.rows.records import BreakEven, Crossing, Run
from splitsecond.core.pages.chart import NARROW, WIDTH
from splitsecond.log.production.speed_and_price import PricedSpeed, SpeedAndPrice

GC, GROQ = tuple(PROVIDERS)[:2]


def run() -> Run:
    return invented_run(concurrencies=(1,), requests=20)[0]


def test_run_without_prices_and_crossings_has_no_money_plots() -> None:
    assert choosing_plots(run()) == []


def test_the_frontier_is_a_line_through_its_targets() -> None:
    points = [
        PricedSpeed(target=GC, tps=300, usd_per_million=1, frontier="yes"),
        PricedSpeed(target=GROQ, tps=200, usd_per_million=2, frontier="no"),
    ]
    found = SpeedAndPrice(targets=points, correlation=None, ci95=(None, None), needs=5)
    (drawn,) = choosing_plots(msgspec.structs.replace(run(), speed_and_price=found))
    assert drawn.section == "money"
    assert drawn.description.endswith(f"with filled marks: {GC}.")
    assert tips(drawn) == [
        f"{GC}\nTPS p50 300\n$1.00 per million\nfrontier: yes",
        f"{GROQ}\nTPS p50 200\n$2.00 per million\nfrontier: no",
    ]
    assert len(marks(drawn, "mark")) == 2
    assert drawn.drawing.count('class="target-1 hollow"') == 1, "what is beaten"


def test_the_curve_of_a_machine_steps_up_where_it_is_full() -> None:
    found = BreakEven(
        machine=GC,
        api=GROQ,
        rows=[],
        owned=False,
        usd_per_month=1000,
        usd_per_million=2,
        machine_tokens_per_month=1e9,
        tokens_per_month=5e8,
        utilisation=0.5,
    )
    (drawn,) = break_even(msgspec.structs.replace(run(), break_even=[found]))
    (machine,) = marks(drawn, "line", "target-0")
    steps = [
        x
        for x, before, after in zip(xs(machine)[1:], ys(machine), ys(machine)[1:], strict=False)
        if after < before
    ]
    assert len(steps) == 1, "from one machine to two"
    assert "500 million" in texts(drawn)
    assert f"{GROQ}: break-even at 500 million tokens a month" in tips(drawn)
    assert f"Break-even: {GROQ} 500 million tokens a month." in drawn.description


def test_break_even_labels_are_inside_the_plot_and_apart() -> None:
    """The last volume is close to the right edge, and the second close to the first."""
    one = BreakEven(
        machine=GC, api=GROQ, rows=[], owned=False, usd_per_month=1000, usd_per_million=2,
        machine_tokens_per_month=1.2e10, tokens_per_month=2e6, utilisation=0.001,
    )  # fmt: skip
    volumes = (2e6, 2.6e6, 1.19e10)
    found = [
        msgspec.structs.replace(
            one, tokens_per_month=tokens, utilisation=tokens / 1.2e10, usd_per_million=1e9 / tokens
        )
        for tokens in volumes
    ]
    (drawn,) = break_even(msgspec.structs.replace(run(), break_even=found))
    labels = re.findall(
        r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="end">([\d.]+ (?:million|billion))<',
        drawn.drawing,
    )
    assert [words for *_, words in labels] == ["2 million", "2.6 million", "11.9 billion"]
    assert all(NARROW * len(words) < float(x) < WIDTH for x, _, words in labels)
    assert float(labels[1][1]) - float(labels[0][1]) >= 13  # on a line of its own
    assert sum("break-even at" in tip for tip in tips(drawn)) == 3


def test_where_lines_cross_is_marked() -> None:
    found = Crossing(
        first=GROQ,
        then=GC,
        load="at concurrency 1",
        rows=[run().conditions[1].condition],
        tokens=180,
        ci95=None,
    )
    (drawn,) = length(msgspec.structs.replace(run(), crossings=[found]))
    assert drawn.section == "length"
    assert "180 tokens" in texts(drawn)
    assert f"{GROQ} is sooner up to 180 tokens, then {GC}" in tips(drawn)
