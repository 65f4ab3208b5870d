"""Raw answers of real servers (vLLM, llama.cpp, llama-cpp-python), heads and chunk framing
included.

Beside each ``.http`` file stands an ``.events`` file with what our decoder must make of it, a line
for each event. ``python tests/wire/test_transcripts.py`` writes them anew; look at the difference
before you keep it.
"""

from pathlib import Path

from tests.cases import each_case

from splitsecond.core.events import (
    Broken,
    Done,
    Event,
    Finish,
    Quiet,
    Token,
    TokenRun,
    Usage,
    WholeText,
)
from splitsecond.core.wire import openai

FOLDER = Path(__file__).parent / "transcripts"
TRANSCRIPTS = sorted(FOLDER.glob("*.http"))


def parse(raw: bytes) -> tuple[int, dict[str, str], list[bytes]]:
    """Status, headers, and the body in the chunks in which it was sent."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") != "chunked":
        return int(status_line.split()[1]), headers, [body]
    chunks: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        chunks.append(body[:length])
        body = body[length + 2 :]
    return int(status_line.split()[1]), headers, [chunk for chunk in chunks if chunk]


def describe(event: Event) -> str:
    match event:
        case Quiet():
            return f"quiet {event.what}"
        case Token():
            return f"token {event.index} {event.kind} {event.text!r}"
        case TokenRun():
            return f"tokens of {event.lengths} characters"
        case WholeText():
            return f"a whole answer of {event.length} characters, {event.reason}"
        case Usage():
            return (
                f"usage input={event.input_tokens} output={event.output_tokens} "
                f"reasoning={event.reasoning_tokens} cached={event.cached_tokens}"
            )
        case Finish():
            return f"finish {event.index} {event.reason}"
        case Done():
            return "done, marker" if event.marker else "done"
        case Broken():
            return f"broken {event.fault!r}"


def events_of(raw: bytes) -> str:
    status, headers, chunks = parse(raw)
    if status != 200:
        fault = openai.fault_from_response(status, headers, b"".join(chunks))
        return f"{fault!r}\n{fault.hint}\n"
    decoder = openai.decoder("chat")
    events = [event for at, chunk in enumerate(chunks) for event in decoder.feed(chunk, at)]
    events += decoder.close(len(chunks))
    lines = [f"{event.at:3} {describe(event)}" for event in events]
    if decoder.server_timings:
        lines.append(f"server timings {sorted(decoder.server_timings.items())}")
    return "\n".join(lines) + "\n"


@each_case("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    assert events_of(path.read_bytes()) == path.with_suffix(".events").read_text()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 30


if __name__ == "__main__":
    for transcript in TRANSCRIPTS:
        transcript.with_suffix(".events").write_text(events_of(transcript.read_bytes()))
