"""Every option that names a file to read, with every kind of file that cannot be read: code 2, and
one line that names the file. No file ends in a traceback."""

import gzip
import json
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Ended, Split
from tests.report.invented import invented_run

from splitsecond.log.store.folder import OBSERVATIONS, RUN, RunFolder

SOMEWHERE = ("bench", "--base-url", "http://127.0.0.1:1/v1", "--model", "m")
NOWHERE = ("--host", "192.0.2.1")
"""An address where nothing can listen, so that a file which can be read ends a command, too."""
FILE = "FILE"
"""The place of the file in a command."""
CONFIGURATION = (
    "providers: {own: {base_url: 'http://127.0.0.1:1/v1'}}\nroutes: {a: {policy: own/m}}\n"
)
"""Without a simulated target, whose process a fast test must not start."""
PROVIDER = "groq/llama-3.1-70b-versatile"
READERS: dict[str, tuple[str, tuple[object, ...]]] = {
    "prompts": ("prompts.jsonl", (*SOMEWHERE, "--prompts", FILE)),
    "trace": ("trace.jsonl", (*SOMEWHERE, "--trace", FILE)),
    "workloads": ("workloads.toml", (*SOMEWHERE, "--workloads", FILE, "--workload", "x")),
    "policies": ("own.py", (*SOMEWHERE, "--policies", FILE)),
    "profile": ("profile.toml", ("simulate", FILE, *NOWHERE)),
    "replies": ("replies.jsonl", ("simulate", "groq", "--replies", FILE, *NOWHERE)),
    "recording": ("recording.jsonl", ("simulate", "--replay", FILE, *NOWHERE)),
    "run to report": ("run.json", ("report", FILE)),
    "run to compare": ("run.json", ("compare", FILE, FILE)),
    "run to recommend from": ("run.json", ("recommend", FILE, "chat")),
    "scores": ("scores.toml", ("recommend", "chat", "--quality", FILE)),
    "log": ("log.db", ("speed", "--log", FILE)),
    "log in Parquet": ("archive/splitsecond-log.json", ("cost", "--log", "archive")),
    "calls to import": ("calls.csv", ("import", FILE, "--log", "new.db")),
    "log to import into": ("log.db", ("import", "good.csv", "--log", FILE)),
    "configuration": ("own.yaml", ("serve", FILE, "--check")),
    "configuration of another program": ("own.yaml", ("init", "new.yaml", "--from", FILE)),
    "requests": ("requests.jsonl", ("batch", FILE, "--config", "good.yaml")),
    "results": ("results.jsonl", ("batch", "good.jsonl", "--out", FILE, "--config", "good.yaml")),
}
DEPTH = 1_500
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "arrays that never close": b"[" * DEPTH,
    "objects that never close": b'{"a":' * DEPTH,
    "bytes that are not UTF-8": b'{"a": "\xff\xfe"}\n',
    "zeros": bytes(5000),
    "half a surrogate": rb'[{"prompt": "\ud800", "time": "\ud800", "model": "\ud800"}]',
    "compressed": gzip.compress(b"\xff" * 1000),
}
SPECIAL: dict[str, dict[str, bytes]] = {
    ".toml": {
        "deep keys": b"a." * DEPTH + b"a = 1",
        "deep arrays": b"a = " + b"[" * DEPTH,
        "digits": b"a = " + b"1" * 10_000,
    },
    ".py": {"parentheses": b"(" * DEPTH},
    ".csv": {
        "beginning of Parquet": b"PAR1" + bytes(100),
        "a quote that never ends": b'"' + b"a\n" * 1000,
    },
    ".db": {"beginning of SQLite": b"SQLite format 3\0" + b"\xff" * 5000},
}
"""Further contents for files with an ending."""
READABLE = {
    ("log to import into", "no file"),
    ("log to import into", "empty"),
    ("configuration", "empty"),
}
"""Kinds that a reader can read."""


def another_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE calls (call, came_us)")
        database.execute("INSERT INTO calls VALUES ('x', 'y')")
    database.close()


