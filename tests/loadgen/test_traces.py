"""Traces: each format is read with its times and lengths; what is not understood is refused with
its line."""

import contextlib
import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.worst_case import check_linear, repeated

from splitsecond.benchmark.workload import traces
from splitsecond.benchmark.workload.traces import Trace, TracedRequest, read_trace
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault

EXCERPTS = Path(__file__).parents[2] / "docs/traces"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
MOONCAKE = '{"timestamp": 27, "input_length": 600, "output_length": 5, "hash_ids": [7, 9]}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "t"


def times_s(trace: Trace) -> list[float]:
    return [each.due_ns / NS_PER_S for each in trace.requests]


def test_seconds(file: Path) -> None:
    file.write_text("\ufeff0.5\n\n0.5\n 2\n")
    found = read_trace(file)
    assert (times_s(found), found.has_lengths, found.format) == ([0.5, 0.5, 2], False, "seconds")


def test_our_json_lines_count_from_the_first(file: Path) -> None:
    file.write_text('{"timestamp": 1700000000, "prompt": "x"}\n{"timestamp": 1700000001.5}\n')
    assert read_trace(file).requests == [TracedRequest(0), TracedRequest(1_500_000_000)]
    file.write_text('{"timestamp": 3, "input_tokens": 9, "output_tokens": 2, "hash_ids": [4]}')
    assert read_trace(file).requests == [TracedRequest(0, 9, 2, [4])]


def test_mooncake_counts_milliseconds(file: Path) -> None:
    file.write_text(MOONCAKE + MOONCAKE.replace("27", "3027.5"))
    assert read_trace(file).requests == [
        TracedRequest(0, 600, 5, [7, 9]),
        TracedRequest(3_000_500_000, 600, 5, [7, 9]),
    ]


def bailian(number: int, ids: list[int]) -> str:
    return (
        f'{{"chat_id": {number}, "parent_chat_id": -1, "timestamp": {number * 0.5}, '
        f'"input_length": {16 * len(ids) + 3}, "output_length": 4, "type": "text", "turn": 1, '
        f'"hash_ids": {ids}}}\n'
    )


def test_bailian_counts_seconds_and_has_small_blocks(file: Path) -> None:
    shared = list(range(32))
    file.write_text(
        bailian(0, [*shared, 99]) + bailian(1, [*shared, *range(100, 132)]) + bailian(2, [1])
    )
    first, second, third = read_trace(file).requests
    assert [each.due_ns / NS_PER_S for each in (first, second, third)] == [0, 0.5, 1]
    assert (first.input_tokens, first.output_tokens) == (16 * 33 + 3, 4)
    assert first.hash_ids == second.hash_ids[:1]
    assert [len(each.hash_ids) for each in (first, second, third)] == [1, 2, 0]


def test_a_file_may_be_compressed(file: Path) -> None:
    file.write_bytes(gzip.compress(b"0.5\n2\n"))
    assert times_s(read_trace(file)) == [0.5, 2]
    file.write_bytes(gzip.compress(b"0.5\n2\n" * 1000)[:-20])
    with pytest.raises(CallerFault, match=r"cannot read .*t: "):
        read_trace(file)
    file.write_bytes(b"\x28\xb5\x2f\xfd etc")
    with pytest.raises(CallerFault, match=r"is compressed \(zstd\)"):
        read_trace(file)


def test_azure_has_dates(file: Path) -> None:
    file.write_text(AZURE + "2023-11-16 23:59:59.9799600,4808,10\n2023-11-17 00:00:01+00:00,3,8\n")
    assert read_trace(file).requests == [
        TracedRequest(0, 4808, 10),
        TracedRequest(1_020_040_000, 3, 8),
    ]


def test_burstgpt_has_seconds_and_failures(file: Path) -> None:
    file.write_text(
        BURST + "5,ChatGPT,472,18,490,API log\n6,GPT-4,30,0,30,API log\n45.5,GPT-4,1,2,3,API log\n"
    )
    found = read_trace(file)
    assert found.requests == [TracedRequest(0, 472, 18), TracedRequest(40_500_000_000, 1, 2)]
    assert found.left_out == 1
    assert "1 without an answer left out" in found.in_words("f")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "azure-code.csv",
            "azure-code.csv (Azure): 120 requests within 195.7 s, median prompt 1,776 tokens",
        ),
        (
            "mooncake-conversation.jsonl",
            "(Mooncake): 100 requests within 33.0 s, median prompt 10,426 tokens",
        ),
        (
            "burstgpt-synthetic.csv",
            "(BurstGPT): 57 requests within 50.0 s, median prompt 339 tokens",
        ),
    ],
)
def test_the_excerpts_of_the_documentation(name: str, words: str) -> None:
    assert words in read_trace(EXCERPTS / name).in_words(name)


def test_a_limit_ends_reading_and_a_scale_stretches_the_times(file: Path) -> None:
    file.write_text("0\n1\n2\n3\nnonsense")
    assert times_s(read_trace(file, most=3)) == [0, 1, 2]
    assert times_s(read_trace(file, duration_s=1, time_scale=0.5)) == [0, 0.5, 1]
    assert times_s(read_trace(file, duration_s=2.9)) == [0, 1, 2]


