"""`cascade`: accepted answers of the small model reach the client; the large one answers all other
calls."""

import asyncio

import msgspec
import pytest
from msgspec import Raw
from tests.cases import each_case
from tests.policies.branches import SILENT, a_call, bad_request, fails, play, scripted, status

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import AllFailed, CallerFault, Fault, NetworkFault
from splitsecond.core.events import Event, Finish, Token
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.definition import PolicyContext
from splitsecond.routing.machinery.replies.acceptance import DraftAnswer, acceptance
from splitsecond.routing.machinery.replies.judge import ANSWER_CHARACTERS, QUESTION_CHARACTERS
from splitsecond.routing.policies.cascade import cascade
from splitsecond.testing.fake_service import FakeService, Script

LARGE = Script(ttft=1.0, tokens=1, texts=("large",))
LATELY = "of the small model's recent answers were not accepted"


def says(*texts: str, finish: str = "stop") -> Script:
    return Script(ttft=0.1, tokens=len(texts), texts=texts, finish=finish)


def chat(text: str = "What is it?", **fields: object) -> Call:
    body = {"messages": Raw(msgspec.json.encode([{"role": "user", "content": text}])), **fields}
    return msgspec.structs.replace(a_call(), body=body)


async def read_all(reply: Reply, parts: list[bytes] | None = None) -> bytes:
    """Read all bytes of the reply. They are appended to `parts`, also if it fails."""
    found = [] if parts is None else parts
    while data := await reply.read():
        found.append(data)
    return b"".join(found)


async def shown(service: Service, call: Call) -> tuple[str, str]:
    """Return the target that answered and its text, read from the bytes."""
    async with await service(call) as reply:
        body = await read_all(reply)
    chunks = [
        msgspec.json.decode(line[6:]) for line in body.split(b"\n\n") if line.startswith(b"data: {")
    ]
    text = "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )
    return reply.target, text


RULES = [
    ("finished", says("small", "er"), "smaller"),
    ("finished", says("cut", finish="length"), "large"),
    ("finished", says("hm", finish="content_filter"), "large"),
    ("finished", says("hm", finish="odd"), "large"),
    ("finished", says(" ", "\n"), "large"),
    ("json", says('{"a":', "1}"), '{"a":1}'),
    ("json", says('{"a":', "1"), "large"),
    ("json", says('{"a":1}', finish="length"), "large"),
    ("re:^(yes|no)$", says("y", "es"), "yes"),
    ("re:^(yes|no)$", says("maybe"), "large"),
    ("re:^(?!.*cannot)", says("I can", "not"), "large"),
    ("re:(a*)*$b", says("a" * 5000), "large"),
    ("logprob>-0.5", says("small"), "large"),
]


@each_case(("accept", "script", "expected"), RULES)
def test_acceptance_rules_choose_the_model(accept: str, script: Script, expected: str) -> None:
    small, large = scripted(script, target="small/x"), scripted(LARGE, target="large/x")

    async def main() -> None:
        call = chat()
        target, text = await shown(cascade(small, large, accept=accept), call)
        assert text == expected
        assert target == ("large/x" if expected == "large" else "small/x")
        assert len(large.calls) == (expected == "large")
        assert call.notes.chosen.startswith("cascade: ")
        assert call.notes.chosen.endswith(
            f"; 100% {LATELY}" if expected == "large" else f"; 0% {LATELY}"
        )

    play(main, [small, large])


def test_response_is_held_until_complete_before_escalation() -> None:
    small = scripted(says("a", "b", "c"), says("cut", finish="length"))
    large = scripted(LARGE)

    async def main() -> None:
        service = cascade(small, large)
        began_ns = clock.now_ns()
        reply = await service(chat())
        assert (clock.now_ns() - began_ns) / NS_PER_MS == pytest.approx(120)
        await reply.aclose()
        call = chat()
        await shown(service, call)
        assert large.calls[0].call is call
        assert f"50% {LATELY}" in call.notes.chosen

    play(main, [small, large])


@pytest.mark.parametrize(
    "script",
    [
        fails(status(503)),
        Script(tokens=0),
        Script(fault=NetworkFault("cut", kind="reset", phase="total"), breaks_after=2),
    ],
)
def test_the_large_model_answers_when_the_small_one_fails(script: Script) -> None:
    small, large = scripted(script), scripted(LARGE, target="large/x")

    async def main() -> None:
        assert await shown(cascade(small, large), chat()) == ("large/x", "large")

    play(main, [small, large])


def test_invalid_request_is_raised_and_two_failures_are_listed() -> None:
    small, large = (
        scripted(fails(bad_request()), fails(status(500)), says("x", finish="length")),
        scripted(fails(status(503))),
    )

    async def main() -> None:
        service = cascade(small, large)
        with pytest.raises(CallerFault):
            await service(chat())
        assert not large.calls
        with pytest.raises(AllFailed) as failed:
            await service(chat())
        assert [cause.kind for cause in failed.value.causes] == ["http_500", "http_503"]
        with pytest.raises(Fault) as alone:  # a rejected answer is not a failure
            await service(chat())
        assert alone.value.kind == "http_503"

    play(main, [small, large])


