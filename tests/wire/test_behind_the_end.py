"""Events behind the end of a stream: they belong to no answer, and fail none."""

from types import ModuleType

from tests.cases import each_case

from splitsecond.core.events import Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, openai, responses
from splitsecond.core.wire.client_format import client_format

TAILS = [
    b'data: {"choices":[],"usage":{"prompt_tokens":1e400}}\n\n',
    b"event: message_delta\ndata: "
    b'{"type":"message_delta","delta":{},"usage":{"output_tokens":99}}\n\n',
    b"event: response.completed\ndata: "
    b'{"type":"response.completed","response":{"status":"completed"}}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"more"}}]}\n\n',
    b"data: {\n\n",
    b"data: [DONE]\n\n",
]


@each_case("tail", TAILS)
@each_case(
    "name, api_format", [("openai", openai), ("anthropic", anthropic), ("responses", responses)]
)
def test_events_after_the_end_do_not_change_the_response(
    name: str, api_format: ModuleType, tail: bytes
) -> None:
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


def test_event_with_the_end_mark_among_its_lines_is_not_the_end() -> None:
    relay = client_format(Call(id="c", body={})).relay(Call(id="c", body={}), "a/x", usage=False)
    event = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\ndata: [DONE]\ndata: x\n\n'
    assert relay.feed(event) == event
    assert not relay.done
