"""An answer that breaks off, and how its client sees it go on: all of it, once, or a beginning and an error."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.branches import SILENT, a_call, fails, play, refused, reset, scripted, silent, status
from tests.policies.test_delivered import pieces

from splitsecond import clock
from splitsecond.clock import NS_PER_MS
from splitsecond.errors import CallerFault, Fault, ProviderFault, TimedOut
from splitsecond.events import Broken, Done, Event, Finish, Token, Usage
from splitsecond.policies.building import build
from splitsecond.policies.expression import parse
from splitsecond.policies.replies.resumable import BLOCK_BYTES
from splitsecond.policies.targets.target_info import TargetInfo
from splitsecond.policies.targets.target_states import TargetStates
from splitsecond.service import Call, Reply, ReplyBase, Service
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.wire.openai import StreamWriter, decoder
from splitsecond.wire.openai.client_side import continuation_encoder

CUT = reset()
WORDS = ("Once ", "upon ", "a ", "time.")
WHOLE = "".join(WORDS)
TELLS = Script(tokens=4, texts=WORDS)
PREFILL = TargetInfo(prefill=True)


def breaks(after: int, *texts: str, fault: Fault = CUT) -> Script:
    return Script(texts=texts or WORDS, fault=fault, breaks_after=after)


def tells(*texts: str, input_tokens: int | None = None) -> Script:
    return Script(tokens=len(texts), texts=texts, input_tokens=input_tokens)


class Heard:
    """What a client was told, read from its bytes; `fault`: what broke it."""

    def __init__(self) -> None:
        self.data = b""
        self.fault: Fault | None = None
        self.refused = False
        self.ms = 0.0

    @property
    def events(self) -> list[Event]:
        reading = decoder("chat")
        return [*reading.feed(self.data, 0), *reading.close(0)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Token))

    @property
    def well(self) -> bool:
        """It ended once, and after its end nothing came."""
        ends = [event for event in self.events if isinstance(event, Finish)]
        marks = self.data.count(b"[DONE]"), self.data.rstrip().endswith(b"data: [DONE]")
        return self.fault is None and len(ends) == 1 and marks == (1, True)

    @property
    def usage(self) -> Usage | None:
        return next((event for event in self.events if isinstance(event, Usage)), None)


async def hear(service: Service, call: Call) -> Heard:
    heard, began_ns = Heard(), clock.now_ns()
    try:
        reply = await service(call)
    except Fault as fault:
        heard.fault, heard.refused = fault, True
        return heard
    async with reply:
        try:
            while data := await reply.read():
                heard.data += data
        except Fault as fault:
            heard.fault = fault
    heard.ms = (clock.now_ns() - began_ns) / NS_PER_MS
    return heard


def chat(*, stream: bool = True, **fields: Any) -> Call:
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], **fields}
    return msgspec.structs.replace(a_call(), body=body, stream=stream)


class Told:
    """One call to a policy over targets with scripts, and what its client heard."""

    def __init__(
        self, policy: str, *, call: Call | None = None, facts: Mapping[str, TargetInfo] | None = None, **scripts: Any
    ) -> None:
        standing = TargetStates(facts)
        self.fakes: dict[str, FakeService] = {}
        for name, script in scripts.items():
            given = script if isinstance(script, list) else [script]
            self.fakes[name] = scripted(*given, target=name, observer=standing.observe)
        self.call = call

        async def main() -> None:
            service = build(parse(policy), self.fakes.__getitem__, standing, make_encoder=continuation_encoder)
            self.call = self.call or chat()
            self.heard = await hear(service, self.call)

        play(main, list(self.fakes.values()))

    @property
    def asked(self) -> dict[str, int]:
        return {name: len(fake.calls) for name, fake in self.fakes.items()}

    def sent(self, name: str) -> dict[str, Any]:
        """The body of the last request to that target."""
        sent: dict[str, Any] = json.loads(msgspec.json.encode(self.fakes[name].calls[-1].call.body))
        return sent


# By replay.


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_a_cut_answer_goes_on_where_it_was(after: int) -> None:
    told = Told('fallback("a", "b", resume="replay")', a=breaks(after), b=TELLS)
    assert (told.heard.text, told.heard.well) == (WHOLE, True)
    assert told.asked == {"a": 1, "b": 1}
    assert told.call is not None
    assert told.call.notes.chosen == "resumed at b"


def test_what_the_first_said_comes_at_once_and_byte_for_byte() -> None:
    told = Told('resume("a", "b")', a=TELLS, b=SILENT)
    plain = Told('"a"', a=TELLS)
    assert told.heard.data == plain.heard.data
    assert told.heard.ms == plain.heard.ms
    assert told.asked == {"a": 1, "b": 0}


def test_it_goes_on_in_the_voice_of_the_first() -> None:
    told = Told('resume("a", "b")', a=breaks(2), b=TELLS)
    heads = {
        (chunk["id"], chunk["model"])
        for line in told.heard.data.decode().split("\n\n")
        if line.startswith("data: {") and (chunk := json.loads(line.removeprefix("data: ")))
    }
    assert heads == {("call-1", "a")}


def test_where_another_says_something_else_the_first_failure_is_what_is_told() -> None:
    told = Told('resume("a", "b")', a=breaks(2), b=tells("Once ", "there ", "was "))
    assert told.heard.text == "Once upon "
    assert told.heard.fault is CUT
    assert told.fakes["b"].calls[0].closed_at is not None
    assert b"[DONE]" not in told.heard.data


def test_the_one_after_that_may_say_the_same() -> None:
    told = Told('resume("a", "b", "c")', a=breaks(2), b=tells("Twice "), c=TELLS)
    assert (told.heard.text, told.heard.well) == (WHOLE, True)


@pytest.mark.parametrize("then", [fails(refused()), fails(status(429, 9)), Script(tokens=0), breaks(1), breaks(3)])
def test_who_cannot_carry_on_hides_nothing(then: Script) -> None:
    told = Told('resume("a", "b")', a=breaks(2), b=then)
    assert told.heard.fault is CUT
    assert WHOLE.startswith(told.heard.text)
    again = Told('resume("a", "b", "c")', a=breaks(2), b=then, c=TELLS)
    assert (again.heard.text, again.heard.well) == (WHOLE, True)


def test_a_shorter_answer_is_another_one() -> None:
    told = Told('resume("a", "b")', a=breaks(3), b=tells("Once ", "upon "))
    assert told.heard.fault is CUT
    assert told.heard.text == "Once upon a "


def test_before_the_first_token_a_failure_is_a_failure() -> None:
    fault = refused()
    told = Told('resume("a", "b")', a=fails(fault), b=TELLS)
    assert told.heard.fault is fault
    assert told.heard.refused
    assert told.asked == {"a": 1, "b": 0}


def test_an_answer_that_falls_silent_is_carried_on() -> None:
    slow = Script(texts=WORDS, tokens=4, tps=0.01)
    told = Told('resume("a", "b", stall="2s")', a=slow, b=TELLS)
    assert (told.heard.text, told.heard.well) == (WHOLE, True)
    assert told.heard.ms == 200 + 2000 + 200 + 30
    assert Told('resume("a", "b", stall="2s")', a=slow, b=slow).heard.fault is not None


@pytest.mark.parametrize("policy", ["resume({}, how='replay')", "fallback({}, resume='replay')"])
def test_an_answer_that_is_too_slow_is_carried_on(policy: str) -> None:
    slow = Script(texts=WORDS, tokens=40, tps=2)
    text = policy.format('"a", "b", floor="8tok/s", over="4.1s"').replace("'", '"')
    told = Told(text, a=slow, b=tells(*WORDS, *["word"] * 36))
    assert told.heard.well
    assert told.heard.text == WHOLE + "word" * 36
    assert told.heard.ms == 200 + 4100 + 200 + 390
    (observation,) = [fake.observation for fake in told.fakes["a"].calls]
    assert observation is not None
    assert observation.fault is not None
    assert observation.fault.kind == "timeout_between_tokens"
    assert observation.fault.message == "2 tokens per second in the last 4.1 s, below the floor of 8"


def test_an_answer_that_is_fast_enough_stays() -> None:
    told = Told('resume("a", "b", floor="8tok/s", over="4s")', a=Script(tokens=100, tps=9), b=TELLS)
    assert (told.heard.well, told.asked) == (True, {"a": 1, "b": 0})


def test_the_wait_for_the_first_token_is_not_slow() -> None:
    told = Told('resume("a", "b", floor="8tok/s", over="4s")', a=Script(ttft=60, tokens=100, tps=9), b=TELLS)
    assert (told.heard.well, told.asked) == (True, {"a": 1, "b": 0})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('floor="8"', 'floor is "8", expected tokens per second such as "8tok/s"'),
        ("floor=8", "floor is 8, expected tokens per second"),
        ('floor="0tok/s"', 'floor is "0tok/s", expected tokens per second'),
        ('over="20s"', "over has no effect without floor"),
        ('floor="1tok/s", over="3s"', 'floor is "1tok/s", fewer than 4 tokens in 3 s'),
    ],
)
def test_a_floor_that_cannot_be_meant_is_refused(settings: str, words: str) -> None:
    for policy in (f'resume("a", "b", {settings})', f'fallback("a", "b", {settings})'):
        with pytest.raises(CallerFault) as raised:
            build(parse(policy), lambda name: FakeService(target=name), TargetStates())
        assert words in raised.value.message


BEGINS = [
    'resume("a", "b", "c", stall="2s")',
    'fallback("a", "b", "c", ttft="2s", resume="replay", stall="5s")',
    'fallback("a", "b", "c", resume="replay", stall="2s")',
]


@pytest.mark.parametrize("policy", BEGINS)
def test_whoever_carries_on_must_begin_as_soon(policy: str) -> None:
    told = Told(policy, a=breaks(2), b=SILENT, c=TELLS)
    assert (told.heard.text, told.heard.well) == (WHOLE, True)
    assert told.heard.ms == 200 + 20 + 2000 + 200 + 30


def test_a_fallback_that_does_not_resume_ends_when_it_falls_silent() -> None:
    told = Told('fallback("a", "b", stall="2s", resume="off")', a=Script(texts=WORDS, tokens=4, tps=0.01), b=TELLS)
    assert isinstance(told.heard.fault, TimedOut)
    assert told.heard.fault.phase == "between tokens"
    assert (told.heard.ms, told.heard.text) == (2200, "Once ")
    assert told.asked == {"a": 1, "b": 0}


@pytest.mark.parametrize(
    "policy",
    [
        'fallback("a", "b")',
        'fallback(retry("a"), "b")',
        'fallback("a", fallback("c", "b"))',
        'deadline(fallback("a", "b"), total="1m")',
        'fallback(fallback("a", "b"), "c", resume="off")',
    ],
)
def test_a_fallback_resumes_by_default(policy: str) -> None:
    told = Told(policy, a=breaks(2), b=TELLS, c=breaks(0))
    assert (told.heard.text, told.heard.well) == (WHOLE, True)
    assert told.asked["a"] == told.asked["b"] == 1


def test_inside_a_policy_that_resumes_a_fallback_does_not() -> None:
    facts = {"b": PREFILL}
    told = Told('resume(fallback("a", "b"), how="prefill")', facts=facts, a=breaks(2), b=tells("a ", "time."))
    assert (told.heard.text, told.heard.well) == (WHOLE, True)
    assert told.asked == {"a": 1, "b": 1}  # not a replay at b, and then a prefill


def test_a_stall_starts_anew_with_each_token() -> None:
    told = Told('fallback("a", "b", stall="2s")', a=Script(texts=WORDS, tokens=4, tps=0.6), b=TELLS)
    assert (told.heard.text, told.heard.well) == (WHOLE, True)


def test_the_deadline_of_the_call_holds_for_all() -> None:
    told = Told('deadline(resume("a", "b"), total="300ms")', a=breaks(2), b=SILENT)
    assert told.heard.fault is CUT
    assert told.heard.ms == 300
    late = Told('deadline(resume("a", "b"), total="210ms")', a=breaks(4), b=TELLS)
    assert isinstance(late.heard.fault, TimedOut)
    assert late.asked == {"a": 1, "b": 0}


def test_an_answer_that_is_too_long_is_so_everywhere() -> None:
    fault = ProviderFault("too long", kind="too_long", phase="between tokens", status=200)
    assert Told('resume("a", "b")', a=breaks(2, fault=fault), b=TELLS).asked == {"a": 1, "b": 0}


def test_one_branch_is_asked_again_without_those_that_broke() -> None:
    told = Told('resume(fastest("a", "b", "c"))', a=breaks(2), b=breaks(3), c=breaks(1))
    assert told.heard.fault is CUT
    assert told.asked == {"a": 1, "b": 1, "c": 1}
    told = Told('resume(fallback("a", "b"))', a=breaks(2), b=TELLS)
    assert (told.heard.text, told.asked) == (WHOLE, {"a": 1, "b": 1})


def test_who_failed_before_may_carry_on() -> None:
    told = Told('fallback("a", "b", resume="replay")', a=[fails(status(503)), TELLS], b=breaks(2))
    assert (told.heard.text, told.heard.well) == (WHOLE, True)
    assert told.asked == {"a": 2, "b": 1}


def test_an_answer_that_nobody_watches_come_is_asked_for_anew() -> None:
    call = chat(stream=False)
    told = Told('resume("a", "b")', call=call, a=breaks(3), b=tells("Something ", "else."))
    assert (told.heard.text, told.heard.well) == ("Something else.", True)
    call = chat(stream=False)
    told = Told('resume("a", "b", how="prefill")', call=call, a=breaks(3), b=TELLS)
    assert (told.heard.text, told.heard.well) == (WHOLE, True)


@pytest.mark.parametrize("fields", [{"logprobs": True}, {"top_logprobs": 2}])
def test_with_log_probabilities_nothing_is_carried_on(fields: dict[str, Any]) -> None:
    told = Told('resume("a", "b")', call=chat(**fields), a=breaks(2), b=TELLS)
    assert told.heard.fault is CUT
    assert told.asked["b"] == 0


def test_a_bench_sees_what_breaks() -> None:
    first, second = scripted(breaks(2), target="a"), scripted(TELLS, target="b")

    async def main() -> None:
        service = build(parse('resume("a", "b")'), {"a": first, "b": second}.__getitem__)
        heard = await hear(service, chat())
        assert heard.fault is CUT
        assert len(second.calls) == 0

    play(main, [first, second])


def test_usage_is_told_once_and_is_the_seconds() -> None:
    told = Told('resume("a", "b")', a=breaks(2), b=Script(texts=WORDS, tokens=4, input_tokens=9))
    assert told.heard.usage is not None
    assert (told.heard.usage.input_tokens, told.heard.usage.output_tokens) == (9, 4)


def test_a_client_that_leaves_while_it_is_carried_on_leaves_nothing_open() -> None:
    fakes = {"a": scripted(breaks(2), target="a"), "b": scripted(Script(ttft=5, tokens=4, texts=WORDS), target="b")}
    for after_ms in (0, 200, 219, 220, 221, 3000, 5220, 5225):

        async def main(after_ms: int = after_ms) -> None:
            service = build(
                parse('resume("a", "b")'), fakes.__getitem__, TargetStates(), make_encoder=continuation_encoder
            )
            hearing = asyncio.create_task(hear(service, chat()))
            await asyncio.sleep(after_ms / 1000)
            hearing.cancel()
            await asyncio.wait([hearing])
            assert hearing.cancelled()

        play(main, list(fakes.values()))


# By prefill.


def test_the_rest_is_asked_for() -> None:
    call = chat(max_tokens=10)
    told = Told(
        'resume("a", "b", how="prefill")',
        call=call,
        facts={"b": PREFILL},
        a=breaks(2),
        b=tells("a ", "time.", input_tokens=20),
    )
    assert (told.heard.text, told.heard.well) == (WHOLE, True)
    assert told.sent("b") == {
        "messages": [{"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": "Once upon"}],
        "max_tokens": 8,
    }
    assert told.heard.usage is not None
    assert (told.heard.usage.input_tokens, told.heard.usage.output_tokens) == (18, 4)


@pytest.mark.parametrize("mark", ["prefix", "partial"])
def test_the_message_is_marked_where_that_is_wanted(mark: str) -> None:
    facts = {"b": TargetInfo(prefill=True, mark=mark)}
    told = Told('fallback("a", "b", resume="prefill")', facts=facts, a=breaks(2), b=tells("a ", "time."))
    assert told.sent("b")["messages"][-1] == {"role": "assistant", "content": "Once upon", mark: True}
    assert (told.heard.text, told.heard.well) == (WHOLE, True)


def test_only_those_that_can_are_asked() -> None:
    told = Told(
        'fallback("a", "b", "c", resume="prefill")', facts={"c": PREFILL}, a=breaks(2), b=TELLS, c=tells("a ", "time.")
    )
    assert (told.heard.text, told.asked) == (WHOLE, {"a": 1, "b": 0, "c": 1})
    told = Told('fallback("a", "b", resume="prefill")', a=breaks(2), b=TELLS)
    assert told.heard.fault is CUT
    assert told.asked["b"] == 0


def test_the_rest_may_break_too() -> None:
    facts = {"b": PREFILL, "c": PREFILL}
    told = Told('resume("a", "b", "c", how="prefill")', facts=facts, a=breaks(2), b=breaks(1, "a "), c=tells("time."))
    assert (told.heard.text, told.heard.well) == (WHOLE, True)
    assert told.sent("c")["messages"][-1]["content"] == "Once upon a"


NOT_PLAIN: list[dict[str, Any]] = [
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"functions": [{"name": "f"}]},
    {"n": 2},
    {"response_format": {"type": "json_object"}},
    {"logprobs": True},
    {"max_tokens": 2},
    {"max_completion_tokens": 1},
    {"messages": "none"},
]


@pytest.mark.parametrize("fields", NOT_PLAIN)
def test_what_cannot_be_asked_for(fields: dict[str, Any]) -> None:
    told = Told('resume("a", "b", how="prefill")', call=chat(**fields), facts={"b": PREFILL}, a=breaks(2), b=TELLS)
    assert told.heard.fault is CUT
    assert told.asked["b"] == 0


@pytest.mark.parametrize("fault", [status(400), status(503), silent()])
def test_a_refusal_of_the_rest_hides_nothing(fault: Fault) -> None:
    told = Told('resume("a", "b", how="prefill")', facts={"b": PREFILL}, a=breaks(2), b=fails(fault))
    assert told.heard.fault is CUT


# Whatever is cut wherever.


class Stream(ReplyBase):
    """A target that sends these bytes, and then ends or breaks."""

    def __init__(self, name: str, chunks: Sequence[bytes], fault: Fault | None = None) -> None:
        self.target = name
        self.empty = False
        self.token_ns = 0
        self._chunks = list(chunks)
        self._fault = fault

    async def __call__(self, call: Call) -> Reply:
        return self

    async def read(self) -> bytes:
        if self._chunks:
            return self._chunks.pop(0)
        if self._fault is not None:
            raise self._fault
        return b""

    def arrived(self) -> list[Event]:
        return []

    async def __anext__(self) -> Event:
        raise StopAsyncIteration

    async def finished(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def stream(name: str, tokens: Sequence[str], newline: bytes = b"\n") -> bytes:
    writer = StreamWriter("chat", "m", id=f"id-{name}", created=7)
    events = [writer.opening(), *map(writer.token, tokens), writer.finish("stop"), writer.usage(Usage(0, 1, 2))]
    return b"".join([*events, writer.done()]).replace(b"\n", newline)


def chunked(data: bytes, drawn: st.DataObject) -> list[bytes]:
    cuts = sorted(drawn.draw(st.sets(st.integers(1, max(len(data) - 1, 1)), max_size=8)))
    return [part for part in map(data.__getitem__, map(slice, [0, *cuts], [*cuts, len(data)])) if part]


def test_what_breaks_after_its_end_has_ended() -> None:
    targets: dict[str, Service] = {"a": Stream("a", [stream("a", WORDS)], CUT), "b": Stream("b", [stream("b", WORDS)])}

    async def main() -> None:
        service = build(
            parse('resume("a", "b")'), targets.__getitem__, TargetStates(), make_encoder=continuation_encoder
        )
        heard = await hear(service, chat())
        assert (heard.text, heard.well) == (WHOLE, True)

    play(main)


@pytest.mark.parametrize("stall", ["", ', stall="9s"'])
def test_a_long_answer(stall: str) -> None:
    """Longer than what is looked into at once, and cut within an event."""
    words = [f"word{number} " for number in range(1000)]
    first = stream("a", words)
    chunks = [first[begin : begin + 1000] for begin in range(0, len(first), 1000)]
    assert len(first) > 4 * BLOCK_BYTES
    again = stream("b", ["".join(words[n : n + 3]) for n in range(0, 1000, 3)])
    targets: dict[str, Service] = {"a": Stream("a", chunks[:-20], CUT), "b": Stream("b", [again])}

    async def main() -> None:
        service = build(
            parse(f'resume("a", "b"{stall})'), targets.__getitem__, TargetStates(), make_encoder=continuation_encoder
        )
        heard = await hear(service, chat())
        assert (heard.text, heard.well) == ("".join(words), True)

    play(main)


@pytest.mark.parametrize("again", [TELLS, tells("Twice ")])
def test_who_watches_is_told_the_same_by_events_and_by_bytes(again: Script) -> None:
    fakes = {"a": scripted(breaks(2), target="a"), "b": scripted(again, target="b")}

    async def main() -> None:
        service = build(parse('resume("a", "b")'), fakes.__getitem__, TargetStates(), make_encoder=continuation_encoder)
        heard, events = Heard(), list[Event]()
        async with await service(msgspec.structs.replace(chat(), watched=True)) as reply:
            try:
                while data := await reply.read():
                    heard.data += data
                    events += reply.arrived()
            except Fault as fault:
                heard.fault = fault
            events += reply.arrived()
        tokens = [event.text for event in events if isinstance(event, Token)]
        assert "".join(tokens) == heard.text
        assert heard.text == (WHOLE if again is TELLS else "Once upon ")
        assert isinstance(events[-1], Done if again is TELLS else Broken)

    play(main, list(fakes.values()))


@pytest.mark.parametrize("again", [TELLS, tells("Twice ")])
def test_who_reads_events_is_told_the_same(again: Script) -> None:
    fakes = {"a": scripted(breaks(2), target="a"), "b": scripted(again, target="b")}

    async def main() -> None:
        service = build(parse('resume("a", "b")'), fakes.__getitem__, TargetStates(), make_encoder=continuation_encoder)
        async with await service(chat()) as reply:
            events = [event async for event in reply]
            assert reply.arrived() == []
        assert "".join(event.text for event in events if isinstance(event, Token)) == (
            WHOLE if again is TELLS else "Once upon "
        )
        assert isinstance(events[-1], Done if again is TELLS else Broken)
        async with await service(chat()) as reply:
            await reply.finished()

    play(main, list(fakes.values()))


TEXTS = st.text(min_size=1, max_size=12) | st.text("ab", min_size=1, max_size=12)


@given(TEXTS, st.data())
def test_all_of_it_once_or_a_beginning_and_an_error(whole: str, data: st.DataObject) -> None:
    """Any cut at any byte, any tokens, the same text or another: never lost, never doubled, never made up."""
    newline = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    first = stream("a", pieces(whole, data), newline)
    cut = data.draw(st.integers(1, len(first)))
    others = [data.draw(st.just(whole) | TEXTS | st.just(whole + "!")) for _ in range(2)]
    targets: dict[str, Service] = {"a": Stream("a", chunked(first[:cut], data), CUT)}
    for name, other in zip("bc", others, strict=True):
        sent = stream(name, pieces(other, data))
        ends = data.draw(st.none() | st.integers(1, len(sent)))
        targets[name] = Stream(name, chunked(sent[:ends], data), CUT if ends else None)
    heard = Heard()

    async def main() -> None:
        nonlocal heard
        service = build(
            parse('resume("a", "b", "c")'), targets.__getitem__, TargetStates(), make_encoder=continuation_encoder
        )
        heard = await hear(service, chat())

    play(main)
    if heard.fault is None:
        assert heard.text in {whole, *others}
        assert heard.well
        assert any(isinstance(event, Done) for event in heard.events)
    else:
        assert heard.fault is CUT
        assert any(full.startswith(heard.text) for full in [whole, *others])
        assert heard.data.endswith((b"\n\n", b"\r\n\r\n", b""))


@given(TEXTS, st.data())
def test_the_same_text_in_any_tokens_is_always_told_to_its_end(whole: str, data: st.DataObject) -> None:
    first = stream("a", pieces(whole, data))
    cut = data.draw(st.integers(1, len(first) - len(b"data: [DONE]\n\n")))
    again = stream("b", pieces(whole, data))
    targets: dict[str, Service] = {
        "a": Stream("a", chunked(first[:cut], data), CUT),
        "b": Stream("b", chunked(again, data)),
    }

    async def main() -> None:
        service = build(
            parse('resume("a", "b")'), targets.__getitem__, TargetStates(), make_encoder=continuation_encoder
        )
        heard = await hear(service, chat())
        assert (heard.text, heard.well) == (whole, True)

    play(main)
