"""The JSON that Gemini sends, reduced to the fields that mean something to us.

msgspec skips what is not named here at C speed. Every field may be absent; null counts as absent. One shape serves a
chunk of a stream and a whole answer.
"""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]


class PartialArg(Struct, gc=False, rename="camel"):
    """A piece of one argument of a function call, as Vertex streams them."""

    string_value: str | None = None
    number_value: float | None = None
    bool_value: bool | None = None


class FunctionCall(Struct, gc=False, rename="camel"):
    """A call of a function: whole, or in pieces, as Vertex sends it to those who ask for that (``partialArgs``)."""

    id: str | None = None
    name: str | None = None
    args: Raw = Raw()
    partial_args: list[PartialArg] | None = None


class ExecutableCode(Struct, gc=False):
    """Code that the model wrote for the provider's own interpreter."""

    code: str | None = None


class Blob(Struct, gc=False, rename="camel"):
    """Inline media; `data` is base64."""

    mime_type: str | None = None
    data: str | None = None


class FileData(Struct, gc=False, rename="camel"):
    """Media elsewhere."""

    mime_type: str | None = None
    file_uri: str | None = None


class Part(Struct, gc=False, rename="camel"):
    """One piece of content. `thought`: it is a thought, not the answer."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    executable_code: ExecutableCode | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None


class Content(Struct, gc=False):
    """What a chunk adds to a candidate."""

    parts: list[Part] | None = None


class Candidate(Struct, gc=False, rename="camel"):
    """One of the answers."""

    index: Count | None = None
    content: Content | None = None
    finish_reason: str | None = None


class PromptFeedback(Struct, gc=False, rename="camel"):
    """Why a prompt was blocked; then there are no candidates."""

    block_reason: str | None = None


class UsageMetadata(Struct, gc=False, rename="camel"):
    """The counts so far. `prompt_token_count` includes cached tokens, `candidates_token_count` leaves out thoughts."""

    prompt_token_count: Count | None = None
    cached_content_token_count: Count | None = None
    tool_use_prompt_token_count: Count | None = None
    candidates_token_count: Count | None = None
    thoughts_token_count: Count | None = None
    total_token_count: Count | None = None


class Chunk(Struct, gc=False, rename="camel"):
    """One event of a stream, or a whole answer: a ``GenerateContentResponse``, or an error in its place."""

    candidates: list[Candidate] | None = None
    usage_metadata: UsageMetadata | None = None
    prompt_feedback: PromptFeedback | None = None
    error: Any = None
