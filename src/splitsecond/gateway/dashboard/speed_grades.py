"""The page of speed grades on the dashboard: the one of `splitsecond speed --html`, for the
gateway's own log.

A process of its own reads the log and makes the page, because that takes seconds of CPU for
millions of calls, and needs numpy, which the gateway does not load.

The process reads a `SpeedQuestion` in JSON from standard input, because the log's URL can contain a
password, and writes the page to standard output as a JSON string.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.dashboard.log_process import NICENESS, LogQuestion, line_of_process

DAYS = 14
MIN = 500
"""Days of the log, and responses that a grade needs: those of `splitsecond speed`."""
MAX_ROWS = 200
"""Targets on the page, those with most requests: clients can invent names."""
FRESH_NS = 60 * clock.NS_PER_S
REST = 30


class SpeedQuestion(LogQuestion, frozen=True, kw_only=True):
    prices: dict[str, Price]


class SpeedPages:
    def __init__(self, make: Callable[[SpeedQuestion], Awaitable[bytes]] | None = None) -> None:
        self._make = make or made_by_process
        self._making = asyncio.Lock()
        self._page = b""
        self._fresh_until_ns = 0

    async def page(self, question: Callable[[], Awaitable[SpeedQuestion]]) -> bytes:
        async with self._making:
            begin_ns = clock.now_ns()
            if not self._page or begin_ns >= self._fresh_until_ns:
                self._page = await self._make(await question())
                end_ns = clock.now_ns()
                self._fresh_until_ns = end_ns + max(FRESH_NS, REST * (end_ns - begin_ns))
        return self._page


async def made_by_process(question: SpeedQuestion) -> bytes:
    """Make the page in a process of its own. Raises `CallerFault` if that fails or takes too
    long."""
    line = await line_of_process("splitsecond.gateway.dashboard.speed_grades", question)
    return msgspec.json.decode(line, type=str).encode()


def speed_page(question: SpeedQuestion) -> str:
    from splitsecond.core.wording import full
    from splitsecond.log.production.speed import period_hours, speed_statements
    from splitsecond.log.production.traffic import ProductionTraffic
    from splitsecond.log.report.speed_page import render_speed
    from splitsecond.log.store.log import Past

    until = clock.wall_time()
    since = until - timedelta(days=DAYS)
    past = Past.open(question.url)
    begin = past.first(since) or until
    traffic = ProductionTraffic(
        question.prices.get, "target", period_hours((until - begin).total_seconds())
    )
    for columns, _ in past.attempts(since, until):
        traffic.add(columns)
    every = traffic.speeds(MIN)
    most = sorted(every, key=lambda speed: -speed.requests)[:MAX_ROWS]
    names = {speed.name for speed in most}
    speeds = [speed for speed in every if speed.name in names]
    return render_speed(
        speeds,
        full(speed_statements(speeds, traffic.comparisons(speeds))),
        period=f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC",
        least=MIN,
        by="target",
    )


def main() -> None:
    os.nice(NICENESS)
    question = msgspec.json.decode(sys.stdin.buffer.readline(), type=SpeedQuestion)
    try:
        page = speed_page(question)
    except CallerFault as fault:
        sys.exit(str(fault))
    sys.stdout.buffer.write(msgspec.json.encode(page) + b"\n")
