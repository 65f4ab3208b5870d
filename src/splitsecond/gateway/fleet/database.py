"""Exchanges of a gateway with the database of its fleet: five round trips, about once a second.

The first advances fleet time. The second locks the limits that are reported, always in the order of
their names, so that gateways wait for each other and never deadlock. The database keeps no locks
for a gateway that stops in between: it ends the session.

An exchange that takes longer than `LONGEST_ANSWER_S` is cut off. It may still be committed; the
limits allow for that.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import PARSER_ERRORS, parser_words
from splitsecond.gateway.fleet.holder import LONGEST_ANSWER_S
from splitsecond.gateway.fleet.learned import MAX_BYTES
from splitsecond.gateway.fleet.shared_limit import (
    FORGET_S,
    LONGEST_STEP_S,
    SILENT_S,
    Lease,
    Moment,
    Period,
    Present,
    Report,
    SharedLimit,
    decode,
    encode,
    leave,
    renew,
)
from splitsecond.gateway.fleet.turns import LEASE_S
from splitsecond.gateway.records.fleet_ceilings import NANO
from splitsecond.gateway.records.session_budgets import SESSIONS, SessionUse
from splitsecond.gateway.records.shared_counters import nano

CONNECT_S = 3
MAX_REPORTS = 200
"""Reports of other gateways that are read, the latest first."""
SHORT_S = 3.0
"""If a gateway gets less of a limit than it wants, how long the others are asked to report about
it."""
KEEP_SESSIONS_S = 7 * 86_400.0
"""Time for which the use of a session is remembered after its last call."""
OVERLAP_S = 5.0
"""Use that was written so long before the last look is read again: its transaction may not have
ended by then."""
_LOCK = 0x5EC0_0F1E
"""The advisory lock while tables are created: any number that other programs are unlikely to
use."""
_TABLES = """
CREATE TABLE IF NOT EXISTS splitsecond_clock
    (one boolean PRIMARY KEY, wall_s double precision NOT NULL, fleet_s double precision NOT NULL);
INSERT INTO splitsecond_clock VALUES (true, 0, 0) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS splitsecond_gateways
    (name text PRIMARY KEY, instance text NOT NULL, wall_s double precision NOT NULL,
     fleet_s double precision NOT NULL, about text NOT NULL);
CREATE TABLE IF NOT EXISTS splitsecond_limits
    (name text PRIMARY KEY, holdings text NOT NULL, short_s double precision NOT NULL DEFAULT 0)
    WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS splitsecond_learned
    (gateway text PRIMARY KEY, wall_s double precision NOT NULL, fleet_s double precision NOT NULL,
     learned text NOT NULL);
CREATE TABLE IF NOT EXISTS splitsecond_turns
    (target text PRIMARY KEY, holder text NOT NULL, until_s double precision NOT NULL);
CREATE TABLE IF NOT EXISTS splitsecond_sessions
    (session bigint NOT NULL, instance text NOT NULL,
     spent bigint NOT NULL, reserved bigint NOT NULL, turns bigint NOT NULL,
     allowed bigint NOT NULL, fleet_s double precision NOT NULL,
     PRIMARY KEY (session, instance));
CREATE INDEX IF NOT EXISTS splitsecond_sessions_by_time ON splitsecond_sessions (fleet_s);
CREATE INDEX IF NOT EXISTS splitsecond_sessions_in_flight
    ON splitsecond_sessions (session) WHERE reserved > 0;
"""
_SESSION = (
    f"SET statement_timeout = {CONNECT_S}000; SET idle_in_transaction_session_timeout = "
    f"{CONNECT_S}000"
)
_NOW = "extract(epoch FROM clock_timestamp())::double precision"
_TICK = f"""
UPDATE splitsecond_clock
SET fleet_s = fleet_s + least(greatest({_NOW} - wall_s, 0), {LONGEST_STEP_S}), wall_s = {_NOW}
RETURNING wall_s, fleet_s
"""
_LOCKED = (
    "SELECT name, holdings FROM splitsecond_limits WHERE name = ANY(%s) ORDER BY name FOR UPDATE"
)
_FLEET = (
    "SELECT name, instance, wall_s, fleet_s, about FROM splitsecond_gateways WHERE fleet_s > %s"
)
_SHORT = "SELECT name FROM splitsecond_limits WHERE short_s > %s"
_WRITE = """
UPDATE splitsecond_limits AS l SET holdings = n.holdings,
  short_s = CASE WHEN n.short THEN %s ELSE l.short_s END
FROM unnest(%s::text[], %s::text[], %s::boolean[]) AS n(name, holdings, short) WHERE l.name = n.name
"""
_SEEN = """
INSERT INTO splitsecond_gateways VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET instance = excluded.instance, wall_s = excluded.wall_s,
    fleet_s = excluded.fleet_s, about = excluded.about
