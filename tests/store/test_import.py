"""Import of foreign logs: formats, units, bad lines, and importing twice."""

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.cases import each_case
from tests.worst_case import check_linear

from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.log.store import importing
from splitsecond.log.store.call_record import CallAccounting
from splitsecond.log.store.foreign.columns import FIELDS
from splitsecond.log.store.foreign.formats import KNOWN, format_of, parse_map
from splitsecond.log.store.foreign.lines import lines_of
from splitsecond.log.store.foreign.record import record_of
from splitsecond.log.store.importing import import_log
from splitsecond.log.store.log import Past

FOREIGN = Path(__file__).parent / "foreign"
"""Files of other programs. README.md says where they come from."""
LONG_AGO = datetime(2015, 1, 1, tzinfo=UTC)
LITELLM: dict[str, Any] = {
    "request_id": "chatcmpl-1", "call_type": "acompletion", "api_key": "88dc28", "spend": 0.0012,
    "total_tokens": 300,
    "prompt_tokens": 100, "completion_tokens": 200, "startTime": "2026-09-01T05:29:54.250000Z",
    "endTime": "2026-09-01T05:29:58.250000Z", "completionStartTime": "2026-09-01T05:29:54.750000Z",
    "model": "gpt-4o",
    "custom_llm_provider": "azure", "user": "team-a", "metadata": {"a": [1, "}"]},
    "cache_hit": "False",
    "status": "success",
}  # fmt: skip
OPENROUTER: dict[str, Any] = {
    "generation_id": "gen-1", "created_at": "2026-11-20 "
    "10:00:00.125", "cost_total": 0.001, "tokens_prompt": 100,
    "tokens_completion": 200, "tokens_reasoning": 0, "model_permaslug": "meta-llama/"
    "llama-3.3-70b-instruct",
    "provider_name": "Amazon Bedrock", "cancelled": "false", "streamed": "true",
    "generation_time_ms": 4000,
    "time_to_first_token_ms": 500, "api_key_name": "key-1",
}  # fmt: skip


