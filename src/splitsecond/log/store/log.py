"""The gateway's log: all calls and attempts, in a SQLite file or in PostgreSQL.

Traffic never waits for the log and never fails because of it: what cannot be written is counted,
reported, and finally dropped (`log/store/writer`).

No query reads more than the days that it is about. Each follows an index from one key to the next,
so it takes as long in a log of a year as in a log of a day.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Double,
    Row,
    Select,
    and_,
    case,
    cast,
    func,
    or_,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, US_PER_DAY
from splitsecond.core.errors import PARSER_ERRORS, CallerFault, say
from splitsecond.core.observation import Observation
from splitsecond.core.session import CallSession
from splitsecond.log.store.call_record import OWN_TARGET, WORKER_DIED, CallRecord
from splitsecond.log.store.database import Database, check_url
from splitsecond.log.store.hub_connection import HubConnection
from splitsecond.log.store.remote_writer import RemoteLogWriter
from splitsecond.log.store.rows import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    SESSION_COLUMNS,
    Rows,
    call_record,
    call_session,
    observation,
    session_id,
    session_number,
)
from splitsecond.log.store.tables import ATTEMPTS, CALLS, WITH_CALL
from splitsecond.log.store.writer import LogWriter

if TYPE_CHECKING:  # the gateway uses this module, and must not load numpy
    from splitsecond.core.timing.columns import AttemptColumns
    from splitsecond.log.store.parquet import ParquetDatabase
    from splitsecond.log.store.parquet_export import ExportedLog
    from splitsecond.log.store.request_columns import RequestColumns

__all__ = ["CallRecord", "Log", "Past", "SpentTokens", "StatedCost", "check_url"]

KEEP_DAYS = 31
PARQUET = "parquet:"
"""How the URL of a log in Parquet files begins."""
PROMPT_STEP = 1000
"""Tokens. Prices that depend on the length of the prompt change at multiples of it."""
TOO_MANY_REQUESTS, SERVER_ERROR = 429, 500
_PAGE = 500
_SHIFT_US = 100_000
_ORPHAN_SHIFT_US = 10_000_000
"""How far apart two records of one call may be dated, without both being written. Only that of an
orphaned call is dated anew; the wall clock may have been set since. A short time keeps the search
quick: at 40,000 calls/s ten seconds have 400,000 rows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


class SpentTokens(Struct, frozen=True, kw_only=True):
    """Sums over attempts at `target`, losers included, because they are billed too.

    `tier`: the speed tier that served them. `longest_prompt`: input tokens of the longest of these
    attempts, which all have the same rates.
    """

    target: str
    tier: str = ""
    longest_prompt: int = 0
    attempts: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0


class StatedCost(Struct, frozen=True, kw_only=True):
    """What imported logs state that calls of one UTC day, with the same names, cost. `day`:
    number of the day since 1970."""

    target: str
    client: str
    route: str
    team: str
    tags: str
    day: int
    calls: int
    usd: float


class LoggedPeriod(Struct, frozen=True, kw_only=True):
    """Calls that came in from `at_s` (seconds since 1970) on, for one period.

    `failed`: failures of targets, with status 429 or from 500 on. `ttft_ms`: mean time to the first
    token.
    """

    at_s: float
    calls: int
    failed: int
    ttft_ms: float | None
    output_tokens: int


class LoggedSession(Struct, frozen=True, kw_only=True):
    """Calls of one session. `began_us`, `ended_us`: the arrival of the first one and the end of the
    last answer, in microseconds since 1970. `slowest_ns`: the longest time of a call. `repeated`:
    how often in a row the model called a tool with the same arguments, at the most; 0: no loop.
    `spent`: the tokens of its attempts."""

    id: str
    client: str
    route: str
    calls: int
    agents: int
    errors: int
    began_us: int
    ended_us: int
    slowest_ns: int
    repeated: int
    input_tokens: int
    cached_tokens: int
    spent: list[SpentTokens]


