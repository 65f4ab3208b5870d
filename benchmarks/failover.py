"""Failover of the real gateway, scenario by scenario: `python -m benchmarks.failover` (about four
minutes).

The sixteen scenarios, their times and their rules are those of FailoverBench (methodology 0.1), a
public benchmark of gateways, written here from its description. A provider misbehaves as the
model's name says. The client is OpenAI's own library without retries. Each call has a first target
(the failing model) and a fallback (a healthy model of the same provider). The runs of a
configuration take place at the same time, each with a provider and a gateway process of its own;
within a run the scenarios follow each other. A verdict is one of these:

  - pass: the client got what is ideal, and no rule was broken. Ideal is the whole answer, or the
    provider's refusal of content
  - partial: it got that, but advice was not followed, such as to wait for the first target after a
    429
  - safe: it got a clean error in time
  - fail: it waited too long, a part of an answer looked like a whole one, or a rule was broken

The exit code is 1 unless each run has only passes. With `simplest`, S01 may be partial, which is a
choice.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

import openai
from msgspec import Struct

CONFIGURATIONS = {
    "simplest": 'fallback("{a}", "{b}")',
    "recommended": 'fallback(retry("{a}", times=1, wait="2s"), "{b}", ttft="10s", stall="10s")',
}
RUNS = 10
START_S = 120.0
WORDS = [f"word{number}" for number in range(60)]
TEXT = " ".join(WORDS)
PROMPT = "Say sixty words."
TOKEN_S = 0.015
CUT_AFTER, STALL_AFTER, MALFORMED_AT = 40, 20, 10
SILENT_S, SLOW_S, STALL_S, OUTAGE_S = 120.0, 20.0, 30.0, 60.0
OK, NO_PREFILL = "ok", "ok-noprefill"
SAFE_TO_SAY = "content_policy_violation"
CHOICE = "S01"
Verdict = Literal["pass", "partial", "safe", "fail"]


class Attempt(Struct):
    """A request at the provider: `at` in s since the scenario began. `served`: with an answer."""

    model: str
    at: float
    served: bool = False
    prefill_refused: bool = False


class Outcome(Struct):
    """What the client got: an answer (`text`), an error, or nothing in time (`hung`)."""

    text: str | None
    error: str
    seconds: float
    sent_at: float = 0.0
    model: str = ""
    usage: bool = False
    hung: bool = False

    @property
    def whole(self) -> bool:
        return self.text is not None and self.text.split() == WORDS


class Seen(Struct):
    """A scenario as both sides saw it. `alive`: a healthy call after it succeeded."""

    outcomes: list[Outcome]
    first: list[Attempt]
    fallback: list[Attempt]
    alive: bool

    @property
    def last(self) -> Outcome:
        return self.outcomes[-1]


Check = Callable[[Seen], bool]


class Scenario(Struct, kw_only=True):
    """A failure: what must hold (`rules`), what should (`advice`), and within how many seconds the
    call must end."""

    id: str
    title: str
    within_s: float
    rules: Sequence[Check] = ()
    advice: Sequence[Check] = ()
    fallback: str = OK
    refused: bool = False
    """Whether the provider's refusal is what the client should get."""
    calls: int = 1
    every_s: float = 0.0


def _at_most(attempts: int, within_s: float = float("inf")) -> Check:
    return lambda seen: (
        sum(each.at - seen.first[0].at < within_s for each in seen.first) <= attempts
    )


def _took(most_s: float) -> Check:
    return lambda seen: seen.last.seconds <= most_s


def _same_target(seen: Seen) -> bool:
    return len(seen.first) >= 2


def _waited(seen: Seen) -> bool:
    return len(seen.first) >= 2 and seen.first[1].at - seen.first[0].at >= 1.8


def _alive(seen: Seen) -> bool:
    return seen.alive


def _whole(seen: Seen) -> bool:
    return seen.last.whole


def _usage(seen: Seen) -> bool:
    return seen.last.usage


def _prefill_hidden(seen: Seen) -> bool:
    return seen.last.text is not None or not any(each.prefill_refused for each in seen.fallback)


def _served_during_outage(seen: Seen) -> bool:
    return all(each.whole for each in seen.outcomes if each.sent_at < OUTAGE_S)


def _recovered(seen: Seen) -> bool:
    return (
        min((each.at for each in seen.first if each.served), default=float("inf")) <= OUTAGE_S + 30
    )


def _names_fallback(seen: Seen) -> bool:
    return not seen.fallback or OK in seen.last.model