@pytest.mark.parametrize("script", [SILENT, Script(ttft=0.1, tokens=1000, tps=10)])
def test_wait_for_the_small_model_is_limited_by_hold(script: Script) -> None:
    small, large = scripted(script), scripted(LARGE, target="large/x")

    async def main() -> None:
        began_ns = clock.now_ns()
        call = chat()
        assert (await shown(cascade(small, large, hold="2s"), call))[0] == "large/x"
        assert (clock.now_ns() - began_ns) / NS_PER_MS == 3000
        assert "more than 2s" in call.notes.chosen

    play(main, [small, large])


JUDGED = [
    (says("yes"), True),
    (says(" **Y", "es**", "."), True),
    (says("no"), False),
    (says("yesterday"), False),
    (says("I think", " yes"), False),
    (fails(status(500)), False),
    (Script(tokens=0), False),
    (SILENT, False),
]


@each_case(("verdict", "accepted"), JUDGED)
def test_response_is_accepted_only_if_the_judge_says_yes(verdict: Script, accepted: bool) -> None:
    small, large, judge = scripted(says("small")), scripted(LARGE), scripted(verdict)

    async def main() -> None:
        service = cascade(small, large, judge=judge, hold="3s")
        assert (await shown(service, chat("Why is it?")))[1] == ("small" if accepted else "large")
        (asked,) = judge.calls
        said = str(asked.call.body["messages"], "utf-8")
        assert "Why is it?" in said
        assert "small" in said

    play(main, [small, large, judge])


def test_judge_gets_a_bounded_prompt_and_no_rejected_responses() -> None:
    small = scripted(says("a" * 100_000), says("x", finish="length"))
    large, judge = scripted(LARGE), scripted(says("yes"))

    async def main() -> None:
        service = cascade(small, large, judge=judge)
        await shown(service, chat("q" * 50_000))
        assert (
            len(bytes(judge.calls[0].call.body["messages"]))
            < ANSWER_CHARACTERS + QUESTION_CHARACTERS + 2000
        )
        await shown(service, chat())
        assert len(judge.calls) == 1

    play(main, [small, large, judge])


async def answer_likely(fake: FakeService, mean: float) -> None:
    """A script that answers with tokens of that mean log-probability."""
    expected_call = await fake.expect()
    expected_call._take(
        Token(clock.now_ns(), "sure", logprobs=(mean - 0.1, mean + 0.1)),
        Finish(clock.now_ns(), "stop"),
    )
    expected_call.finish()


@pytest.mark.parametrize(("mean", "accepted"), [(-0.4, True), (-0.6, False)])
def test_log_probabilities_are_requested_and_removed(mean: float, accepted: bool) -> None:
    small, large = FakeService(), scripted(LARGE)

    async def main() -> None:
        trimmed: list[bytes] = []

        def trim(data: bytes) -> bytes:
            trimmed.append(data)
            return data.replace(b"sure", b"SURE")

        service = cascade(
            small, large, accept="logprob>-0.5", context=PolicyContext(trim_logprobs=trim)
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(answer_likely(small, mean))
            asking = group.create_task(shown(service, chat()))
        assert asking.result()[1] == ("SURE" if accepted else "large")
        assert small.calls[0].call.body["logprobs"] is True
        assert len(trimmed) == accepted

    play(main, [small, large])


def test_log_probabilities_requested_by_the_client_are_kept() -> None:
    small, large = FakeService(), scripted(LARGE)

    async def main() -> None:
        service = cascade(
            small,
            large,
            accept="logprob>-0.5",
            context=PolicyContext(trim_logprobs=lambda data: b""),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(answer_likely(small, -0.1))
            asking = group.create_task(shown(service, chat(logprobs=Raw(b"true"))))
        assert asking.result()[1] == "sure"

    play(main, [small, large])


def test_embeddings_go_to_the_large_model() -> None:
    small, large = scripted(says("x")), scripted(LARGE)

    async def main() -> None:
        await (
            await cascade(small, large)(msgspec.structs.replace(a_call(), operation="embeddings"))
        ).aclose()
        assert (len(small.calls), len(large.calls)) == (0, 1)

    play(main, [small, large])


def test_response_too_long_to_hold_goes_to_the_large_model() -> None:
    small, large = scripted(says(*["x" * 1_000_000] * 12)), scripted(LARGE)

    async def main() -> None:
        call = chat()
        assert (await shown(cascade(small, large), call))[1] == "large"
        assert "too long" in call.notes.chosen

    play(main, [small, large])


@each_case(
    "accept", ["done", "re:", "re:(", "logprob>", "logprob>0", "logprob>nan", "logprob>-1000", 5]
)
def test_invalid_acceptance_rules_are_refused(accept: object) -> None:
    with pytest.raises(CallerFault, match="accept is"):
        acceptance("accept", accept)


def test_rule_finished_rejects_refusals_and_accepts_tool_calls() -> None:
    rule = acceptance("accept", "finished")
    refusal: list[Event] = [Token(1, "No.", "refusal"), Finish(1, "stop")]
    calls: list[Event] = [Token(1, "look_up", "tool"), Finish(1, "tool_calls")]
    for events, word in ((refusal, "refuses"), (calls, ""), ([Token(1, "x")], "does not say why")):
        answer = DraftAnswer()
        answer.take(events)
        assert (word in rule(answer)) if word else rule(answer) == ""