@each_case(
    ("text", "complaint"),
    [
        ("0.5\nsoon", "t:2: got 'soon', expected a number of seconds"),
        ("-1", "t:1: got '-1', expected the first line of a trace"),
        ("nan", "t:1: "),
        ("1\n0.5", "t:2: the timestamp is earlier"),
        ('1\n{"timestamp": 2}', "t:2: got .* expected a number of seconds"),
        ('{"time": 1}', "t:1: .*timestamp"),
        ('{"timestamp": true}', "t:1: "),
        ('{"timestamp"', "t:1: "),
        ("[" * 100_000, "t:1: "),
        ('{"timestamp": 1, "input_tokens": 4}', "t:1: .* both input_tokens and output_tokens"),
        (
            '{"timestamp": 1, "input_tokens": 4, "output_tokens": 1}\n{"timestamp": 1}',
            "t:2: only some lines",
        ),
        (
            '{"timestamp": 1, "input_tokens": 4, "output_tokens": 1, "hash_ids": [1, 2]}',
            "t:1: .* at most 1 hash_ids",
        ),
        (MOONCAKE + MOONCAKE.replace("600", "-600"), "t:2: .* input_length"),
        (MOONCAKE + "1,2,3", "t:2: .* milliseconds"),
        (MOONCAKE.replace('"hash_ids"', '"delay": 5, "hash_ids"'), "t:1: .*unknown field `delay`"),
        (
            '{"timestamp": 0, "text_input": "hello", "output_length": 5}',
            "t:1: .*unknown field `text_input`",
        ),
        (
            MOONCAKE.replace("27", "0.5") + MOONCAKE.replace("27", "4.25"),
            "t: its timestamps are probably seconds",
        ),
        (
            bailian(0, [1, 2]).replace('"input_length": 35', '"input_length": 16'),
            "t:1: .* at most 1 hash_ids",
        ),
        (AZURE + "2023-11-16 18:17:03,4,1\n2023-11-16,four,1", "t:3: .* ContextTokens"),
        (AZURE + "2023-11-16 18:17:03,4", "t:2: .* as in the header"),
        (AZURE + "yesterday,4,1", "t:2: "),
        (BURST + '1,"' + "x" * 200_000, "t:2: "),
        (BURST, "t: no request found"),
        ("Timestamp,Model\n1,2", "t:1: got 'Timestamp,Model', expected the first line"),
        ("1" * traces.LONGEST_LINE + "11", "t:1: the line is longer than 1,048,576 bytes"),
        (" \n", "t: no request found"),
    ],
)
def test_trace_of_unknown_form_is_refused_with_its_line(
    file: Path, text: str, complaint: str
) -> None:
    file.write_text(text)
    with pytest.raises(CallerFault, match=complaint):
        read_trace(file)


def test_a_missing_file_and_bytes(file: Path) -> None:
    with pytest.raises(CallerFault, match=r"cannot read .*: No such file"):
        read_trace(file)
    file.write_bytes(b"1\n\xff\xfe")
    with pytest.raises(CallerFault, match="t:2: the line is not UTF-8 text"):
        read_trace(file)


def test_a_trace_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(MOONCAKE * 5)
    for name, most, words in (
        ("MAX_REQUESTS", 4, "more than 4 requests"),
        ("MAX_BLOCKS", 9, "more than 9 blocks"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(traces, name, most)
            with pytest.raises(CallerFault, match=words):
                read_trace(file)
            assert len(read_trace(file, most=4).requests) == 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("unit", "before"),
    [(MOONCAKE, ""), ("1,m,2,3,5,l\n", BURST), ("1", ""), ('1,"', BURST)],
    ids=["mooncake", "burstgpt", "one line", "quotes"],
)
def test_large_traces_take_linear_time(file: Path, unit: str, before: str) -> None:
    def read(data: bytes) -> None:
        file.write_bytes(data)
        read_trace(file)

    check_linear(read, repeated(unit.encode(), before.encode()))


@pytest.mark.parametrize(
    ("stamps", "bursts"),
    [
        (
            [0, 0, 3, 3, 3, 6, 6],
            "in the trace, 7 of 7 requests share their timestamp with others, .* 3 s apart",
        ),
        ([0, 0, 2.999, 3, 3, 5.999, 8, 12], "in the trace, 4 of 8 requests share"),
        ([0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10], ""),  # whole seconds, but almost no burst
        ([0, 0, 0.001, 0.001, 0.002], ""),  # a fine grid
        ([0.5], ""),
        ([1, 1], ""),
    ],
)
def test_bursts_of_a_coarse_clock_are_warned_of(
    file: Path, stamps: list[float], bursts: str
) -> None:
    file.write_text("\n".join(map(str, stamps)))
    warning = read_trace(file, time_scale=0.01).warning
    assert bool(warning) == bool(bursts)
    assert re.match(bursts, warning)


BYTES = st.binary(max_size=40) | st.sampled_from(
    [each.encode() for each in (AZURE, BURST, MOONCAKE, "1\n", "2,3,4\n")]
)


@given(st.lists(BYTES, max_size=5))
def test_any_bytes_are_a_trace_or_a_caller_fault(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-trace"
    path.write_bytes(b"".join(pieces))
    with contextlib.suppress(CallerFault):
        times = times_s(read_trace(path))
        assert times == sorted(times)
        assert times[0] >= 0
