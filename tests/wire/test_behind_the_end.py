"""Events behind the end of a stream: they belong to no answer, and fail none."""

from types import ModuleType

import pytest

from splitsecond.core.events import Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, openai, responses
from splitsecond.core.wire.client_format import client_format

TAILS = [
    b'data: {"choices":[],"usage":{"prompt_tokens":1e400}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"output_tokens":99}}\n\n',
    b'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed"}}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"more"}}]}\n\n',
    b"data: {\n\n",
    b"data: [DONE]\n\n",
]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(
    ("name", "api_format"), [("openai", openai), ("anthropic", anthropic), ("responses", responses)]
)
def test_a_whole_answer_ends_with_its_stream(name: str, api_format: ModuleType, tail: bytes) -> None:
    writer = api_format.StreamWriter("chat", "m", id="x", created=1)
    stream = writer.opening() + writer.token("Yes") + writer.token("!")
    stream += writer.finish("stop") + writer.usage(Usage(0, 5, 2)) + writer.done()
    answers = []
    for body in (stream, stream + tail):
        for parts in ([body], [body[:-1], body[-1:]], [body[: len(stream)], body[len(stream) :]]):
            assembly = client_format(Call(id="c", body={}, api_format=name)).assembly()  # type: ignore[arg-type]
            for part in parts:
                assembly.feed(part)
            answers.append(assembly.answer())
    assert b"Yes!" in answers[0]
    assert set(answers) == {answers[0]}


def test_an_event_with_a_line_of_the_mark_is_not_the_end() -> None:
    relay = client_format(Call(id="c", body={})).relay(Call(id="c", body={}), "a/x", usage=False)
    event = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\ndata: [DONE]\ndata: x\n\n'
    assert relay.feed(event) == event
    assert not relay.done
