import msgspec
import pytest
from tests.report.invented import invented_run

from splitsecond.analysis.findings import Run, Spread
from splitsecond.report import rows


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0, "0"),
        (0.04112, "0.041"),
        (0.9999, "1.00"),
        (4.8268, "4.83"),
        (48.268, "48.3"),
        (99.96, "100"),
        (1234.6, "1,235"),
        (-3.14159, "-3.14"),
    ],
)
def test_a_number_has_three_digits(value: float | None, said: str) -> None:
    assert rows.number(value) == said


def test_a_cell_says_its_interval_or_what_it_needs() -> None:
    spread = Spread(
        n=50, p50=231.2, p95=400.0, p99=500.0, ci95={"p50": (224.0, 240.4), "p95": (350.0, None)}, needs={"p99": 368}
    )
    assert rows.cell(spread, "p50") == rows.Cell(figure="231", interval="224–240")
    assert rows.cell(spread, "p95").interval == "350–?"
    assert rows.cell(spread, "p99").needs == 368
    assert rows.cell(spread, "p99").remark == "needs n ≥ 368"
    assert rows.cell(Spread(n=0, needs={"p50": 6}), "p50") == rows.Cell(figure="–")


def test_levels_go_from_light_to_heavy_and_closed_loops_come_first() -> None:
    run, _ = invented_run(concurrencies=(8, 1), requests=2)
    closed = run.conditions[0]
    run.conditions += [
        msgspec.structs.replace(closed, concurrency=None, rate=2.5),
        msgspec.structs.replace(closed, concurrency=None, rate=None),
    ]
    found = rows.levels(run)
    assert [level.title for level in found] == [
        "Concurrency 1",
        "Concurrency 8",
        "Arrivals from a trace",
        "2.5 requests/s",
    ]
    assert [rows.load_words(level.conditions[0]) for level in found] == ["c=1", "c=8", "trace", "2.5/s"]
    assert found[-1].first_token == "TTFT from due"
    assert rows.ttft(found[-1].conditions[0]) is closed.ttft_due_ms
    assert rows.ttft(closed) is closed.ttft_ms


def test_settings_are_made_flat() -> None:
    asked = {"slo": {"ttft": 300}, "levels": [1, 8], "prompts": None, "empty": {}}
    assert rows.flat(asked) == [("slo.ttft", "300"), ("levels", "1, 8"), ("prompts", "–")]


def test_the_command_is_kept_as_text_or_as_words() -> None:
    run = Run(id="r", began="", began_ns=0)
    assert rows.asked_command(run) == ""
    assert rows.asked_command(msgspec.structs.replace(run, asked={"command": ["bench", "a b"]})) == "bench 'a b'"
    assert rows.asked_command(msgspec.structs.replace(run, asked={"command": "bench a"})) == "bench a"


def test_control_characters_are_taken_out() -> None:
    assert rows.printable("a\x1b[31mb\nc\u202e") == "a [31mb c "


def test_the_instrument_is_summed_up_by_its_worst_condition() -> None:
    run, _ = invented_run(requests=4)
    said = " ".join(rows.instrument_sentences(run))
    assert "Only 14 of 15 conditions have arrival times from the kernel" in said
    assert "600 ms at the very most" in said.replace("at the very most 600 ms", "600 ms at the very most")
    run.conditions[0].instrument.collections = 2
    assert "Garbage collection ran 2 times" in rows.instrument_sentences(run)[-1]
    assert rows.instrument_sentences(Run(id="r", began="", began_ns=0)) == []


def test_what_a_row_says_of_itself_is_not_said_again() -> None:
    run, _ = invented_run(requests=40)
    assert any("INVALID" in sentence for sentence in run.statements)
    assert not any("INVALID" in sentence for sentence in rows.statements(run))