SCENARIOS = [
    Scenario(
        id="S01",
        title="429 with Retry-After: 2, once",
        within_s=20,
        rules=[_at_most(2, 1.5)],
        advice=[_same_target, _waited],
    ),
    Scenario(
        id="S02",
        title="429 without Retry-After, always",
        within_s=40,
        rules=[_at_most(4, 3.0), _at_most(6)],
    ),
    Scenario(id="S03", title="500 once", within_s=20, advice=[_same_target]),
    Scenario(id="S04", title="503 always", within_s=40, rules=[_at_most(6)]),
    Scenario(id="S05", title="connection reset before the headers, once", within_s=20),
    Scenario(
        id="S06",
        title="no response for 120 s",
        within_s=130,
        rules=[_took(100)],
        advice=[_at_most(1)],
    ),
    Scenario(id="S07", title="first token after 20 s", within_s=60, advice=[_took(15)]),
    Scenario(id="S08", title="stream cut after 40 of 60 tokens", within_s=40),
    Scenario(
        id="S09",
        title="30 s of silence after 20 tokens, then cut",
        within_s=70,
        rules=[_took(45), _alive],
    ),
    Scenario(id="S10", title="malformed event", within_s=30, rules=[_alive], advice=[_whole]),
    Scenario(
        id="S11", title="the end mark is missing", within_s=30, rules=[_took(8)], advice=[_usage]
    ),
    Scenario(id="S12", title="prompt too long (400)", within_s=20, rules=[_at_most(1)]),
    Scenario(
        id="S13", title="content refused (400)", within_s=20, rules=[_at_most(1)], refused=True
    ),
    Scenario(
        id="S14",
        title="stream cut, and the fallback refuses a prefilled answer",
        within_s=40,
        rules=[_prefill_hidden],
        fallback=NO_PREFILL,
    ),
    Scenario(
        id="S15",
        title="503 for 60 s, then healthy; a call every 4 s",
        within_s=30,
        rules=[_served_during_outage, _recovered],
        calls=20,
        every_s=4,
    ),
    Scenario(
        id="S16",
        title="503 always: whose model and usage the client sees",
        within_s=40,
        rules=[_names_fallback, _at_most(6)],
        advice=[_usage],
    ),
]


def verdict(scenario: Scenario, seen: Seen) -> Verdict:
    """Judge a scenario."""
    if any(each.hung or (each.text is not None and not each.whole) for each in seen.outcomes):
        return "fail"
    if not all(rule(seen) for rule in scenario.rules):
        return "fail"
    answered = all(each.text is not None for each in seen.outcomes)
    if scenario.refused:
        return "partial" if answered else "pass" if SAFE_TO_SAY in seen.last.error else "safe"
    if not answered:
        return "safe"
    return "pass" if all(advice(seen) for advice in scenario.advice) else "partial"


class Provider:
    """A provider that misbehaves as the model's name says."""

    def __init__(self) -> None:
        self.attempts: dict[str, list[Attempt]] = {}
        self._began = time.monotonic()
        self.begin()

    def begin(self) -> None:
        """A scenario begins."""
        self.attempts = defaultdict(list)
        self._began = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    line
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                )
                await self._answer(
                    json.loads(await reader.readexactly(int(size.split(b":")[1]))), writer
                )
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # cancelled: the last run has ended
        finally:
            writer.close()

    async def _answer(self, body: dict[str, object], writer: asyncio.StreamWriter) -> None:
        model = str(body["model"])
        attempt = Attempt(model, self.elapsed())
        self.attempts[model].append(attempt)
        once = len(self.attempts[model]) == 1
        messages = body["messages"]
        assert isinstance(messages, list)
        continues = messages[-1]["role"] == "assistant"
        if model == NO_PREFILL and continues:
            attempt.prefill_refused = True
            _refuse(writer, 400, "invalid_prefill")
        elif model == "S01" and once:
            _refuse(writer, 429, "rate_limit_exceeded", "retry-after: 2\r\n")
        elif model == "S02":
            _refuse(writer, 429, "rate_limit_exceeded")
        elif model == "S03" and once:
            _refuse(writer, 500, "server_error")
        elif model in ("S04", "S16") or (model == "S15" and self.elapsed() < OUTAGE_S):
            _refuse(writer, 503, "overloaded")
        elif model == "S05" and once:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise ConnectionError
        elif model == "S06":
            await asyncio.sleep(SILENT_S)
            raise ConnectionError
        elif model == "S12":
            _refuse(writer, 400, "context_length_exceeded")
        elif model == "S13":
            _refuse(writer, 400, SAFE_TO_SAY)
        else:
            attempt.served = True
            said = str(messages[-1]["content"]).split() if continues else []
            words = WORDS[len(said) :] if WORDS[: len(said)] == said else WORDS
            await (_stream if body.get("stream") else _whole_answer)(writer, model, words)
        await writer.drain()


