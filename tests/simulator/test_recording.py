"""Recording and replay: the same bytes at the same times, to the request that was recorded, and no
keys in the file."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from tests.cases import each_case
from tests.processes import Process
from tests.simulator.in_virtual_time import Client, Exchange
from tests.simulator.on_loopback import WAIT_S, Providers
from tests.simulator.test_endpoints import STEADY

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.simulator import server
from splitsecond.simulator.process import run_simulator
from splitsecond.simulator.recording import (
    RecordedExchange,
    RecordingProxy,
    TimedChunk,
    as_raw_json,
    load_recordings,
)
from splitsecond.simulator.replay import ReplayedProvider
from splitsecond.testing.virtual_time import run_virtual

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
STREAM = RecordedExchange(
    method="POST",
    path="/v1/chat/completions",
    request=as_raw_json(json.dumps(BODY).encode()),
    status=200,
    headers={"content-type": "text/event-stream", "x-request-id": "r1"},
    head_ms=5,
    chunks=(TimedChunk(100, "data: ä\n\n"), TimedChunk.of(250, b"data: \xff\n\n")),
    end_ms=260,
)
WHOLE = msgspec.structs.replace(
    STREAM,
    headers={"content-type": "application/json"},
    status=429,
    chunks=(TimedChunk(7, '{"error"'), TimedChunk(9, ":1}")),
)


def replayed(*recordings: RecordedExchange, bodies: int = 1, **request: Any) -> list[Exchange]:
    async def play() -> list[Exchange]:
        client = Client(STEADY)
        client.application = ReplayedProvider(recordings, client.pacer)
        given = {"body": json.dumps(BODY).encode(), **request}
        return [await client.send(**given) for _ in range(bodies)]

    return run_virtual(play())


def test_a_stream_has_its_bytes_at_its_times() -> None:
    (found,) = replayed(STREAM)
    begun_ns = found.head_ns - 5 * clock.NS_PER_MS
    assert [((at - begun_ns) / clock.NS_PER_MS, data) for at, data in found.written] == [
        (100, "data: ä\n\n".encode()),
        (250, b"data: \xff\n\n"),
    ]
    assert found.finished
    assert found.headers[b"x-request-id"] == b"r1"
    assert found.headers[b"content-type"] == b"text/event-stream"


def test_unstreamed_response_is_replayed_whole() -> None:
    (found,) = replayed(WHOLE)
    assert (found.status, found.body, found.headers[b"content-length"]) == (
        429,
        b'{"error":1}',
        b"11",
    )


def test_truncated_responses_are_replayed_truncated() -> None:
    cut, reset = (msgspec.structs.replace(each, complete=False) for each in (STREAM, WHOLE))
    assert not replayed(cut)[0].finished
    assert replayed(reset)[0].how == "reset"


@each_case(
    "changed",
    [
        {"head_ms": 1e300},
        {"status": 1000},
        {"status": 100},
        {"headers": {"content-type": "a\r\nb: c"}},
        {"headers": {"content-type": "€"}},
        {"headers": {"a b": "c"}},
        {"chunks": [[1e300, ""]]},
        {"chunks": [[1, "no base64", True]]},
    ],
)
def test_a_recording_that_cannot_be_replayed_is_refused(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(json.loads(msgspec.json.encode(STREAM)) | changed) + "\n")
    with pytest.raises(CallerFault, match=r"a\.jsonl:1: "):
        load_recordings(file)


def test_responses_to_the_same_request_come_in_turn() -> None:
    assert [each.status for each in replayed(WHOLE, STREAM, bodies=3)] == [429, 200, 200]


def test_the_order_of_fields_and_a_key_do_not_matter() -> None:
    body = json.dumps(dict(reversed(BODY.items())), indent=2).encode()
    assert replayed(STREAM, body=body, path="/v1/chat/completions?key=secret")[0].status == 200


@pytest.mark.parametrize(
    "change", [{"path": "/v1/messages"}, {"body": b"{}"}, {"body": b"\xff"}, {"body": b""}]
)
def test_another_request_is_refused(change: dict[str, Any]) -> None:
    (found,) = replayed(STREAM, **change)
    assert (found.status, b"this request was not recorded" in found.body) == (404, True)


def test_the_journal_of_a_replay() -> None:
    async def play() -> None:
        client = Client(STEADY)
        client.application = ReplayedProvider([WHOLE, STREAM], client.pacer)
        body = json.dumps(BODY).encode()
        await client.send(body=body)
        (entry,) = (await client.send(method="GET", path="/_splitsecond/requests")).json
        assert (entry["status"], entry["body"]) == (429, BODY)
        await client.send(method="DELETE", path="/_splitsecond")
        assert (await client.send(method="GET", path="/_splitsecond/requests")).json == []
        assert (await client.send(body=body)).status == 429

    run_virtual(play())


def test_unreadable_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with pytest.raises(CallerFault, match="cannot read the recording"):
        load_recordings(path)
    path.write_text("")
    with pytest.raises(CallerFault, match="is empty"):
        load_recordings(path)
    path.write_bytes(msgspec.json.encode(STREAM) + b"\n{}\n")
    with pytest.raises(CallerFault, match=r"x.jsonl:2: .*missing required field"):
        load_recordings(path)
    wrong = msgspec.structs.replace(STREAM, chunks=(TimedChunk(1, "*", encoded=True),))
    path.write_bytes(msgspec.json.encode(wrong))
    with pytest.raises(CallerFault, match=r"x.jsonl:1: "):
        load_recordings(path)
    with pytest.raises(CallerFault, match="cannot write"):
        server.record("http://127.0.0.1:1", tmp_path, port=0)
    with pytest.raises(CallerFault, match="cannot use the URL"):
        server.record("127.0.0.1:1", path, port=0)


def test_a_recorded_provider_is_replayed(both: Providers, tmp_path: Path) -> None:
    file = tmp_path / "quick.jsonl"
    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "simulate",
        "--record",
        both.quick.base_url,
        "--out",
        str(file),
    ]

    def called(base_url: str) -> tuple[list[str | None], str | None, int]:
        with openai.OpenAI(
            base_url=base_url, api_key="sk-secret1234", max_retries=0, timeout=WAIT_S
        ) as client:
            asked: dict[str, Any] = {"model": both.quick.model, "messages": BODY["messages"]}
            stream = client.chat.completions.create(**asked, stream=True)
            texts = [chunk.choices[0].delta.content for chunk in stream]
            whole = client.chat.completions.create(**asked).choices[0].message.content
            with pytest.raises(openai.NotFoundError) as caught:
                client.chat.completions.create(**asked | {"model": "other"})
            return texts, whole, caught.value.status_code

    with Process([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        recorded = called(process.read_line().split()[2])
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert "secret1234" not in file.read_text()
    exchanges = load_recordings(file)
    assert [each.status for each in exchanges] == [200, 200, 404]
    times = [chunk.ms for chunk in exchanges[0].chunks]
    assert times == sorted(times)
    assert times[-1] >= 20  # the time of its first token
    with run_simulator(str(file)) as (replay,):
        assert called(replay.base_url) == recorded
        assert [request.status for request in replay.requests()] == [200, 200, 404]


def test_a_recording_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    RecordingProxy("http://127.0.0.1:1", tmp_path / "recording.jsonl").close()
    assert (tmp_path / "recording.jsonl").stat().st_mode & 0o777 == 0o600


def test_recording_an_unreachable_provider_gives_status_502(system: None, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "simulate",
        "--record",
        "http://127.0.0.1:9",
        "--out",
    ]
    with Process(
        [*command, str(tmp_path / "x.jsonl"), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        base_url = process.read_line().split()[2]
        with (
            openai.OpenAI(
                base_url=base_url, api_key="none", max_retries=0, timeout=WAIT_S
            ) as client,
            pytest.raises(openai.InternalServerError, match="refused") as caught,
        ):
            client.chat.completions.create(model="m", messages=[])
        assert caught.value.status_code == 502
        process.terminate()