def as_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_json(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text(json.dumps(rows, indent=1))
    return path


def as_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


def attempts(url: str) -> list[tuple[datetime, Observation]]:
    return [(came, each) for came, call in Past.open(url).calls(LONG_AGO) for each in call.attempts]


def as_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    lines = as_lines(path.with_suffix(".jsonl"), rows)
    duckdb.execute(f"COPY (FROM read_json('{lines}')) TO '{path}' (FORMAT parquet)")
    return path


LANGFUSE: dict[str, Any] = {
    "id": "obs-1", "traceId": "trace-1", "type": "GENERATION",
    "startTime": "2026-09-01T05:29:54.250Z",
    "endTime": "2026-09-01T05:29:58.250Z", "completionStartTime": "2026-09-01T05:29:54.750Z",
    "model": "gpt-4o",
    "level": "DEFAULT", "latency": 4, "input": "hi", "usageDetails": {
        "input": 40, "input_cached_tokens": 60, "output": 150, "output_reasoning_tokens": 50,
        "total": 300,
    },
}  # fmt: skip


def test_langfuse_observations_are_calls_if_they_are_generations(tmp_path: Path, url: str) -> None:
    rows = [
        LANGFUSE,
        {**LANGFUSE, "id": "obs-2", "level": "ERROR"},
        {**LANGFUSE, "id": "obs-3", "type": "SPAN"},
    ]
    found = import_log(as_lines(tmp_path / "file", rows), url, {}, "openai")
    assert (found.title, found.written, found.skipped, found.refused) == (
        "Langfuse's observations",
        2,
        1,
        0,
    )
    good, bad = (attempt for _, attempt in attempts(url))
    assert (good.target, good.outcome, good.ttft_ms, bad.outcome) == (
        "openai/gpt-4o",
        "ok",
        500,
        "failed",
    )
    assert (good.input_tokens, good.cached_tokens, good.output_tokens, good.reasoning_tokens) == (
        100,
        60,
        200,
        50,
    )


@pytest.mark.parametrize("indent", [None, 1])
def test_pages_of_an_api(indent: int | None, tmp_path: Path, url: str) -> None:
    pages = [
        {"data": [{**LITELLM, "request_id": f"r-{page}-{n}"} for n in range(3)], "page": page}
        for page in (1, 2)
    ]
    file = tmp_path / "file"
    file.write_text(
        "\n".join(json.dumps(page) for page in pages)
        if indent is None
        else json.dumps(pages[0], indent=1)
    )
    assert import_log(file, url, {}).written == (6 if indent is None else 3)


def test_a_compressed_file(tmp_path: Path, url: str) -> None:
    file = as_csv(tmp_path / "file", [LITELLM])
    file.write_bytes(gzip.compress(file.read_bytes()))
    assert import_log(file, url, {}).written == 1
    file.write_bytes(b"PK\x03\x04 etc")
    with pytest.raises(CallerFault, match=r"is compressed \(zip\)"):
        import_log(file, url, {})


TOP = {"cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
CREATED = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}


@pytest.mark.parametrize(
    ("metadata", "hour"),
    [
        ({"usage_object": TOP}, None),
        ({"additional_usage_values": TOP}, None),
        ({"usage_object": {**TOP, "cache_creation": CREATED}}, 20),
        (
            {
                "usage_object": {
                    "prompt_tokens_details": {
                        "cached_tokens": 60,
                        "cache_creation_tokens": 30,
                        "cache_creation_token_details": CREATED,
                    }
                }
            },
            20,
        ),
    ],
    ids=["newer", "older", "with lifetimes", "details"],
)
def test_tokens_of_the_prompt_cache_come_from_any_of_its_fields(
    metadata: dict[str, Any], hour: int | None, tmp_path: Path, url: str
) -> None:
    import_log(as_lines(tmp_path / "file", [{**LITELLM, "metadata": metadata}]), url, {})
    ((_, found),) = attempts(url)
    assert (found.input_tokens, found.cached_tokens, found.cache_write_tokens) == (100, 60, 30)
    assert found.cache_write_1h_tokens == hour


@pytest.mark.parametrize("write", [as_csv, as_json, as_lines, as_parquet])
@pytest.mark.parametrize(
    ("row", "target", "came"),
    [
        (LITELLM, "azure/gpt-4o", datetime(2026, 9, 1, 5, 29, 54, 250_000, UTC)),
        (
            OPENROUTER,
            "bedrock/meta-llama/llama-3.3-70b-instruct",
            datetime(2026, 11, 20, 10, 0, 0, 125_000, UTC),
        ),
    ],
)
def test_known_formats(
    write: Any, row: dict[str, Any], target: str, came: datetime, tmp_path: Path, url: str
) -> None:
    found = import_log(write(tmp_path / "file", [row]), url, {})
    assert (found.written, found.refused, found.skipped) == (1, 0, 0)
    assert found.title == next(each.title for each in KNOWN if each.columns["time"] in row)
    ((at, o),) = attempts(url)
    assert (at, o.target, o.outcome, o.streamed) == (came, target, "ok", True)
    assert (o.ttft_ms, o.total_tps, o.input_tokens, o.output_tokens) == (500, 50, 100, 200)
    assert o.tps == pytest.approx(199 / 3.5)


def test_rows_that_litellm_wrote(url: str) -> None:
    found = import_log(FOREIGN / "litellm_spend_logs.csv", url, {})
    assert (found.title, found.written, found.refused) == ("LiteLLM's spend log", 17, 0)
    assert found.skipped == 3  # a cache hit, embeddings, and a model without a provider
    read = attempts(url)
    assert {o.target for _, o in read} == {
        "openai/gpt-4o-mini", "anthropic/claude-haiku-4-5", "groq/llama-3.3-70b-versatile",
        "vllm/meta-llama/Llama-3.1-8B-Instruct", "azure/gpt-4o", "openai/gpt-4o",
    }  # fmt: skip
    came, streamed = read[1]
    assert came == datetime(2026, 11, 24, 3, 14, 50, 652_000, UTC)
    assert streamed.streamed
    assert streamed.ttft_ms == pytest.approx(151, abs=0.01)
    assert (streamed.input_tokens, streamed.output_tokens, streamed.reasoning_tokens) == (
        15,
        40,
        12,
    )
    assert streamed.total_tps == pytest.approx(40 / 0.569, rel=0.001)
    assert [o.cached_tokens for _, o in read if o.cached_tokens] == [192]
    assert sum(o.streamed for _, o in read) == 5
    failures = [(o.fault and o.fault.kind, o.ttft_ms) for _, o in read if not o.ok]
    assert failures == [
        ("http_500", None),
        ("http_500", None),
        ("http_429", None),
        ("http_500", None),
    ]


def test_payloads_of_litellms_callbacks_are_the_same_calls(tmp_path: Path, url: str) -> None:
    """An id in both files is one call, so importing both counts none twice. Failures have their own
    ids."""
    import_log(FOREIGN / "litellm_spend_logs.csv", url, {})
    found = import_log(
        FOREIGN / "litellm_standard_payloads.jsonl", f"sqlite:///{tmp_path}/other.db", {}
    )
    assert (found.written, found.skipped, found.refused) == (8, 3, 0)
    rows = {
        o.id: (o.target, o.output_tokens, o.reasoning_tokens, o.streamed)
        for _, o in attempts(url)
        if o.ok
    }
    payloads = {
        o.id: (o.target, o.output_tokens, o.reasoning_tokens, o.streamed)
        for _, o in attempts(f"sqlite:///{tmp_path}/other.db")
        if o.ok
    }
    assert len(payloads) == 4
    assert payloads.items() <= rows.items()


def test_openrouters_generations(url: str) -> None:
    found = import_log(FOREIGN / "openrouter_activity.csv", url, {})
    assert (found.title, found.written, found.refused) == ("OpenRouter's activity", 7, 0)
    read = {o.target.partition("/")[0]: (came, o) for came, o in attempts(url) if o.ok}
    came, vertex = read["vertex"]
    assert came == datetime(2026, 9, 13, 11, 46, 50, 250_000, UTC)
    assert (vertex.ttft_ms, vertex.input_tokens, vertex.cached_tokens) == (280, 700, 0)
    assert vertex.tps == pytest.approx(119 / 0.44)
    assert vertex.total_tps == pytest.approx(120 / 0.72)
    assert read["gemini"][1].target == "gemini/google/gemini-3.1-flash-lite-preview-20260303"
    assert [(read[at][1].ttft_ms, read[at][1].streamed) for at in ("novita", "deepinfra")] == [
        (580, True), (5000, False)
    ]  # fmt: skip
    (left,) = [o for _, o in attempts(url) if not o.ok]
    assert (left.outcome, left.ttft_ms, left.output_tokens) == ("cancelled", 900, 30)


def test_reasoning_may_come_before_the_first_token_or_after_it(url: str) -> None:
    """At xAI it came before, at Alibaba after. The file does not say so, and a TPS that assumes one
    is wrong there."""
    import_log(FOREIGN / "openrouter_activity.csv", url, {})
    reasoned = [o for _, o in attempts(url) if o.reasoning_tokens]
    assert sorted(o.target.partition("/")[0] for o in reasoned) == ["qwen", "xai"]
    assert [o.tps for o in reasoned] == [None, None]
    assert sorted(o.total_tps or 0 for o in reasoned) == [
        pytest.approx(1700 / 30.8),
        pytest.approx(1200 / 12.8),
    ]


def test_openrouters_summary_by_day_has_no_times() -> None:
    columns = (
        "Date,Slug,Usage,BYOK Usage,Requests,Prompt Tokens,Completion Tokens,Reasoning "
        "Tokens,API Key"
    )
    with pytest.raises(CallerFault, match="summary by day, which has no times of requests"):
        format_of(columns.split(","), {})


def test_fields_inside_objects(tmp_path: Path, url: str) -> None:
    row = {
        "time": 1_790_000_000,
        "model": "a/x",
        "took": {"ms": 2000},
        "usage": '{"out": 100}',
        "alias": "",
        "key": "k",
    }
    mapped = parse_map(
        "duration_ms=took.ms,output_tokens=usage.out,client=alias|key,status=usage.no.such"
    )
    found = import_log(as_lines(tmp_path / "file", [row]), url, mapped)
    assert (found.written, found.ignored) == (1, [])
    ((_, o),) = attempts(url)
    assert o.total_tps == 50
    ((_, call),) = Past.open(url).calls(LONG_AGO)
    assert call.client == "k"


def test_importing_again_adds_only_new_calls(tmp_path: Path, url: str) -> None:
    rows = [{**LITELLM, "request_id": f"r-{n}"} for n in range(1200)]
    file = as_lines(tmp_path / "file", rows[:1000])
    assert import_log(file, url, {}).written == 1000
    again = import_log(as_json(tmp_path / "more", rows), url, {})
    assert (again.written, again.present) == (200, 1000)
    assert len(attempts(url)) == 1200


def test_without_an_id_equal_lines_are_one_call(tmp_path: Path, url: str) -> None:
    row = {"time": 1_790_000_000, "model": "a/x", "duration_s": 2, "output_tokens": 10}
    file = as_lines(tmp_path / "file", [row, {**row, "output_tokens": 11}, row])
    first, again = (import_log(file, url, {}) for _ in range(2))
    assert (first.written, first.present) == (2, 1)
    assert (again.written, again.present) == (0, 3)


@each_case(
    ("values", "took_s", "ttft_ms"),
    [
        ({"time": 1_790_000_000, "duration_s": "2.5", "ttft_s": 0.25}, 2.5, 250),
        ({"time": 1_790_000_000_000, "duration_ms": 2500, "ttft_ms": "250"}, 2.5, 250),
        ({"time": 1_790_000_000_000_000, "end_time": 1_790_000_002_500_000}, 2.5, None),
        ({"time": "2026-09-21T14:13:20+00:00", "end_time": "2026-09-21 "
        "16:13:22.5+02:00"}, 2.5, None),
        ({"end_time": "2026-09-21 14:13:22.5 UTC", "duration_ms": 2500}, 2.5, None),
        (
            {"time": 1_790_000_000, "duration_s": 2.5,
            "first_token_time": "2026-09-21T14:13:20.25Z"}, 2.5, 250
        ),
        ({"time": 1_790_000_000, "duration_s": 2.5, "ttft_s": 9}, 2.5, None),
    ],
)  # fmt: skip
def test_units(values: dict[str, Any], took_s: float, ttft_ms: float | None) -> None:
    line = {**values, "model": "m", "output_tokens": 100}
    record = record_of(line, format_of(list(line), {}))
    assert record is not None
    (o,) = record.attempts
    assert record.came_us == 1_790_000_000_000_000
    assert o.total_tps == pytest.approx(100 / took_s)
    assert (o.ttft_ms if o.streamed else None) == (
        None if ttft_ms is None else pytest.approx(ttft_ms)
    )


@pytest.mark.parametrize(
    ("change", "outcome", "kind"),
    [
        ({"status": "failure"}, "failed", "failed"),
        ({"status": 429}, "failed", "http_429"),
        ({"status": "200"}, "ok", None),
        ({"cancelled": "true"}, "cancelled", None),
        ({"status": "aborted"}, "cancelled", None),
    ],
)
def test_outcomes(change: dict[str, Any], outcome: str, kind: str | None) -> None:
    line = {"time": 1_790_000_000, "duration_s": 2, "model": "m", **change}
    made = record_of(line, format_of(list(line), {}))
    assert made is not None
    (o,) = made.attempts
    assert (o.outcome, o.fault and o.fault.kind) == (outcome, kind)


@pytest.mark.parametrize("change", [{"cache_hit": "True"}, {"call_type": "aembedding"}])
def test_lines_that_no_provider_answered_are_skipped(
    change: dict[str, Any], tmp_path: Path, url: str
) -> None:
    found = import_log(as_csv(tmp_path / "file", [{**LITELLM, **change}, LITELLM]), url, {})
    assert (found.written, found.skipped) == (1, 1)


def test_bad_lines_are_refused_and_the_others_are_kept(tmp_path: Path, url: str) -> None:
    good = {
        "time": 1_790_000_000,
        "duration_ms": 900,
        "model": "a/x",
        "output_tokens": 5,
        "status": "",
        "id": 0,
    }
    bad: list[dict[str, Any]] = [
        {"time": "yesterday"}, {"time": 12}, {"duration_ms": -1}, {"duration_ms": 1e15},
        {"duration_ms": 0},
        {"duration_ms": ""}, {"model": ""}, {"output_tokens": "many"}, {"output_tokens": 1.5},
        {"output_tokens": -3},
        {"output_tokens": 1e300}, {"status": "perhaps"}, {"duration_ms": "nan"},
    ]  # fmt: skip
    rows = [{**good, "id": number, **change} for number, change in enumerate([{}, *bad, {}])]
    found = import_log(as_csv(tmp_path / "file", rows), url, {})
    assert (found.written, found.refused) == (2, len(bad))
    assert (
        found.reasons[0]
        == "line 3: its time is 'yesterday', expected ISO 8601 or a number since 1970"
    )
    assert len(found.reasons) == 5
    assert len(attempts(url)) == 2


@pytest.mark.parametrize(
    ("text", "written", "reason"),
    [
        ('time,model,duration_s\n1790000000,a,1\n'
        '1790000000,a\n1790000001,a,1\n', 2, "line 3: it has 2 fields, and"),
        ('{"time":1790000000,"model":"a",'
        '"duration_s":1}\n{"time"\n[1]\n', 1, "line 2: it is no JSON"),
        ('[{"time":1790000000,"model":"a","duration_s":1}, 7, '
        '{"time":', 1, "line 2: it is no object"),
        ('[{"time":1790000000,"model":"a","duration_s":1}]', 1, ""),
    ],
)  # fmt: skip
def test_broken_files_are_imported_as_far_as_possible(
    text: str, written: int, reason: str, tmp_path: Path, url: str
) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    found = import_log(file, url, {})
    assert found.written == written
    assert [each[: len(reason)] for each in found.reasons[:1]] == ([reason] if reason else [])


def test_mapped_columns_are_imported(tmp_path: Path, url: str) -> None:
    row = {"ts": "2026-09-21T14:13:20Z", "latency": 2500, "out": 100, "llm": "gpt-4o", "note": "x"}
    mapped = parse_map("time=ts, duration_ms=latency,output_tokens=out,model=llm")
    found = import_log(as_csv(tmp_path / "file", [row]), url, mapped, "openai")
    assert (found.title, found.ignored) == ("a table", ["note"])
    ((_, o),) = attempts(url)
    assert (o.target, o.total_tps) == ("openai/gpt-4o", 40)


def test_a_map_adds_to_a_known_format() -> None:
    form = format_of(list(LITELLM), {"client": "api_key"})
    assert (form.title, form.columns["client"], form.columns["time"]) == (
        "LiteLLM's spend log",
        "api_key",
        "startTime",
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("time", "--map: got 'time', expected field=column"),
        ("tmie=ts", "unknown field 'tmie'"),
    ],
)
def test_a_wrong_map(given: str, words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        parse_map(given)


@pytest.mark.parametrize(
    ("columns", "mapped", "words"),
    [
        (["ts", "model"], {}, "no column is known to be time; the file's columns are ts, model"),
        (
            ["time", "model"],
            {},
            "no column is known to be duration_s, duration_ms or both time and end_time",
        ),
        (["time", "duration_s"], {}, "no column is known to be model"),
        (["time", "duration_s"], {"model": "modle"}, "no column 'modle'"),
    ],
)
def test_columns_that_are_missing_are_named(
    columns: list[str], mapped: dict[str, str], words: str
) -> None:
    with pytest.raises(CallerFault, match=words):
        format_of(columns, mapped)


def test_unreadable_file_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(CallerFault, match="cannot read"):
        import_log(tmp_path / "missing.csv", url, {})
    (tmp_path / "empty").write_text("")
    with pytest.raises(CallerFault, match="has no line with values"):
        import_log(tmp_path / "empty", url, {})


def test_a_provider_of_litellm_is_not_named_twice() -> None:
    for model in (
        "bedrock/anthropic.claude-3-sonnet-20240229-v1:0",
        "anthropic.claude-3-sonnet-20240229-v1:0",
    ):
        line = {**LITELLM, "model": model, "custom_llm_provider": "bedrock"}
        made = record_of(line, format_of(list(line), {}))
        assert made is not None
        assert made.target == "bedrock/anthropic.claude-3-sonnet-20240229-v1:0"


def test_every_field_can_be_a_column() -> None:
    assert all(parse_map(f"{field}=x") == {field: "x"} for field in FIELDS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "kind", ["objects", "long object, then short ones", "open brackets", "one line", "quotes"]
)
def test_reading_is_linear(kind: str, tmp_path: Path) -> None:
    def make(size: int) -> bytes:
        match kind:
            case "objects":
                return json.dumps([LITELLM] * (size // 600)).encode()
            case "long object, then short ones":
                return json.dumps([{"a": "x" * (size // 2)}, *[{"a": 1}] * (size // 20)]).encode()
            case "open brackets":
                return b"[" * size
            case "one line":
                return b'{"a": ' * (size // 6)
        return b'a,b\n"' * (size // 5)

    def read(text: bytes) -> None:
        (tmp_path / "file").write_bytes(text)
        for _ in lines_of(tmp_path / "file"):
            pass

    check_linear(read, make)


def test_a_broken_parquet_file_is_refused(tmp_path: Path, url: str) -> None:
    (tmp_path / "file").write_bytes(b"PAR1 and no more")
    with pytest.raises(CallerFault, match="cannot read"):
        import_log(tmp_path / "file", url, {})


@each_case(
    ("changes", "accounting"),
    [
        ({"spend": 0.0012}, CallAccounting(stated_usd=0.0012)),
        ({"spend": 0}, CallAccounting(stated_usd=0.0)),
        ({"spend": "", "team_id": "t1"}, CallAccounting(team="t1")),
        (
            {
                "spend": "",
                "team_id": "t1",
                "metadata": {"user_api_key_team_alias": "search"},
                "request_tags": ["prod", "User-Agent: x/1", "chat"],
            },
            CallAccounting(team="search", tags="chat, prod"),
        ),
        ({"spend": "", "request_tags": '["b", "a"]'}, CallAccounting(tags="a, b")),
        ({"spend": "", "request_tags": '{a,"b c"}'}, CallAccounting(tags="a, b c")),
        ({"spend": "", "request_tags": "[]"}, None),
    ],
)
def test_cost_team_and_tags_of_a_line(
    changes: dict[str, Any], accounting: CallAccounting | None
) -> None:
    line = LITELLM | {"team_id": "", "request_tags": ""} | changes
    record = record_of(line, format_of(list(line), {}))
    assert record is not None
    assert record.accounting == accounting


@pytest.mark.parametrize("cost", ["x", -1, "nan"])
def test_a_cost_that_is_none_refuses_the_line(cost: object) -> None:
    line = LITELLM | {"spend": cost}
    with pytest.raises(ValueError, match=r"its cost_usd is .*, expected US dollars"):
        record_of(line, format_of(list(line), {}))


def test_langfuse_states_a_cost_and_tags() -> None:
    line = LANGFUSE | {"costDetails": {"total": 0.5, "input": 0.2}, "traceTags": ["eval"]}
    record = record_of(line, format_of(list(line), {}), "openai")
    assert record is not None
    assert record.accounting == CallAccounting(tags="eval", stated_usd=0.5)


def test_import_counts_days_and_the_stated_cost(tmp_path: Path, url: str) -> None:
    rows = [
        {**OPENROUTER, "generation_id": f"g{day}", "created_at": f"2026-11-{day} 23:59:59"}
        for day in (20, 22)
    ]
    found = import_log(as_csv(tmp_path / "file", rows), url, {})
    assert (found.days, found.first, found.last) == (2, "2026-11-20", "2026-11-22")
    assert found.stated_usd == pytest.approx(0.002)


def test_tags_that_differ_in_each_call_are_joined(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MAX_TAGS", 2)
    rows = [{**LITELLM, "request_id": f"r{n}", "request_tags": [f"id-{n}"]} for n in range(4)]
    import_log(as_lines(tmp_path / "file", rows), url, {})
    tags = [call.accounting and call.accounting.tags for _, call in Past.open(url).calls(LONG_AGO)]
    assert sorted(map(str, tags)) == ["id-0", "id-1", "other tags", "other tags"]