def _refuse(writer: asyncio.StreamWriter, status: int, code: str, header: str = "") -> None:
    text = json.dumps(
        {"error": {"message": f"refused: {code}", "type": "error", "param": None, "code": code}}
    )
    head = (
        f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\n{header}content-length: "
        f"{len(text)}\r\n\r\n"
    )
    writer.write((head + text).encode())


def _usage_of(words: Sequence[str]) -> dict[str, int]:
    return {"prompt_tokens": 7, "completion_tokens": len(words), "total_tokens": 7 + len(words)}


async def _whole_answer(writer: asyncio.StreamWriter, model: str, words: Sequence[str]) -> None:
    message = {"role": "assistant", "content": " ".join(words)}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    text = json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": model,
    "choices": choices}
                      | {"usage": _usage_of(words)})  # fmt: skip
    writer.write(
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
        f"{len(text)}\r\n\r\n{text}".encode()
    )


async def _stream(writer: asyncio.StreamWriter, model: str, words: Sequence[str]) -> None:
    def send(data: str) -> None:
        event = f"data: {data}\n\n"
        writer.write(f"{len(event):x}\r\n{event}\r\n".encode())

    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return json.dumps({"id": "x", "object": "chat.completion.chunk", "created": 1,
        "model": model}
                          | {"choices": choices})  # fmt: skip

    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    if model == "S07":
        await asyncio.sleep(SLOW_S)
    send(chunk({"role": "assistant", "content": ""}))
    for number, word in enumerate(words):
        if model in ("S08", "S14") and number == CUT_AFTER:
            raise ConnectionError
        if model == "S09" and number == STALL_AFTER:
            await asyncio.sleep(STALL_S)
            raise ConnectionError
        if model == "S10" and number == MALFORMED_AT:
            send(
                '{"id": "x", "object": "chat.completion.chunk", "choices": [{"delta": {"content": '
            )
        send(chunk({"content": word if number == 0 and len(words) == len(WORDS) else f" {word}"}))
        await writer.drain()
        await asyncio.sleep(TOKEN_S)
    send(chunk({}, "stop"))
    send(json.dumps(json.loads(chunk({})) | {"choices": [], "usage": _usage_of(words)}))
    if model != "S11":
        send("[DONE]")
    writer.write(b"0\r\n\r\n")


async def _call(
    client: openai.AsyncOpenAI, model: str, *, stream: bool, within_s: float
) -> Outcome:
    """Call as a careful client does."""
    began = time.monotonic()
    outcome = Outcome(None, "", 0.0)
    try:
        async with asyncio.timeout(within_s):
            if stream:
                parts: list[str] = []
                async with await client.chat.completions.create(
                    model=model,
                    messages=[{"role": "user", "content": PROMPT}],
                    stream=True,
                    stream_options={"include_usage": True},
                ) as chunks:
                    async for each in chunks:
                        outcome.model = each.model or outcome.model
                        outcome.usage = outcome.usage or each.usage is not None
                        parts += [choice.delta.content or "" for choice in each.choices]
                outcome.text = "".join(parts)
            else:
                answer = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": PROMPT}]
                )
                outcome.text = answer.choices[0].message.content or ""
    except TimeoutError:
        outcome.hung = True
    except openai.OpenAIError as error:
        outcome.error = repr(error)
    outcome.seconds = time.monotonic() - began
    return outcome


class Row(Struct):
    """A scenario of one run."""

    id: str
    verdict: Verdict
    seconds: float
    attempts: tuple[int, int]
    error: str


async def _play(scenario: Scenario, provider: Provider, client: openai.AsyncOpenAI) -> Row:
    provider.begin()
    outcomes = []
    for number in range(scenario.calls):
        await asyncio.sleep(max(0.0, number * scenario.every_s - provider.elapsed()))
        sent_at = provider.elapsed()
        outcome = await _call(client, scenario.id, stream=True, within_s=scenario.within_s)
        outcome.sent_at = sent_at
        outcomes.append(outcome)
    first, other = list(provider.attempts[scenario.id]), list(provider.attempts[scenario.fallback])
    probe = await _call(client, f"provider/{OK}", stream=False, within_s=10)
    seen = Seen(outcomes, first, other, alive=probe.whole)
    return Row(
        scenario.id,
        verdict(scenario, seen),
        max(each.seconds for each in outcomes),
        (len(first), len(other)),
        next((each.error for each in outcomes if each.error), ""),
    )


