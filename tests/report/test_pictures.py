import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import vl_convert
from tests.report.invented import PROVIDERS, invented_run

from splitsecond.analysis.findings import Run
from splitsecond.report.pictures import charts, save_png
from splitsecond.report.theme import DARK, LIGHT, THEMES, Theme, vega_config
from splitsecond.timing.observation import Observation

Invented = tuple[Run, Sequence[Observation]]


def test_a_run_has_its_pictures_in_order(invented: Invented) -> None:
    pictures = charts(*invented)
    assert list(pictures) == [
        "ttft-concurrency-1",
        "ttft-concurrency-8",
        "ttft-concurrency-32",
        "ttft-by-load",
        "tps-by-load",
        "throughput",
        "stages-first-token",
        "stages-whole",
        "waterfall-concurrency-1",
        "waterfall-concurrency-8",
        "waterfall-concurrency-32",
    ]
    assert {p.legend for p in pictures.values()} == {"targets", "stages", "steps"}
    assert all(p.description.endswith(".") for p in pictures.values())


def test_the_two_ways_of_asking_are_in_no_picture_together() -> None:
    run, observations = invented_run(tuple(PROVIDERS)[:2], concurrencies=(1, 8), requests=8, reuse=True)
    pictures = charts(run, observations)
    for name in ("ttft-concurrency-8", "ttft-by-load", "throughput", "waterfall-concurrency-1"):
        assert {name, f"{name}-reuse"} <= set(pictures)
        assert pictures[f"{name}-reuse"].title.endswith(("cache reuse", "cache reuse, ms"))

    def drawn(name: str, field: str) -> list[float]:
        return [one[field] for records in pictures[name].spec["datasets"].values() for one in records]

    median = {(c.concurrency, c.cache_reuse): c.ttft_ms.p50 for c in run.conditions if c.target.startswith("groq")}
    assert round(median[1, False] or 0, 3) in drawn("ttft-by-load", "p50")
    assert round(median[1, True] or 0, 3) in drawn("ttft-by-load-reuse", "p50")
    assert round(median[1, True] or 0, 3) not in drawn("ttft-by-load", "p50")


def test_every_picture_can_be_drawn_in_both_themes(invented: Invented) -> None:
    for picture in charts(*invented).values():
        for theme in THEMES:
            svg = vl_convert.vegalite_to_svg(picture.spec | {"width": 500}, config=vega_config(theme))
            assert "NaN" not in svg
            colours = theme.targets if picture.legend == "targets" else theme.stages
            assert colours[0] in svg


def test_axes_are_labelled_in_plain_numbers() -> None:
    near = invented_run(tuple(PROVIDERS)[1:3], concurrencies=(1, 8), requests=8)
    for picture in charts(*near).values():
        svg = vl_convert.vegalite_to_svg(picture.spec | {"width": 500}, config=vega_config(LIGHT))
        assert not re.search(r">[\d.]+e\+", svg), picture.name


def test_pictures_stay_small(invented: Invented) -> None:
    run, observations = invented
    many = [one for one in observations for _ in range(20)]
    sizes = {name: len(json.dumps(picture.spec)) for name, picture in charts(run, many).items()}
    assert max(sizes.values()) < 250_000


def test_targets_keep_their_colours_in_all_pictures(invented: Invented) -> None:
    run, _ = invented
    names = list(dict.fromkeys(c.target for c in run.conditions))
    for picture in charts(*invented).values():
        if picture.legend == "targets":
            assert json.dumps(names) in json.dumps(picture.spec)


def test_one_target_under_one_load_is_drawn_as_marks() -> None:
    pictures = charts(*invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(8,), requests=1))
    assert "ttft-by-load" in pictures
    for picture in pictures.values():
        assert "NaN" not in vl_convert.vegalite_to_svg(picture.spec | {"width": 300}, config=vega_config(LIGHT))


def test_an_open_loop_counts_from_due() -> None:
    run, observations = invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(1, 8), requests=8)
    for condition in run.conditions:
        condition.concurrency, condition.rate = None, float(condition.concurrency or 0) / 2
    pictures = charts(run, observations)
    assert {"ttft-open-0_5", "ttft-open-4", "ttft-by-load-open", "waterfall-open-0_5"} <= set(pictures)
    marks = json.dumps(pictures["ttft-open-4"].spec)
    assert str(round(run.conditions[1].ttft_due_ms.p50 or 0, 3)) in marks


def test_arrivals_from_a_trace_have_no_place_on_an_axis_of_loads() -> None:
    run, observations = invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(1,), requests=8)
    run.conditions[0].concurrency = None
    assert list(charts(run, observations)) == ["ttft-open", "stages-first-token", "stages-whole", "waterfall-open"]


def test_nothing_is_drawn_where_nothing_succeeded(nothing_succeeded: Invented) -> None:
    assert charts(*nothing_succeeded) == {}
    assert charts(Run(id="r", began="", began_ns=0), []) == {}


def test_a_run_without_its_observations_is_drawn_from_its_findings(invented: Invented) -> None:
    run, _ = invented
    assert {"ttft-by-load", "throughput", "stages-whole"} <= set(charts(run, []))


def test_an_answer_of_one_token_has_no_speed_and_spoils_nothing(invented: Invented) -> None:
    run, observations = invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(1,), requests=4, output_tokens=2)
    at_once = [msgspec.structs.replace(o, last_token_ns=o.first_token_ns) for o in observations]
    for condition in run.conditions:
        condition.tps.p50 = None
    names = set(charts(run, at_once))
    assert "throughput" not in names
    assert "tps-by-load" not in names
    assert "ttft-by-load" in names


def test_pictures_are_saved_as_png(tmp_path: Path) -> None:
    run, observations = invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(8,), requests=4)
    written = save_png(run, observations, tmp_path / "new" / "folder")
    assert [path.stem for path in written] == list(charts(run, observations))
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_colours_have_contrast(theme: Theme) -> None:
    assert contrast(theme.ink, theme.ground) >= 7
    assert contrast(theme.faint, theme.ground) >= 4.5
    for colour in theme.targets:
        assert contrast(colour, theme.ground) >= 3, colour
    for colour in theme.stages:
        assert contrast(colour, theme.ground) >= 3, colour
    assert len(theme.targets) == len(LIGHT.targets)
    assert len(theme.stages) == len(DARK.stages)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, as WCAG 2 defines it."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
