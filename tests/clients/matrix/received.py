"""Requests that a simulated provider has received, read from their raw bodies in the words of all
API formats together.

This reader shares no code with the gateway, so a fault there cannot hide here. Media are decoded
strictly.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Media:
    """An image, document or sound: its bytes, or its address."""

    kind: str
    data: bytes = b""
    url: str = ""


@dataclass
class Turn:
    role: str
    text: str = ""
    reasoning: str = ""
    media: list[Media] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    """Names and arguments of tool calls."""


@dataclass
class Result:
    """A tool's result. `tool` is the name of the function whose call it answers, "" if there is no
    such call."""

    tool: str
    text: str
    media: list[Media] = field(default_factory=list)


@dataclass
class ReceivedChat:
    """A request for a reply. `effort` is the raw value by which reasoning is requested; `marks`
    counts cache marks."""

    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    tools: dict[str, Any] = field(default_factory=dict)
    choice: Any = None
    schema: Any = None
    as_json: bool = False
    stream: bool = False
    max_tokens: Any = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    seed: Any = None
    n: Any = None
    stop: list[str] = field(default_factory=list)
    presence_penalty: Any = None
    frequency_penalty: Any = None
    logprobs: Any = None
    effort: Any = None
    marks: int = 0

    @property
    def media(self) -> list[Media]:
        """All media, also those of results."""
        return [each for turn in self.turns for each in turn.media] + [
            each for result in self.results for each in result.media
        ]


def read_chat(api_format: str, body: dict[str, Any], path: str) -> ReceivedChat:
    """Return the request in `body`. Raises `ValueError` or `KeyError` for what the provider would
    not understand."""
    read = {
        "openai": _openai, "responses": _responses, "anthropic": _anthropic, "gemini": _gemini,
        "ollama": _ollama,
        "cohere": _cohere,
    }[api_format]  # fmt: skip
    chat = read(body)
    chat.marks = str(body).count("'cache_control'")
    if api_format == "gemini":
        chat.stream = ":stream" in path
    return chat


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _from_url(url: str, kind: str = "") -> Media:
    if not url.startswith("data:"):
        return Media(kind or "link", url=url)
    head, _, data = url.removeprefix("data:").partition(",")
    if not head.endswith(";base64"):
        raise ValueError(f"a data URL that is not in base64: {head}")
    return Media(head.removesuffix(";base64"), _decoded(data))


def _parts(content: Any, into: Turn | Result) -> None:
    """Read content in the form of OpenAI's chat or Responses, or Cohere's."""
    if content is None:
        return
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match part:
            case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
                into.text += text
            case {"type": "thinking", "thinking": str(text)} if isinstance(into, Turn):
                into.reasoning += text
            case {"type": "image_url" | "input_image", "image_url": {"url": str(url)} | str(url)}:
                into.media.append(_from_url(url, "image"))
            case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
                into.media.append(Media(f"audio/{form}", _decoded(data)))
            case {"type": "file", "file": {"file_data": str(url)}} | {
                "type": "input_file",
                "file_data": str(url),
            }:
                into.media.append(_from_url(url))
            case {"type": "input_file", "file_url": str(url)}:
                into.media.append(_from_url(url, "document"))
            case _:
                raise ValueError(f"unknown part {str(part)[:200]}")


_SAME = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
)
"""Fields with these names in most formats."""


def _common(body: dict[str, Any]) -> ReceivedChat:
    stop = body.get("stop")
    chat = ReceivedChat(
        stream=bool(body.get("stream")),
        max_tokens=body.get("max_completion_tokens", body.get("max_tokens")),
        stop=[stop] if isinstance(stop, str) else stop or body.get("stop_sequences") or [],
    )
    for name in _SAME:
        setattr(chat, name, body.get(name))
    return chat


def _openai(body: dict[str, Any]) -> ReceivedChat:
    chat = _common(body)
    names: dict[str, str] = {}
    for message in body["messages"]:
        turn = Turn(
            message["role"],
            reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        )
        if turn.role == "tool":
            result = Result(names.get(message["tool_call_id"], ""), "")
            _parts(message["content"], result)
            chat.results.append(result)
            continue
        _parts(message.get("content"), turn)
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
            turn.calls.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
        if turn.role in ("system", "developer"):
            chat.system += turn.text
        else:
            chat.turns.append(turn)
    for tool in body.get("tools") or ():
        chat.tools[tool["function"]["name"]] = tool["function"].get("parameters")
    chat.choice = _choice(body.get("tool_choice"))
    match body.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            chat.schema = schema
        case {"type": "json_object", **form}:
            chat.as_json, chat.schema = True, form.get("json_schema") or form.get("schema")
    chat.effort = body.get("reasoning_effort") or body.get("reasoning") or body.get("thinking")
    return chat


def _choice(choice: Any) -> Any:
    match choice:
        case {"function": {"name": str(name)}} | {"type": "function" | "tool", "name": str(name)}:
            return {"name": name}
        case {"type": "allowed_tools"}:
            return choice
        case {"type": str(word)} | str(word):
            return {"any": "required"}.get(word.lower(), word.lower())
    return choice


def _responses(body: dict[str, Any]) -> ReceivedChat:
    chat = _common(body)
    chat.max_tokens = body.get("max_output_tokens")
    chat.system = body.get("instructions") or ""
    names: dict[str, str] = {}
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        match item.get("type", "message"):
            case "message":
                turn = Turn(item["role"])
                _parts(item["content"], turn)
                if turn.role in ("system", "developer"):
                    chat.system += turn.text
                else:
                    chat.turns.append(turn)
            case "function_call":
                names[item["call_id"]] = item["name"]
                if not chat.turns or chat.turns[-1].role != "assistant":
                    chat.turns.append(Turn("assistant"))
                chat.turns[-1].calls.append((item["name"], json.loads(item["arguments"])))
            case "function_call_output":
                result = Result(names.get(item["call_id"], ""), "")
                _parts(item["output"], result)
                chat.results.append(result)
            case "reasoning":
                texts = [
                    part["text"]
                    for part in [*item.get("summary", ()), *(item.get("content") or ())]
                ]
                chat.turns.append(Turn("assistant", reasoning="".join(texts)))
            case other:
                raise ValueError(f"unknown item {other}")
    for tool in body.get("tools") or ():
        chat.tools[tool["name"]] = tool.get("parameters")
    chat.choice = _choice(body.get("tool_choice"))
    match (body.get("text") or {}).get("format"):
        case {"type": "json_schema", "schema": schema}:
            chat.schema = schema
        case {"type": "json_object"}:
            chat.as_json = True
    chat.effort = (body.get("reasoning") or {}).get("effort")
    chat.logprobs = body.get("top_logprobs") or "message.output_text.logprobs" in (
        body.get("include") or ()
    )
    return chat


def _anthropic(body: dict[str, Any]) -> ReceivedChat:
    chat = _common(body)
    system = body.get("system") or ""
    chat.system = system if isinstance(system, str) else "".join(part["text"] for part in system)
    names: dict[str, str] = {}
    for message in body["messages"]:
        turn = Turn(message["role"])
        content = message["content"]
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match part:
                case {
                    "type": "tool_use",
                    "id": str(call),
                    "name": str(name),
                    "input": dict(arguments),
                }:
                    names[call] = name
                    turn.calls.append((name, arguments))
                case {"type": "tool_result", "tool_use_id": str(call)}:
                    held = Turn("tool")
                    inner = part.get("content") or ""
                    for each in (
                        [{"type": "text", "text": inner}] if isinstance(inner, str) else inner
                    ):
                        _anthropic_part(each, held)
                    chat.results.append(Result(names.get(call, ""), held.text, held.media))
                case _:
                    _anthropic_part(part, turn)
        chat.turns.append(turn)
    for tool in body.get("tools") or ():
        chat.tools[tool["name"]] = tool["input_schema"]
    chat.choice = _choice(body.get("tool_choice"))
    config = body.get("output_config") or {}
    match config.get("format") or body.get("output_format"):
        case {"type": "json_schema", "schema": schema}:
            chat.schema = schema
    chat.effort = config.get("effort") or body.get("thinking")
    return chat


def _anthropic_part(part: Any, turn: Turn) -> None:
    match part:
        case {"type": "text", "text": str(text)}:
            turn.text += text
        case {"type": "thinking", "thinking": str(text)}:
            turn.reasoning += text
        case {
            "type": "image" | "document",
            "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
        }:
            turn.media.append(Media(kind, _decoded(data)))
        case {"type": "image" | "document" as kind, "source": {"type": "url", "url": str(url)}}:
            turn.media.append(Media(kind, url=url))
        case _:
            raise ValueError(f"unknown part {str(part)[:200]}")


def _gemini(body: dict[str, Any]) -> ReceivedChat:
    config = body.get("generationConfig") or {}
    chat = ReceivedChat(
        max_tokens=config.get("maxOutputTokens"), temperature=config.get("temperature"),
        top_p=config.get("topP"),
        top_k=config.get("topK"), seed=config.get("seed"), n=config.get("candidateCount"),
        stop=config.get("stopSequences") or [], presence_penalty=config.get("presencePenalty"),
        frequency_penalty=config.get("frequencyPenalty"), logprobs=config.get("responseLogprobs"),
        schema=config.get("responseJsonSchema") or config.get("responseSchema"),
        as_json=config.get("responseMimeType") == "application/json",
        effort=config.get("thinkingConfig"),
    )  # fmt: skip
    chat.system = "".join(
        part["text"] for part in (body.get("systemInstruction") or {}).get("parts", ())
    )
    called: set[str] = set()
    for content in body["contents"]:
        turn = Turn(
            {"model": "assistant"}.get(content.get("role", "user"), content.get("role", "user"))
        )
        for part in content["parts"]:
            match part:
                case {"functionCall": {"name": str(name)} as call}:
                    called.add(name)
                    turn.calls.append((name, call.get("args", {})))
                case {
                    "functionResponse": {"name": str(name), "response": dict(response)} as answer
                }:
                    media = [_gemini_media(each) for each in answer.get("parts") or ()]
                    chat.results.append(
                        Result(name if name in called else "", _only_text(response), media)
                    )
                case {"thought": True, "text": str(text)}:
                    turn.reasoning += text
                case {"text": str(text)}:
                    turn.text += text
                case _:
                    turn.media.append(_gemini_media(part))
        chat.turns.append(turn)
    for tool in body.get("tools") or ():
        for declared in tool["functionDeclarations"]:
            chat.tools[declared["name"]] = declared.get("parametersJsonSchema") or declared.get(
                "parameters"
            )
    match (body.get("toolConfig") or {}).get("functionCallingConfig"):
        case {"mode": "ANY", "allowedFunctionNames": [name]}:
            chat.choice = {"name": name}
        case {"mode": str(mode)}:
            chat.choice = {"ANY": "required"}.get(mode, mode.lower())
    return chat


def _gemini_media(part: Any) -> Media:
    match part:
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}}:
            return Media(kind, _decoded(data))
        case {"fileData": {"fileUri": str(url)}}:
            return Media("link", url=url)
    raise ValueError(f"unknown part {str(part)[:200]}")


def _only_text(response: dict[str, Any]) -> str:
    return " ".join(map(str, response.values()))


def _ollama(body: dict[str, Any]) -> ReceivedChat:
    options = body.get("options") or {}
    chat = _common(options)
    chat.stream, chat.max_tokens = bool(body.get("stream", True)), options.get("num_predict")
    called: set[str] = set()
    for message in body["messages"]:
        images = [Media("image/png", _decoded(each)) for each in message.get("images") or ()]
        turn = Turn(
            message["role"], message.get("content") or "", message.get("thinking") or "", images
        )
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], dict):
                raise ValueError("arguments that are no object")
            called.add(call["function"]["name"])
            turn.calls.append((call["function"]["name"], call["function"]["arguments"]))
        if turn.role == "tool":
            name = message.get("tool_name", "")
            chat.results.append(Result(name if name in called else "", turn.text, images))
        elif turn.role == "system":
            chat.system += turn.text
        else:
            chat.turns.append(turn)
    for tool in body.get("tools") or ():
        chat.tools[tool["function"]["name"]] = tool["function"].get("parameters")
    form = body.get("format")
    chat.as_json, chat.schema = form == "json", form if isinstance(form, dict) else None
    chat.effort = body.get("think")
    return chat


def _cohere(body: dict[str, Any]) -> ReceivedChat:
    chat = _common(body)
    chat.top_p, chat.top_k = body.get("p"), body.get("k")
    names: dict[str, str] = {}
    for message in body["messages"]:
        turn = Turn(message["role"], reasoning=message.get("tool_plan") or "")
        if turn.role == "tool":
            result = Result(names.get(message["tool_call_id"], ""), "")
            _parts(list(_documents(message["content"])), result)
            chat.results.append(result)
            continue
        _parts(message.get("content"), turn)
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
            turn.calls.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
        if turn.role == "system":
            chat.system += turn.text
        else:
            chat.turns.append(turn)
    for tool in body.get("tools") or ():
        chat.tools[tool["function"]["name"]] = tool["function"].get("parameters")
    chat.choice = _choice(body.get("tool_choice"))
    match body.get("response_format"):
        case {"type": "json_object", **form}:
            chat.as_json, chat.schema = True, form.get("json_schema") or form.get("schema")
    chat.effort = body.get("thinking")
    return chat


def _documents(content: Any) -> Iterator[Any]:
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match part:
            case {"type": "document", "document": {"data": data}}:
                yield {"type": "text", "text": str(data)}
            case _:
                yield part
