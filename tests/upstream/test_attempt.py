"""One attempt, from the call to the observation, in virtual time over a transport without
sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.upstream.scripted_client import FINISH, MS, ScriptedClient, ScriptedExchange

from splitsecond.core import clock
from splitsecond.core.catalog.provider import Auth
from splitsecond.core.errors import CallerFault, Fault, NetworkFault, ProviderFault, TimedOut
from splitsecond.core.events import Broken, Done, Finish, RateLimits, Token
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, OutputMeter, RateFloor
from splitsecond.core.timing.rate_floor import RateCheck
from splitsecond.core.upstream.answer_lengths import FULL_SHARE, LIKE_BEFORE
from splitsecond.core.upstream.attempt import METERED_BYTES, Attempt
from splitsecond.core.upstream.spec import TargetSpec, Timeouts
from splitsecond.core.upstream.target import Target, connect
from splitsecond.testing.virtual_time import run_virtual

MAX_TOKENS = 40
SPEC = TargetSpec(name="x/m", base_url="http://x.test/v1/", model="m")


def _ignore(observation: Observation) -> None:
    """Nobody looks at what was observed."""


class Stage:
    """A target on a scripted transport, a call in flight, and its observations."""

    def __init__(self, **timeouts: int | None) -> None:
        self.client = ScriptedClient()
        self.seen: list[Observation] = []
        spec = msgspec.structs.replace(
            SPEC, timeouts=msgspec.structs.replace(Timeouts(), **timeouts)
        )
        self.target: Target = connect(
            spec, self.seen.append, environment={}, client=self.client.as_client()
        )

    def call(
        self,
        *,
        deadline_ns: int | None = None,
        stall_ns: int | None = None,
        floor: RateFloor | None = None,
        meter: OutputMeter | None = None,
        **fields: Any,
    ) -> "asyncio.Task[Attempt]":
        now_ns = clock.now_ns()
        body = {"messages": [], **fields}
        call = Call(
            id="c",
            body=body,
            start_ns=now_ns,
            deadline_ns=deadline_ns,
            stall_ns=stall_ns,
            floor=floor,
        )
        call.notes.meter = meter
        return asyncio.get_running_loop().create_task(self.target(call))

    @property
    def only(self) -> Observation:
        assert len(self.seen) == 1, self.seen
        return self.seen[0]


def play(act: Callable[[Stage], Awaitable[None]], **timeouts: int | None) -> None:
    async def main() -> None:
        await act(Stage(**timeouts))

    run_virtual(main())


async def after(ms: float) -> None:
    await asyncio.sleep(ms / 1000)


def test_streamed_response_gives_a_complete_observation() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        await after(10)
        exchange.head()
        await after(10)
        exchange.body(
            b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
        )
        await after(10)
        assert not waiting.done()
        exchange.text("one")
        reply = await waiting
        done = asyncio.get_running_loop().create_task(reply.finished())
        await after(10)
        exchange.text("two")
        await after(10)
        exchange.finish()
        await after(10)
        assert not done.done()  # the body is still open
        exchange.end()
        await done
        await reply.aclose()
        seen = stage.only
        assert reply.observation is seen
        sent = exchange.sent_ns
        assert seen.outcome == "ok"
        assert (seen.id, seen.call, seen.target, seen.status) == ("c.1", "c", "x/m", 200)
        moments = (
            seen.sent_ns,
            seen.head_ns,
            seen.first_event_ns,
            seen.first_token_ns,
            seen.last_token_ns,
        )
        assert moments == tuple(sent + ms * MS for ms in (0, 10, 20, 30, 40))
        assert seen.end_ns == sent + 60 * MS
        assert (seen.dns_ns, seen.tcp_ns, seen.tls_ns, seen.rtt_ns) == (
            1 * MS,
            2 * MS,
            3 * MS,
            4 * MS,
        )
        assert (seen.finish_reason, seen.done_marker, seen.token_source) == ("stop", True, "events")

    play(act)


def test_request_has_address_model_and_request_id() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        await stage.client.exchange()
        waiting.cancel()
        origin, request = stage.client.sent[0]
        assert (str(origin), request.method, request.path) == (
            "http://x.test",
            "POST",
            "/v1/chat/completions",
        )
        assert request.fresh == (("x-client-request-id", "c.1"),)
        assert "authorization" not in dict(request.headers)
        assert msgspec.json.decode(request.body)["model"] == "m"

    play(act)


@pytest.mark.parametrize(
    ("field", "body", "key"),
    [
        ("", {}, None),
        ("prompt_cache_key", {}, "s1"),
        ("prompt_cache_key", {"prompt_cache_key": "own"}, "own"),
    ],
)
def test_session_of_a_bench_is_in_the_field_of_its_provider(
    field: str, body: dict[str, str], key: str | None
) -> None:
    async def main() -> None:
        client = ScriptedClient()
        spec = msgspec.structs.replace(SPEC, quirks={"session_field": field})
        target = connect(spec, lambda o: None, environment={}, client=client.as_client())
        call = Call(
            id="c", body={"messages": [], **body}, start_ns=clock.now_ns(), hints={"session": "s1"}
        )
        waiting = asyncio.get_running_loop().create_task(target(call))
        await client.exchange()
        waiting.cancel()
        _, request = client.sent[0]
        assert dict(request.fresh)["x-session-id"] == "s1"
        assert msgspec.json.decode(request.body).get("prompt_cache_key") == key

    run_virtual(main())


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ("bearer", ("authorization", "Bearer s3cret")),
        ("x-api-key", ("x-api-key", "s3cret")),
        ("api-key", ("api-key", "s3cret")),
        ("x-goog-api-key", ("x-goog-api-key", "s3cret")),
    ],
)
def test_a_key_is_sent_and_never_shown(auth: Auth, header: tuple[str, str]) -> None:
    async def main() -> None:
        client = ScriptedClient()
        spec = msgspec.structs.replace(SPEC, api_key_env=("A_KEY", "B_KEY"), auth=auth)
        target = connect(spec, _ignore, environment={"B_KEY": "s3cret"}, client=client.as_client())
        waiting = asyncio.get_running_loop().create_task(target(Call(id="c", body={})))
        await client.exchange()
        waiting.cancel()
        assert header in client.sent[0][1].headers
        assert sum("s3cret" in value for _, value in client.sent[0][1].headers) == 1
        assert "s3cret" not in repr(target)

    run_virtual(main())


@pytest.mark.parametrize(
    ("stream", "quirks"), [(False, {"stream_whole": False}), (False, {}), (True, {})]
)
def test_observation_records_whether_it_was_streamed(stream: bool, quirks: dict[str, bool]) -> None:
    async def main() -> None:
        client, seen = ScriptedClient(), list[Observation]()
        spec = msgspec.structs.replace(SPEC, quirks=quirks)
        target = connect(spec, seen.append, environment={}, client=client.as_client())
        waiting = asyncio.get_running_loop().create_task(
            target(Call(id="c", body={"messages": []}, stream=stream))
        )
        exchange = await client.exchange()
        exchange.head()
        exchange.body(b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}')
        exchange.end()
        await (await waiting).finished()
        assert (seen[0].ok, seen[0].streamed) == (True, stream or not quirks)

    run_virtual(main())


@pytest.mark.parametrize("status", [200, 401])
def test_key_repeated_by_a_provider_is_redacted(status: int) -> None:
    async def main() -> None:
        client, seen = ScriptedClient(), list[Observation]()
        spec = msgspec.structs.replace(SPEC, api_key_env=("A_KEY",))
        target = connect(
            spec, seen.append, environment={"A_KEY": "sk-0123456789"}, client=client.as_client()
        )
        waiting = asyncio.get_running_loop().create_task(target(Call(id="c", body={})))
        exchange = await client.exchange()
        exchange.head(status)
        exchange.body(b'data: {"error": {"message": "no sk-0123456789"}}\n\n')
        exchange.end()
        with pytest.raises(ProviderFault, match=r"no \[key\]") as raised:
            await waiting
        assert "0123456789" not in str(vars(raised.value)) + repr(raised.value) + repr(seen)

    run_virtual(main())


def test_a_missing_key_names_its_variable() -> None:
    spec = msgspec.structs.replace(SPEC, api_key_env=("A_KEY", "B_KEY"))
    with pytest.raises(
        CallerFault, match=r"x/m: no key: A_KEY or B_KEY is not set\. export A_KEY=\.\.\."
    ):
        connect(spec, _ignore, environment={})
    with pytest.raises(CallerFault, match="no HTTP header can carry"):
        connect(spec, _ignore, environment={"A_KEY": "sk-\u201dx"})


def test_unknown_api_format_or_quirk_is_refused() -> None:
    for change, words in (
        ({"api_format": "klingon"}, "unknown api_format"),
        ({"quirks": {"x": 1}}, "quirks: .*`x`"),
    ):
        with pytest.raises(CallerFault, match=words):
            connect(
                msgspec.structs.replace(SPEC, **change),
                _ignore,
                client=ScriptedClient().as_client(),
            )


def test_events_can_be_read_one_by_one() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        events = []

        async def read() -> None:
            async with await waiting as reply:
                events.extend([event async for event in reply])

        reading = asyncio.get_running_loop().create_task(read())
        await after(1)
        exchange.text("two")
        await after(1)
        exchange.finish()
        await reading
        assert [type(e) for e in events] == [Token, Token, Finish, Done]
        assert stage.seen == []  # the body is still open
        await after(1)
        exchange.end()
        assert stage.only.outcome == "ok"

    play(act)


def test_a_body_left_open_after_the_end_is_closed_and_no_error() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        exchange.finish()
        await reply.aclose()
        closed_at_first = exchange.closed_ns
        await after(200_000)
        assert (closed_at_first, exchange.closed_ns) == (None, exchange.sent_ns + 1000 * MS)
        assert stage.only.outcome == "ok"
        # when its last byte came, not when we gave up on more
        assert stage.only.end_ns == exchange.sent_ns

    play(act)


def test_error_response_is_raised_with_its_message() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head(429, {"retry-after": "7"})
        exchange.body(b'{"error": {"message": "slow ')
        exchange.body(b'down"}}')
        exchange.end()
        with pytest.raises(ProviderFault, match="slow down") as raised:
            await waiting
        assert (raised.value.kind, raised.value.target) == ("http_429", "x/m")
        assert raised.value.retry_after_ns == 7 * clock.NS_PER_S
        assert (stage.only.outcome, stage.only.status) == ("failed", 429)

    play(act)


def test_rate_limit_headers_are_observed() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head(
            200, {"x-ratelimit-remaining-requests": "12", "x-ratelimit-reset-requests": "6m0s"}
        )
        exchange.text("word")
        exchange.finish()
        exchange.end()
        await (await waiting).aclose()
        assert stage.only.limits == RateLimits(
            requests_left=12, requests_reset_ns=360 * clock.NS_PER_S
        )

    play(act)


@pytest.mark.parametrize(
    ("said", "kept"),
    [("214", {"processing_ms": 214.0}), (" 7", {"processing_ms": 7.0}), ("-1", {}), ("soon", {})],
)
def test_processing_time_header_is_observed(said: str, kept: dict[str, float]) -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head(200, {"openai-processing-ms": said})
        exchange.text("word")
        exchange.finish()
        exchange.end()
        await (await waiting).aclose()
        assert stage.only.server_timings == kept

    play(act)


@pytest.mark.parametrize("ending", ["end", "cut", "endless"])
def test_error_response_is_raised_however_its_body_ends(ending: str) -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head(500)
        exchange.body(b"<html>oops</html>" * (10_000 if ending == "endless" else 1))
        if ending == "end":
            exchange.end()
        elif ending == "cut":
            exchange.fail(NetworkFault("reset", kind="reset", phase="between tokens"))
        with pytest.raises(ProviderFault) as raised:
            await waiting
        assert raised.value.kind == "http_500"
        assert exchange.closed_ns is not None
        assert stage.only.fault is not None

    play(act)


def test_request_that_cannot_be_sent_is_observed() -> None:
    async def act(stage: Stage) -> None:
        stage.client.refuse_with = NetworkFault("no", kind="refused", phase="connect")
        with pytest.raises(NetworkFault, match="x/m: no"):
            await stage.call()
        assert (stage.only.outcome, stage.only.sent_ns) == ("failed", None)

    play(act)


@pytest.mark.parametrize(
    ("status", "token", "phase"),
    [(False, False, "head"), (True, False, "first token"), (True, True, "between tokens")],
)
def test_fault_of_a_broken_connection_has_its_phase(status: bool, token: bool, phase: str) -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        if status:
            exchange.head()
        if token:
            exchange.text("one")
        exchange.fail(
            NetworkFault("reset", kind="reset", phase="between tokens" if status else "head")
        )
        if token:
            events = [event async for event in await waiting]
            assert isinstance(events[-1], Broken)
        else:
            with pytest.raises(NetworkFault):
                await waiting
        assert stage.only.fault is not None
        assert (stage.only.fault.kind, stage.only.fault.phase) == ("reset", phase)

    play(act)


def test_connection_loss_after_the_end_mark_is_ignored() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        exchange.finish()
        exchange.fail(NetworkFault("reset", kind="reset", phase="between tokens"))
        await (await waiting).finished()
        assert stage.only.outcome == "ok"

    play(act)


def test_an_error_inside_the_stream_ends_it_at_once() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        exchange.body(
            b'data: {"error": {"message": "engine died", "code": 500}}\n\ndata: [DONE]\n\n'
        )
        assert exchange.closed_ns is not None
        reply = await waiting
        events = [event async for event in reply]
        assert [type(e) for e in events] == [Token, Broken]
        await reply.finished()
        assert stage.only.fault is not None
        assert (stage.only.fault.kind, stage.only.token_at) == ("in_band_error", [exchange.sent_ns])

    play(act)


def test_empty_response_is_a_reply_but_observed_as_failed() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.finish()
        exchange.end()
        reply = await waiting  # it ended well, so there is a reply
        assert [type(e) async for e in reply] == [Finish, Done]
        assert stage.only.fault is not None
        assert stage.only.fault.kind == "empty_answer"

    play(act)


async def _head_missing(exchange: ScriptedExchange) -> None:
    await after(1)


async def _token_missing(exchange: ScriptedExchange) -> None:
    await after(50)
    exchange.head()
    exchange.body(b": still working\n\n")


@pytest.mark.parametrize(
    ("so_far", "phase", "at_ms"),
    [(_head_missing, "head", 100), (_token_missing, "first token", 300)],
)
def test_a_target_that_stays_silent_times_out(
    so_far: Callable[[ScriptedExchange], Awaitable[None]], phase: str, at_ms: int
) -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        await so_far(exchange)
        with pytest.raises(TimedOut) as raised:
            await waiting
        assert raised.value.phase == phase
        assert exchange.closed_ns is not None
        assert exchange.closed_ns - exchange.sent_ns == pytest.approx(at_ms * MS, rel=0.01)
        assert stage.only.fault is not None
        assert stage.only.fault.phase == phase

    play(act, head_ms=100, first_token_ms=300)


def test_stall_ends_the_stream_despite_pings() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        done = asyncio.get_running_loop().create_task(reply.finished())
        for _ in range(4):
            await after(60)
            exchange.text("more")
        for _ in range(3):
            await after(30)
            exchange.body(b": ping\n\n")
        await done
        assert stage.only.fault is not None
        assert (stage.only.fault.phase, stage.only.fault.kind) == (
            "between tokens",
            "timeout_between_tokens",
        )
        assert exchange.closed_ns is not None
        assert exchange.closed_ns - exchange.sent_ns == pytest.approx(340 * MS, rel=0.01)

    play(act, stall_ms=100)


def test_a_stream_that_is_left_unread_does_not_stall() -> None:
    """Tokens come every 20 ms, but only the stall limit of 100 ms makes anybody read them."""

    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        done = asyncio.get_running_loop().create_task(reply.finished())
        for _ in range(30):
            await after(20)
            exchange.unread.append((clock.now_ns(), exchange.text_event("more")))
        assert not done.done()
        assert len(exchange.unread) < 10
        silent_ns = clock.now_ns()
        await done
        assert stage.only.fault is not None
        assert stage.only.fault.kind == "timeout_between_tokens"
        assert len(stage.only.token_at) == 31
        assert stage.only.end_ns - silent_ns == 100 * MS

    play(act, stall_ms=100)


@pytest.mark.parametrize("limit", ["deadline", "floor"])
def test_deadline_waits_for_unread_bytes_that_came_in_time(limit: str) -> None:
    async def act(stage: Stage) -> None:
        deadline_ns = clock.now_ns() + 300 * MS if limit == "deadline" else None
        floor = RateFloor(20.0, 300 * MS) if limit == "floor" else None
        waiting = stage.call(deadline_ns=deadline_ns, floor=floor)
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        done = asyncio.get_running_loop().create_task(reply.finished())
        for _ in range(14):
            await after(20)
            exchange.unread.append((clock.now_ns(), exchange.text_event("more")))
        exchange.unread.append((clock.now_ns(), FINISH))
        await done
        assert stage.only.ok
        assert len(stage.only.token_at) == 15

    play(act)


@pytest.mark.parametrize(("own_ms", "ends_ms"), [(None, 50), (100, 50), (30, 30)])
def test_shorter_stall_limit_of_call_or_target_applies(own_ms: int | None, ends_ms: int) -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call(stall_ns=50 * MS)
        exchange = await stage.client.exchange()
        exchange.head()
        await after(500)  # before the first token it does not count
        exchange.text("one")
        token_ns = clock.now_ns()
        reply = await waiting
        await reply.finished()
        assert stage.only.fault is not None
        assert stage.only.fault.kind == "timeout_between_tokens"
        assert stage.only.end_ns - token_ns == ends_ms * MS

    play(act, stall_ms=own_ms)


def test_a_slow_stream_is_ended_with_few_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    check = RateCheck.rate

    def counted(self: RateCheck, now_ns: int) -> float | None:
        checks.append(now_ns)
        return check(self, now_ns)

    monkeypatch.setattr(RateCheck, "rate", counted)

    async def act(stage: Stage) -> None:
        waiting = stage.call(floor=RateFloor(tokens_per_s=8, over_ns=20_000 * MS))
        exchange = await stage.client.exchange()
        exchange.head()
        await after(20_000)  # before the first token it does not count
        exchange.text("one")
        began_ns = clock.now_ns()
        reply = await waiting
        done = asyncio.get_running_loop().create_task(reply.finished())
        for _ in range(2_000):  # 50 s
            await after(25)
            exchange.text("more")
        while not done.done():
            await after(500)
            exchange.text("slow")
        assert stage.only.fault is not None
        assert stage.only.fault.phase == "between tokens"
        assert "below the floor of 8" in stage.only.fault.message
        # 40 tokens a second for 3.2 s and 2 for 16.8 s are 8 a second.
        assert 66.8 <= (stage.only.end_ns - began_ns) / 1e9 <= 66.8 + 2.6
        assert len(checks) < 25

    play(act, stall_ms=1_000)


@pytest.mark.parametrize("whose", ["call", "target"])
def test_total_deadline_of_call_or_target_ends_the_attempt(whose: str) -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call(deadline_ns=clock.now_ns() + 80 * MS if whose == "call" else None)
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        await reply.finished()
        assert exchange.closed_ns is not None
        assert exchange.closed_ns - exchange.sent_ns == pytest.approx(80 * MS, rel=0.01)
        assert stage.only.fault is not None
        assert "deadline of 80 ms" in stage.only.fault.message

    play(act, total_ms=None if whose == "call" else 80)


def test_attempt_without_timeouts_waits_for_hours() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        await after(3_600_000)
        exchange.head()
        exchange.text("late")
        async with await waiting:
            pass
        assert stage.only.outcome == "cancelled"

    play(act, head_ms=None, first_token_ms=None, stall_ms=None)


def test_closing_early_closes_the_connection_at_once() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        await reply.aclose()
        await reply.aclose()
        assert exchange.closed_ns == clock.now_ns()
        assert stage.only.outcome == "cancelled"

    play(act)


@pytest.mark.parametrize("connected", [True, False])
def test_cancelling_the_wait_closes_the_connection_at_once(connected: bool) -> None:
    async def act(stage: Stage) -> None:
        stage.client.dialling = None if connected else asyncio.Event()
        waiting = stage.call()
        await after(5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert stage.only.outcome == "cancelled"
        if connected:
            assert (await stage.client.exchange()).closed_ns == clock.now_ns()

    play(act)


def test_tokens_after_the_end_are_not_counted() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        exchange.finish()
        exchange.text("ghost")
        exchange.end()
        reply = await waiting
        assert [type(e) async for e in reply] == [Token, Finish, Done]
        assert stage.only.token_at == [exchange.sent_ns]

    play(act)


def test_target_prints_as_its_expression() -> None:
    async def act(stage: Stage) -> None:
        assert repr(stage.target) == '"x/m"'
        assert await stage.target.warm(3) == 3
        stage.target.close()
        assert stage.client.closed

    play(act)


TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
FINISHED = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
COUNTED = (
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}\n\n'
)


@pytest.mark.parametrize("at_once", [True, False])
def test_response_with_finish_reason_ends_without_end_mark(at_once: bool) -> None:
    """Before, it waited for the stall limit and failed."""

    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        if at_once:
            exchange.body(TOKEN + FINISHED)
        else:
            exchange.body(TOKEN)
            await waiting
            exchange.body(FINISHED)
        reply = await waiting
        await after(1000)
        exchange.body(COUNTED)
        began_ns = clock.now_ns()
        await reply.finished()
        assert clock.now_ns() - began_ns == 1000 * MS
        assert (stage.only.outcome, stage.only.finish_reason, stage.only.output_tokens) == (
            "ok",
            "stop",
            1,
        )
        assert exchange.closed_ns is not None

    play(act)


def test_response_with_several_choices_waits_for_all_of_them() -> None:
    async def act(stage: Stage) -> None:
        call = Call(id="c", body={"messages": [], "n": 2}, start_ns=clock.now_ns())
        waiting = asyncio.get_running_loop().create_task(stage.target(call))
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        exchange.body(FINISHED)
        await after(10_000)
        assert stage.seen == []
        await reply.aclose()

    play(act)


def test_response_with_text_after_finish_reason_stays_open() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        exchange.body(FINISHED)
        exchange.body(b'data: {"choices":[{"index":1,"delta":{"content":"more"}}]}\n\n')
        await after(10_000)
        assert stage.seen == []
        await reply.aclose()

    play(act)


def test_time_left_is_known_from_earlier_response_lengths() -> None:
    left: list[int | None] = []

    async def answer(stage: Stage, tokens: int, *, sparse: bool = False) -> None:
        waiting = stage.call(max_tokens=MAX_TOKENS)
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.sparse = sparse
        for number in range(tokens):
            exchange.text(f"token {number}")
            await after(10)
            left.append(exchange.time_left())
        reply = await waiting
        done = asyncio.get_running_loop().create_task(reply.finished())
        exchange.finish()
        exchange.end()
        await done
        await reply.aclose()

    async def act(stage: Stage) -> None:
        for _ in range(LIKE_BEFORE):
            await answer(stage, MAX_TOKENS)
        assert left == [None] * len(left)
        left.clear()
        await answer(stage, MAX_TOKENS, sparse=True)
        assert stage.seen[-1].sparse
        last = int(MAX_TOKENS * FULL_SHARE)
        # each is read 10 ms after it came, when the next one is due
        assert left[1:] == [(last - number - 1) * 10 * MS for number in range(2, MAX_TOKENS + 1)]
        await answer(stage, MAX_TOKENS // 2)  # a short answer: the end of the next is not known
        left.clear()
        await answer(stage, MAX_TOKENS)
        assert left == [None] * MAX_TOKENS

    play(act)


def test_meter_counts_tokens_and_can_end_the_response() -> None:
    seen: list[tuple[str, int]] = []

    def meter(target: str, tokens: int) -> Fault | None:
        seen.append((target, tokens))
        return (
            CallerFault("no money", kind="insufficient_quota", status=429)
            if tokens > 2_000
            else None
        )

    async def act(stage: Stage) -> None:
        waiting = stage.call(meter=meter)
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        reply = await waiting
        assert seen == []
        exchange.text("x" * METERED_BYTES)
        assert seen == [("x/m", (METERED_BYTES + 3) // 4)]
        for _ in range(3):
            exchange.text("y" * METERED_BYTES)
        await reply.finished()
        assert [tokens for _, tokens in seen] == [
            (3 + number * METERED_BYTES) // 4 for number in (1, 2)
        ]
        fault = stage.only.fault
        assert fault is not None
        assert (fault.type, fault.kind) == ("CallerFault", "insufficient_quota")
        assert exchange.closed_ns is not None

    play(act)


def test_a_meter_counts_tokens_and_no_characters_of_media() -> None:
    seen: list[int] = []

    async def act(stage: Stage) -> None:
        waiting = stage.call(meter=lambda target, tokens: seen.append(tokens))
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        await waiting
        url = "data:image/png;base64," + "A" * 2 * METERED_BYTES
        images = msgspec.json.encode([{"type": "image_url", "image_url": {"url": url}}])
        exchange.body(b'data: {"choices":[{"index":0,"delta":{"images":%b}}]}\n\n' % images)
        assert seen == [2]
        exchange.body(b"".join(exchange.text_event("a") for _ in range(200)))
        assert seen == [2, 202]
        exchange.finish()
        assert len(seen) == 2

    play(act)


def test_an_answer_without_a_meter_is_a_plain_attempt() -> None:
    async def act(stage: Stage) -> None:
        waiting = stage.call()
        exchange = await stage.client.exchange()
        exchange.head()
        exchange.text("one")
        assert type(await waiting) is Attempt

    play(act)
