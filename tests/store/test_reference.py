"""docs/reference/observations.md and docs/reference/log.md: generated from the code, and
current."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import FieldInfo
from sqlalchemy import Table

from splitsecond.core.events import RateLimits
from splitsecond.core.observation import FaultRecord, Observation, SessionTurn
from splitsecond.log.store.tables import ATTEMPTS, CALLS, VERSION

DOCS = Path(__file__).parents[2] / "docs/reference"


def field_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the text after each field of a struct, from its source."""
    (node,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(node, ast.ClassDef)
    texts = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    texts[statement.target.id] = " ".join(text.split())
    return texts


def type_text(field: Any) -> str:
    """Return the JSON type of a field."""
    match field:
        case msgspec.inspect.UnionType():
            return " or ".join(map(type_text, field.types))
        case msgspec.inspect.LiteralType():
            return ", ".join(f'`"{value}"`' for value in sorted(map(str, field.values)))
        case msgspec.inspect.ListType():
            return f"list of {type_text(field.item_type)}s"
        case msgspec.inspect.DictType():
            return f"object of {type_text(field.value_type)}s"
        case msgspec.inspect.StructType():
            return f"[{field.cls.__name__}](#{field.cls.__name__.lower()})"
    names = {
        "IntType": "integer",
        "FloatType": "number",
        "StrType": "text",
        "BoolType": "boolean",
        "NoneType": "null",
    }
    return names[type(field).__name__]


def default_text(field: FieldInfo) -> str:
    """Return the value that a missing field has."""
    if field.required or (
        not isinstance(field.default, str | int | bool | None) and field.default_factory is None
    ):
        return "always there"
    if field.default_factory is not msgspec.NODEFAULT:
        found = field.default_factory()
        return (
            "always there" if isinstance(found, str) else f"`{msgspec.json.encode(found).decode()}`"
        )
    return f"`{msgspec.json.encode(field.default).decode()}`"


def struct_rows(struct: type[msgspec.Struct]) -> Iterator[str]:
    texts, inspected = field_texts(struct), msgspec.inspect.type_info(struct)
    assert isinstance(inspected, msgspec.inspect.StructType)
    types = {field.name: type_text(field.type) for field in inspected.fields}
    yield "| field | type | if missing | meaning |\n|---|---|---|---|"
    for field in msgspec.structs.fields(struct):
        yield (
            f"| `{field.name}` | {types[field.name]} | {default_text(field)} | "
            f"{texts[field.name]} |"
        )


def observations_page() -> str:
    """Return docs/reference/observations.md."""
    structs = (Observation, FaultRecord, RateLimits, SessionTurn)
    observation, fault, limits, turn = ("\n".join(struct_rows(struct)) for struct in structs)
    return f"""# observations.jsonl

A run's folder contains `observations.jsonl`: one JSON object per line for each attempt, one
request to one target, in the order in which the attempts ended. This page is generated from
`splitsecond/core/observation.py`.

Numbers named `_ns` and those in `token_at` are nanoseconds. Times are of a monotonic clock;
`run.json` gives one of them with its wall-clock time (`began_ns`, `began`). Their order is due,
start, sent, head, first_event, first_token, last_token, end. Fields that have their default are
left out. A process that is killed can leave an incomplete last line, which readers ignore.

{observation}

## FaultRecord

{fault}

## RateLimits

{limits}

## SessionTurn

{turn}
"""


def table_rows(table: Table) -> Iterator[str]:
    texts = field_texts(Observation)
    yield "| column | type | meaning |\n|---|---|---|"
    for column in table.columns:
        kind = f"{str(column.type).lower()}{' or null' if column.nullable else ''}"
        yield f"| `{column.name}` | {kind} | {column.doc or texts[column.name]} |"


def log_page() -> str:
    """Return docs/reference/log.md."""
    calls, attempts = ("\n".join(table_rows(table)) for table in (CALLS, ATTEMPTS))
    return f"""# The tables of the gateway's log

The gateway's log is a SQLite file or a PostgreSQL database. This page describes version {VERSION}
of its tables; it is generated from `splitsecond/log/store/tables.py`. The table `splitsecond_log`
contains the version. A log of a newer version is not opened.

Numbers named `_ns` are nanoseconds, `came_us` is microseconds. A call and its attempts have the
same `came_us` and `call`. The log contains no prompts, answers, keys or prices.

## calls

One row for each call of a client.

{calls}

## attempts

One row for each request to a target. Times from `sent_ns` to `end_ns` count from the arrival of
the call, so TTFT is `first_token_ns - sent_ns`, and the wait of the client is `first_token_ns`.
The columns have the meaning of the fields in [observations.jsonl](observations.md).

{attempts}
"""


@pytest.mark.parametrize(
    ("name", "text"), [("observations.md", observations_page()), ("log.md", log_page())]
)
def test_the_page_is_current(name: str, text: str, request: pytest.FixtureRequest) -> None:
    page = DOCS / name
    if request.config.getoption("--update-golden"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text, "run this test with --update-golden"


def test_an_observation_has_the_fields_of_the_page_and_no_others() -> None:
    always = Observation(id="c.1", call="c", target="t/m")
    assert set(msgspec.to_builtins(always)) == {"id", "call", "target", "role"}
    own = 4 + 1  # of a fault, and of a turn
    assert observations_page().count("always there") == len(msgspec.to_builtins(always)) + own
