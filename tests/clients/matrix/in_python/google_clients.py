"""Google's client of Gemini."""

import base64
from typing import Any

from neutral import TIMEOUT_S, Answer, Ask, UnsupportedError, only, parts_of, run


class GoogleGenai:
    known = (
        "system", "tools", "choice", "json", "schema", "reasoning", "effort", "stop",
        "temperature", "top_p", "top_k",
        "seed", "presence_penalty", "frequency_penalty", "n", "logprobs", "asynchronous", "texts",
    )  # fmt: skip
    counts = True

    def __init__(self, origin: str, key: str) -> None:
        from google import genai

        types: Any = genai.types
        options = types.HttpOptions(base_url=origin, timeout=TIMEOUT_S * 1000)
        self.client: Any = genai.Client(api_key=key, http_options=options)
        self.types = types

    def chat(self, model: str, ask: Ask) -> Answer:
        only(ask, *self.known)
        parts_of(ask, "image", "image_url", "pdf", "audio", "result_image")
        contents = [self.content(message) for message in ask["messages"]]
        if ask.get("operation") == "count":
            return {
                "count": self.client.models.count_tokens(
                    model=model, contents=contents
                ).total_tokens
            }
        config = self.config(ask)
        if ask.get("asynchronous"):
            return run(self.asynchronous(model, contents, config))
        answer, content = self.once(ask, model, contents, config)
        if "loop" in ask:
            response = self.types.Part.from_function_response(
                name="weather", response={"result": ask["loop"]}
            )
            back = [content, self.types.Content(role="user", parts=[response])]
            end, _ = self.once(ask, model, [*contents, *back], config)
            return end | {"calls": answer["calls"]}
        return answer

    async def asynchronous(self, model: str, contents: Any, config: Any) -> Answer:
        return self.answer(
            [
                await self.client.aio.models.generate_content(
                    model=model, contents=contents, config=config
                )
            ]
        )

    def once(self, ask: Ask, model: str, contents: Any, config: Any) -> tuple[Answer, Any]:
        if not ask.get("stream"):
            response = self.client.models.generate_content(
                model=model, contents=contents, config=config
            )
            return self.answer([response]), response.candidates[0].content
        chunks = []
        stream = self.client.models.generate_content_stream(
            model=model, contents=contents, config=config
        )
        for chunk in stream:
            chunks.append(chunk)
            if ask.get("cancel"):
                stream.close()
                return {"text": ""}, None
        if not any(chunk.candidates and chunk.candidates[0].finish_reason for chunk in chunks):
            raise RuntimeError("the stream has no end")
        return self.answer(chunks), self.types.Content(role="model", parts=_parts(chunks))

    def answer(self, chunks: list[Any]) -> Answer:
        parts = _parts(chunks)
        texts = [part.text for part in parts if part.text and not part.thought]
        last = chunks[-1]
        reasons = [chunk.candidates[0].finish_reason for chunk in chunks if chunk.candidates]
        usage = last.usage_metadata
        calls = [
            [part.function_call.name, part.function_call.args]
            for part in parts
            if part.function_call
        ]
        found = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}
        finish = next((reason.name for reason in reversed(reasons) if reason), "")
        output = None
        if usage:
            output = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        return {
            "text": "".join(texts),
            "parts": len(texts),
            "reasoning": "".join(part.text for part in parts if part.text and part.thought),
            "calls": calls,
            "finish": found.get(finish, finish),
            "usage": [usage.prompt_token_count, output] if usage else None,
            "choices": [
                "".join(part.text or "" for part in each.content.parts or ())
                for each in last.candidates or ()
            ],
            "logprobs": any(
                candidate.logprobs_result
                for chunk in chunks
                for candidate in chunk.candidates or ()
            ),
        }

    def content(self, message: dict[str, Any]) -> Any:
        types, parts = self.types, []
        for part in message["parts"]:
            match part:
                case {"text": text}:
                    parts.append(types.Part(text=text))
                case {"image": data}:
                    parts.append(
                        types.Part.from_bytes(data=base64.b64decode(data), mime_type="image/png")
                    )
                case {"image_url": url}:
                    parts.append(types.Part.from_uri(file_uri=url, mime_type="image/png"))
                case {"pdf": data}:
                    parts.append(
                        types.Part.from_bytes(
                            data=base64.b64decode(data), mime_type="application/pdf"
                        )
                    )
                case {"audio": data}:
                    parts.append(
                        types.Part.from_bytes(data=base64.b64decode(data), mime_type="audio/wav")
                    )
                case {"call": call}:
                    parts.append(
                        types.Part.from_function_call(name=call["name"], args=call["arguments"])
                    )
                case {"result": result}:
                    media = None
                    if "image" in result:
                        blob = types.FunctionResponseBlob(
                            mime_type="image/png", data=base64.b64decode(result["image"])
                        )
                        media = [types.FunctionResponsePart(inline_data=blob)]
                    given = types.FunctionResponse(
                        name=result["name"], response={"result": result["text"]}, parts=media
                    )
                    parts.append(types.Part(function_response=given))
        return types.Content(role={"assistant": "model"}.get(message["role"], "user"), parts=parts)

    def config(self, ask: Ask) -> Any:
        types = self.types
        if "effort" in ask:
            raise UnsupportedError("an effort; models have thinking levels or budgets")
        options: dict[str, Any] = {
            name: ask[name]
            for name in (
                "temperature",
                "top_p",
                "top_k",
                "seed",
                "presence_penalty",
                "frequency_penalty",
            )
            if name in ask
        }
        if "n" in ask:
            options["candidate_count"] = ask["n"]
        if "system" in ask:
            options["system_instruction"] = ask["system"]
        if "stop" in ask:
            options["stop_sequences"] = ask["stop"]
        if "tools" in ask:
            declared = [
                types.FunctionDeclaration(
                    name=tool["name"],
                    description=tool["description"],
                    parameters_json_schema=tool["schema"],
                )
                for tool in ask["tools"]
            ]
            options["tools"] = [types.Tool(function_declarations=declared)]
        if "choice" in ask:
            mode = {"required": "ANY", "none": "NONE"}.get(str(ask["choice"]), "ANY")
            names = [ask["choice"]["name"]] if isinstance(ask["choice"], dict) else None
            calling = types.FunctionCallingConfig(mode=mode, allowed_function_names=names)
            options["tool_config"] = types.ToolConfig(function_calling_config=calling)
        if "json" in ask:
            options["response_mime_type"] = "application/json"
        if "schema" in ask:
            options |= {
                "response_mime_type": "application/json",
                "response_json_schema": ask["schema"],
            }
        if "reasoning" in ask:
            options["thinking_config"] = types.ThinkingConfig(
                include_thoughts=True, thinking_budget=2000
            )
        if "logprobs" in ask:
            options |= {"response_logprobs": True, "logprobs": ask["logprobs"]}
        return types.GenerateContentConfig(max_output_tokens=ask["max_tokens"], **options)

    def embed(self, model: str, texts: list[str]) -> Answer:
        found = self.client.models.embed_content(model=model, contents=texts)
        return {"vectors": [each.values for each in found.embeddings]}

    def models(self) -> Answer:
        return {"models": [each.name for each in self.client.models.list()]}


def _parts(chunks: list[Any]) -> list[Any]:
    candidates = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
    return [part for each in candidates if each.content for part in each.content.parts or ()]
