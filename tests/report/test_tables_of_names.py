"""Tables whose rows are names of targets: a narrow console loses columns before it folds a name."""

import io
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.cases import each_case
from tests.report.invented import invented_run
from tests.report.searched import searched_run

from splitsecond.benchmark.report.first_screen import first_screen
from splitsecond.benchmark.report.production import speed_table, spending_table
from splitsecond.benchmark.report.recommendation import recommendation_table
from splitsecond.benchmark.report.terminal import print_steps
from splitsecond.benchmark.rows.records import Recommendation, TargetRating
from splitsecond.log.production.speed import ProductionSpeed
from splitsecond.log.production.spending import Spending
from splitsecond.log.statistics.summary import summary_of

NAMES = ["fireworks/accounts/fireworks/models/llama-v3p1-405b-instruct", "groq/openai/gpt-oss-120b"]

FIGURE = re.compile(r"(?<![\w/.-])[\d.,]*\d(?![\w-])")


def speeds(console: Console) -> None:
    some = summary_of([61.0 + 0.1 * n for n in range(100)])
    fast = ProductionSpeed(
        name="", requests=12_345, answered=12_000, failed=40, closed=5, grade=3, grades=(2, 3),
        total_tps=some,
        tps=some, ttft_ms=some, usd_per_million=2.5,
    )  # fmt: skip
    speed_table([replace(fast, name=name) for name in NAMES], console)


def recommendations(console: Console) -> None:
    rating = TargetRating(
        target="", keeps="no", why="its quality is 50, at least 60 is "
        "required", value=312.5, ci95=(290.1, 340.7),
        ttft_p95_ms=312.5, tps=120.5, tokens_per_usd=450_000.0, usd_per_million=2.1, quality=50.0,
        requests=12_345,
    )  # fmt: skip
    candidates = [replace(rating, target=name) for name in NAMES]
    recommendation_table(
        Recommendation(use="voice", limits={"ttft": 3e8}, by="ttft_ms", candidates=candidates),
        console,
    )


def spending(console: Console) -> None:
    row = Spending(
        name="", calls=12_345, attempts=23_456, usd=12.34, lost_usd=1.2, input_tokens=10**7,
        output_tokens=10**6,
        usd_per_call=0.000377, usd_per_million=2.0, tokens_per_usd=454_927.0, tps=120.0,
        cost_adjusted_tps=251.0,
    )  # fmt: skip
    spending_table(
        [replace(row, name=name) for name in NAMES], replace(row, name="all"), "target", console
    )


def steps(console: Console) -> None:
    run, _ = searched_run()
    assert run.capacity is not None
    print_steps(run, run.capacity, console)


def rows(console: Console) -> None:
    first_screen(
        invented_run(
            ("generalcompute/llama-3.1-70b-instruct", "groq/llama-3.1-70b-versatile"),
            concurrencies=(1, 8),
        )[0],
        console,
    )


@each_case("table", [speeds, recommendations, spending])
@each_case("width", [84, 100, 120, 200])
def test_names_are_never_folded_while_a_column_can_be_left_out(
    table: Callable[[Console], None], width: int
) -> None:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        table(console)
    text = captured.get()
    assert max(len(line) for line in text.splitlines()) <= width
    for name in NAMES:
        assert any(line.strip().startswith(f"{name} ") for line in text.splitlines()), text


@pytest.mark.parametrize("table", [speeds, recommendations, spending])
def test_a_console_that_is_narrower_than_a_name_folds_it(table: Callable[[Console], None]) -> None:
    console = Console(width=50)
    with console.capture() as captured:
        table(console)
    lines = [line.split(maxsplit=1)[0] for line in captured.get().splitlines() if line.strip()]
    assert not any(line.startswith(NAMES[0]) for line in lines)
    assert "fireworks/" in "".join(lines)


def test_reasons_against_a_target_move_below_a_narrow_table() -> None:
    wide, narrow = Console(width=200), Console(width=120)
    for console, beside in ((wide, True), (narrow, False)):
        with console.capture() as captured:
            recommendations(console)
        lines = captured.get().splitlines()
        assert (
            any(
                line.strip() == f"{NAMES[1]}: its quality is 50, at least 60 is required"
                for line in lines
            )
            != beside
        )


@each_case("table", [speeds, recommendations, spending, steps, rows])
@each_case("width", [30, 40, 60])
def test_no_console_is_so_narrow_that_a_figure_is_cut(
    table: Callable[[Console], None], width: int
) -> None:
    figures = []
    for each in (200, width):
        out = io.StringIO()
        table(Console(width=each, file=out))
        text = out.getvalue().partition("•")[0]
        figures.append(set(FIGURE.findall(text)))
    assert not re.search(r"\d…", text)
    assert figures[1]
    assert figures[1] <= figures[0]


@each_case(
    ("table", "missing"),
    [
        (speeds, "total TPS p95, TTFT p50 ms, TTFT p95 ms"),
        (recommendations, "TPS p50"),
        (spending, "share, calls, a call, $/M tokens, output tokens/$ and cost-adj. TPS"),
    ],
)
def test_columns_that_a_narrow_console_lacks_are_named(
    table: Callable[[Console], None], missing: str
) -> None:
    def words(width: int) -> str:
        console = Console(width=width)
        with console.capture() as captured:
            table(console)
        return " ".join(captured.get().split())

    assert "more columns." not in words(250)
    narrow = words(84)
    assert missing in narrow[: narrow.index("more columns.")]
