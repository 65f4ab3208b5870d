import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Literal

from splitsecond.benchmark.rows.throughput import BatchThroughput, TokenUsage, per_second
from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, file_faults
from splitsecond.core.money.closed_early import Billing, attempt_cost
from splitsecond.core.money.cost import usd
from splitsecond.core.upstream.prompt_size import USUAL_OUTPUT_TOKENS
from splitsecond.core.validation import wrong
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.batch import batch_file
from splitsecond.routing.batch.batch_file import BatchItem, encoded
from splitsecond.routing.batch.concurrency_window import ConcurrencyWindow
from splitsecond.routing.batch.run import Batch, BatchOutcome
from splitsecond.routing.construction.expression import targets
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.routing.router.router import Listeners, Router
from splitsecond.routing.router.settings import RouterSettings

MAX_IN_FLIGHT = 64
LIMIT_IN_FLIGHT = 4096


def _check(router: Router, model: str, items: Sequence[BatchItem]) -> None:
    try:
        router.service(model)
    except CallerFault as fault:
        first = next(item for item in items if item.request.model == model)
        fault.message = f"line {first.line}, {first.custom_id!r}: {fault.message}"
        raise


class BatchSession:
    """The requests of `file` that have no response yet; use it once, in an event loop.

    Responses are appended to `path`, by default FILE.answers.jsonl. Requests that fail for good are
    written to `refused_path`, which is removed if there are none. `model` replaces the model of
    each request, unless it is "". `interrupt` lets the requests in flight end; cancelling the task
    ends these as well, and `run` still returns. `most` is the highest concurrency, `max_cost` in US
    dollars. `on_progress` gets the number of ended requests and a short status.
    """

    def __init__(
        self,
        file: Path,
        settings: RouterSettings,
        *,
        path: Path | None = None,
        model: str = "",
        most: int = MAX_IN_FLIGHT,
        max_cost: float | None = None,
        on_note: Callable[[str], None] = lambda text: None,
        on_progress: Callable[[int, str], None] = lambda ended, status: None,
    ) -> None:
        """Raises `CallerFault` for a file that cannot be read, or a setting that makes no sense."""
        if not 1 <= most <= LIMIT_IN_FLIGHT:
            raise wrong("concurrency", most, f"1 to {LIMIT_IN_FLIGHT:,}")
        if max_cost is not None and not max_cost > 0:
            raise wrong("max_cost", max_cost, "more than 0 US dollars")
        self._settings = settings
        self.path = path or file.with_suffix(".answers.jsonl")
        self.refused_path = self.path.with_suffix(".refused.jsonl")
        items = batch_file.read(file, model)
        answered = batch_file.result_ids(self.path)
        self.items = [item for item in items if item.custom_id not in answered]
        self._earlier = len(items) - len(self.items)
        self._max_cost = max_cost
        self._window = ConcurrencyWindow(most)
        self._tokens = TokenUsage()
        self._answered = self._refused = 0
        self._stopped = ""
        self._batch: Batch | None = None
        self._on_note = on_note
        self._on_progress = on_progress

    async def run(self) -> BatchThroughput:
        """Send the requests. Raises `CallerFault` for an unknown model, and for files that cannot
        be written."""
        items = self.items
        counting = Listeners(sinks=[lambda record: self._count(record, router)])
        router = Router(self._settings, say=self._on_note, listeners=counting)
        with closing(router), file_faults(f"cannot write to {self.path}", kind="unwritable_file"):
            models = dict.fromkeys(item.request.model for item in items)
            for model in models:
                _check(router, model, items)
            await router.learn_prices(
                [name for model in models for name in targets(router.routes.expression(model))]
            )
            await router.warm_start()
            batch_file.remove_partial_line(self.path)
            with _opened(self.path, "ab") as good, _opened(self.refused_path, "wb") as bad:
                self._good, self._bad = good, bad
                batch = Batch(router.service, router.tracker, self._window, self._put)
                throughput = await self._run(batch, items, router.tracker)
        if not throughput.refused:
            self.refused_path.unlink()
        return throughput

    def interrupt(self) -> None:
        self._stopped = self._stopped or "interrupted"
        if self._batch is not None:
            self._batch.stop()

    async def _run(
        self, batch: Batch, items: Sequence[BatchItem], tracker: CallTracker
    ) -> BatchThroughput:
        task = asyncio.current_task()
        self._batch = batch
        if self._stopped:
            batch.stop()
        began_ns, left = clock.now_ns(), len(items)
        try:
            left = await batch.run(items)
        except asyncio.CancelledError:
            if task is None or not self._stopped:
                raise
            task.uncancel()
            left = len(items) - self._answered - self._refused
        took_ns = clock.now_ns() - began_ns
        await batch.wait_for_attempts()
        tracker.flush()
        if batch.stopped is not None:
            self._stopped = str(batch.stopped)
        return self._result(batch, took_ns, left)

    def _result(self, batch: Batch, took_ns: int, left: int) -> BatchThroughput:
        tokens = self._tokens
        priced = tokens.attempts.total() > tokens.unpriced
        return BatchThroughput(
            requests=len(self.items) + self._earlier,
            earlier=self._earlier,
            answered=self._answered,
            refused=self._refused,
            left=left,
            again=batch.retries,
            seconds=took_ns / clock.NS_PER_S,
            widest=self._window.widest,
            cuts=self._window.cuts,
            attempts=dict(tokens.attempts.most_common()),
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            output_tokens_per_s=per_second(tokens.answered, took_ns),
            requests_per_s=per_second(self._answered, took_ns),
            cost_usd=tokens.cost.expected if priced else None,
            low_usd=tokens.cost.low if priced else None,
            high_usd=tokens.cost.high if priced else None,
            estimated=tokens.estimated,
            usd_per_million=tokens.usd_per_million,
            unpriced=tokens.unpriced,
            stopped=self._stopped,
        )

    def _count(self, record: CallRecord, router: Router) -> None:
        for attempt in record.attempts:
            cost = attempt_cost(
                attempt,
                record.attempts,
                Billing(router.directory.cost_usd, router.directory.closing_stops_billing),
                usual_tokens=USUAL_OUTPUT_TOKENS,
                output_limit=record.output_limit,
            )
            self._tokens.add(attempt, cost)
        spent = self._tokens.cost.expected
        if self._max_cost is not None and spent >= self._max_cost and not self._stopped:
            self._stopped = f"it has cost {usd(spent)}, the limit is {usd(self._max_cost)}"
            if self._batch is not None:
                self._batch.stop()

    def _put(self, outcome: BatchOutcome) -> None:
        file = self._good if outcome.ok else self._bad
        file.write(encoded(outcome.result))
        file.flush()
        self._answered += outcome.ok
        self._refused += not outcome.ok
        status = f"{self._window.in_flight} in flight, {usd(self._tokens.cost.expected)}"
        if self._refused:
            status += f", {self._refused:,} refused"
        self._on_progress(self._answered + self._refused, status)


def _opened(path: Path, mode: Literal["ab", "wb"]) -> BinaryIO:
    """Open a file that only its owner can read: it holds responses of models."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))