class Past:
    """A log for reading, from any thread: a query can take some hundred milliseconds.

    Every method raises `CallerFault` if the database does not answer. A period holds the calls that
    came in from `since` until before `until`. Calls and attempts that are read have times that
    count from the arrival of the call, and no times of single tokens.
    """

    def __init__(self, database: "Database | ParquetDatabase") -> None:
        self._database = database

    @classmethod
    def open(cls, url: str) -> "Past":
        """Open the existing log at `url`, which can be ``parquet:FOLDER``. Raises `CallerFault` if
        that fails."""
        if url.startswith(PARQUET):
            from splitsecond.log.store.parquet import ParquetDatabase

            return cls(ParquetDatabase.open(url.removeprefix(PARQUET)))
        return cls(Database.open(url, new=False))

    def targets(self) -> list[str]:
        with self._connection() as connection:
            return list(_targets(connection))

    def attempts(
        self, since: datetime, until: datetime, targets: Sequence[str] = ()
    ) -> "Iterator[tuple[AttemptColumns, float]]":
        if not isinstance(self._database, Database):
            return self._database.attempts(_us(since), _us(until), targets)
        from splitsecond.log.store.columns import attempt_columns

        return attempt_columns(self._connection, _us(since), _us(until), targets)

    def export(
        self,
        folder: Path,
        since: datetime,
        until: datetime,
        done: Callable[[float], None] = lambda share: None,
    ) -> "ExportedLog":
        from splitsecond.log.store.parquet_export import export_log

        if not isinstance(self._database, Database):
            raise CallerFault(
                "the log is already in Parquet files", kind="bad_option", hint="Copy its folder."
            )
        return export_log(self._connection, folder, _us(since), _us(until), done)

    def first(self, since: datetime) -> datetime | None:
        query = select(func.min(_A.came_us)).where(_A.came_us >= _us(since))
        with self._connection() as connection:
            came_us = connection.execute(query).scalar()
        return None if came_us is None else _EPOCH + came_us * _US

    def recent(self, since: timedelta, *, each: int = 200) -> list[tuple[Observation, float]]:
        now_us = _us(clock.wall_time())
        after_us = now_us - since // _US
        attempts: list[Row[Any]] = []
        with self._connection() as connection:
            for target in _targets(connection):
                conditions = _A.target == target, _A.came_us >= after_us
                query = select(*ATTEMPT_COLUMNS).where(*conditions).order_by(_A.came_us.desc())
                attempts += connection.execute(query.limit(each))
        aged = [(observation(row), row.came_us) for row in attempts]
        aged.sort(key=lambda one: one[1] + one[0].end_ns // 1000)
        return [(o, max(0.0, (now_us - came_us - o.end_ns / 1000) / 1e6)) for o, came_us in aged]

    def recent_turns(
        self, since: timedelta, *, most: int = 1000
    ) -> list[tuple[Observation, CallSession, float]]:
        """Return the latest attempts that answered turns of sessions, the oldest first.

        Each with its session and how long ago its call came in, in seconds.
        """
        now_us = _us(clock.wall_time())
        session = [CALLS.c[name] for name in SESSION_COLUMNS]
        answered = (
            _A.came_us >= now_us - since // _US,
            _A.role == "winner",
            _A.first_token_ns.is_not(None),
        )
        query = select(*ATTEMPT_COLUMNS, *session).select_from(WITH_CALL).where(*answered)
        query = query.where(CALLS.c.session.is_not(None)).order_by(_A.came_us.desc())
        with self._connection() as connection:
            turns = connection.execute(query.limit(most)).all()
        own = len(ATTEMPT_COLUMNS)
        return [
            (
                observation(row[:own]),
                call_session(row[own:]),
                max(0.0, (now_us - row.came_us) / 1e6),
            )
            for row in reversed(turns)
        ]

    def spent_tokens(
        self, client: str, since: datetime, until: datetime | None = None
    ) -> list[SpentTokens]:
        """Return what `client` has used of each target by calls that came in from `since` until
        before `until`.

        From all processes that write this log. `until`: None: now.
        """
        return self._spent_where(select(*_SPENT).where(_A.client == client), _A, since, until)

    def team_tokens(
        self, team: str, since: datetime, until: datetime | None = None
    ) -> list[SpentTokens]:
        """Return the same of all keys that were in `team` when they called."""
        query = select(*_SPENT).select_from(WITH_CALL).where(CALLS.c.team == team)
        return self._spent_where(query, CALLS.c, since, until)

    def _spent_where(
        self, query: Select[Any], columns: Any, since: datetime, until: datetime | None
    ) -> list[SpentTokens]:
        came_us = columns.came_us
        query = query.where(came_us >= _us(since), came_us < _us(until or clock.wall_time()))
        with self._connection() as connection:
            return [tokens for _, tokens in _spent(connection, query, ())]

    def stated_costs(self, since: datetime, until: datetime) -> list[StatedCost]:
        """Return the costs that imported logs state, of calls that came in from `since` until
        before `until`."""
        c = CALLS.c
        own = c.target, c.client, c.route
        columns = (
            *own,
            func.coalesce(c.team, "").label("team"),
            func.coalesce(c.tags, "").label("tags"),
            (c.came_us - c.came_us % US_PER_DAY).label("day_us"),
            func.count().label("calls"),
            func.sum(c.stated_usd).label("usd"),
        )
        query = (
            select(*columns)
            .where(c.stated_usd.is_not(None), c.came_us >= _us(since), c.came_us < _us(until))
            .group_by(*own, c.team, c.tags, "day_us")
        )
        with self._connection() as connection:
            rows = [dict(row._mapping) for row in connection.execute(query)]
        return [StatedCost(day=each.pop("day_us") // US_PER_DAY, **each) for each in rows]

    def sessions(self, since: datetime, until: datetime) -> list[LoggedSession]:
        """Return the sessions of calls that came in from `since` until before `until`, the latest
        first. Calls that the gateway answered itself are none of theirs."""
        c = CALLS.c
        period = c.came_us >= _us(since), c.came_us < _us(until)
        where = c.session.is_not(None), c.target != OWN_TARGET, *period
        columns = {
            "client": func.min(c.client),
            "route": func.min(c.route),
            "calls": func.count(),
            "agents": func.count(c.agent.distinct())
            + func.max(case((c.agent.is_(None), 1), else_=0)),
            "errors": func.sum(case((c.outcome == "failed", 1), else_=0)),
            "began_us": func.min(c.came_us),
            "ended_us": func.max(c.came_us * 1000 + c.end_ns),
            "slowest_ns": func.max(c.end_ns),
            "repeated": func.coalesce(func.max(c.repeated), 0),
            **{name: _sum(c[name]) for name in ("input_tokens", "cached_tokens")},
        }
        query = select(c.session, *columns.values()).where(*where).group_by(c.session)
        tokens = select(*_SPENT, c.session).select_from(WITH_CALL).where(*where)
        with self._connection() as connection:
            spent: defaultdict[int, list[SpentTokens]] = defaultdict(list)
            for (session,), each in _spent(connection, tokens, (c.session,)):
                spent[session].append(each)
            sessions = []
            for session, client, route, *numbers in connection.execute(query):
                fields = dict(zip([*columns][2:], map(int, numbers), strict=True))
                fields["ended_us"] //= 1000
                own = session_id(session), spent[session]
                sessions.append(
                    LoggedSession(id=own[0], client=client, route=route, spent=own[1], **fields)
                )
        return sorted(sessions, key=lambda each: each.began_us, reverse=True)

    def periods(self, since: datetime, period: timedelta) -> list[LoggedPeriod]:
        c, length_us = CALLS.c, period // _US
        number = (c.came_us - c.came_us % length_us).label("period")
        failed = case((or_(c.status == TOO_MANY_REQUESTS, c.status >= SERVER_ERROR), 1), else_=0)
        columns = (
            func.count(),
            func.sum(failed),
            func.avg(c.first_token_ns),
            func.sum(c.output_tokens),
        )
        query = select(number, *columns).where(c.came_us >= _us(since))
        query = query.group_by("period").order_by("period")
        with self._connection() as connection:
            return [
                LoggedPeriod(
                    at_s=at_us / 1e6,
                    calls=calls,
                    failed=int(failures),
                    ttft_ms=None if ttft_ns is None else float(ttft_ns) / NS_PER_MS,
                    output_tokens=int(tokens or 0),
                )
                for at_us, calls, failures, ttft_ns, tokens in connection.execute(query)
            ]

    def calls(
        self, since: datetime, until: datetime | None = None, *, session: str = ""
    ) -> Iterator[tuple[datetime, CallRecord]]:
        """Yield the calls that came in from `since` until before `until`, in this order. `session`:
        only those of this session."""
        c = CALLS.c
        before = c.came_us < _us(until or clock.wall_time())
        if session:
            before = and_(before, c.session == session_number(session))
        page: Select[Any] = (
            select(*CALL_COLUMNS).where(before).order_by(c.came_us, c.n).limit(_PAGE)
        )
        after = c.came_us >= _us(since)
        with self._connection() as connection:
            while calls := connection.execute(page.where(after)).all():
                first, last = calls[0], calls[-1]
                within = [row.call for row in calls] if session else None
                attempts = _attempts_by_call(connection, first.came_us, last.came_us, within)
                for row in calls:
                    yield _EPOCH + row.came_us * _US, call_record(row, attempts[row.call])
                after = and_(c.came_us >= last.came_us, or_(c.came_us > last.came_us, c.n > last.n))

    def calls_by_hour(self, route: str, since: datetime, until: datetime) -> list[tuple[int, int]]:
        from splitsecond.log.store.request_columns import calls_by_hour

        with self._connection() as connection:
            return calls_by_hour(connection, route, _us(since), _us(until))

    def requests(self, route: str, spans_us: Sequence[tuple[int, int]]) -> "RequestColumns":
        from splitsecond.log.store.request_columns import request_columns

        with self._connection() as connection:
            return request_columns(connection, route, spans_us)

    def routes(self, since: datetime, until: datetime) -> list[tuple[str, int]]:
        """Return the routes of calls in this time and their numbers, the most frequent first."""
        from splitsecond.log.store.request_columns import routes

        with self._connection() as connection:
            return routes(connection, _us(since), _us(until))

    def contained(self, records: Sequence[CallRecord]) -> set[str]:
        """Return the ids of those calls that are in the log, perhaps written by a process that died
        since."""
        c = CALLS.c
        around: dict[tuple[int, int], list[CallRecord]] = {}
        for record in records:  # a step of the wall clock shifts the times of later calls by hours
            shift_us = _ORPHAN_SHIFT_US if record.fault == WORKER_DIED else _SHIFT_US
            around.setdefault((shift_us, record.wall_us // _ORPHAN_SHIFT_US), []).append(record)
        calls: set[str] = set()
        with self._connection() as connection:
            for (shift_us, _), alike in around.items():
                came_us = [record.came_us for record in alike]
                about = c.came_us.between(min(came_us) - shift_us, max(came_us) + shift_us)
                query = select(c.call).where(about, c.call.in_([record.call for record in alike]))
                calls.update(connection.execute(query).scalars())
        return calls

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with self._database.connect() as connection:
                yield connection
        # SQLite gives any type for any column
        except (SQLAlchemyError, *PARSER_ERRORS, TypeError) as error:
            text = self._database.error_text(error)
            words = f"cannot read the log {self._database.where}: {text}"
            raise CallerFault(words, kind="log_unavailable") from None


def _targets(connection: Connection) -> Iterator[str]:
    target: Column[str] = ATTEMPTS.c.target
    if connection.dialect.name == "duckdb":
        yield from connection.execute(select(target).distinct().order_by(target)).scalars()
        return
    name = connection.execute(select(func.min(target))).scalar()
    while name is not None:
        yield name
        name = connection.execute(select(func.min(target)).where(target > name)).scalar()


def _sum(column: Column[Any]) -> ColumnElement[Any]:
    """Return the sum in floating point: one of integers that a provider made up can be too large
    for the database."""
    return func.coalesce(func.sum(cast(column, Double)), 0)


_A = ATTEMPTS.c
_COUNTS = (
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
)
_SPENT: tuple[Any, ...] = (
    _A.target,
    _A.tier,
    (_A.input_tokens - (_A.input_tokens - 1) % PROMPT_STEP).label("length"),
    func.max(_A.input_tokens),
    func.count(),
    *(_sum(_A[name]) for name in _COUNTS),
)


def _spent(
    connection: Connection, query: Select[Any], more: Sequence[ColumnElement[Any]]
) -> Iterator[tuple[list[Any], SpentTokens]]:
    """Yield the sums of a `query` of `_SPENT` and `more` columns, grouped by target, tier, length
    and these columns."""
    size = 5 + len(_COUNTS)
    for row in connection.execute(query.group_by(_A.target, _A.tier, "length", *more)):
        target, tier, _, longest, attempts, *counts = row[:size]
        tokens = SpentTokens(
            target=target,
            tier=tier or "",
            longest_prompt=longest or 0,
            attempts=attempts,
            **dict(zip(_COUNTS, map(int, counts), strict=True)),
        )
        yield list(row[size:]), tokens


def _attempts_by_call(
    connection: Connection, first_us: int, last_us: int, calls: Sequence[str] | None
) -> defaultdict[str, list[Observation]]:
    """Return the attempts of the calls in this time, or of these `calls` among them."""
    query = select(*ATTEMPT_COLUMNS).where(_A.came_us.between(first_us, last_us))
    if calls is not None:
        query = query.where(_A.call.in_(calls))
    attempts: defaultdict[str, list[Observation]] = defaultdict(list)
    for row in connection.execute(query.order_by(_A.came_us, _A.n)):
        attempts[row.call].append(observation(row))
    return attempts


def _us(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // _US


class Log(Past):
    def __init__(self, database: Database, writer: LogWriter | RemoteLogWriter) -> None:
        super().__init__(database)
        self.where, self.unwritten = database.where, database.unwritten
        self._writer = writer
        self.put = writer.put  # called for each request: one step less

    @classmethod
    def open(
        cls,
        url: str,
        *,
        keep_days: float = KEEP_DAYS,
        say: Callable[[str], None] = say,
        hub: HubConnection | None = None,
        away: Callable[[str], None] | None = None,
    ) -> "Log":
        """Open the log at `url`, create its tables if there are none, and start its thread.

        Calls older than `keep_days` are deleted. `say` receives later problems, from the thread, at
        most once a minute. With `hub`, a connection to the hub of a gateway, that process writes
        instead of a thread (`log/store/log_receiver`). With `away`, a server that does not answer
        is no failure: `away` gets the reason, and records wait. Raises `CallerFault` if the log
        cannot be opened.
        """
        database = Database.open(url, away=away)
        if hub is not None:
            return cls(
                database,
                RemoteLogWriter(hub, database.where, unwritten=database.unwritten, say=say),
            )
        writer = LogWriter(database, keep_days=keep_days, say=say)
        writer.start()
        return cls(database, writer)

    def yield_processor(self) -> None:
        if isinstance(self._writer, LogWriter):
            self._writer.yield_processor()

    def put_rows(self, record_rows: Rows) -> None:
        assert isinstance(self._writer, LogWriter)
        self._writer.put(record_rows)

    @property
    def written(self) -> int:
        return self._writer.written

    @property
    def dropped(self) -> int:
        return self._writer.dropped

    @property
    def waiting(self) -> int:
        return self._writer.waiting

    @property
    def failing(self) -> bool:
        return self._writer.failing

    @property
    def errors(self) -> int:
        return self._writer.errors

    async def drain(self) -> None:
        if isinstance(self._writer, RemoteLogWriter):
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
