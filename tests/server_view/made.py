"""A row of a run and what its server told meanwhile, made by hand: figures can be checked in the
head."""

from collections.abc import Iterable, Mapping, Sequence

from tests.analysis.made import MS, S, asked, closed_loop

from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.server_view import add_server_views
from splitsecond.benchmark.server_view.samples import (
    ServerRecord,
    ServerSample,
    ServerSeries,
    ServerSource,
)
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading

BEGIN_MS = 1000
"""When the first request is sent."""
Points = Mapping[float, Mapping[str, float]]
"""The values of the server by the second, from the first request on."""


def series(points: Points, *, targets: Sequence[str] = ("a/x",)) -> ServerSeries:
    records: list[ServerRecord] = [
        ServerSource(number=0, title="vLLM", url="http://h/metrics", targets=[*targets])
    ]
    records += [
        ServerSample(source=0, at_ns=BEGIN_MS * MS + round(at_s * S), values=dict(values))
        for at_s, values in points.items()
    ]
    return ServerSeries(records)


def row(
    points: Points,
    *,
    concurrency: int = 2,
    seconds: int = 10,
    ttft_ms: float = 500.0,
    usd_per_kwh: float | None = None,
    others: Iterable[Observation] = (),
) -> ConditionFindings:
    """Return the row of a closed loop of `seconds`: each request takes a second and has 11
    tokens."""
    sent = closed_loop(concurrency, seconds, ttft_ms=ttft_ms, gap_ms=(1000 - ttft_ms) / 10)
    reading = InstrumentReading(
        condition="c", begin_ns=BEGIN_MS * MS - MS, end_ns=max(o.end_ns for o in sent)
    )
    (found,) = condition_rows([asked(concurrency)], sent, [reading])
    add_server_views([found], [*sent, *others], [reading], series(points), usd_per_kwh)
    return found
