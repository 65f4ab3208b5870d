"""A simulated provider in virtual time: exact bytes and exact times, whole, streamed, and with each
fault."""

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case, sampled_cases
from tests.serving.fake_client import connected
from tests.simulator.in_virtual_time import Client, Exchange
from tests.simulator.published import PUBLISHED, Published

from splitsecond.core import clock
from splitsecond.simulator import profile
from splitsecond.simulator.content.faults import InjectedFault
from splitsecond.simulator.content.replies import ReplyRule
from splitsecond.simulator.profile import Profile, Quantiles, TableRow
from splitsecond.simulator.truth import TruthRecord
from splitsecond.testing.virtual_time import run_virtual

MS = clock.NS_PER_MS
GAP_NS = 10 * MS
ROWS = (TableRow(concurrency=1, ttft_ms=Quantiles(100, 100), tps=Quantiles(100, 100)),)
ENGINE = """
title = "e"
model = "m"
[engine]
slots = 1
prefill_tokens_per_s = 1000
prefill_chunk_tokens = 512
step_base_ms = 10
step_per_sequence_ms = 0
queue_limit = 0
"""


def steady(**changes: Any) -> Profile:
    return Profile(
        **{"name": "p", "title": "t", "model": "m", "table": ROWS, "output_tokens": 5, **changes}
    )


def one(
    fault: str = "", *, on: Profile | None = None, **fields: Any
) -> tuple[Exchange, TruthRecord]:
    async def play() -> tuple[Exchange, TruthRecord]:
        client = Client(on or steady())
        headers = {"x-splitsecond-fault": fault} if fault else None
        exchange = await client.send(headers=headers, **{"stream": True, **fields})
        (record,) = client.truth()
        return exchange, record

    return run_virtual(play())


def planned(record: TruthRecord, *extra_ms: float) -> list[int]:
    """When the tokens are due without a fault, each put off by `extra_ms`."""
    return [
        record.arrived_ns + 100 * MS + i * GAP_NS + round(extra * MS)
        for i, extra in enumerate(extra_ms)
    ]


def test_a_stream_sends_each_token_at_its_planned_absolute_time() -> None:
    exchange, record = one(max_tokens=2_000)
    assert list(record.planned_ns) == planned(record, *[0.0] * 2_000)
    late = np.subtract(record.actual_ns, record.planned_ns)
    # the virtual loop counts in floating-point seconds: no drift over 20 s
    assert abs(late).max() < 10_000
    assert record.output_tokens == 2_000
    assert (record.in_flight, record.fault, record.closed_by_client) == (1, "", False)
    assert exchange.finished
    assert exchange.headers[b"content-type"].startswith(b"text/event-stream")
    assert exchange.text.startswith("A simulated provider says nothing of interest, but it says")


def test_headers_and_role_precede_the_first_token() -> None:
    exchange, record = one()
    assert exchange.head_ns == record.arrived_ns
    opening_ns, opening = exchange.written[0]
    assert opening_ns == record.planned_ns[0] > record.arrived_ns
    assert opening.count(b"data: ") == 2
    assert b'"role":"assistant"' in opening
    assert len(exchange.events) == 1 + 5 + 1 + 1
    assert exchange.events[-1] == b"[DONE]"
    assert b'"finish_reason":"stop"' in exchange.events[-2]


def test_the_role_may_come_early() -> None:
    exchange, record = one(on=steady(role_chunk="early"))
    opening_ns, opening = exchange.written[0]
    assert opening_ns == record.arrived_ns
    assert b'"role":"assistant"' in opening
    assert opening.count(b"data: ") == 1


def test_a_strict_provider_refuses_what_no_rule_fits() -> None:
    async def play() -> list[Exchange]:
        client = Client(steady(strict=True, replies=(ReplyRule(text="Yes.", times=1),)))
        return [await client.send(stream=True) for _ in range(2)]

    served, refused = run_virtual(play())
    assert (served.status, refused.status) == (200, 404)
    assert b"no reply rule fits" in refused.body
    assert b"no_rule" in refused.body