def listening_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def with_content(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


KINDS: dict[str, Callable[[Path], object]] = {
    **{name: with_content(content) for name, content in CONTENTS.items()},
    "no file": lambda path: None,
    "folder": Path.mkdir,
    "socket": listening_socket,
    "link to itself": lambda path: path.symlink_to(path.name),
}
CASES = [
    pytest.param(reader, make, id=f"{reader}-{kind}")
    for reader, (name, _) in READERS.items()
    for kind, make in {
        **KINDS,
        **{
            kind: with_content(content)
            for kind, content in SPECIAL.get(Path(name).suffix, {}).items()
        },
        **({"database of another program": another_database} if name == "log.db" else {}),
    }.items()
    if (reader, kind) not in READABLE
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("reader", "make"), CASES)
def test_unreadable_file_is_named(
    split: Split, reader: str, make: Callable[[Path], object]
) -> None:
    name, command = READERS[reader]
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    make(path)
    Path("good.csv").write_text("time,model,duration_s\n2026-01-01,a/b,1\n")
    Path("good.yaml").write_text(
        "providers: {own: {base_url: 'http://127.0.0.1:1/v1'}}\nroutes: {a: {policy: own/m}}\n"
    )
    Path("good.jsonl").write_text(
        '{"custom_id": "1", "body": {"model": "unknown", "messages": []}}\n'
    )
    has_content = path.is_file() and path.stat().st_size > 0
    ended = split(*(str(each).replace(FILE, name) for each in command))
    assert_refused(ended)
    if has_content:
        assert path.parts[0] in ended.complaint or "unknown model" in ended.complaint


def assert_refused(ended: Ended) -> None:
    """Fail unless a command ended with code 2, a last line that says why, and no more than a screen
    of text."""
    assert ended.code == 2
    assert ended.complaint.isprintable()
    assert len(ended.err) < 5_000


def test_a_first_field_that_is_too_long_is_refused(split: Split) -> None:
    Path("calls.csv").write_bytes(b"a" * (17 << 20) + b",b\n1,2\n")
    ended = split("import", "calls.csv", "--log", "new.db")
    assert_refused(ended)
    assert "calls.csv, line 1: it is no CSV (field larger than field limit" in ended.complaint


def test_half_a_surrogate_is_refused_in_its_line_only(split: Split) -> None:
    call = {"time": "2026-01-01", "model": "a/b", "duration_s": 1}
    Path("calls.jsonl").write_text(
        "\n".join(map(json.dumps, (call, call | {"client": "\ud800"}, call | {"id": "2"})))
    )
    ended = split("import", "calls.jsonl", "--log", "new.db")
    assert ended.code == 0
    assert "line 2: it is no JSON (half of a surrogate pair is no character)" in ended.words
    assert "2 calls imported, 1 refused" in ended.words


@pytest.mark.parametrize(
    "text",
    [r'{"prompt": "\ud800"}', r'[{"prompt": "\ud800"}]', r'[{"prompt": "a", "b": ["\udc00"]}]'],
)
def test_half_a_surrogate_in_a_prompt_is_named_by_line(split: Split, text: str) -> None:
    Path("prompts.json").write_text(text)
    ended = split(*SOMEWHERE, "--prompts", "prompts.json")
    assert_refused(ended)
    assert "prompts.json:1: " in ended.complaint


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    path = tmp_path_factory.mktemp("small") / "run"
    run, observations = invented_run((PROVIDER,), concurrencies=(1,), requests=8, in_rounds=True)
    run.asked = {
        "command": [], "settings": {"seed": 10**30}, "targets": [],
        "conditions": [{"condition": c.condition, "target": c.target, "concurrency": 1} for c
        in run.conditions],
    }  # fmt: skip
    with RunFolder.create(path) as folder:
        folder.write_run(run)
        for observation in observations:
            folder.add(observation)
    return path


@pytest.fixture
def run(small_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_run, tmp_path / "run"))


