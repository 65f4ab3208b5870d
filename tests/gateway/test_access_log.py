"""The access log: one line for each request, also when the file is rotated or the disk is full."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import openai
import pytest
from msgspec import structs
from tests.gateway.conftest import KEY, ServedGateway, gateway, ready
from tests.gateway.test_served import ASK
from tests.gateway.test_telemetry import RECORD
from tests.waiting import WITHIN_S

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.records.access_log import CHECK_S, AccessLog


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_calls_and_refusals_have_one_line_each(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    log = AccessLog(str(path), pytest.fail)
    log.add(RECORD)
    log.refused(call="req-2", client="", method="GET", path="/x\n", status=404, fault="not_found")
    log.close()
    call, refusal = lines(path)
    assert {name: call[name] for name
    in ("client", "route", "status", "target", "attempts", "ms", "ttft_ms")} == {
        "client": "web", "route": "fast", "status": 200, "target": "azure-eu/"
        "gpt-4o", "attempts": 2, "ms": 510,
        "ttft_ms": 110,
    }  # fmt: skip
    assert "path" not in call
    assert (call["input_tokens"], call["output_tokens"]) == (20, 31)
    assert (refusal["path"], refusal["outcome"], refusal["fault"]) == (
        "/x\n",
        "refused",
        "not_found",
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    path.touch()
    path.chmod(0o640)
    log = AccessLog(str(path), pytest.fail)
    log.add(RECORD)
    log.close()
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("how", ["renamed", "removed"])
def test_a_file_that_is_rotated_is_opened_anew(tmp_path: Path, how: str) -> None:
    path, now_ns = tmp_path / "access.jsonl", [0]
    with clock.using(lambda: now_ns[0]):
        log = AccessLog(str(path), pytest.fail)
        log.add(RECORD)
        if how == "renamed":
            path.rename(tmp_path / "access.1")
        else:
            path.unlink()
        now_ns[0] += int(CHECK_S * clock.NS_PER_S)
        log.add(structs.replace(RECORD, route="next"))
        log.close()
    assert [line["route"] for line in lines(path)] == ["next"]


def test_a_full_disk_is_reported_once() -> None:
    said: list[str] = []
    log = AccessLog("/dev/full", said.append)
    log.add(RECORD)
    log.add(RECORD)
    log.close()
    assert said == [
        "The access log cannot be written: No space left on device. "
        "Requests are served without it.",
        "Lines that the access log has lost: 2.",
    ]


@pytest.mark.parametrize("room", [0, 1, 20])
def test_partial_write_on_a_full_disk_breaks_no_later_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path, said = tmp_path / "access.jsonl", list[str]()
    log = AccessLog(str(path), said.append)
    log.add(RECORD)
    write, left = os.write, [room]

    def full(descriptor: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        log.add(RECORD)
        left[0] = 1
        log.add(RECORD)
    log.add(structs.replace(RECORD, route="next"))
    log.close()
    written = path.read_bytes().splitlines()
    assert (json.loads(written[0])["route"], json.loads(written[-1])["route"]) == ("fast", "next")
    assert said[-1] == "Lines that the access log has lost: 2."


def test_file_that_cannot_be_opened_raises_caller_fault(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match="cannot be written: Is a directory"):
        AccessLog(str(tmp_path), pytest.fail)


@pytest.mark.system
@pytest.mark.parametrize("number", ["1", "2"])
def test_workers_of_a_gateway_write_one_access_log(
    tmp_path: Path, served: ServedGateway, number: str
) -> None:
    (tmp_path / "splitsecond.yaml").write_text(
        f"keys: [{{name: web, key: env:WEB_KEY}}]\nproviders: {{sim: {{base_url: "
        f"{served.simulated.base_url}}}}}\n"
        "access_log: access.jsonl\n"
    )
    with gateway(tmp_path, "--workers", number) as process:
        with openai.OpenAI(
            base_url=ready(process), api_key=KEY, max_retries=0, timeout=WITHIN_S
        ) as client:
            given = client.chat.completions.with_raw_response.create(
                model="sim/quick", messages=ASK, max_tokens=2
            )
            with pytest.raises(openai.NotFoundError):
                client.models.retrieve("nothing")
        process.terminate()
        assert process.wait(WITHIN_S) == 0
    found = {line["outcome"]: line for line in lines(tmp_path / "access.jsonl")}
    assert found["ok"]["call"] == given.headers["x-request-id"]
    assert (found["refused"]["status"], found["refused"]["path"]) == (404, "/v1/models/nothing")
