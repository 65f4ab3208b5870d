"""Sessions of the log on the dashboard: a list, and what the client of one waited for.

The usual times of targets are fitted in a process of its own, because that needs numpy, which the
gateway does not load. It reads a `LogQuestion` in JSON from standard input and writes the times as
JSON to standard output.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.dashboard.log_process import NICENESS, LogQuestion, line_of_process
from splitsecond.log.production.sessions import (
    CAUSES,
    SCHEMA,
    Pricing,
    ReportedTurn,
    TargetTimes,
    looped,
    moved,
    reported,
    sentence,
    summarised,
)
from splitsecond.log.store.log import Past

DAYS = 7
MAX_SESSIONS = 50
MAX_TURNS = 300
"""The latest turns of a session that the page draws."""
FRESH_NS = 5 * clock.NS_PER_S
TIMES_NS = 600 * clock.NS_PER_S
MODULE = "splitsecond.gateway.dashboard.sessions"
_times = msgspec.json.Decoder(dict[str, TargetTimes]).decode


class SessionPages:
    """`times`: returns the usual times of targets, as a JSON object in bytes."""

    def __init__(self, times: Callable[[LogQuestion], Awaitable[bytes]] | None = None) -> None:
        self._read_times = times or _fitted_by_process
        self._reading = asyncio.Lock()
        self._listed: tuple[int, bytes] = 0, b""
        self._times: dict[str, TargetTimes] = {}
        self._times_until_ns = 0

    async def data(self, past: Past, url: str, price: Pricing, session: str) -> bytes | None:
        """Return the sessions, or one with its turns, as JSON; None if the log does not have it.

        Raises `CallerFault` if the log cannot be read.
        """
        async with self._reading:
            now_ns, until = clock.now_ns(), clock.wall_time()
            since = until - timedelta(days=DAYS)
            if not session:
                if not self._listed[1] or now_ns - self._listed[0] >= FRESH_NS:
                    sessions = await asyncio.to_thread(past.sessions, since, until)
                    rows = [summarised(each, price) for each in sessions[:MAX_SESSIONS]]
                    self._listed = (
                        now_ns,
                        msgspec.json.encode({"schema": SCHEMA, "days": DAYS, "sessions": rows}),
                    )
                return self._listed[1]
            calls = await asyncio.to_thread(lambda: list(past.calls(since, until, session=session)))
            if not calls:
                return None
            if now_ns >= self._times_until_ns:
                self._times = _times(await self._read_times(LogQuestion(url=url)))
                self._times_until_ns = now_ns + TIMES_NS
            report = reported(calls, price, self._times)
        words = sentence(report)
        turns = [_shown(turn) for turn in report.turns[-MAX_TURNS:]]
        whole = msgspec.to_builtins(report) | {"turns": turns, "of_turns": len(report.turns)}
        return msgspec.json.encode({"session": whole, "statement": words, "causes": CAUSES})


def _shown(turn: ReportedTurn) -> dict[str, object]:
    return {**msgspec.to_builtins(turn), "moved": moved(turn), "looped": looped(turn)}


async def _fitted_by_process(question: LogQuestion) -> bytes:
    return await line_of_process(MODULE, question)


def main() -> None:
    from splitsecond.log.production.target_times import target_times

    os.nice(NICENESS)
    question = msgspec.json.decode(sys.stdin.buffer.readline(), type=LogQuestion)
    until = clock.wall_time()
    try:
        past = Past.open(question.url)
        times = target_times(
            columns for columns, _ in past.attempts(until - timedelta(days=DAYS), until)
        )
    except CallerFault as fault:
        sys.exit(str(fault))
    sys.stdout.buffer.write(msgspec.json.encode(times) + b"\n")
