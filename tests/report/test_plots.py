from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.report.drawing import elements, keys, marks, texts, tips, xs, ys
from tests.report.invented import PROVIDERS, invented_run
from tests.report.searched import TARGET, searched_run

from splitsecond.benchmark.report.plots.plot_frame import legends
from splitsecond.benchmark.report.plots.run_plots import for_slide, plots_of
from splitsecond.benchmark.report.plots.series import over_time
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.rows.row_fields import ServerView
from splitsecond.benchmark.server_view.samples import ServerSample, ServerSeries, ServerSource
from splitsecond.cli.results import Output
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.pages import png
from splitsecond.core.pages.axis import linear
from splitsecond.core.pages.chart import Chart, Plot
from splitsecond.core.pages.figure_cells import number

Invented = tuple[Run, Sequence[Observation]]
GROQ = "groq/llama-3.1-70b-versatile"


def named_plots(run: Run, observations: Sequence[Observation]) -> dict[str, Plot]:
    """Return the plots of a run by name."""
    return {plot.name: plot for plot in plots_of(run, observations)}


def test_a_run_has_its_plots_in_order(invented: Invented) -> None:
    drawn = named_plots(*invented)
    loads = ("1", "8", "32")
    assert list(drawn) == [
        *(f"ttft-concurrency-{load}" for load in loads),
        *(f"itl-concurrency-{load}" for load in loads),
        *(f"time-concurrency-{load}" for load in loads),
        "ttft-by-load",
        "tps-by-load",
        "throughput",
        "latency",
        "stages-first-token",
        "stages-whole",
        *(f"waterfall-concurrency-{load}" for load in loads),
        *(f"slowest-{at}" for at in range(5)),
    ]
    assert all(p.description.endswith(".") for p in drawn.values())
    assert all(elements(p) for p in drawn.values())


def test_every_mark_has_its_entry_in_the_legend(invented: Invented) -> None:
    run, _ = invented
    entries = legends(run)
    for plot in named_plots(*invented).values():
        assert keys(plot) <= {entry.key for entry in entries[plot.legend].values()}, plot.name
    (ttft,) = (p for name, p in named_plots(*invented).items() if name == "ttft-concurrency-8")
    assert keys(ttft) == {f"target-{at}" for at in range(5)}


def test_no_plot_mixes_rows_with_and_without_cache_reuse() -> None:
    run, observations = invented_run(
        tuple(PROVIDERS)[:2], concurrencies=(1, 8), requests=8, reuse=True
    )
    drawn = named_plots(run, observations)
    for name in ("ttft-concurrency-8", "ttft-by-load", "throughput", "waterfall-concurrency-1"):
        assert {name, f"{name}-reuse"} <= set(drawn)
        assert drawn[f"{name}-reuse"].title.endswith(("cache reuse", "cache reuse, ms"))
    median = {
        (c.concurrency, c.cache_reuse): number(c.ttft_ms.p50)
        for c in run.conditions
        if c.target == GROQ
    }
    fresh, reuse = (" ".join(tips(drawn[name])) for name in ("ttft-by-load", "ttft-by-load-reuse"))
    assert f"p50 {median[1, False]} ms" in fresh
    assert f"p50 {median[1, True]} ms" in reuse
    assert f"p50 {median[1, True]} ms" not in fresh


def test_distribution_reaches_100_percent_and_shows_percentiles(invented: Invented) -> None:
    run, _ = invented
    drawn = named_plots(*invented)
    for name, label in (("ttft", "TTFT"), ("itl", "ITL")):
        plot = drawn[f"{name}-concurrency-8"]
        assert {"50%", "95%", "100%"} <= {*texts(plot)}
        (top,) = {min(ys(curve)) for curve in marks(plot, "line")}
        assert min(max(xs(curve)) for curve in marks(plot, "line")) == pytest.approx(
            506, abs=0.3
        ), "to the right edge"
        assert top == 22
        for condition in (c for c in run.conditions if c.concurrency == 8):
            summary = getattr(condition, f"{name}_ms")
            for percentile in ("p50", "p95"):
                tip = (
                    f"{condition.target}\n{label} {percentile} "
                    f"{number(getattr(summary, percentile))} ms"
                )
                assert tip in tips(plot)


