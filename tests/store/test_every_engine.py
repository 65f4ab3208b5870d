"""One log in SQLite, in PostgreSQL and in Parquet files: every question has the same answer in
each."""

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import msgspec
import pytest
from sqlalchemy import insert, select
from tests.cli.conftest import Split
from tests.cli.conftest import split as split  # a fixture
from tests.noon import noon_of_module as noon_of_module  # a fixture
from tests.store.columns import LONG_AFTER, LONG_AGO, check_columns, figures
from tests.store.records import answered, in_session
from tests.store.server import Server, programs

from splitsecond.core import clock
from splitsecond.core.observation import FaultRecord
from splitsecond.core.service import RoutingChoice
from splitsecond.log.store import parquet, parquet_export
from splitsecond.log.store.call_record import CallAccounting, CallRecord
from splitsecond.log.store.database import Database
from splitsecond.log.store.log import Log, Past
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.log.store.rows import ACCOUNTING_COLUMNS, SESSION_COLUMNS
from splitsecond.log.store.tables import ATTEMPTS, CALLS

CALLS_MADE = 350
HOUR_S = 3600.0
pytestmark = pytest.mark.usefixtures("noon_of_module")


ACCOUNTS = (
    None,
    CallAccounting(team="it's a team"),
    CallAccounting(tags="a, b", stated_usd=0.25),
    CallAccounting(stated_usd=0.0),
)


