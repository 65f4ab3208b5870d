"""Sounds and documents in a file of prompts: how each API format gets them, and what is refused
before the run."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import each_case

from splitsecond.benchmark.runs.planning import check_prompts
from splitsecond.benchmark.workload.prompt_files import parse_prompts
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.wire.api_format import Quirks

SOUND = base64.b64encode(b"RIFF....WAVEfmt ").decode()
PDF = base64.b64encode(b"%PDF-1.7\n").decode()
PDF_URL = f"data:application/pdf;base64,{PDF}"
PARTS: dict[str, dict[str, Any]] = {
    "sound": {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
    "document": {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}},
}
SENT: dict[tuple[str, str], dict[str, Any]] = {
    ("sound", "openai"): PARTS["sound"],
    ("sound", "gemini"): {"inlineData": {"mimeType": "audio/wav", "data": SOUND}},
    ("document", "openai"): PARTS["document"],
    ("document", "anthropic"): {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        "title": "a.pdf",
    },
    ("document", "gemini"): {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
    ("document", "responses"): {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL},
}
"""The part that a target gets, in each API format that has it."""


def workload_with(part: str) -> Workload:
    """The workload of a file whose second prompt has this part."""
    asked = [{"type": "text", "text": "What is it?"}, PARTS[part]]
    lines = [{"prompt": "Why?"}, {"messages": [{"role": "user", "content": asked}]}]
    data = "\n".join(map(json.dumps, lines)).encode()
    return Workload(run="r", prompts=parse_prompts(io.BytesIO(data), "p.jsonl").prompts)


def spec(api_format: str) -> TargetSpec:
    return TargetSpec(name="x/m", base_url="http://x", model="m", api_format=api_format)


@each_case("api_format", API_FORMATS)
@each_case("part", PARTS)
def test_part_reaches_the_target_or_is_refused_before_the_run(part: str, api_format: str) -> None:
    workload = workload_with(part)
    if (part, api_format) not in SENT:
        with pytest.raises(CallerFault, match=r"p\.jsonl: prompt 2: .*cannot be translated"):
            check_prompts(workload, "p.jsonl", [spec(api_format)])
        return
    check_prompts(workload, "p.jsonl", [spec(api_format)])
    call = Call(id="c", body=Composer(workload).body("c", 1))
    encode = API_FORMATS[api_format].encode
    sent = transcoding.request(call, api_format, encode, "m", Quirks(default_max_tokens=9))
    assert SENT[part, api_format] in list(parts_of(json.loads(sent.body)))


def parts_of(value: Any) -> Iterator[Any]:
    """All objects in `value`."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from parts_of(each)


def test_refusal_names_the_target_and_formats_that_have_the_part() -> None:
    with pytest.raises(CallerFault) as raised:
        check_prompts(workload_with("sound"), "p.jsonl", [spec("openai"), spec("anthropic")])
    assert raised.value.target == "x/m"
    assert raised.value.hint == "API formats that can: openai and gemini."


def test_field_of_every_request_counts_too() -> None:
    workload = replace(
        workload_with("document"), extra={"messages": [{"role": "user", "content": "?"}]}
    )
    check_prompts(workload, "p.jsonl", [spec("ollama")])