def test_the_engine_does_not_stretch_the_axis_of_providers() -> None:
    names = (GROQ, "fireworks/llama-v3p1-70b-instruct", "replicate/meta-llama-3-70b")
    run, observations = invented_run(names, concurrencies=(1,), requests=20)
    alone = named_plots(*invented_run(names[:2], concurrencies=(1,), requests=20))
    slow = [
        msgspec.structs.replace(o, target="engine/small", condition="engine/small c=1")
        if o.target.startswith("replicate")
        else o
        for o in observations
    ]
    run.conditions[2].target, run.conditions[2].condition = "engine/small", "engine/small c=1"
    beside = named_plots(run, slow)
    for name in (
        "ttft-concurrency-1",
        "itl-concurrency-1",
        "throughput",
        "stages-whole",
        "waterfall-concurrency-1",
    ):
        ticks = [text for text in texts(beside[name]) if text.replace(",", "").isdigit()]
        known = [text for text in texts(alone[name]) if text.replace(",", "").isdigit()]
        assert ticks[:2] == known[:2], name
    assert "engine/small" in texts(beside["stages-whole"])


def test_time_plot_joins_rounds_and_shows_requests_in_flight() -> None:
    run, observations = invented_run((GROQ,), concurrencies=(8,), requests=20)
    later = [
        msgspec.structs.replace(
            o,
            round=2,
            **{
                name: getattr(o, name) + 10**12
                for name in (
                    "due_ns",
                    "start_ns",
                    "sent_ns",
                    "first_token_ns",
                    "last_token_ns",
                    "end_ns",
                )
            },
        )
        for o in observations
    ]
    first = [msgspec.structs.replace(o, round=1) for o in observations]
    plot = named_plots(run, [*first, *later])["time-concurrency-8"]
    assert {"8", "in flight", "TTFT, ms"} <= {*texts(plot)}
    assert sum(path.count("h0") for path in marks(plot, "dots")) == 40
    assert len(marks(plot, "rule")) == 1, "where the second round begins"
    course = over_time(run.conditions[0], [*first, *later])
    assert 0 < course.rounds[1] < 100, "the thousand seconds between the rounds are left out"
    assert max(count for _, count in course.in_flight) == 8


def test_time_plot_shows_what_the_server_reported() -> None:
    run, observations = invented_run((GROQ,), concurrencies=(8,), requests=20)
    begin, end = min(o.sent_ns or 0 for o in observations), max(o.end_ns for o in observations)
    every = (end - begin) // 4
    reported = [
        ServerSample(
            source=0,
            at_ns=begin + (place - 1) * every,
            values={"waiting": 3, "power_w": 0, "preemptions": at},
        )
        for place, at in enumerate((5, 6, 6, 9, 9, 9, 12))
    ]
    server = ServerSeries([ServerSource(number=0, title="vLLM", url="", targets=[GROQ]), *reported])
    course = over_time(run.conditions[0], observations, server)
    assert [value for _, value in course.server["preemptions"]] == [1, 1, 4, 4, 4, 7], (
        "from before to after the block"
    )
    assert [value for _, value in course.server["waiting"]] == [3] * 5
    (plot,) = [
        plot for plot in plots_of(run, observations, server) if plot.name == "time-concurrency-8"
    ]
    words = {*texts(plot)}
    assert {"in flight", "waiting", "preemptions", "7"} <= words
    assert "power, W" not in words, "it was always 0"
    assert "seconds under this load, its rounds joined" in words


def test_capacity_draws_the_server_at_the_edge_of_its_limit() -> None:
    run, observations = searched_run()
    for row in run.conditions:
        row.server = ServerView(title="vLLM", samples=1)
    source = ServerSource(number=0, title="vLLM", url="", targets=[TARGET])
    drawn = {plot.name for plot in plots_of(run, observations, ServerSeries([source]))}
    assert {name for name in drawn if name.startswith("time")} == {
        "time-concurrency-6",
        "time-concurrency-8",
    }


