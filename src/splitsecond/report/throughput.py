"""What a batch came to, in a few lines."""

from collections.abc import Iterator

from splitsecond.analysis.cost import usd
from splitsecond.analysis.throughput import Throughput
from splitsecond.analysis.wording import counted_as
from splitsecond.report.rows import number, printable


def throughput_lines(found: Throughput) -> Iterator[tuple[str, str]]:
    """Each line, and how it looks."""
    done = f"{found.answered:,} of {counted_as(found.requests, 'request', 'requests')} answered"
    earlier = f", {found.earlier:,} had been before" if found.earlier else ""
    yield f"{done} in {number(found.seconds)} s{earlier}.", "bold"
    if found.answered:
        yield (
            f"{number(found.requests_per_s)} requests/s, {number(found.output_tokens_per_s)} output tokens/s, "
            f"up to {found.widest} at once.",
            "",
        )
        if found.cost_usd is not None:
            rate = f", {usd(found.usd_per_million)} a million tokens" if found.usd_per_million is not None else ""
            yield f"It cost {usd(found.cost_usd)}{rate}.", ""
        if found.unpriced:
            yield f"{counted_as(found.unpriced, 'attempt has', 'attempts have')} no known cost.", "dim"
    if len(found.attempts) > 1:
        yield f"Asked: {', '.join(f'{printable(name)} {count:,}' for name, count in found.attempts.items())}.", "dim"
    if found.cuts or found.again:
        again = f", {counted_as(found.again, 'request was', 'requests were')} asked again" if found.again else ""
        yield f"Targets asked for less {counted_as(found.cuts, 'time', 'times')}{again}.", "dim"
    if found.refused:
        yield f"{counted_as(found.refused, 'request was', 'requests were')} refused for good.", "red"
    if found.left:
        why = f": {printable(found.stopped).rstrip('.')}" if found.stopped else ""
        yield f"{found.left:,} not asked{why}. The same command goes on from here.", "yellow"