"""


_REPORT = f"""
INSERT INTO splitsecond_learned SELECT %s, {_NOW}, fleet_s, %s FROM splitsecond_clock
ON CONFLICT (gateway) DO UPDATE
SET wall_s = excluded.wall_s, fleet_s = excluded.fleet_s, learned = excluded.learned
"""
_REPORTS = f"""
SELECT l.gateway, greatest({_NOW} - l.wall_s, c.fleet_s - l.fleet_s, 0), l.learned
FROM splitsecond_learned l, splitsecond_clock c
WHERE l.gateway <> %s AND l.fleet_s BETWEEN c.fleet_s - {SILENT_S} AND c.fleet_s
    AND octet_length(l.learned) <= {MAX_BYTES}
ORDER BY l.fleet_s DESC LIMIT {MAX_REPORTS}
"""
_FORGET = "DELETE FROM splitsecond_learned WHERE gateway = %s"
_FORGET_OLD = f"DELETE FROM splitsecond_learned WHERE abs({_NOW} - wall_s) > {FORGET_S}"
_FORGET_TURNS = f"""
DELETE FROM splitsecond_turns WHERE target IN
    (SELECT target FROM splitsecond_turns, splitsecond_clock c
      WHERE until_s NOT BETWEEN c.fleet_s - {FORGET_S} AND
     c.fleet_s + {LEASE_S} FOR UPDATE OF splitsecond_turns SKIP LOCKED)
"""
_GIVE_BACK = """
DELETE FROM splitsecond_turns WHERE target IN
    (SELECT target FROM splitsecond_turns WHERE holder = %s
      AND target <> ALL(%s::text[]) ORDER BY target FOR UPDATE)
"""
# A turn that ends later than any lease could was not written by a gateway. Rows of others are left
# out at first: a conflict would lock them, even though they stay as they are.
_TAKE_TURNS = f"""
INSERT INTO splitsecond_turns AS t
SELECT name, %s, c.fleet_s + {LEASE_S} FROM unnest(%s::text[]) AS name, splitsecond_clock c
WHERE NOT EXISTS (SELECT FROM splitsecond_turns h WHERE h.target = name AND h.holder <> %s
    AND h.until_s BETWEEN c.fleet_s AND c.fleet_s + {LEASE_S})
ORDER BY name
ON CONFLICT (target) DO UPDATE SET holder = excluded.holder, until_s = excluded.until_s
WHERE t.holder = excluded.holder OR t.until_s NOT BETWEEN excluded.until_s - {
    LEASE_S
} AND excluded.until_s
RETURNING target
"""
_USE_SESSIONS = """
INSERT INTO splitsecond_sessions
SELECT session, %s, spent, reserved, turns, allowed, c.fleet_s
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS n(session, spent, reserved, turns, allowed), splitsecond_clock c
ON CONFLICT (session, instance) DO UPDATE SET spent = excluded.spent, reserved = excluded.reserved,
    turns = excluded.turns, allowed = excluded.allowed, fleet_s = excluded.fleet_s
"""
# What a gateway that is gone had reserved counts as spent.
_USED_SESSIONS = f"""
SELECT s.session, sum(s.spent + CASE WHEN g.instance IS NULL THEN s.reserved ELSE 0 END)::bigint,
    sum(CASE WHEN g.instance IS NULL THEN 0 ELSE s.reserved END)::bigint,
    sum(s.turns)::bigint, sum(s.allowed)::bigint
FROM splitsecond_clock c CROSS JOIN splitsecond_sessions s
LEFT JOIN splitsecond_gateways g ON g.instance = s.instance AND g.fleet_s > c.fleet_s - {SILENT_S}
WHERE s.instance <> %s AND s.session IN
    (SELECT session FROM splitsecond_sessions WHERE instance <> %s AND fleet_s >= %s
     UNION SELECT session FROM splitsecond_sessions WHERE instance <> %s AND reserved > 0)
GROUP BY s.session ORDER BY max(s.fleet_s) DESC LIMIT {SESSIONS}
"""
_FORGET_SESSIONS = f"""
DELETE FROM splitsecond_sessions WHERE (session, instance) IN
    (SELECT session, instance FROM splitsecond_sessions s, splitsecond_clock c
     WHERE s.fleet_s < c.fleet_s - {KEEP_SESSIONS_S} FOR UPDATE OF s SKIP LOCKED)
