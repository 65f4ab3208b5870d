"""A whole answer that holds only a text and its usage is read by a shorter way: with the same
events, for any JSON."""

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from splitsecond.core.timing.timeline import Sending, Timeline
from splitsecond.core.wire.openai.decode import OpenAIDecoder


class _General(OpenAIDecoder):
    """The decoder without the shorter way."""

    def _take_plain(self, body: bytes) -> bool:
        return False


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects in which each field is absent, null or has a value."""
    return st.fixed_dictionaries(
        {}, optional={name: st.none() | value for name, value in fields.items()}
    )


TEXTS = st.sampled_from(["", "said", 'naïve \u2028 "text"'])
COUNTS = st.integers(0, 60)
SECONDS = st.sampled_from([0.0, 0.25])
USAGE = _optional(
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    total_tokens=COUNTS,
    completion_tokens_details=_optional(reasoning_tokens=COUNTS),
    prompt_tokens_details=_optional(cached_tokens=COUNTS, cache_write_tokens=COUNTS),
    cached_tokens=COUNTS,
    queue_time=SECONDS,
    total_time=SECONDS,
)
FUNCTION = _optional(name=TEXTS, arguments=TEXTS)
MESSAGE = {
    "content": TEXTS | st.lists(_optional(type=st.just("text"), text=TEXTS), max_size=2),
    "reasoning": TEXTS,
    "reasoning_content": TEXTS,
    "refusal": TEXTS,
    "tool_calls": st.lists(_optional(id=TEXTS, function=FUNCTION), max_size=2),
    "function_call": FUNCTION,
    "audio": _optional(transcript=TEXTS),
    "images": st.just([{"image_url": {"url": "data:,"}}]),
}
CHOICE = {
    "index": st.integers(0, 2),
    "message": _optional(**MESSAGE),
    "delta": _optional(**MESSAGE),
    "text": TEXTS,
    "finish_reason": st.sampled_from(["error", ""]),
    "usage": USAGE,
    "logprobs": st.sampled_from([{}, {"content": [{"logprob": -0.5}]}]),
}
ANSWER = {
    "choices": st.lists(_optional(**CHOICE), max_size=2),
    "usage": USAGE,
    "error": st.sampled_from([{}, {"message": "overloaded"}]),
    "x_groq": _optional(usage=USAGE),
    "base_resp": st.sampled_from([{"status_code": 0}, {"status_code": 1000}]),
    "timings": st.just({"prompt_ms": 3.5}),
    "time_info": st.just({"total_time": 3.5}),
}
USUAL: dict[str, Any] = {
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "said"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 3},
}


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """Return the usual answer with up to two changes: one field each that is absent, null or has
    another value."""
    answer: dict[str, Any] = copy.deepcopy(USUAL)
    for _ in range(draw(st.integers(0, 2))):
        (choice,) = answer["choices"] or [{}] if len(answer.get("choices") or ()) == 1 else [{}]
        inside, fields = draw(
            st.sampled_from([(answer, ANSWER), (choice, CHOICE), (choice.get("message"), MESSAGE)])
        )
        if inside is not None:
            name = draw(st.sampled_from(sorted(fields)))
            inside[name] = draw(st.none() | fields[name])
    return answer


@examples(400)
@given(answers())
def test_fast_path_gives_the_same_events(answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    seen: list[Any] = []
    for reading in (OpenAIDecoder(), _General()):
        events = [*reading.feed(body[:20], 1), *reading.feed(body[20:], 2), *reading.close(3)]
        seen.append(([repr(event) for event in events], reading.server_timings))
    assert seen[0] == seen[1]


def test_usual_response_takes_the_fast_path() -> None:
    class Watched(OpenAIDecoder):
        taken: bool | None = None

        def _take_plain(self, body: bytes) -> bool:
            self.taken = super()._take_plain(body)
            return self.taken

    reading = Watched()
    reading.feed(json.dumps(USUAL).encode(), 1)
    assert [type(event).__name__ for event in reading.close(2)] == [
        "Token",
        "Finish",
        "Usage",
        "Done",
    ]
    assert reading.taken


@given(answers())
def test_observation_is_the_same_with_token_runs(answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    seen = []
    for in_runs in (True, False):
        reading, timeline = OpenAIDecoder(), Timeline(attempt="a", call="c", target="t")
        reading.in_runs = in_runs
        for events in (reading.feed(body[:20], 1), reading.feed(body[20:], 2), reading.close(3)):
            timeline.record_events(events)
        seen.append(
            (
                timeline.observe(end_ns=3, sending=Sending(sent_ns=0)),
                timeline.ended_well,
                timeline.has_finish,
            )
        )
    assert seen[0] == seen[1]
