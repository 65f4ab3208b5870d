import msgspec
from tests.cases import each_case
from tests.report.invented import invented_run

from splitsecond.benchmark.report import rows
from splitsecond.benchmark.report.run_page import render_run
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.rows.row_fields import Instrument, NodeFindings
from splitsecond.core.observation import PacketCounts
from splitsecond.core.pages import figure_cells
from splitsecond.log.statistics.summary import Summary


@each_case(
    ("value", "said"),
    [
        (None, "–"),
        (0, "0"),
        (0.04112, "0.0411"),
        (0.9999, "1.00"),
        (4.8268, "4.83"),
        (48.268, "48.3"),
        (99.96, "100"),
        (1234.6, "1,235"),
        (-3.14159, "-3.14"),
    ],
)
def test_a_number_has_three_digits(value: float | None, said: str) -> None:
    assert figure_cells.number(value) == said


def test_cell_has_its_interval_or_the_needed_requests() -> None:
    spread = Summary(
        n=50,
        p50=231.2,
        p95=400.0,
        p99=500.0,
        ci95={"p50": (224.0, 240.4), "p95": (350.0, None)},
        needs={"p99": 368},
    )
    assert figure_cells.cell(spread, "p50") == figure_cells.FigureCell(
        figure="231", interval="224–240"
    )
    assert figure_cells.cell(spread, "p95").interval == "350–?"
    assert figure_cells.cell(spread, "p99").needs == 368
    assert figure_cells.cell(spread, "p99").interval == ""
    assert figure_cells.cell(Summary(n=0, needs={"p50": 6}), "p50") == figure_cells.FigureCell(
        figure="–"
    )


def test_levels_are_sorted_by_load_with_closed_loops_first() -> None:
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
    assert [rows.load_words(level.conditions[0]) for level in found] == [
        "c=1",
        "c=8",
        "trace",
        "2.5/s",
    ]
    assert found[-1].heading == "2.5 requests/s, TTFT from when a request was due"
    assert rows.ttft(found[-1].conditions[0]) is closed.ttft_due_ms
    assert rows.ttft(closed) is closed.ttft_ms


def test_rows_with_cache_reuse_are_separate_levels() -> None:
    run, _ = invented_run(concurrencies=(8, 1), requests=2, reuse=True)
    found = rows.levels(run)
    assert [level.title for level in found] == [
        "Concurrency 1", "Concurrency 1, cache reuse", "Concurrency 8", "Concurrency 8, cache reuse"
    ]  # fmt: skip
    assert [rows.load_words(level.conditions[0]) for level in found] == [
        "c=1",
        "c=1 reuse",
        "c=8",
        "c=8 reuse",
    ]
    assert [{c.cache_reuse for c in level.conditions} for level in found] == [{False}, {True}] * 2


def test_settings_are_made_flat() -> None:
    asked = {
        "slo": {"ttft": 300},
        "levels": [1, 8],
        "prompts": None,
        "header": "",
        "empty": {},
        "none": [],
    }
    assert rows.flat(asked) == [("slo.ttft", "300"), ("levels", "1, 8")]
    records = {
        "targets": [{"name": "a/x", "url": "http://a", "wait": {"head_ms": 5}}, {"url": "http://b"}]
    }
    assert rows.flat(records) == [
        ("targets.a/x", "url http://a, wait.head_ms 5"),
        ("targets.2", "url http://b"),
    ]


def test_command_is_read_from_text_or_a_list() -> None:
    run = Run(id="r", began="", began_ns=0)
    assert rows.asked_command(run) == ""
    assert (
        rows.asked_command(msgspec.structs.replace(run, asked={"command": ["bench", "a b"]}))
        == "bench 'a b'"
    )
    assert (
        rows.asked_command(msgspec.structs.replace(run, asked={"command": "bench a"})) == "bench a"
    )


def test_control_characters_are_taken_out() -> None:
    assert figure_cells.safe_text("a\x1b[31mb\nc\u202e") == "a [31mb c "


def test_the_instrument_is_summed_up_by_its_worst_condition() -> None:
    run, _ = invented_run(requests=4)
    said = " ".join(rows.instrument_sentences(run))
    assert "Only 14 of 15 conditions have arrival times from the kernel" in said
    assert "600 ms (max)" in said
    run.conditions[0].instrument = Instrument(kernel_time=False)  # nothing arrived there
    assert "Only 13 of 14 conditions" in rows.instrument_sentences(run)[0]
    run.conditions[0].instrument.collections = 2
    assert "Garbage collection ran 2 times" in rows.instrument_sentences(run)[-1]
    assert rows.instrument_sentences(Run(id="r", began="", began_ns=0)) == []


