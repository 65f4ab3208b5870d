"""Accounts of the soak test: what the gateway counts, what its processes hold, and what its log
has."""

import contextlib
import os
import re
import sqlite3
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.soak_clients import ClientTotals

HONEST = "client in ('soak', 'metered')"
SENT = (
    "select id, call, outcome, resent from attempts where sent_ns is not null and target not "
    "like 'hostile/%'"
)
"""Of all clients, what they sent to providers that keep the ids of requests. A request that is lost
on an idle connection before any response is resent, as the same attempt."""
_SAMPLE = re.compile(r"^splitsecond_(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class GatewayCounts(Struct, frozen=True):
    """What the gateway counts. `calls`: by client. `charged`: US dollars by client and target.

    `dropped`: calls that the log has lost. `unlisted`: calls that the journal of calls in flight
    has not taken.
    """

    calls: Counter[str]
    charged: dict[tuple[str, str], float]
    in_flight: float
    dropped: int
    unlisted: int
    errors: int


def gateway_counts(text: str) -> GatewayCounts:
    """Read the counts from the text of `/metrics`."""
    samples = [
        (name, dict(_LABEL.findall(labels)), float(value))
        for name, labels, value in _SAMPLE.findall(text)
    ]
    calls: Counter[str] = Counter()
    charged = {}
    for name, labels, value in samples:
        # without a route it was refused before it became a call
        if name == "requests_total" and labels["route"]:
            calls[labels["client"]] += int(value)
        if name == "cost_usd_total":
            charged[labels["client"], labels["target"]] = value
    sums: Counter[str] = Counter()
    for name, _, value in samples:
        sums[name] += value  # type: ignore[assignment]  # a counter of floats
    return GatewayCounts(
        calls,
        charged,
        in_flight=sums["requests_in_flight"],
        dropped=int(sums["log_dropped_total"]),
        unlisted=int(sums["journal_missing_total"]),
        errors=int(sums["internal_errors_total"]),
    )


def account_faults(
    database: sqlite3.Connection,
    received: Iterable[str],
    totals: ClientTotals,
    counts: GatewayCounts,
) -> Iterator[str]:
    """Return the differences between the records of the clients, the gateway, the log and the
    providers.

    `received`: the ids of the requests that the providers received.
    """
    logged = Counter(dict(database.execute("select client, count(*) from calls group by client")))
    calls = [call for (call,) in database.execute(f"select call from calls where {HONEST}")]
    sent = {
        identity: (call, outcome, resent)
        for identity, call, outcome, resent in database.execute(SENT)
    }
    rows, apart = database.execute(
        f"select count(*), count(distinct id) from attempts where {HONEST}"
    ).fetchone()
    (of_calls,) = database.execute(f"select sum(attempts) from calls where {HONEST}").fetchone()
    seen = Counter(received)
    times = {identity: 1 + resent for identity, (_, _, resent) in sent.items()}
    unseen = Counter(outcome for identity, (_, outcome, _) in sent.items() if identity not in seen)
    lost = totals.calls - len(calls)
    print(
        f"Calls: {totals.calls:,} sent, {len(calls):,} in the log, {lost:,} lost; in "
        f"{totals.left_early:,} the client "
        f"left before the response, with {rows:,} attempts. Of all clients, {len(sent):,} "
        f"attempts were sent, "
        f"{sum(times.values()) - len(sent):,} resent; providers received {seen.total():,}. "
        f"Sent but not received: {dict(unseen)}."
    )
    print(
        f"Of all clients: {counts.calls.total():,} calls, {logged.total():,} in the log, "
        f"{counts.dropped:,} counted as "
        f"lost. Not in the journal: {counts.unlisted:,} calls."
    )
    if len(set(calls)) != len(calls):
        yield "calls are in the log twice"
    if counts.calls.total() - logged.total() != counts.dropped:
        gaps = {
            client: number - logged[client]
            for client, number in counts.calls.items()
            if number != logged[client]
        }
        yield f"{gaps} calls are not in the log, {counts.dropped} are counted as lost"
    if not 0 <= lost <= counts.dropped:
        yield f"{totals.calls} calls were sent, {len(calls)} are in the log"
    if len(missing := set(totals.ids) - set(calls)) > max(lost, 0):
        yield f"{len(missing)} calls with a response are not in the log"
    if apart != rows or of_calls != rows:
        yield (
            f"{rows} attempts in the log, {apart} different ones, "
            f"{of_calls} according to their calls"
        )
    strange = [identity for identity, count in seen.items() if count > times.get(identity, 0)]
    known = {call for (call,) in database.execute("select call from calls")}
    if of_known := [identity for identity in strange if _call(identity) in known]:
        yield f"for {len(of_known)} attempts the providers received more requests than the log has"
    if len({_call(identity) for identity in strange} - known) > counts.dropped:
        yield f"providers received {len(strange)} requests that the log does not have"
    if set(unseen) - {"cancelled"}:
        yield f"attempts that were not cancelled, but no provider received: {dict(unseen)}"


def _call(identity: str) -> str:
    """Return the call of an attempt."""
    return identity.rpartition("-")[0]


def received_by(truth: Path) -> list[str]:
    """Return the ids of the requests that the simulated providers received."""
    return [msgspec.json.decode(line)["request_id"] for line in truth.read_bytes().splitlines()]


def growth_mb(samples: Sequence[float]) -> float:
    """Return how much memory grew, by a regression line."""
    if len(samples) < 2:
        return 0.0
    return statistics.linear_regression(range(len(samples)), samples).slope * len(samples)


def family(pid: int) -> list[int]:
    """Return the process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def is_worker(pid: int) -> bool:
    """Return whether the process is a worker of a gateway."""
    return "splitsecond.gateway" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def connections(pid: int, ports: set[int]) -> int:
    """Return how many sockets of a process are connected to one of these ports, in any state."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(entry))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(
        int(line[2].partition(":")[2], 16) in ports and f"socket:[{line[9]}]" in sockets
        for line in lines
    )


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