def test_usage_comes_only_if_asked_for() -> None:
    exchange, _ = one(stream_options={"include_usage": True})
    assert (
        b'"usage":{"prompt_tokens":13,"completion_tokens":5,"total_tokens":18}'
        in exchange.events[-2]
    )
    assert b"usage" not in one()[0].body


def test_a_whole_answer_comes_when_its_last_token_is_due() -> None:
    exchange, record = one(stream=False, max_tokens=3)
    assert list(record.planned_ns) == planned(record, 0, 0, 0)
    assert len(set(record.actual_ns)) == 1
    assert abs(record.actual_ns[0] - record.planned_ns[-1]) < 10_000
    assert exchange.json["choices"][0]["message"]["content"] == "A simulated provider"
    assert exchange.json["usage"] == {
        "prompt_tokens": 13,
        "completion_tokens": 3,
        "total_tokens": 16,
    }


def test_completions_have_the_same_tokens() -> None:
    exchange, _ = one(path="/v1/completions", prompt="x" * 400, stream=False, max_tokens=2)
    assert exchange.json["choices"][0]["text"] == "A simulated"
    assert exchange.json["usage"]["prompt_tokens"] == 100
    exchange, _ = one(path="/v1/completions", prompt="x", max_tokens=2)
    assert b"role" not in exchange.body


def messages(fault: str = "", **fields: Any) -> tuple[Exchange, TruthRecord]:
    return one(fault, path="/v1/messages", **{"max_tokens": 5, **fields})


def test_anthropic_messages_have_the_same_times() -> None:
    exchange, record = messages()
    assert list(record.planned_ns) == planned(record, *[0.0] * 5)
    assert exchange.headers[b"request-id"] == b"p-1"
    first, *tokens, last = exchange.written
    assert (first[0], first[1].startswith(b"event: message_start\n")) == (record.arrived_ns, True)
    assert [data.count(b"event: content_block_delta\n") for _, data in tokens] == [1] * 5
    assert b'"stop_reason":"max_tokens"' in last[1]
    assert b'"usage":{"input_tokens":13,"output_tokens":5}' in last[1]
    assert last[1].endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    exchange, _ = messages(stream=False, max_tokens=2)
    assert exchange.json["content"] == [{"type": "text", "text": "A simulated"}]
    assert exchange.json["usage"] == {"input_tokens": 13, "output_tokens": 2}


def test_faults_have_the_anthropic_format() -> None:
    assert b"message_stop" not in messages("no_done")[0].body
    assert b'"output_tokens":10' in messages("wrong_usage")[0].body
    broken = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"del\n\n'
    assert broken in messages("malformed; after=2")[0].body
    exchange, record = messages("error_event; after=2")
    assert exchange.body.endswith(
        b'event: error\ndata: {"type":"error","error":{"type":"api_error",'
        b'"message":"the model failed while it answered (simulated)"}}\n\n'
    )
    assert len(record.actual_ns) == 2
    assert messages("error_event", stream=False)[0].json["error"]["type"] == "api_error"
    exchange, _ = messages("529; retry_after=7")
    assert (exchange.status, exchange.json["error"]["type"]) == (529, "overloaded_error")
    assert exchange.headers[b"retry-after"] == b"7"


@each_case(
    "fields, tokens, finish",
    [
        ({}, 5, "stop"),
        ({"ignore_eos": True}, 5, "length"),
        ({"max_tokens": 20}, 8, "stop"),
        ({"max_completion_tokens": 8}, 8, "length"),
        ({"max_tokens": 20, "ignore_eos": True}, 20, "length"),
        ({"max_tokens": 20, "ignore_eos": False}, 8, "stop"),
    ],
)
def test_an_answer_ends_at_its_limit_or_by_itself(
    fields: dict[str, Any], tokens: int, finish: str
) -> None:
    exchange, record = one(on=steady(natural_tokens=8), stream=False, **fields)
    assert record.output_tokens == tokens
    assert exchange.json["choices"][0]["finish_reason"] == finish


