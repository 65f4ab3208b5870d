"""Pictures, documents and sounds of clients' requests, as targets of every API format get them."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.upstream.transcoding import request
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.client_format import (
    ANTHROPIC_MESSAGES,
    GEMINI,
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    ClientFormat,
)

# its base64 has + and /, and ends in =
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(250)) + b"\xfb\xff\xfe"
PDF = b"%PDF-1.7\n" + bytes(range(250))
STANDARD = base64.b64encode(PNG).decode()
FOR_URLS = base64.urlsafe_b64encode(PNG).decode()
SPELLINGS = {
    "standard": STANDARD,
    "for URLs": FOR_URLS,
    "without padding": FOR_URLS.rstrip("="),
    "in lines": base64.encodebytes(PNG).decode(),
}
PICTURE_TARGETS = [name for name in API_FORMATS if name != "replicate"]
Body = dict[str, Any]
TOOL = {"type": "object", "properties": {}}


def chat(data: str, kind: str = "image/png") -> Body:
    parts = [
        {"type": "text", "text": "?"},
        {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}},
    ]
    return {"messages": [{"role": "user", "content": parts}]}


def messages(data: str, kind: str = "image/png") -> Body:
    source = {"type": "base64", "media_type": kind, "data": data}
    return {
        "max_tokens": 5,
        "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}],
    }


def items(data: str, kind: str = "image/png") -> Body:
    part = {"type": "input_image", "image_url": f"data:{kind};base64,{data}"}
    return {"input": [{"role": "user", "content": [part]}]}


def contents(data: str, kind: str = "image/png") -> Body:
    return {
        "contents": [{"parts": [{"text": "?"}, {"inlineData": {"mimeType": kind, "data": data}}]}]
    }


def lines(data: str, kind: str = "image/png") -> Body:
    return {"messages": [{"role": "user", "content": "?", "images": [data]}]}


def prompt(data: str, kind: str = "image/png") -> Body:
    return {"prompt": "?", "images": [data]}


CLIENTS = {
    "chat": (OPENAI_CHAT, chat),
    "messages": (ANTHROPIC_MESSAGES, messages),
    "responses": (OPENAI_RESPONSES, items),
    "gemini": (GEMINI, contents),
    "ollama": (OLLAMA_CHAT, lines),
    "ollama generate": (OLLAMA_GENERATE, prompt),
}


def translated(
    form: ClientFormat, body: Body, api_format: str, quirks: Quirks | None = None
) -> tuple[Body, Call]:
    """Return what a target gets for the request `body` of a client, and the call with its notes."""
    fields = msgspec.json.decode(json.dumps(body), type=dict[str, Raw])
    call = Call(id="c", body=fields, api_format=form.name)
    if form.incoming is not None:
        call = form.incoming(call)
    encode = API_FORMATS[api_format].encode
    sent = request(call, api_format, encode, "o/m", quirks or Quirks(), target="x/m")
    return json.loads(sent.body), call


def texts(value: Any) -> Iterator[str]:
    """All strings in `value`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def inline(body: Body) -> list[bytes]:
    """The data in `body` that begin as a picture or a document does, decoded strictly."""
    found = (text.rpartition(";base64,")[2] for text in texts(body))
    begins = base64.b64encode(PNG)[:8].decode(), base64.b64encode(PDF)[:8].decode()
    return [base64.b64decode(data, validate=True) for data in found if data.startswith(begins)]


def native(client: str, api_format: str) -> bool:
    """Whether a request of `client` passes to a target of `api_format` byte for byte."""
    return {"chat": "openai", "messages": "anthropic"}.get(client,
    client) == api_format and client in (
        "chat", "messages", "responses",
    )  # fmt: skip


@each_case("spelling", SPELLINGS)
@each_case("api_format", PICTURE_TARGETS)
@each_case("client", CLIENTS)
def test_a_picture_arrives_in_strict_base64(client: str, api_format: str, spelling: str) -> None:
    form, make = CLIENTS[client]
    body, _ = translated(form, make(SPELLINGS[spelling]), api_format)
    if native(client, api_format):
        assert SPELLINGS[spelling] in "".join(texts(body))
    else:
        assert inline(body) == [PNG]


@each_case("api_format", PICTURE_TARGETS)
@each_case("client", ["chat", "messages", "responses", "gemini"])
def test_image_jpg_becomes_image_jpeg(client: str, api_format: str) -> None:
    form, make = CLIENTS[client]
    body, _ = translated(form, make(STANDARD, "image/jpg"), api_format)
    if not native(client, api_format):
        assert "image/jpg" not in json.dumps(body)
        assert api_format == "ollama" or "image/jpeg" in json.dumps(body)


@each_case("api_format", ["anthropic", "gemini", "responses", "openai"])
@each_case("client", ["chat", "responses", "gemini", "messages"])
def test_a_pdf_sent_as_an_image_is_a_document(client: str, api_format: str) -> None:
    form, make = CLIENTS[client]
    data = base64.urlsafe_b64encode(PDF).decode()
    if native(client, api_format):
        return
    body, _ = translated(form, make(data, "application/pdf"), api_format)
    assert inline(body) == [PDF]
    words = {
        "anthropic": '"document"',
        "gemini": '"application/pdf"',
        "responses": '"input_file"',
        "openai": '"file"',
    }
    assert words[api_format] in json.dumps(body)