def test_bars_are_drawn_only_at_measured_loads(invented: Invented) -> None:
    plot = named_plots(*invented)["ttft-by-load"]
    assert len(marks(plot, "range")) == 5 * 3
    assert marks(plot, "band") == []
    assert len(marks(plot, "line")) == 5


def test_pareto_front_has_rows_that_no_other_beats(invented: Invented) -> None:
    run, observations = invented
    plot = named_plots(run, observations)["latency"]
    best = [c for c in run.conditions if c.target.startswith("generalcompute")]
    assert plot.description.endswith(
        f"On the Pareto front: {', '.join(f'{c.target} at c={c.concurrency}' for c in best)}."
    )
    assert [path.count("l") for path in marks(plot, "line dash")] == [2]
    (hollow,) = [
        each for each in elements(plot) if each.tag == "g" and "hollow" in (each.get("class") or "")
    ]
    assert hollow.get("data-key") == "target-4", "the INVALID row"


def test_server_times_split_the_ttft() -> None:
    run, observations = invented_run(
        (GROQ, "fireworks/llama-v3p1-70b-instruct"), concurrencies=(1,), requests=20
    )
    timed = [
        msgspec.structs.replace(
            o, server_timings={"queue_time": 0.02, "prompt_time": 0.05, "tokens_per_second": 9.0}
        )
        if o.target == GROQ
        else o
        for o in observations
    ]
    assert "split" not in named_plots(run, observations)
    plot = named_plots(run, timed)["split"]
    (tip,) = tips(plot)
    ttft = run.conditions[0].ttft_ms.mean
    assert ttft is not None
    assert tip.splitlines() == [
        f"{GROQ}, c=1",
        "network 14.0 ms",
        "queue 20.0 ms",
        "prefill 50.0 ms",
        f"rest {number(ttft - 84)} ms",
    ]


def test_the_slowest_ten_of_a_target_are_in_order() -> None:
    run, observations = invented_run((GROQ,), concurrencies=(1, 8), requests=20)
    plot = named_plots(run, observations)["slowest-0"]
    shown = [tip.splitlines() for tip in tips(plot)]
    assert len(shown) == 10
    assert shown[0][0].startswith(f"{GROQ} 1. c=") or shown[0][0].startswith(GROQ)
    whole = [sum(float(line.split()[-2].replace(",", "")) for line in lines[1:]) for lines in shown]
    assert whole == pytest.approx(sorted(whole, reverse=True), rel=0.01), "the parts are rounded"
    slowest = max((o.last_token_ns or 0) - o.due_ns for o in observations) / NS_PER_MS
    assert whole[0] == pytest.approx(slowest, rel=0.01)


@pytest.mark.system
def test_plots_stay_small(invented: Invented) -> None:
    run, observations = invented
    many = [one for one in observations for _ in range(20)]
    sizes = {name: len(plot.svg) for name, plot in named_plots(run, many).items()}
    assert max(sizes.values()) < 20_000, max(sizes, key=lambda name: sizes[name])


def test_one_target_at_one_load_is_drawn_as_marks() -> None:
    drawn = named_plots(*invented_run((GROQ,), concurrencies=(8,), requests=1))
    assert len(marks(drawn["ttft-by-load"], "mark")) == 1
    assert all(elements(plot) for plot in drawn.values())


def test_an_open_loop_counts_from_due() -> None:
    run, observations = invented_run((GROQ,), concurrencies=(1, 8), requests=8)
    for condition in run.conditions:
        condition.concurrency, condition.rate = None, float(condition.concurrency or 0) / 2
    drawn = named_plots(run, observations)
    assert {"ttft-open-0_5", "ttft-open-4", "ttft-by-load-open", "waterfall-open-0_5"} <= set(drawn)
    assert f"{GROQ}\nTTFT p50 {number(run.conditions[1].ttft_due_ms.p50)} ms" in tips(
        drawn["ttft-open-4"]
    )