def test_request_id_is_taken_from_the_client() -> None:
    exchange, record = one()
    assert record.request_id == "p-1"

    async def play() -> str:
        client = Client(steady())
        await client.send(headers={"x-client-request-id": "a-7"})
        return client.truth()[0].request_id

    assert run_virtual(play()) == "a-7"
    assert exchange.headers[b"x-request-id"] == b"p-1"


@each_case(
    "request_, status, code",
    [
        ({"body": b"{"}, 400, "bad_request"),
        ({"max_tokens": 0}, 400, "bad_request"),
        ({"max_tokens": 10**6}, 400, "max_tokens"),
        ({"n": 10_000}, 400, "max_tokens"),
        ({"model": "other"}, 404, "model_not_found"),
        ({"headers": {"x-splitsecond-fault": "stahl"}}, 400, "bad_fault"),
        ({"path": "/v1/rerank"}, 400, "bad_request"),
        ({"path": "/v1/embeddings"}, 400, "bad_request"),
        ({"path": "/v1/chat/completions", "method": "GET"}, 404, "unknown_url"),
        ({"body": b" " * (33 << 20)}, 413, "body_too_long"),
    ],
)
def test_a_wrong_request_gets_an_error_in_openais_form(
    request_: dict[str, Any], status: int, code: str
) -> None:
    async def play() -> Exchange:
        return await Client(steady()).send(**request_)

    exchange = run_virtual(play())
    assert exchange.status == status
    assert exchange.json["error"]["code"] == code
    assert exchange.json["error"]["type"] == "invalid_request_error"


def test_models_health_and_truth_pages() -> None:
    async def play() -> None:
        client = Client(steady())
        models = await client.send(method="GET", path="/v1/models")
        assert [model["id"] for model in models.json["data"]] == ["m"]
        assert (await client.send(method="GET", path="/health")).json == {
            "status": "ok",
            "profile": "p",
            "in_flight": 0,
        }
        await client.send()
        (record,) = (await client.send(method="GET", path="/truth")).json
        assert record["profile"] == "p"
        assert len(record["planned_ns"]) == len(record["actual_ns"]) == 5
        assert (await client.send(method="DELETE", path="/truth")).json == []
        assert (await client.send(method="GET", path="/truth")).json == []

    run_virtual(play())


@pytest.mark.parametrize("status", [429, 500, 503])
def test_fault_http(status: int) -> None:
    exchange, record = one(f"{status}; retry_after=7")
    assert exchange.status == status
    assert exchange.headers[b"retry-after"] == b"7"
    assert exchange.json["error"]["type"] == (
        "rate_limit_error" if status == 429 else "server_error"
    )
    assert (record.fault, len(record.planned_ns)) == ("http", 0)
    assert b"retry-after" not in one(f"{status}")[0].headers


@pytest.mark.parametrize("kind", ["reset", "refused"])
def test_fault_reset_before_the_head(kind: str) -> None:
    exchange, record = one(kind)
    assert (exchange.status, exchange.how, record.fault) == (0, "reset", kind)


def test_fault_slow_head() -> None:
    exchange, record = one("slow_head; seconds=1.5")
    assert abs(exchange.head_ns - record.arrived_ns - 1_500 * MS) < 10_000
    assert list(record.planned_ns) == planned(record, *[1_500] * 5)


def test_fault_slow_first_token() -> None:
    exchange, record = one("slow_first_token; seconds=1.5")
    assert exchange.head_ns == record.arrived_ns
    assert list(record.planned_ns) == planned(record, *[1_500] * 5)


def test_fault_stall() -> None:
    exchange, record = one("stall; after=2; seconds=3")
    assert list(record.planned_ns) == planned(record, 0, 0, 3_000, 3_000, 3_000)
    assert exchange.finished
    assert one("stall")[1].planned_ns[1] - one()[1].planned_ns[1] == 2_000 * MS


def test_fault_cut() -> None:
    exchange, record = one("cut; after=3")
    assert (len(record.actual_ns), exchange.how, exchange.finished) == (3, "closed", False)
    exchange, record = one("cut; after=99")
    assert (len(record.actual_ns), exchange.how) == (5, "closed")
    assert b"DONE" not in exchange.body
    exchange, record = one("cut", stream=False)
    assert (exchange.status, exchange.how) == (200, "closed")
    assert int(exchange.headers[b"content-length"]) > len(exchange.body)