"""


class About(Struct, frozen=True, kw_only=True):
    """Report of a gateway about itself. `sees`: the gateways that reported recently, as far as it
    knows."""

    version: str = ""
    workers: int = 0
    sees: tuple[str, ...] = ()


class Neighbour(Struct, frozen=True, kw_only=True):
    """A gateway of the fleet, as the database knows it. `silent_s`: time since its last report."""

    name: str
    instance: str
    silent_s: float
    about: About


class Answer(Struct, frozen=True):
    """`leases` by limit. `fleet`: all gateways. `short`: limits that are too low for some gateway.
    `wall_s`: the database's clock, read at `at_ns`."""

    leases: Mapping[str, Lease]
    fleet: tuple[Neighbour, ...]
    short: frozenset[str]
    wall_s: float
    at_ns: int


class Learned(Struct, frozen=True):
    """`reports` of other gateways: name, age in seconds, text. `turns`: targets that this gateway
    may probe."""

    reports: list[tuple[str, float, str]]
    turns: set[str]


class NameTaken(psycopg.OperationalError):
    """Another run of a gateway has taken this gateway's name, because this one was silent."""


class FleetDatabase:
    def __init__(self, url: str, name: str, instance: str) -> None:
        self.name = name
        self._url = url
        self._password = str(psycopg.conninfo.conninfo_to_dict(url).get("password") or "")
        self._instance = instance
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._known: set[str] = set()
        self.may_take_over = True
        """Whether the next report may take the name from another run."""

    async def exchange(
        self,
        reports: Mapping[str, Report],
        periods: Mapping[str, Period],
        about: About,
        *,
        end: bool = False,
    ) -> Answer:
        """Report, and return the leases. `end`: the gateway leaves the fleet.

        Raises `NameTaken`.
        """
        async with self._connected() as connection:
            begin_ns = clock.now_ns()
            await self._add(connection, reports)
            ticked = await (await connection.execute(_TICK)).fetchone()
            if ticked is None:  # the table was emptied from outside
                raise psycopg.OperationalError("the table splitsecond_clock is empty")
            wall_s, fleet_s = ticked
            at_ns = (begin_ns + clock.now_ns()) // 2
            stored, seen, short = await _read(
                connection,
                ("BEGIN", ()),
                (_LOCKED, (sorted(reports),)),
                (_FLEET, (fleet_s - FORGET_S,)),
                (_SHORT, (fleet_s - SHORT_S,)),
            )
            fleet = _neighbours(seen, wall_s, fleet_s)
            mine = fleet.get(self.name)
            if mine is not None and mine.instance != self._instance and not self.may_take_over:
                raise NameTaken(f"another gateway has taken the name {self.name}")
            fleet[self.name] = Neighbour(
                name=self.name, instance=self._instance, silent_s=0.0, about=about
            )
            present = {
                each.name: Present(each.instance, each.silent_s >= SILENT_S)
                for each in fleet.values()
            }
            now = Moment(fleet_s, int(wall_s // 86_400))
            leases: dict[str, Lease] = {}
            written: list[tuple[str, str, bool]] = []
            for name, text in stored:
                shared = _shared(name, text)
                if end:
                    leave(
                        shared,
                        self.name,
                        reports[name].used,
                        present,
                        period=periods[name],
                        now=now,
                    )
                else:
                    leases[name] = renew(
                        shared, self.name, reports[name], present, period=periods[name], now=now
                    )
                written.append(
                    (name, encode(shared).decode(), name in leases and leases[name].short)
                )
            if len(written) < len(reports):  # rows were removed from outside: they are added again
                self._known.clear()
            myself = (
                self.name,
                self._instance,
                wall_s,
                fleet_s,
                msgspec.json.encode(about).decode(),
            )
            columns = [list(each) for each in zip(*written, strict=True)]
            await _read(
                connection,
                (_WRITE, (fleet_s, *columns)) if written else ("SELECT", ()),
                ("DELETE FROM splitsecond_gateways WHERE name = %s", (self.name,))
                if end
                else (_SEEN, myself),
                ("COMMIT", ()),
                *(((_FORGET, (self.name,)), (_GIVE_BACK, (self._instance, []))) if end else ()),
            )
            self.may_take_over = False
            return Answer(
                leases, tuple(fleet.values()), frozenset(name for (name,) in short), wall_s, at_ns
            )

    async def learn(self, report: str, turns: Sequence[str]) -> Learned:
        async with self._connected() as connection:
            reports, taken = await _read(
                connection,
                ("BEGIN", ()),
                (_GIVE_BACK, (self._instance, list(turns))),
                ("COMMIT", ()),
                ("BEGIN", ()),
                (_REPORT, (self.name, report)),
                ("COMMIT", ()),
                ("BEGIN", ()),
                (_REPORTS, (self.name,)),
                (_TAKE_TURNS, (self._instance, list(turns), self._instance)),
                ("COMMIT", ()),
            )
            return Learned(
                [(name, age_s, text) for name, age_s, text in reports], {name for (name,) in taken}
            )

    async def share_sessions(
        self, used: Mapping[int, SessionUse], since_s: float
    ) -> tuple[float, dict[int, SessionUse]]:
        """Write what this gateway has counted of sessions, and return what the others have counted
        together.

        Of sessions that changed since `since_s`, a time that the call before returned; 0: all.
        """
        columns = [
            [*used],
            [nano(use.spent_usd) for use in used.values()],
            [nano(use.reserved_usd) for use in used.values()],
            [use.turns for use in used.values()],
            [use.allowed for use in used.values()],
        ]
        me = self._instance
        async with self._connected() as connection:
            (now,), rows = await _read(
                connection,
                *([(_USE_SESSIONS, (me, *columns))] if used else []),
                ("SELECT fleet_s FROM splitsecond_clock", ()),
                (_USED_SESSIONS, (me, me, since_s - OVERLAP_S, me)),
                (_FORGET_SESSIONS, ()),
            )
        uses = {
            session: SessionUse(spent / NANO, reserved / NANO, turns, allowed)
            for session, spent, reserved, turns, allowed in rows
        }
        return now[0], uses

    async def instance_of(self, name: str) -> tuple[str, float] | None:
        async with self._connected() as connection:
            query = "SELECT instance, wall_s FROM splitsecond_gateways WHERE name = %s"
            row: tuple[str, float] | None = await (
                await connection.execute(query, (name,))
            ).fetchone()
            return row

    def error_text(self, error: Exception) -> str:
        text = " ".join(str(error).split()) or type(error).__name__
        return text.replace(self._password, "***") if self._password else text

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _cut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with (
                contextlib.suppress(OSError, psycopg.Error),
                socket.socket(fileno=os.dup(connection.fileno())) as same,
            ):
                same.shutdown(socket.SHUT_RDWR)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        cut = asyncio.get_running_loop().call_later(LONGEST_ANSWER_S, self._cut)
        begin_ns = clock.now_ns()
        connection = self._connection
        try:
            if connection is None:
                connection = await psycopg.AsyncConnection.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=CONNECT_S,
                    application_name=f"splitsecond {self.name}",
                )
                if clock.now_ns() - begin_ns >= LONGEST_ANSWER_S * clock.NS_PER_S:
                    raise psycopg.OperationalError("it took too long to connect")
                self._connection = connection
                await self._prepare(connection)
            yield connection
        except BaseException:
            self._connection = None
            if connection is not None:
                with contextlib.suppress(psycopg.Error):
                    await connection.close()
            raise
        finally:
            cut.cancel()

    async def _prepare(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute(_SESSION)
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            await connection.execute(_TABLES)
            await connection.execute(_FORGET_OLD)
            await connection.execute(_FORGET_TURNS)
        self._known.clear()

    async def _add(
        self, connection: psycopg.AsyncConnection[Any], names: Mapping[str, Report]
    ) -> None:
        """Add rows for limits that have none. They must exist before they are locked in order."""
        if missing := sorted(names.keys() - self._known):
            add = (
                "INSERT INTO splitsecond_limits SELECT unnest(%s::text[]), "
                "'{}' ON CONFLICT DO NOTHING"
            )
            await connection.execute(add, (missing,))
            self._known.update(missing)


def _neighbours(
    rows: Iterable[tuple[Any, ...]], wall_s: float, fleet_s: float
) -> dict[str, Neighbour]:
    return {
        name: Neighbour(
            name=name,
            instance=instance,
            silent_s=max(wall_s - seen_wall_s, fleet_s - seen_fleet_s, 0.0),
            about=_about(text),
        )
        for name, instance, seen_wall_s, seen_fleet_s, text in rows
    }


def _about(text: str) -> About:
    """Return a gateway's report about itself; an empty one if it cannot be read, because it is only
    shown."""
    try:
        return msgspec.json.decode(text, type=About)
    except PARSER_ERRORS:
        return About()


def _shared(name: str, text: str) -> SharedLimit:
    """Return a stored limit. Raises `psycopg.DataError` if it cannot be read: what others hold is
    not known then."""
    try:
        return decode(text.encode())
    except PARSER_ERRORS as error:
        why = parser_words(error)
        words = (
            f"the row {name!r} of the table splitsecond_limits is invalid ({why}). Delete it "
            f"to count anew."
        )
        raise psycopg.DataError(words) from None


async def _read(
    connection: psycopg.AsyncConnection[Any], *statements: tuple[str, Sequence[Any]]
) -> list[list[tuple[Any, ...]]]:
    async with connection.pipeline():
        cursors = [await connection.execute(text.encode(), values) for text, values in statements]
    return [await cursor.fetchall() for cursor in cursors if cursor.description]