@each_case("api_format", PICTURE_TARGETS)
def test_a_picture_sent_as_a_file_is_an_image(api_format: str) -> None:
    def sent(url: str) -> Any:
        # as Vercel's provider for OpenRouter
        part = {"type": "file", "file": {"filename": "", "file_data": url}}
        return translated(
            OPENAI_CHAT, {"messages": [{"role": "user", "content": [part]}]}, api_format
        )[0]

    if api_format != "openai":
        assert inline(sent(f"data:image/jpg;base64,{STANDARD}")) == [PNG]
    if api_format in ("anthropic", "cohere", "responses"):
        assert '"https://x.test/a.png"' in json.dumps(sent("https://x.test/a.png"))


@each_case("api_format", ["anthropic", "cohere", "responses"])
@each_case("client", ["chat", "gemini"])
def test_a_type_that_the_target_lacks_is_refused_by_name(client: str, api_format: str) -> None:
    form, make = CLIENTS[client]
    with pytest.raises(CallerFault, match="image/svg") as caught:
        translated(form, make(STANDARD, "image/svg+xml"), api_format)
    assert caught.value.kind == "not_translatable"


def test_a_file_of_text_is_a_text_document_for_anthropic() -> None:
    url = "data:text/csv;base64," + base64.b64encode("a,ü\n".encode()).decode()
    part = {"type": "file", "file": {"filename": "a.csv", "file_data": url}}
    body, _ = translated(
        OPENAI_CHAT, {"messages": [{"role": "user", "content": [part]}]}, "anthropic"
    )
    source = {"type": "text", "media_type": "text/plain", "data": "a,ü\n"}
    assert body["messages"][0]["content"] == [
        {"type": "document", "source": source, "title": "a.csv"}
    ]


def test_a_file_of_text_that_is_not_utf_8_is_refused() -> None:
    url = "data:text/plain;base64," + base64.b64encode(b"\xff").decode()
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": url}}
    with pytest.raises(CallerFault, match="UTF-8"):
        translated(OPENAI_CHAT, {"messages": [{"role": "user", "content": [part]}]}, "anthropic")


SOUND = {"inlineData": {"mimeType": "audio/mpeg", "data": "-_8="}}


@each_case("api_format", ["openai", "gemini"])
def test_a_sound_arrives_under_its_usual_name(api_format: str) -> None:
    body, _ = translated(GEMINI, {"contents": [{"parts": [SOUND]}]}, api_format)
    assert "+/8=" in list(texts(body))
    assert {"mp3", "audio/mp3"}.intersection(texts(body))


def test_a_picture_in_the_system_prompt_is_left_out_by_name() -> None:
    instruction = {"parts": [{"text": "Look."}, contents(STANDARD)["contents"][0]["parts"][1]]}
    body, call = translated(
        GEMINI, {**contents(STANDARD), "systemInstruction": instruction}, "openai"
    )
    assert body["messages"][0] == {"role": "system", "content": "Look."}
    assert call.notes.dropped == ["systemInstruction.parts"]


CALL = {"id": "a", "name": "look", "args": {}}
RESULT: dict[str, Body] = {
    "openai": {
        "messages": [
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "a",
                "content": [
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{STANDARD}"}}
                ],
            },
        ]
    },
    "anthropic": {
        "max_tokens": 5,
        "messages": [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": messages(STANDARD)["messages"][0]["content"],
                    }
                ],
            },
        ],
    },
    "responses": {
        "input": [
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "a",
                "output": items(STANDARD)["input"][0]["content"],
            },
        ]
    },
    "gemini": {
        "contents": [
            {"role": "model", "parts": [{"functionCall": CALL}]},
            {
                "role": "user",
                "parts": [
                    {
                        "function_response": {
                            "name": "look",
                            "response": {"output": "so"},
                            "parts": [
                                {"inline_data": {"mime_type": "image/png", "data": FOR_URLS}}
                            ],
                        }
                    }
                ],
            },
        ]
    },
    "ollama": {
        "messages": [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": "look", "arguments": {}}}],
            },
            {"role": "tool", "tool_name": "look", "content": "so", "images": [FOR_URLS]},
        ]
    },
}
FORMS = {
    "openai": OPENAI_CHAT,
    "anthropic": ANTHROPIC_MESSAGES,
    "responses": OPENAI_RESPONSES,
    "gemini": GEMINI,
    "ollama": OLLAMA_CHAT,
}


@each_case("api_format", PICTURE_TARGETS)
@each_case("client", RESULT)
def test_a_picture_in_a_tools_result_arrives(client: str, api_format: str) -> None:
    body, _ = translated(FORMS[client], RESULT[client], api_format)
    assert inline(body) == [PNG]