def test_fault_malformed() -> None:
    exchange, _ = one("malformed; after=2")
    assert exchange.events[3] == b'{"id":"chatcmpl-malformed","choices":[{"index":0,"del'
    assert exchange.text == one()[0].text
    assert exchange.events[-1] == b"[DONE]"
    exchange, _ = one("malformed", stream=False)
    assert int(exchange.headers[b"content-length"]) == len(exchange.body)
    assert not exchange.body.endswith(b"}")


def test_fault_no_done() -> None:
    exchange, _ = one("no_done")
    assert exchange.finished
    assert b"[DONE]" not in exchange.body
    assert b"finish_reason" in exchange.events[-1]


def test_fault_error_event() -> None:
    exchange, record = one("error_event; after=2")
    assert exchange.events[-1].startswith(b'{"error":{"message":"the model failed')
    assert (len(record.actual_ns), exchange.finished, exchange.status) == (2, True, 200)
    exchange, _ = one("error_event", stream=False)
    assert exchange.status == 500
    assert exchange.json["error"]["code"] == "simulated"


def test_fault_buffered() -> None:
    exchange, record = one("buffered")
    assert exchange.head_ns == record.arrived_ns
    assert list(record.planned_ns) == planned(record, *[0.0] * 5)
    assert len(set(record.actual_ns)) == 1
    assert record.first_written_ns >= record.actual_ns[0]
    assert record.actual_ns[0] >= record.planned_ns[-1] - 1_000
    assert len(exchange.written) == 2
    assert exchange.text == one()[0].text


def test_fault_wrong_usage() -> None:
    usage = {"include_usage": True}
    assert b'"completion_tokens":10,' in one("wrong_usage", stream_options=usage)[0].body
    assert b'"completion_tokens":2,' in one("wrong_usage; factor=0.4", stream_options=usage)[0].body


def test_faults_by_profile_strike_as_often_as_they_say() -> None:
    async def play() -> list[int]:
        client = Client(steady(faults=(InjectedFault(kind="http", status=500, every=3),)))
        return [(await client.send()).status for _ in range(6)]

    assert run_virtual(play()) == [200, 200, 500, 200, 200, 500]


def test_refused_fault_counts_connections_not_requests() -> None:
    async def play() -> None:
        client = Client(steady(faults=(InjectedFault(kind="refused", every=2),)))
        outcomes = []
        for _ in range(4):
            exchange = Exchange()
            connection = connected(client.provider, exchange.transport, client.provider.on_connect)
            outcomes.append(exchange.how)
            connection.connection_lost(None)
        assert outcomes == ["", "reset", "", "reset"]
        assert (await client.send()).status == (await client.send()).status == 200

    run_virtual(play())


@each_case("fault", ["", "slow_head; seconds=9", "stall; seconds=9", "buffered"])
@each_case("stream", [True, False])
@each_case("kind", ["table", "engine"])
def test_disconnect_frees_the_slot_at_once(fault: str, stream: bool, kind: str) -> None:
    async def play() -> None:
        client = Client(steady() if kind == "table" else profile.parse(ENGINE, name="p", where="p"))
        exchange = Exchange()
        headers = {"x-splitsecond-fault": fault} if fault else {}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.send(exchange, headers=headers, stream=stream, max_tokens=50))
            await asyncio.sleep(0.115)
            left_ns = clock.now_ns()
            exchange.leave()
        (record,) = client.truth()
        assert record.closed_by_client
        assert record.ended_ns == left_ns
        assert (await client.send(method="GET", path="/health")).json["in_flight"] == 0
        # the engine's only slot is free again
        assert (await client.send(max_tokens=1)).status == 200

    run_virtual(play())


@pytest.mark.parametrize("stream", [True, False])
def test_abandoned_server_resets_its_connections(stream: bool) -> None:
    async def play() -> None:
        client = Client(steady())
        exchange = Exchange()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.send(exchange, stream=stream))
            await asyncio.sleep(0.115)
            client.provider.abandon()
        assert exchange.how == "reset"
        (record,) = client.truth()
        assert (len(record.planned_ns), record.closed_by_client) == (2, False)

    run_virtual(play())