def call(number: int, random: Random) -> CallRecord:
    """Return one of many kinds of calls: answered, raced, failed, closed early, without counts, of
    several clients."""
    target = (
        f"{random.choice(('groq', 'together', 'openai'))}/"
        f"{random.choice(('llama-3.3-70b', 'gpt-oss-120b'))}"
    )
    made = answered(
        number,
        target=target,
        ago_s=(CALLS_MADE - number) * HOUR_S / 3 + random.random(),
        route=random.choice(("fast", "cheap")),
        client=random.choice(("web", "it's", "")),
    )
    (attempt,) = made.attempts
    start = made.start_ns
    tokens = int(random.lognormvariate(5, 1)) + 2
    changes: dict[str, Any] = {
        "output_tokens": tokens,
        "reasoning_tokens": random.choice((None, 0, tokens // 2)),
        "input_tokens": random.choice((None, 10, 3000, 1 << 40)) if number % 7 == 0 else 500,
        "cached_tokens": random.choice((None, 0, 128)),
        "tier": random.choice(("", "", "flex")),
        "end_ns": start + 501_000_000 + tokens * random.randrange(4_000_000, 20_000_000),
    }
    kind = random.randrange(10)
    if kind == 0:
        fault = FaultRecord(
            type="ProviderFault", kind="http_429", phase="head", message="slow down", status=429
        )
        changes |= {
            "outcome": "failed",
            "fault": fault,
            "status": 429,
            "first_token_ns": None,
            "last_token_ns": None,
        }
        changes |= {"output_tokens": None, "token_source": ""}
    won = msgspec.structs.replace(attempt, **changes)
    attempts = [won]
    if kind in (1, 2):
        lost = msgspec.structs.replace(
            attempt, id=f"{made.call}.2", target="cerebras/"
            "gpt-oss-120b", role="loser", outcome="cancelled",
            first_token_ns=None, first_answer_ns=None, last_token_ns=None, output_tokens=None,
            token_source="",
        )  # fmt: skip
        attempts.append(lost)
    status, outcome = (502, "failed") if kind == 0 else (200, "ok")
    session = None if kind == 3 else in_session(number // 9 + 1, f"{number % 9 + (1 << 63):016x}")
    accounting = ACCOUNTS[number % len(ACCOUNTS)]
    choice = None if kind == 3 else RoutingChoice(kind, 0b101, 0.75 if kind else 0.0)
    return msgspec.structs.replace(
        made,
        status=status,
        outcome=outcome,
        session=session,
        accounting=accounting,
        choice=choice,
        attempts=tuple(attempts),
    )


@pytest.fixture(scope="module")
def in_sqlite(noon_of_module: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("log") / "log.db"
    random = Random(1)
    with Log.open(f"sqlite:///{file}") as log:
        for number in range(CALLS_MADE):
            log.put(call(number, random))
    assert log.written == CALLS_MADE
    connection = sqlite3.connect(file)
    # as if a number were too large
    connection.execute("UPDATE attempts SET packed = NULL WHERE n % 5 = 0")
    connection.commit()
    connection.close()
    return f"sqlite:///{file}"


@pytest.fixture(scope="module")
def in_parquet(in_sqlite: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("parquet") / "it's an archive"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_export, "ROWS", 20)
        patch.setattr(parquet_export, "BATCH", 8)
        found = Past.open(in_sqlite).export(folder, LONG_AGO + timedelta(days=365 * 50), LONG_AFTER)
    assert (found.calls, found.kept) == (CALLS_MADE, 0)
    assert (
        found.days
        == len(list(folder.glob("attempts/day=*")))
        == len(list(folder.glob("calls/day=*")))
    )
    assert found.attempts > CALLS_MADE
    assert len(list(folder.glob("attempts/*/*.parquet"))) > found.days
    return f"parquet:{folder}"


@pytest.fixture(scope="module")
def in_postgresql(in_sqlite: str, system: None) -> Iterator[str]:
    if programs() is None and "CI" not in os.environ:
        pytest.skip("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder))
        try:
            server.start()
            url = server.database()
            with (
                Database.open(in_sqlite).connect() as source,
                Database.open(url).connect() as target,
            ):
                for table in (CALLS, ATTEMPTS):
                    target.execute(
                        insert(table), [row._asdict() for row in source.execute(select(table))]
                    )
            yield url
        finally:
            server.stop()


ENGINES = ["in_sqlite", "in_parquet", pytest.param("in_postgresql", marks=pytest.mark.system)]


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.mark.sampled(2)
def test_figures_of_columns_equal_those_of_the_observations(url: str) -> None:
    assert check_columns(url) > CALLS_MADE


def as_lists(found: RequestColumns) -> list[Any]:
    """Return what a replay reads of a log."""
    columns = [
        getattr(part, name).tolist()
        for part in (found.calls, found.attempts)
        for name in part.__struct_fields__
    ]
    return [found.targets, found.clients, found.faults, *columns]


QUESTIONS: dict[str, Callable[[Past], Any]] = {
    "targets": lambda past: past.targets(),
    "requests": lambda past: as_lists(past.requests("fast", [(0, 1 << 62)])),
    "first": lambda past: past.first(clock.wall_time() - timedelta(hours=99.5)),
    "no first": lambda past: past.first(LONG_AFTER),
    "periods": lambda past: past.periods(LONG_AGO, timedelta(hours=6)),
    "spent": lambda past: sorted(map(msgspec.structs.astuple, past.spent_tokens("it's", LONG_AGO))),
    "calls": lambda past: list(past.calls(LONG_AGO)),
    "stated costs": lambda past: sorted(
        map(msgspec.structs.astuple, past.stated_costs(LONG_AGO, LONG_AFTER))
    ),
    "calls of some days": lambda past: list(
        past.calls(clock.wall_time() - timedelta(days=4.5), clock.wall_time() - timedelta(days=2.5))
    ),
    "recent": lambda past: {o.id for o, _ in past.recent(timedelta(days=3), each=7)},
    "recent turns": lambda past: [
        (o.id, o.cached_tokens, session)
        for o, session, _ in past.recent_turns(timedelta(days=30), most=9)
    ],
    "some attempts": lambda past: sorted(
        (repr((block.labels[place], row)))
        for block, _ in past.attempts(
            clock.wall_time() - timedelta(days=4.5),
            clock.wall_time() - timedelta(days=2.5),
            ["groq/llama-3.3-70b"],
        )
        for place, row in zip(block.label.tolist(), figures(block), strict=True)
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_have_the_same_answers(url: str, in_sqlite: str, question: str) -> None:
    expected = QUESTIONS[question](Past.open(in_sqlite))
    assert QUESTIONS[question](Past.open(url)) == expected
    if question != "no first":
        assert expected


COMMANDS = [
    ["speed", "--least", "5"],
    ["speed", "gpt-oss", "--least", "5", "--by", "model", "--days", "4"],
    ["speed", "--least", "5", "--by", "key"],
    ["speed", "--least", "5", "--by", "hour"],
    ["recommend", "chat", "batch"],
    ["cost"],
    ["cost", "--by", "day", "--days", "5"],
    ["cost", "--by", "client"],
    ["cost", "--by", "tag"],
    ["speed", "--least", "5", "--by", "team"],
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_print_the_same_figures(
    url: str, in_sqlite: str, command: list[str], split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.wall_time()
    monkeypatch.setattr(clock, "wall_time", lambda: now)

    def printed(log: str) -> Any:
        ended = split(*command, "--log", log, "--json", "-")
        assert ended.code == 0, ended.err
        return rounded(ended.json)

    assert printed(url) == printed(in_sqlite)


def rounded(value: Any) -> Any:
    """Return a JSON value whose numbers have 9 digits: sums depend on the order of the attempts in
    the last ones."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def test_an_archive_of_the_first_version_lacks_later_columns(
    in_parquet: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    shutil.copytree(in_parquet.removeprefix("parquet:"), folder)
    newer = {"calls": (*SESSION_COLUMNS, *ACCOUNTING_COLUMNS), "attempts": parquet_export.NAMES}
    for table, names in newer.items():
        for file in folder.glob(f"{table}/*/*.parquet"):
            duckdb.execute(
                f"COPY (SELECT * EXCLUDE ({', '.join(names)}) FROM '{file}') "
                f"TO '{file}.older' (FORMAT parquet)"
            )
            os.replace(f"{file}.older", file)
    past = Past.open(f"parquet:{folder}")
    calls = [call for _, call in past.calls(LONG_AGO)]
    assert len(calls) == CALLS_MADE
    assert {(call.session, call.accounting) for call in calls} == {(None, None)}
    labels = [label for block, _ in past.attempts(LONG_AGO, LONG_AFTER) for label in block.labels]
    assert {(label.team, label.tags, label.stated) for label in labels} == {("", "", False)}
    assert past.stated_costs(LONG_AGO, LONG_AFTER) == []


def test_exported_calls_are_readable_by_their_owner_only(in_parquet: str) -> None:
    files = [*Path(in_parquet.removeprefix("parquet:")).glob("*/*/*.parquet")]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


@pytest.mark.system
def test_second_export_keeps_days_that_have_lost_calls(in_sqlite: str, tmp_path: Path) -> None:
    file = Path(in_sqlite.removeprefix("sqlite:///"))
    copy = tmp_path / "log.db"
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.execute(  # a day and a half, as retention does
        "DELETE FROM calls WHERE came_us < (SELECT min(came_us) / 86400000000 * 86400000000 + "
        "129600000000 FROM calls)"
    )
    target.commit()
    target.close()
    folder = tmp_path / "archive"
    since = clock.wall_time() - timedelta(days=30)
    whole = Past.open(in_sqlite).export(folder, since, LONG_AFTER)
    again = Past.open(f"sqlite:///{copy}").export(
        folder, since, clock.wall_time() + timedelta(days=1)
    )
    assert (again.days, again.kept) == (whole.days - 2, 1)
    assert len(list(Past.open(f"parquet:{folder}").calls(LONG_AGO))) == CALLS_MADE
    assert [path.name for path in folder.iterdir() if path.name.startswith(".export")] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["speed", "--log", "nothing"], "the folder"),
        (["export", "--parquet", "taken", "--log", "LOG"], "is not a log"),
        (["export", "--parquet", "a[b", "--log", "LOG"], "one of the characters"),
        (["export", "--parquet", "file/x", "--log", "LOG"], "cannot write"),
        (["speed", "--log", "parquet:empty"], "has no calls"),
        (["speed", "--log", "parquet:newer"], "newer version"),
    ],
)
def test_invalid_log_folders_are_refused(
    split: Split, in_sqlite: str, arguments: list[str], words: str, tmp_path: Path
) -> None:
    known = '{"schema": "splitsecond.log/1", "tables": 1}'
    files = {"nothing/x": "", "taken/x": "", "file": "", "empty/splitsecond-log.json": known}
    for name, text in (files | {"newer/splitsecond-log.json": known.replace("/1", "/9")}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    ended = split(*(in_sqlite if each == "LOG" else each for each in arguments))
    assert ended.code == 2
    assert words in ended.complaint


def test_a_broken_file_is_named(in_parquet: str, split: Split, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    shutil.copytree(in_parquet.removeprefix("parquet:"), folder)
    last = max(folder.glob("attempts/*/*.parquet"))
    last.write_bytes(last.read_bytes()[:200])
    for command in (["speed"], ["cost"]):
        ended = split(*command, "--log", folder)
        assert ended.code == 2
        assert "cannot read the log" in ended.complaint


def test_blocks_of_a_file_are_small(in_parquet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    past = Past.open(in_parquet)
    whole = [row for block, _ in past.attempts(LONG_AGO, LONG_AFTER) for row in figures(block)]
    monkeypatch.setattr(parquet, "ROWS", 7)
    blocks = [block for block, _ in past.attempts(LONG_AGO, LONG_AFTER)]
    assert max(len(block.label) for block in blocks) == 7
    assert [row for block in blocks for row in figures(block)] == whole


def test_parquet_files_are_not_exported_again(in_parquet: str, split: Split) -> None:
    ended = split("export", "--parquet", "again", "--log", in_parquet)
    assert (ended.code, "already in Parquet files" in ended.complaint) == (2, True)


def test_the_files_are_plain_tables(in_parquet: str) -> None:
    folder = in_parquet.removeprefix("parquet:").replace("'", "''")
    rows = duckdb.execute(
        f"SELECT day, count(*), count(DISTINCT target) FROM '{folder}/attempts/*/*.parquet' GROUP "
        f"BY day ORDER BY day"
    ).fetchall()
    assert json.dumps([str(day) for day, *_ in rows]) == json.dumps(
        sorted(str(day) for day, *_ in rows)
    )
    targets = duckdb.execute(
        f"SELECT target FROM '{folder}/attempts/*/*.parquet' WHERE day = ?", [rows[3][0]]
    ).fetchall()
    assert targets == sorted(targets)
