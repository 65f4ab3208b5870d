"""Axes, marks and paths of plots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.report.drawing import elements, marks, texts, tips, xs, ys

from splitsecond.core.pages.axis import (
    Axis,
    fitted,
    linear,
    load_axis,
    logarithmic,
    moments,
    shares,
)
from splitsecond.core.pages.chart import (
    WIDTH,
    Chart,
    Plot,
    palette_entries,
    picture,
    target_entries,
)

ENTRIES = target_entries(["a/x", "b/y"])
HOSTILE = '</title><script>alert("1")</script>&'


def drawn(chart: Chart) -> Plot:
    return picture(chart, name="p", section="s", title="title", description="description.")


@each_case(
    ("axis", "labels"),
    [
        (linear("", 0, 10), ["0", "2", "4", "6", "8", "10"]),
        (linear("", 0, 0.3, percent=True), ["0%", "10%", "20%", "30%"]),
        (linear("", 0, 0.05), ["0.00", "0.01", "0.02", "0.03", "0.04", "0.05"]),
        (linear("", 0, 11), ["0.0", "2.5", "5.0", "7.5", "10.0"]),
        (linear("", 0, 0.12, percent=True), ["0.0%", "2.5%", "5.0%", "7.5%", "10.0%"]),
        (linear("", 95, 105), ["96", "98", "100", "102", "104"]),
        (logarithmic("", 90, 6000), ["100", "200", "500", "1,000", "2,000", "5,000"]),
        (
            logarithmic("", 1, 20_000_000),
            ["1", "10", "100", "1,000", "10 k", "100 k", "1 M", "10 M"],
        ),
        (logarithmic("", 3, 8), ["3", "4", "5", "6", "7", "8"]),
        (fitted("", [1, 7]), ["0", "2", "4", "6"]),
        (fitted("", [1, 9]), ["1", "2", "3", "5", "7", "10"]),
        (load_axis([8, 1, 32, 8], "concurrency"), ["1", "8", "32"]),
        (load_axis([0.5], "requests/s"), ["0.5"]),
        (shares(""), ["0%", "25%", "50%", "75%", "95%", "100%"]),
        (moments(0, 5 * 3600), ["Jan 1", "01:00", "02:00", "03:00", "04:00", "05:00"]),
        (
            moments(86400 * 364, 86400 * 374),
            ["Dec 31", "Jan 2", "Jan 4", "Jan 6", "Jan 8", "Jan 10"],
        ),
        (moments(30, 34), ["00:00:30", "00:00:31", "00:00:32", "00:00:33", "00:00:34"]),
    ],
)
def test_ticks_are_round_and_named(axis: Axis, labels: list[str]) -> None:
    shown = [label for value, label in axis.ticks if axis.shows(value)]
    assert shown == labels


def test_a_value_lies_where_its_axis_says() -> None:
    chart = Chart(linear("x", 0, 10), linear("y", 0, 100), height=200)
    left, top = chart.left, chart.top
    assert (chart.across(0), chart.across(10)) == (left, left + chart.width)
    assert (chart.down(0), chart.down(100)) == (top + 200, top)
    log = Chart(logarithmic("", 1, 100), None)
    assert log.across(10) == pytest.approx((log.across(1) + log.across(100)) / 2)


def test_a_line_ends_at_the_edges_of_the_area() -> None:
    chart = Chart(linear("", 0, 10), linear("", 0, 10), height=100)
    chart.add(
        ENTRIES["a/x"], chart.line([(0, -10), (5, 5), (10, 30)]), chart.line([(20, 0), (30, 5)])
    )
    (line,) = marks(drawn(chart), "line")
    assert min(ys(line)) == pytest.approx(chart.top, abs=0.2)
    assert max(ys(line)) == pytest.approx(chart.top + 100, abs=0.2)
    assert chart.mark(ENTRIES["a/x"], 11, 5) == ""
    assert chart.dots([(11, 5), (5, 11)]) == ""


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=2, max_size=300))
def test_relative_paths_do_not_drift(points: list[tuple[float, float]]) -> None:
    chart = Chart(linear("", 0, 10), linear("", 0, 10))
    chart.add(None, chart.line(points))
    places = marks(drawn(chart), "line")
    assert places
    *_, x = xs(places[-1])
    *_, y = ys(places[-1])
    assert (x, y) == pytest.approx(
        (chart.across(points[-1][0]), chart.down(points[-1][1])), abs=0.11
    )


def test_labels_that_have_no_room_are_left_out() -> None:
    crowded = Axis(title="", low=0, high=100, ticks=[(at, f"label {at}") for at in range(101)])
    chart = Chart(crowded, None, height=50)
    shown = texts(drawn(chart))
    assert 2 <= len(shown) <= 10
    assert shown[:2] != ["label 0", "label 1"]


def test_long_names_are_broken_into_lines() -> None:
    chart = Chart(linear("", 0, 1), None, height=60, left=176)
    chart.add(None, chart.name("together/meta-llama-3.1-70b-instruct-turbo", 30))
    assert texts(drawn(chart))[-3:] == ["together/", "meta-llama-3.1-70b-", "instruct-turbo"]
    chart = Chart(linear("", 0, 1), None, height=60, left=176)
    chart.add(None, chart.name("sim/generalcompute", 30))
    assert texts(drawn(chart))[-1] == "sim/generalcompute"


def test_texts_are_escaped() -> None:
    chart = Chart(linear(HOSTILE, 0, 1), linear(HOSTILE, 0, 1))
    chart.add(
        None, chart.mark(None, 0.5, 0.5, HOSTILE), chart.text(1, 1, HOSTILE), chart.name(HOSTILE, 5)
    )
    plot = picture(chart, name="p", section="s", title=HOSTILE, description=HOSTILE)
    assert "script" not in [element.tag for element in elements(plot)]
    assert tips(plot) == [HOSTILE]
    assert texts(plot).count(HOSTILE) == 3


def test_plot_has_a_title_and_a_description_for_screen_readers() -> None:
    plot = drawn(Chart(linear("", 0, 1), None))
    _, svg, title, description, *_ = elements(plot)
    assert (svg.attrib["role"], svg.attrib["aria-labelledby"]) == ("img", "p-t p-d")
    assert (title.attrib["id"], title.text, description.attrib["id"], description.text) == (
        "p-t",
        "title",
        "p-d",
        "description.",
    )
    assert svg.attrib["viewBox"].startswith(f"0 0 {WIDTH} ")


def test_charts_are_drawn_below_each_other() -> None:
    upper, lower = (
        Chart(linear("", 0, 1), None, height=100),
        Chart(linear("x", 0, 1), None, height=50),
    )
    plot = picture(upper, lower, name="p", section="s", title="t", description="d")
    assert plot.height == upper.whole_height + lower.whole_height
    assert f'translate(0 {upper.whole_height:g})"' in plot.drawing


def test_colours_repeat_and_entries_differ() -> None:
    entries = target_entries([f"t/{at}" for at in range(10)])
    assert entries["t/9"].colour == entries["t/1"].colour == "target-1"
    assert len({entry.key for entry in entries.values()}) == 10
    steps = palette_entries("stage", ["first", "last"], from_end=True)
    assert (steps["first"].key, steps["last"].key) == ("stage-1", "stage-0")
