"""Where a request of each API format holds media, and what it refers to; anything else is text."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core import validation
from splitsecond.core.service import Call, Operation, Spoken
from splitsecond.core.wire import media
from splitsecond.core.wire.media import RequestContent, request_content

BASE64 = "QUJD" * 2000
PNG = f"data:image/png;base64,{BASE64}"
PDF = f"data:application/pdf;base64,{BASE64}"
TEXT = {"type": "text", "text": "What is this?"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}}


def sent(api_format: Spoken, operation: Operation = "chat", **fields: Any) -> RequestContent:
    """The content of a request as a client sends it; as plain values it is the same."""
    raw = msgspec.json.decode(json.dumps(fields), type=dict[str, Raw])
    found = request_content(Call(id="c", operation=operation, api_format=api_format, body=raw))
    plain = request_content(Call(id="c", operation=operation, api_format=api_format, body=fields))
    assert (found.pictures, found.unbounded) == (plain.pictures, plain.unbounded)
    return found


def size(content: RequestContent) -> int:
    return sum(map(len, content.text.values()))


def chat(*parts: Any, **fields: Any) -> RequestContent:
    return sent("openai", messages=[{"role": "user", "content": [TEXT, *parts]}], **fields)


def messages(*blocks: Any, **fields: Any) -> RequestContent:
    return sent("anthropic", messages=[{"role": "user", "content": [TEXT, *blocks]}], **fields)


def responses(*parts: Any, **fields: Any) -> RequestContent:
    item = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "What?"}, *parts],
    }
    return sent("responses", input=[item], **fields)


def in_item(**item: Any) -> RequestContent:
    return sent("responses", input=[item])


PICTURES = {
    "chat, data URL": lambda: chat(
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}
    ),
    "chat, data URL without an object": lambda: chat({"type": "image_url", "image_url": PNG}),
    "chat, tiny": lambda: chat(
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGOA=="}}
    ),
    "chat, address": lambda: chat(
        {"type": "image_url", "image_url": {"url": "https://x.test/a.JPG?size=9"}}
    ),
    "chat, tool's result": lambda: sent(
        "openai",
        messages=[{"role": "tool", "content": [{"type": "image_url", "image_url": {"url": PNG}}]}],
    ),
    "chat, Gemini's own part": lambda: chat(
        {"inlineData": {"mimeType": "image/png", "data": BASE64}}
    ),
    "embeddings": lambda: sent(
        "openai", "embeddings", input=[{"type": "image_url", "image_url": {"url": PNG}}]
    ),
    "messages, inline": lambda: messages(IMAGE),
    "messages, address": lambda: messages(
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
    ),
    "messages, file": lambda: messages(
        {"type": "image", "source": {"type": "file", "file_id": "file-1"}}
    ),
    "messages, tool's result": lambda: messages(
        {"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}
    ),
    "messages, in a document": lambda: messages(
        {"type": "document", "source": {"type": "content", "content": [TEXT, IMAGE]}}
    ),
    "messages, in a document of a tool's result": lambda: messages(
        {
            "type": "tool_result",
            "content": [{"type": "document", "source": {"type": "content", "content": [IMAGE]}}],
        }
    ),
    "responses, inline": lambda: responses({"type": "input_image", "image_url": PNG}),
    "responses, file": lambda: responses(
        {"type": "input_image", "image_url": None, "file_id": "file-1"}
    ),
    "responses, tool's result": lambda: in_item(
        type="function_call_output", call_id="f", output=[{"type": "input_image", "image_url": PNG}]
    ),
    "responses, screenshot": lambda: in_item(
        type="computer_call_output",
        call_id="f",
        output={"type": "computer_screenshot", "image_url": PNG},
    ),
    "responses, made before": lambda: in_item(
        type="image_generation_call", id="ig_1", result=BASE64
    ),
    "responses, made before, by its id": lambda: in_item(type="image_generation_call", id="ig_1"),
}


@each_case("name", PICTURES)
def test_picture_is_counted_without_its_bytes(name: str) -> None:
    found = PICTURES[name]()
    assert (found.pictures, found.unbounded) == (1, False)
    assert size(found) < 300


UNBOUNDED = {
    "chat, file": lambda: chat({"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}),
    "chat, file by id": lambda: chat({"type": "file", "file": {"file_id": "file-1"}}),
    "chat, sound": lambda: chat(
        {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}}
    ),
    "chat, video": lambda: chat(
        {"type": "video_url", "video_url": {"url": "https://x.test/a.mp4"}}
    ),
    "chat, earlier sound": lambda: sent(
        "openai", messages=[{"role": "assistant", "audio": {"id": "audio_1"}}]
    ),
    "chat, document as a picture": lambda: chat({"type": "image_url", "image_url": {"url": PDF}}),
    "chat, video as a picture": lambda: chat(
        {"type": "image_url", "image_url": {"url": "https://x.test/watch?a.png"}}
    ),
    "chat, address that says it is text": lambda: chat(
        {"type": "image_url", "image_url": {"type": "text", "url": "https://x.test/a"}}
    ),
    "chat, address that says it is a stored file": lambda: chat(
        {"type": "image_url", "image_url": {"type": "file", "url": "https://x.test/a"}}
    ),
    "messages, address that says it is a picture": lambda: messages(
        {
            "type": "image",
            "source": {"type": "url", "url": "https://x.test/a", "media_type": "image/png"},
        }
    ),
    "chat, Gemini's own tool with a name": lambda: chat(tools=[{"googleSearch": {}, "name": "f"}]),
    "chat, Gemini's own video": lambda: chat({"fileData": {"fileUri": "https://x.test/v"}}),
    "messages, document": lambda: messages(
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": BASE64},
        }
    ),
    "messages, address": lambda: messages(
        {"type": "document", "source": {"type": "url", "url": "https://x.test/a"}}
    ),
    "messages, file": lambda: messages(
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}}
    ),
    "messages, container": lambda: messages({"type": "container_upload", "file_id": "file-1"}),
    "responses, file": lambda: responses(
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF}
    ),
    "responses, file by address": lambda: responses(
        {"type": "input_file", "file_url": "https://x.test/a.pdf"}
    ),
    "responses, file by id": lambda: responses({"type": "input_file", "file_id": "file-1"}),
    "responses, item": lambda: in_item(type="item_reference", id="msg_1"),
    "responses, stored response": lambda: responses(previous_response_id="resp_1"),
    "responses, conversation": lambda: responses(conversation={"id": "conv_1"}),
    "responses, prompt template": lambda: responses(prompt={"id": "pmpt_1"}),
    "chat, cached content": lambda: chat(cachedContent="cachedContents/1"),
    "chat, cached content of a compatible endpoint": lambda: chat(
        extra_body={"google": {"cached_content": "cachedContents/1"}}
    ),
    "chat, web search": lambda: chat(web_search_options={"user_location": None}),
    "chat, Gemini's own tool": lambda: chat(tools=[{"googleSearch": {}}]),
    "messages, web search": lambda: messages(
        tools=[{"type": "web_search_20250305", "name": "web_search"}]
    ),
    "messages, MCP": lambda: messages(mcp_servers=[{"type": "url", "url": "https://x.test"}]),
    "responses, file search": lambda: responses(
        tools=[{"type": "file_search", "vector_store_ids": ["vs_1"]}]
    ),
}


@each_case("name", UNBOUNDED)
def test_referenced_content_has_no_known_length(name: str) -> None:
    found = UNBOUNDED[name]()
    assert (found.pictures, found.unbounded) == (0, True)
    assert size(found) < 300


TEXTS = {
    "chat, text": lambda: chat({"type": "text", "text": BASE64}),
    "chat, content": lambda: sent("openai", messages=[{"role": "user", "content": PNG}]),
    "chat, arguments": lambda: sent(
        "openai",
        messages=[
            {
                "role": "assistant",
                "tool_calls": [{"function": {"arguments": BASE64, "data": BASE64}}],
            }
        ],
    ),
    "chat, the type of another format": lambda: chat(IMAGE),
    "chat, an unknown type": lambda: chat({"type": "picture", "url": PNG}),
    "chat, another field": lambda: chat(
        metadata={"data": BASE64, "type": "image_url", "image_url": {"url": PNG}}
    ),
    "messages, input of a tool": lambda: messages(
        {
            "type": "tool_use",
            "id": "t",
            "name": "f",
            "input": {"data": BASE64, "source": {"data": BASE64}},
        }
    ),
    "messages, tool's result": lambda: messages(
        {"type": "tool_result", "tool_use_id": "t", "content": BASE64}
    ),
    "messages, document in words": lambda: messages(
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": BASE64}}
    ),
    "messages, the type of another format": lambda: messages(
        {"type": "image_url", "image_url": {"url": PNG}}
    ),
    "messages, system": lambda: messages(system=[{"type": "text", "text": BASE64}, IMAGE]),
    "responses, text": lambda: responses({"type": "input_text", "text": BASE64}),
    "responses, arguments": lambda: in_item(
        type="function_call", call_id="f", name="f", arguments=BASE64
    ),
    "responses, tool's result": lambda: in_item(
        type="function_call_output", call_id="f", output=BASE64
    ),
    "responses, deeper than any format": lambda: responses(
        {
            "content": [
                {
                    "content": [
                        {"content": [{"content": [{"type": "input_image", "image_url": PNG}]}]}
                    ]
                }
            ]
        }
    ),
}


@each_case("name", TEXTS)
def test_base64_anywhere_else_is_text(name: str) -> None:
    found = TEXTS[name]()
    assert (found.pictures, found.unbounded) == (0, False)
    assert size(found) > len(BASE64)


def test_text_beside_a_picture_is_kept() -> None:
    found = chat(
        {"type": "image_url", "image_url": {"url": PNG}, "caption": "x" * 5000},
        {"type": "text", "text": "y"},
    )
    assert found.pictures == 1
    text = bytes(found.text["messages"])
    assert b"x" * 5000 in text
    assert b"What is this?" in text
    assert BASE64.encode() not in text


def test_client_tools_are_no_references() -> None:
    function = {"type": "function", "function": {"name": "f"}}
    assert not chat(tools=[function, {"type": "custom", "custom": {"name": "g"}}]).unbounded
    assert not messages(
        tools=[{"name": "f", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}]
    ).unbounded
    assert not responses(
        tools=[{"type": "function", "name": "f"}, {"type": "local_shell"}], prompt=None
    ).unbounded


@pytest.mark.parametrize("value", [None, "", {}, []], ids=str)
def test_empty_reference_is_ignored(value: object) -> None:
    assert not responses(previous_response_id=value, conversation=value).unbounded


def test_media_with_json_escapes_are_found() -> None:
    part = (
        rb'{"\u0074ype":"image\u005furl","image_url":{"url":"data:image\/png;base64,'
        + BASE64.encode()
        + b'"}}'
    )
    body = {"messages": Raw(b'[{"role":"user","content":[' + part + b"]}]")}
    found = request_content(Call(id="c", body=body))
    assert (found.pictures, found.unbounded) == (1, False)


def test_too_large_request_has_no_known_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_MESSAGES", 10)
    assert not chat(*[TEXT] * 8).unbounded
    assert chat(*[TEXT] * 10).unbounded
    monkeypatch.setattr(validation, "MAX_VALUES", 200)
    assert sent("openai", messages=[[]] * 100).unbounded


@pytest.mark.parametrize("text", [b"[1e999]", b"[" * 5000 + b"]" * 5000], ids=["number", "nested"])
def test_unreadable_request_has_no_known_length(text: bytes) -> None:
    assert request_content(Call(id="c", body={"messages": Raw(text)})).unbounded
