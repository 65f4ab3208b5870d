"""A batch under way: the gateway's parts put together without its front door, the files, the progress, the stop.

The first Ctrl-C sends nothing more and waits for what is under way; a second breaks that off.
"""

import asyncio
import signal
from collections.abc import Sequence
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from splitsecond import clock
from splitsecond.analysis.cost import usd
from splitsecond.analysis.throughput import Throughput, Tokens, per_second
from splitsecond.errors import CallerFault
from splitsecond.gateway.batch.lines import Item, encoded
from splitsecond.gateway.batch.pace import Window
from splitsecond.gateway.batch.run import Batch, Outcome
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.gateway.facts import TargetFacts
from splitsecond.gateway.process.reload import say
from splitsecond.gateway.records.books import Books
from splitsecond.gateway.records.history import opened
from splitsecond.gateway.routes import Routes
from splitsecond.policy.targets.standing import Standing
from splitsecond.timing.observation import Observation
from splitsecond.transport.client import Client


def _check(routes: Routes, model: str, items: Sequence[Item]) -> None:
    """Raises `CallerFault` where `model` is none, with the first of `items` that names it."""
    try:
        routes.service(model, None)
    except CallerFault as fault:
        first = next(item for item in items if item.asked.model == model)
        fault.message = f"line {first.line}, {first.custom_id!r}: {fault.message}"
        raise


class Session:
    """Use it once, within an event loop. `good` and `bad` take the lines of answers and of refusals."""

    def __init__(self, settings: Settings, good: BinaryIO, bad: BinaryIO, *, most: int, max_cost: float | None) -> None:
        self._settings = settings
        self._good, self._bad = good, bad
        self._max_cost = max_cost
        self._window = Window(most)
        self._facts = TargetFacts(settings)
        self._tokens = Tokens()
        self._answered = self._refused = 0
        self._stopped = ""
        self._batch: Batch | None = None
        screen = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        )

    async def run(self, items: Sequence[Item], *, earlier: int) -> Throughput:
        """Answers `items`. Raises `CallerFault` where a model that they name is none."""
        standing = Standing(self._facts.facts)
        log = opened(self._settings.log, say)
        client = Client()
        books = Books(*([log.put] if log is not None else []))

        def observe(attempt: Observation) -> None:
            standing.observe(attempt)
            books.observe(attempt)
            self._count(attempt)

        routes = Routes(self._settings, observe, client, standing)
        try:
            models = dict.fromkeys(item.asked.model for item in items)
            for model in models:
                _check(routes, model, items)
            await asyncio.to_thread(self._learn, [name for model in models for name in routes.asked_for(model)])
            standing.renew(self._facts.facts)
            return await self._run(
                Batch(lambda model: routes.service(model, None), books, self._window, self._put), items, earlier
            )
        finally:
            client.close()
            books.flush()
            if log is not None:
                log.close()

    async def _run(self, batch: Batch, items: Sequence[Item], earlier: int) -> Throughput:
        self._batch = batch
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def interrupted() -> None:
            if self._stopped and task is not None:
                task.cancel()
            self._stopped = self._stopped or "interrupted"
            batch.stop()

        loop.add_signal_handler(signal.SIGINT, interrupted)
        began_ns, left = clock.now_ns(), len(items)
        try:
            with self._progress:
                self._bar = self._progress.add_task("", total=len(items))
                left = await batch.run(items)
        except asyncio.CancelledError:
            if task is None or not self._stopped:
                raise
            task.uncancel()
            left = len(items) - self._answered - self._refused
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        took_ns = clock.now_ns() - began_ns
        await batch.accounted()
        if batch.stopped is not None:
            self._stopped = str(batch.stopped)
        return self._came_to(batch, took_ns, earlier=earlier, left=left, asked=len(items))

    def _came_to(self, batch: Batch, took_ns: int, *, earlier: int, left: int, asked: int) -> Throughput:
        tokens = self._tokens
        priced = tokens.attempts.total() > tokens.unpriced
        return Throughput(
            requests=asked + earlier,
            earlier=earlier,
            answered=self._answered,
            refused=self._refused,
            left=left,
            again=batch.asked_again,
            seconds=took_ns / clock.NS_PER_S,
            widest=self._window.widest,
            cuts=self._window.cuts,
            attempts=dict(tokens.attempts.most_common()),
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            output_tokens_per_s=per_second(tokens.output, took_ns),
            requests_per_s=per_second(self._answered, took_ns),
            cost_usd=tokens.usd if priced else None,
            usd_per_million=tokens.usd_per_million,
            unpriced=tokens.unpriced,
            stopped=self._stopped,
        )

    def _learn(self, targets: Sequence[str]) -> None:
        try:
            self._facts.learn(self._facts.look_up(targets))
        except CallerFault as fault:
            say(f"{fault} What has no price in the configuration counts as free.")

    def _count(self, attempt: Observation) -> None:
        self._tokens.add(attempt, self._facts.cost_usd(attempt))
        if self._max_cost is not None and self._tokens.usd >= self._max_cost and not self._stopped:
            self._stopped = f"it has cost {usd(self._tokens.usd)}, allowed were {usd(self._max_cost)}"
            if self._batch is not None:
                self._batch.stop()

    def _put(self, outcome: Outcome) -> None:
        file = self._good if outcome.ok else self._bad
        file.write(encoded(outcome.answer))
        file.flush()
        self._answered += outcome.ok
        self._refused += not outcome.ok
        said = f"{self._window.in_flight} at once, {usd(self._tokens.usd)}"
        if self._refused:
            said += f", {self._refused} refused"
        self._progress.update(self._bar, advance=1, description=said)
