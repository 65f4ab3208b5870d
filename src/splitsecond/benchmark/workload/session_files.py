"""Sessions from a file, or from a folder of files. The format is recognised by the content.

- ours: JSON lines, one session each
- WEKA, whose format AgentX uses: one session a line or a file, with `hash_ids`, or
  `shared_prefix_blocks` instead
- MLPerf's agentic messages: one message a line, those of a conversation one after another
- TraceLab: one request a line
- OpenTelemetry's GenAI spans: OTLP as JSON, or one span a line
- conversations: lists of OpenAI's messages, or those of ShareGPT, one a line

An unknown field could change the meaning of a session, so it is refused by name. Only spans and the
rows of TraceLab have fields that are left out, because they describe much more than requests.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.benchmark.workload import session_rows, session_spans, session_texts
from splitsecond.benchmark.workload.input_lines import numbered_lines
from splitsecond.benchmark.workload.sessions import MAX_TURNS, Session, SessionSet, bad_session
from splitsecond.core.compressed_file import open_bytes
from splitsecond.core.errors import PARSER_ERRORS, excerpt, file_faults, parser_words
from splitsecond.core.wording import counted_as

FORMATS = (
    'Known are our JSON lines ({"turns": [{"new_tokens": 900, "output_tokens": 200, "wait_s": '
    "2}]}), the traces of "
    "WEKA and TraceLab, MLPerf's agentic messages, OpenTelemetry's GenAI spans, and lists of "
    "messages."
)
LONGEST = 1 << 26
"""Most bytes of a line, or of a file with a single session."""
MAX_TEXT_BYTES = 1 << 26
"""Most bytes of all texts together, because every worker process holds them."""
_Records = Iterator[tuple[str, Any]]


class _Format(Struct, frozen=True):
    """A format of sessions: it `fits` the first record of a file. `sessions` takes the records with
    their places."""

    name: str
    fits: Callable[[Any], bool]
    sessions: Callable[[_Records], Iterator[Session]]
    note: str = ""


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda record: isinstance(record, dict) and record.keys() >= set(names)


def _each(session: Callable[[Any, str], Session]) -> Callable[[_Records], Iterator[Session]]:
    return lambda records: (session(record, place) for place, record in records)


_FORMATS = (
    _Format("WEKA", _has("requests", "block_size"), _each(session_rows.weka)),
    _Format("JSON lines", _has("turns"), _each(session_rows.ours)),
    _Format(
        "MLPerf's agentic messages",
        _has("conversation_id", "turn", "role"),
        session_texts.agentic_messages,
    ),
    _Format(
        "TraceLab",
        _has("session_id", "input_tokens_total", "prefix_tokens"),
        session_rows.tracelab,
        "The trace does not link sub-agents to their parents, so they are sessions of their own.",
    ),
    _Format("ShareGPT", _has("conversations"), _each(session_texts.share_gpt)),
    _Format("messages", _has("messages"), _each(session_texts.messages)),
    _Format("messages", lambda record: isinstance(record, list), _each(session_texts.messages)),
    _Format(
        "OpenTelemetry spans", session_spans.is_span, session_spans.sessions, session_spans.NOTE
    ),
)


def read_sessions(path: Path) -> SessionSet:
    """Read the sessions in a file or folder. Raises `CallerFault` with the place of what is not
    understood."""
    with file_faults(f"cannot read the sessions {path}", kind="bad_sessions"):
        files = (
            sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        )
        records = chain.from_iterable(map(_records, files))
        first = next(records, None)
        if first is None:
            raise bad_session(str(path), "no session found", FORMATS)
        file_format = next((form for form in _FORMATS if form.fits(first[1])), None)
        if file_format is None:
            text = excerpt(msgspec.json.encode(first[1]))
            raise bad_session(first[0], f"got {text}, expected a session", FORMATS)
        sessions, complete = _limited(file_format.sessions(chain([first], records)))
    if not sessions:
        raise bad_session(str(path), "no session with a request found", FORMATS)
    cut = (
        ""
        if complete
        else f"Only the first {counted_as(len(sessions), 'session')} are "
        "used: the file is too large."
    )
    return SessionSet(
        name=str(path),
        format=file_format.name,
        sessions=session_texts.with_shared_prompts(sessions),
        note=" ".join(filter(None, (cut, file_format.note))),
    )


def _limited(sessions: Iterable[Session]) -> tuple[list[Session], bool]:
    limited: list[Session] = []
    turns = size = 0
    for session in sessions:
        own = list(session.all_turns())
        turns += len(own)
        size += sum(len(turn.messages) + len(turn.answer) for turn in own) + len(session.tools)
        if limited and (turns > MAX_TURNS or size > MAX_TEXT_BYTES):
            return limited, False
        if own:
            limited.append(session)
    return limited, True


def _records(path: Path) -> _Records:
    """Yield the JSON values of a file with their places: one a line, or a single one over several
    lines."""
    name = str(path)
    with (
        file_faults(f"cannot read the sessions {path}", kind="bad_sessions"),
        open_bytes(path) as file,
    ):
        lines = numbered_lines(file, name, LONGEST, "bad_sessions", FORMATS)
        for number, line in lines:
            place = f"{name}:{number}"
            try:
                value = msgspec.json.decode(line)
            except PARSER_ERRORS as error:
                if number > 1 or line not in ("{", "["):
                    raise bad_session(
                        place, f"the line is not JSON: {parser_words(error)}", FORMATS
                    ) from None
                file.seek(0)
                value, place = _whole(file.read(LONGEST + 1), name), name
                yield from _spread(value, place)
                return
            yield from _spread(value, place)


def _whole(data: bytes, name: str) -> Any:
    if len(data) > LONGEST:
        raise bad_session(
            name, f"the file has more than {LONGEST:,} bytes and no value a line", FORMATS
        )
    try:
        return msgspec.json.decode(data)
    except PARSER_ERRORS as error:
        raise bad_session(name, f"it is not JSON: {parser_words(error)}", FORMATS) from None


def _spread(value: Any, place: str) -> _Records:
    """Yield the sessions of an array; an array of messages is one session."""
    if (
        isinstance(value, list)
        and value
        and not (isinstance(value[0], dict) and "role" in value[0])
    ):
        yield from ((f"{place}[{number}]", each) for number, each in enumerate(value))
    else:
        yield place, value