def test_arrivals_from_a_trace_have_no_place_on_an_axis_of_loads() -> None:
    run, observations = invented_run((GROQ,), concurrencies=(1,), requests=8)
    run.conditions[0].concurrency = None
    assert list(named_plots(run, observations)) == [
        "ttft-open",
        "itl-open",
        "time-open",
        "stages-first-token",
        "stages-whole",
        "waterfall-open",
        "slowest-0",
    ]


def test_run_without_successes_has_no_plots(nothing_succeeded: Invented) -> None:
    assert named_plots(*nothing_succeeded) == {}
    assert named_plots(Run(id="r", began="", began_ns=0), []) == {}


def test_run_without_observations_is_drawn_from_findings(invented: Invented) -> None:
    run, _ = invented
    assert {"ttft-by-load", "throughput", "stages-whole"} <= set(named_plots(run, []))


def test_one_token_responses_are_left_out_of_speed_plots(invented: Invented) -> None:
    run, observations = invented_run((GROQ,), concurrencies=(1,), requests=4, output_tokens=2)
    at_once = [msgspec.structs.replace(o, last_token_ns=o.first_token_ns) for o in observations]
    for condition in run.conditions:
        condition.tps.p50 = None
    names = set(named_plots(run, at_once))
    assert "throughput" not in names
    assert "tps-by-load" not in names
    assert "ttft-by-load" in names


def test_plots_are_saved_as_png_with_their_legends(tmp_path: Path) -> None:
    run, observations = invented_run((GROQ,), concurrencies=(8,), requests=4)
    plots, entries = plots_of(run, observations), legends(run)
    written = png.save_png(plots[:2], entries, tmp_path / "new" / "folder")
    assert [path.stem for path in written] == [plot.name for plot in plots[:2]]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    alone = png.standalone(plots[0], entries["targets"])
    assert "var(" not in alone
    assert f">{GROQ}</text>" in alone
    assert f">{plots[0].heading}</text>" in alone


def test_missing_png_extra_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    (plot, *_) = plots_of(*invented_run((GROQ,), concurrencies=(1,), requests=4))
    with pytest.raises(CallerFault, match="PNG files need the package vl-convert") as raised:
        png.png(plot, {})
    assert "pip install vl-convert-python" in raised.value.hint
    with pytest.raises(CallerFault, match="PNG files need the package"):
        Output(png=True).check()  # before the run, not after it


def test_slide_has_the_conclusion_and_two_plots() -> None:
    run, observations = invented_run(requests=12)
    run.conclusion = ["groq & others are alike.", "It is not sure.", "It cost nothing."]
    plots = for_slide(plots_of(run, observations))
    assert [plot.name for plot in plots] == ["ttft-by-load", "tps-by-load"]
    drawn = png.slide(run.conclusion, plots, legends(run)["targets"])
    for text in ("groq &amp; others are alike.", "It cost nothing.", *(p.heading for p in plots)):
        assert f">{text}</text>" in drawn
    assert png.slide_png(run.conclusion, plots, {}).startswith(b"\x89PNG")


def test_plot_of_one_mark_is_left_out() -> None:
    run, observations = invented_run((GROQ,), concurrencies=(1,), requests=4)
    assert not set(named_plots(run, observations)) & {"throughput", "latency"}


def test_bar_beyond_the_axis_has_its_label_inside() -> None:
    chart = Chart(linear("ms", 0, 100), None, height=20)
    inside, beyond = chart.end_label(50, 10, "50"), chart.end_label(900, 10, "900")
    assert ">50</text>" in inside
    assert "anchor" not in inside
    assert 'text-anchor="end" class="cut">900 \N{BLACK RIGHT-POINTING TRIANGLE}</text>' in beyond
    assert f'x="{chart.left + chart.width - 4:g}"' in beyond
