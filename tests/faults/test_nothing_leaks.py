"""Keys and prompts: what providers say, and what goes wrong, brings none of them where they do not
belong.

A provider here repeats all that it was sent, in its headers and in its words, in every way of
failing. Then everything that came out is searched: what clients received, what was printed, and
every byte of the log.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case, sampled_cases
from tests.faults.test_faults_and_policies import FAULTS
from tests.faults.world import CLIENT_KEY, OUR_KEYS, PROMPT, World, play, profile
from tests.gateway.visitor import Visitor, visits

from splitsecond.core.serving.request_cycle import RequestCycle

POLICY = 'fallback("a/m", "b/m", ttft="2s")'
SECRETS = [CLIENT_KEY, *OUR_KEYS.values()]
ANSWER = "canary in the answer: and so is the sky above it"
WAYS = (
    "400", "401", "403", "404", "422", "429", "500", "302", "error "
    "in 200", "error event", "late error",
    "broken event", "broken answer", "html", "long",
)  # fmt: skip


class Parrot:
    """A provider that repeats what it was sent. `way`: how it does."""

    def __init__(self, way: str) -> None:
        self._way = way

    async def __call__(self, cycle: RequestCycle) -> None:
        body = (await cycle.body(1 << 20)).decode()
        heard = (
            " ".join(f"{name.decode()}: {value.decode()}" for name, value in cycle.headers.items())
            + " "
            + body
        )
        status, kind, said = self._said(heard)
        headers = [(b"x-heard", heard.encode()), (b"set-cookie", heard.encode())]
        await cycle.answer(status, said, headers, kind=kind)

    def _said(self, heard: str) -> tuple[int, bytes, bytes]:
        error = json.dumps({"error": {"message": heard, "type": heard, "code": heard}}).encode()
        token = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % ANSWER.encode()
        match self._way:
            case "error in 200":
                return 200, b"application/json", error
            case "error event":
                return 200, b"text/event-stream", b"data: " + error + b"\n\n"
            case "late error":
                return 200, b"text/event-stream", token + b"data: " + error + b"\n\n"
            case "broken event":
                return 200, b"text/event-stream", token + token.replace(b"}]}", b"}")
            case "broken answer":
                return 200, b"application/json", token.removeprefix(b"data: ").replace(b"}]}", b"}")
            case "html":
                return 500, b"text/html", b"<html>" + heard.encode() + b"</html>"
            case "long":
                return (
                    500,
                    b"application/json",
                    json.dumps({"error": {"message": "x" * 550 + heard}}).encode(),
                )
            case status:
                return int(status), b"application/json", error


async def _said_to(world: World, **how: Any) -> bytes:
    return _all(await world.ask(**how))


def _all(visitor: Visitor) -> bytes:
    """Return all that a client received."""
    return visitor.transport.written


def _kept(world: World) -> bytes:
    """Every byte of the log, its side files included."""
    return b"".join(path.read_bytes() for path in sorted(world.database.parent.iterdir()))


def _found(data: bytes, secrets: list[str]) -> list[str]:
    """Those of `secrets`, or long parts of them, that stand in `data`."""
    parts = [
        (secret, secret[at : at + 16].encode())
        for secret in secrets
        for at in range(0, len(secret) - 15, 4)
    ]
    return sorted({secret for secret, part in parts if part in data})


@sampled_cases(3)
@each_case("way", WAYS)
def test_provider_that_repeats_the_request_leaks_no_secret(
    way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    responses: list[bytes] = []

    async def story(world: World) -> None:
        responses.extend([await _said_to(world, stream=stream) for stream in (True, False)])

    world = play('"a/m"', tmp_path, story, a=Parrot(way), b=profile())
    said = capfd.readouterr()
    assert _found(b"".join(responses), SECRETS) == []
    kept = _kept(world) + (said.out + said.err + caplog.text).encode()
    assert _found(kept, [*SECRETS, PROMPT, ANSWER]) == []


@sampled_cases(3)
@each_case("fault", FAULTS)
def test_no_fault_leaks_a_key_or_a_prompt(
    fault: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    responses: list[bytes] = []

    async def story(world: World) -> None:
        responses.extend([await _said_to(world, stream=stream) for stream in (True, False)])
        responses.append(await _wrong(world, authorization=f"Bearer {CLIENT_KEY}x"))
        responses.append(await _wrong(world, **{"x-api-key": CLIENT_KEY, "cookie": CLIENT_KEY}))

    world = play(POLICY, tmp_path, story, a=profile(FAULTS[fault]), b=profile(FAULTS[fault]))
    said = capfd.readouterr()
    out = b"".join(responses) + _kept(world) + (said.out + said.err + caplog.text).encode()
    assert _found(out, [*SECRETS, PROMPT]) == []


async def _wrong(world: World, **headers: str) -> bytes:
    """Return what a client with a wrong key receives."""
    return _all(await visits(world.worker.gateway).asks({"model": "fast"}, headers=headers))