@pytest.mark.parametrize(
    ("field", "number"),
    [
        ("rtt_ns", 10**18),
        ("rtt_ns", -(2**63)),
        ("sent_ns", 2**63),
        ("round", 2**63),
        ("output_tokens", 10**30),
        ("token_at", [10**18]),
        ("limits", {"tokens_left": 10**30}),
        pytest.param("end_ns", 10**400, id="401 digits"),
    ],
)
def test_a_number_that_is_too_large_is_refused_with_its_line(
    split: Split, run: Path, field: str, number: Any
) -> None:
    file = run / OBSERVATIONS
    first, *others = file.read_text().splitlines()
    changed = json.loads(first) | {field: number}
    file.write_text("\n".join([*others, json.dumps(changed), ""]))
    ended = split("report", run)
    assert_refused(ended)
    assert (
        f"observations.jsonl:{len(others) + 1}: an integer is not below 1,000," in ended.complaint
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("output_tokens", 10**15), ("due_ns", 10**17), ("first_token_ns", 1), ("sent_ns", 10**17),
        ("end_ns", 10**17),
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense_still_give_a_report(
    split: Split, run: Path, field: str, value: int
) -> None:
    file = run / OBSERVATIONS
    lines = [json.loads(line) | {field: value} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert split("report", run, "--json", "-").code == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"conditions": [{"condition": "a", "target": "a/x", "concurrency": -1}]},
            "Expected `int` >= 1",
        ),
        ({"conditions": [{"condition": "a", "target": "a/x", "rate": 0}]}, "Expected `float` > 0"),
        (
            {"conditions": [{"condition": "a", "target": "a/x", "output_tokens": 10**400}]},
            "an integer is not below",
        ),
        ({"slo": "ttft=1s", "share": 2}, "Expected `float` < 1"),
    ],
)
def test_settings_of_a_run_that_make_no_sense_are_refused(
    split: Split, run: Path, changed: dict[str, Any], words: str
) -> None:
    found = json.loads((run / RUN).read_text())
    found["asked"] |= changed
    (run / RUN).write_text(json.dumps(found))
    ended = split("report", run)
    assert_refused(ended)
    assert words in ended.complaint


def test_report_accepts_an_environment_of_another_form(split: Split, run: Path) -> None:
    found = json.loads((run / RUN).read_text())
    found["environment"] = {"servers": True, "gpus": [{}]}
    (run / RUN).write_text(json.dumps(found))
    assert split("report", run).code == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "change", ["status = 'x'", "came_us = 1e308", "input_tokens = X'ff'", "packed = X'ff'"]
)
@pytest.mark.parametrize("command", ["speed", "cost", "export"])
def test_a_log_with_values_of_other_types_ends_in_no_traceback(
    split: Split, change: str, command: str
) -> None:
    rows = "".join(f"2026-01-01T00:00:{second:02},a/b,1,0.5,9\n" for second in range(60))
    Path("calls.csv").write_text(f"time,model,duration_s,ttft_s,output_tokens\n{rows}")
    assert split("import", "calls.csv", "--log", "log.db").code == 0
    with closing(sqlite3.connect("log.db", isolation_level=None)) as database:
        for table in ("calls", "attempts"):
            if change.partition(" ")[0] in {
                column[1] for column in database.execute(f"PRAGMA table_info({table})")
            }:
                database.execute(f"UPDATE {table} SET {change} WHERE n = 30")
    ended = split(
        command,
        "--log",
        "log.db",
        "--days",
        3650,
        *(("--parquet", "out") if command == "export" else ()),
    )
    if ended.code:
        assert_refused(ended)


@pytest.mark.parametrize(
    "reference", ["file:.", "file:nowhere", "file:" + "a" * 5000, "file:zeros"]
)
def test_a_secret_that_cannot_be_read_is_named_by_place(split: Split, reference: str) -> None:
    Path("zeros").write_bytes(bytes(10))
    Path("own.yaml").write_text(f'keys: [{{name: a, key: "{reference}"}}]\n')
    ended = split("serve", "own.yaml", "--check")
    assert_refused(ended)
    assert "own.yaml: keys" in ended.complaint


def test_runs_with_a_date_that_is_none_are_refused(split: Split, run: Path) -> None:
    document = json.loads((run / RUN).read_text())
    for began in ("", "yesterday", "2026-02-30T00:00:00+00:00", "2026-01-01T00:00:00"):
        (run / RUN).write_text(json.dumps(document | {"began": began}))
        assert_refused(split("report", run))