def test_cancelled_request_is_in_the_truth() -> None:
    async def play() -> None:
        client = Client(steady())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.115):
                await client.send(stream=True)
        (record,) = client.truth()
        assert len(record.actual_ns) == 2
        assert (await client.send(method="GET", path="/health")).json["in_flight"] == 0

    run_virtual(play())


def test_client_that_does_not_read_is_reset() -> None:
    async def play() -> None:
        client = Client(steady())
        exchange = Exchange(reads=False)
        await client.send(exchange, stream=True)
        assert exchange.how == "reset"
        assert len(client.truth()[0].actual_ns) == 1

    run_virtual(play())


def test_disconnect_before_the_request_is_read_is_not_recorded() -> None:
    async def play() -> None:
        client = Client(steady())

        exchange = Exchange()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.send(exchange, headers={"content-length": "100"}, body=b"{"))
            await asyncio.sleep(0.1)
            exchange.leave()
        assert exchange.status == 0
        assert client.truth() == []

    run_virtual(play())


def test_full_engine_refuses_with_429_and_serves_the_rest() -> None:
    async def play() -> None:
        client = Client(profile.parse(ENGINE, name="p", where="p"))
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(client.send(stream=True, max_tokens=5))
            await asyncio.sleep(0.001)
            refused = await client.send(stream=True, max_tokens=5)
        assert (refused.status, refused.headers[b"retry-after"]) == (429, b"1")
        assert refused.json["error"]["code"] == "overloaded"
        assert first.result().status == 200
        full, served = client.truth()
        assert (full.fault, served.fault) == ("full", "")
        step_ns = 10 * MS
        assert np.diff(served.planned_ns).tolist() == [step_ns] * 4
        # 13 prompt tokens at 1,000 per second
        assert served.planned_ns[0] == served.arrived_ns + step_ns + 13 * MS

    run_virtual(play())


def test_faults_delay_the_tokens_of_an_engine() -> None:
    engine = profile.parse(ENGINE, name="p", where="p")
    for fault, extra_ms in (
        ("stall; after=2; seconds=1", [0, 0, 1000]),
        ("slow_head; seconds=1", [1000] * 3),
    ):
        _, record = one(fault, on=engine, max_tokens=3)
        _, plain = one(on=engine, max_tokens=3)
        assert [a - b for a, b in zip(record.planned_ns, plain.planned_ns, strict=True)] == [
            e * MS for e in extra_ms
        ]


@sampled_cases(4)
@each_case("row", PUBLISHED, ids=lambda row: f"{row.profile}-{row.concurrency}")
def test_a_closed_loop_of_fifty_gives_the_published_row(row: Published) -> None:
    """Return the truth of a benchmark: as many clients as the row has, one warm-up each, then fifty
    requests."""
    tokens, warm, measured = 12, row.concurrency, 50

    async def play() -> list[TruthRecord]:
        client = Client(profile.load(row.profile), seed=3)
        turns = iter(range(warm + measured))

        async def worker() -> None:
            for _ in turns:
                await client.send(stream=True, max_tokens=tokens)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(row.concurrency):
                tasks.create_task(worker())
        return sorted(client.truth(), key=lambda record: record.arrived_ns)[warm:]

    records = run_virtual(play())
    ttft_ms = [(record.actual_ns[0] - record.arrived_ns) / 1e6 for record in records]
    tps = [(tokens - 1) * 1e9 / (record.actual_ns[-1] - record.actual_ns[0]) for record in records]
    assert len(records) == measured
    assert np.percentile(ttft_ms, 50) == pytest.approx(row.ttft_p50, rel=0.05)
    assert np.percentile(ttft_ms, 95) == pytest.approx(row.ttft_p95, rel=0.15)
    assert np.percentile(tps, 50) == pytest.approx(row.tps_p50, rel=0.05)
    assert np.percentile(tps, 5) == pytest.approx(row.tps_p95, rel=0.15)