async def _run(policy: str, folder: Path, only: Sequence[Scenario]) -> list[Row]:
    """Play all scenarios in front of one gateway."""
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    routes = {
        each.id: {"policy": policy.format(a=f"provider/{each.id}", b=f"provider/{each.fallback}")}
        for each in only
    }
    settings = {
        "listen": {"host": "127.0.0.1", "port": 0},
        "providers": {
            "provider": {"base_url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"}
        },
        "routes": routes,
        "log": f"sqlite:///{folder}/log.db",
    }
    (folder / "splitsecond.yaml").write_text(json.dumps(settings))  # JSON is YAML
    command = [sys.executable, "-m", "splitsecond", "serve", str(folder / "splitsecond.yaml")]
    with (folder / "errors").open("wb") as errors:
        gateway = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=errors, env=os.environ
        )
    try:
        assert gateway.stdout is not None
        ready = (await asyncio.wait_for(gateway.stdout.readline(), START_S)).decode()
        if not ready.startswith("READY "):
            raise SystemExit(
                f"the gateway did not start: {(folder / 'errors').read_text('utf-8', 'replace')}"
            )
        async with openai.AsyncOpenAI(
            base_url=ready.split()[1], api_key="none", max_retries=0, timeout=600
        ) as client:
            return [await _play(each, provider, client) for each in only]
    finally:
        gateway.terminate()
        await gateway.wait()
        server.close()


async def _runs(policy: str, runs: int, only: Sequence[Scenario]) -> list[list[Row]]:
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(number) for number in range(runs)]
        for folder in folders:
            folder.mkdir()
        plays: list[Awaitable[list[Row]]] = [_run(policy, folder, only) for folder in folders]
        return list(await asyncio.gather(*plays))


def _table(found: dict[str, list[list[Row]]], only: Sequence[Scenario]) -> None:
    """Print the verdicts, with the longest call (median of the runs) and the requests at both
    targets."""
    print("| | " + " | ".join(found) + " |")
    print("|---|" + "---|" * len(found))
    for number, scenario in enumerate(only):
        cells = []
        for runs in found.values():
            rows = [rows[number] for rows in runs]
            verdicts = Counter(row.verdict for row in rows).most_common()
            words = ", ".join(
                name if count == len(rows) else f"{count} {name}" for name, count in verdicts
            )
            attempts = ", ".join(f"{a}+{b}" for a, b in sorted({row.attempts for row in rows}))
            cells.append(
                f"{words}; {statistics.median(row.seconds for row in rows):.1f} s; {attempts}"
            )
        print(f"| {scenario.id} {scenario.title} | " + " | ".join(cells) + " |")
    for name, runs in found.items():
        counts = sorted(sum(row.verdict == "pass" for row in rows) for rows in runs)
        print(f"{name}: {CONFIGURATIONS[name]}: {counts} of {len(only)} passed, by run")


def _as_claimed(found: dict[str, list[list[Row]]]) -> bool:
    return all(
        row.verdict == "pass" or (name, row.id, row.verdict) == ("simplest", CHOICE, "partial")
        for name, runs in found.items()
        for rows in runs
        for row in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"runs of each configuration (default {RUNS})"
    )
    parser.add_argument(
        "--only", default="", help="scenarios to play, such as S01,S15 (default all)"
    )
    parser.add_argument(
        "--policies", default=",".join(CONFIGURATIONS), help="configurations to try"
    )
    options = parser.parse_args(arguments)
    only = [each for each in SCENARIOS if not options.only or each.id in options.only.split(",")]
    found: dict[str, list[list[Row]]] = {}
    for name in options.policies.split(","):
        found[name] = asyncio.run(_runs(CONFIGURATIONS[name], options.runs, only))
        for rows in found[name]:
            for row in rows:
                if row.verdict != "pass" and row.error:
                    print(f"{name} {row.id}: {row.verdict}: {row.error[:300]}", file=sys.stderr)
    _table(found, only)
    return 0 if _as_claimed(found) else 1


if __name__ == "__main__":
    sys.exit(main())