def test_the_clock_of_arrivals_and_the_priority_are_reported() -> None:
    run, _ = invented_run(("groq/llama-3.1-70b-versatile",), (1,), requests=4)
    (row,) = run.conditions
    counts = PacketCounts(packets=12_345, reordered=2, repeated=3)
    row.instrument = Instrument(
        kernel_time=True, packet_time=True, packets=counts, lag_p50_ms=1, priority="real time"
    )
    said = " ".join(rows.instrument_sentences(run))
    assert "Arrival times are those of the packets" in said
    assert "Of 12,345 packets, 2 came out of order and 3 were repeated." in said
    assert "Our process ran at priority: real time." in said
    row.instrument.packets = PacketCounts(packets=1, reordered=1, repeated=1)
    assert "Of 1 packet, 1 came out of order and 1 was repeated." in " ".join(
        rows.instrument_sentences(run)
    )
    row.instrument.packet_time = False
    row.instrument.packets = PacketCounts(packets=12_345, lost=7, missed=4)
    said = " ".join(rows.instrument_sentences(run))
    assert "4 reads have the time of the last packet. The ring had no room for 7 packets" in said


def test_cpu_time_is_given_per_token_or_as_a_share_of_a_core() -> None:
    run, _ = invented_run(("groq/llama-3.1-70b-versatile",), (1, 8), requests=4)
    for row in run.conditions:
        row.instrument = Instrument(kernel_time=True, cpu_share=0.031)
    assert "Each measuring process used up to 3.10% of a core." in rows.instrument_sentences(run)
    run.conditions[1].instrument.cpu_ms_per_1000_tokens = 7.5
    said = " ".join(rows.instrument_sentences(run))
    assert "Measuring took up to 7.50 ms of processor time per 1,000 tokens." in said
    assert "of a core" not in said


def test_each_node_is_named_with_its_own_instrument() -> None:
    run, observations = invented_run(("groq/llama-3.1-70b-versatile",), (1,), requests=4)
    (row,) = run.conditions

    def part(number: int, *invalid: str) -> NodeFindings:
        its = Instrument(kernel_time=True, lag_p99_ms=0.1 * number, late_p99_ms=0.2)
        known = {"clock_offset_ms": 5.0, "clock_error_ms": 0.3 * number, "ttft_p50_ms": 70.5}
        return NodeFindings(
            node=f"n{number}", requests=2, errors=0, instrument=its, invalid=list(invalid), **known
        )

    row.nodes = [part(1), part(2, "lost during a block.")]
    said = rows.instrument_sentences(run)
    assert "2 nodes sent the requests. Their clocks are known to ±0.600 ms" in " ".join(said)
    ends = "arrived bytes waited up to {} ms (p99), requests were sent up to 0.200 ms (p99) late"
    assert f"Node n1: {ends.format('0.100')}." in said
    assert f"Node n2: {ends.format('0.200')}, INVALID." in said
    page = render_run(run, observations)
    assert "The instrument of each node, times in ms" in page
    assert "lost during a block." in page
    row.nodes = [part(number) for number in range(1, 101)]
    assert "report.html has all 100 nodes." in rows.instrument_sentences(run)
    assert sum(sentence.startswith("Node n") for sentence in rows.instrument_sentences(run)) == 8


def test_remark_on_several_rows_is_listed_once() -> None:
    run, _ = invented_run(
        ("groq/llama-3.1-70b-versatile", "replicate/meta-llama-3-70b"), (32,), requests=64
    )
    groq, replicate = run.conditions
    groq.notes, replicate.notes = ["of both.", "of one."], ["of both."]
    (level,) = rows.levels(run)
    late, *_, errors, both, one, few = rows.remarks(level)
    assert (late.kind, late.who) == ("invalid", replicate.target)
    assert (errors.kind, errors.who) == ("error", groq.target)
    assert errors.text == "3 × http_429: HTTP 429: rate limit reached for model"
    assert (both.who, both.text) == ("", "of both.")
    assert (one.who, one.text) == (groq.target, "of one.")
    assert few == figure_cells.Remark(
        kind="note", who="", text="too few requests for an interval of p95: use -n 150."
    )


def test_needed_requests_are_listed_only_for_present_figures() -> None:
    run, _ = invented_run(("groq/llama-3.1-70b-versatile",), (1,), requests=4)
    assert (
        rows.remarks(rows.levels(run)[0])[-1].text
        == "too few requests for an interval of p50 and p95: use -n 150."
    )
    failed, _ = invented_run(("groq/llama-3.1-70b-versatile",), (1,), requests=4, failing=True)
    assert not any("too few" in remark.text for remark in rows.remarks(rows.levels(failed)[0]))


def test_simulated_and_local_targets_are_named_in_the_caveats() -> None:
    run, _ = invented_run(("groq/llama-3.1-70b-versatile",), (1,), requests=2)
    assert rows.caveats(run) == []
    for target, words in (("sim/groq", "simulated"), ("engine/small", "llama.cpp on this machine")):
        run.conditions[0].target = target
        (said,) = rows.caveats(run)
        assert words in said
