import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from splitsecond.api.connection import expression_of, resolved_settings
from splitsecond.benchmark.report.live import BatchProgress
from splitsecond.benchmark.rows.throughput import BatchThroughput
from splitsecond.benchmark.runs.batch import MAX_IN_FLIGHT, BatchSession
from splitsecond.benchmark.runs.settings import Server
from splitsecond.gateway.process.reload import ConfigSource
from splitsecond.gateway.process.simulation import bind_simulator, simulator, simulator_url
from splitsecond.routing.router.router import ROUTE
from splitsecond.routing.router.settings import RouterSettings


class BatchRun(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch.

    `result` has the counts (`answered`, `refused`, `left`, …), the tokens, the rates and
    `cost_usd`. `path` has a line for each response, also those of earlier runs; `refused_path` has
    the requests that failed for good, None if there are none.
    """

    result: BatchThroughput
    path: Path
    refused_path: Path | None

    def responses(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the `custom_id` and the body of each response, in the order in which they
        arrived."""
        with self.path.open("rb") as file:
            for line in file:
                response = msgspec.json.decode(line)
                yield response["custom_id"], response["response"]["body"]


async def batch(
    file: str | os.PathLike[str],
    policy: str | Server = "",
    servers: Sequence[Server] = (),
    *,
    config: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    concurrency: int = MAX_IN_FLIGHT,
    max_cost: float | None = None,
    progress: bool = True,
) -> BatchRun:
    """Answer every request of `file`, at the highest concurrency that the targets accept.

    Each line is a request in OpenAI's or Anthropic's batch format. All of them go through `policy`:
    a target, a policy or a `Server`, as for `connect`. With `config`, the configuration of a
    gateway, `policy` is one of its routes or "provider/model"; "" leaves each request with its own
    model. At most `concurrency` requests are in flight.

    Each response is written to `out` at once, by default FILE.answers.jsonl. Requests with a
    response there are not sent again, so the same call continues a batch that was cancelled or has
    reached `max_cost` US dollars. Raises `CallerFault` for a file that cannot be read, an unknown
    model, or a missing key.
    """
    with ExitStack() as processes:
        settings: RouterSettings
        simulated: AbstractAsyncContextManager[None] = nullcontext()
        if isinstance(policy, str) and (config is not None or not policy):
            listening = processes.enter_context(bind_simulator())
            path = None if config is None else Path(config)
            source = ConfigSource(path, os.environ, simulator=simulator_url(listening))
            settings = configured = source.load()
            simulated, model = simulator(listening, configured), policy
        else:
            expression, servers = expression_of(policy, servers)
            settings, model = await resolved_settings(expression, servers, processes), ROUTE
        screen = BatchProgress(Console(stderr=True, quiet=not progress))
        session = BatchSession(
            Path(file),
            settings,
            path=None if out is None else Path(out),
            model=model,
            most=concurrency,
            max_cost=max_cost,
            on_progress=screen.update,
        )
        async with simulated:
            with screen.display(len(session.items)):
                result = await session.run()
    return BatchRun(
        result=result,
        path=session.path,
        refused_path=session.refused_path if result.refused else None,
    )
