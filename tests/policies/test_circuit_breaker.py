"""The breaker: what opens it, when one request may try, and how traffic comes back."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples

from splitsecond.core.clock import NS_PER_S
from splitsecond.routing.targets.circuit_breaker import (
    DISTRUST_NS,
    FIRST_OPEN_NS,
    IN_A_ROW,
    LONGEST_ASKED_NS,
    LONGEST_COOL_NS,
    LONGEST_OPEN_NS,
    LONGEST_QUICK_NS,
    MIN_RAMP,
    RAMP_ANSWERS,
    RAMP_NS,
    RECEIVED_OPEN_NS,
    TURN_PATIENCE_NS,
    CircuitBreaker,
)

START_NS = 1000 * NS_PER_S


class ClockedBreaker:
    """A circuit breaker, and its clock."""

    def __init__(self) -> None:
        self.breaker = CircuitBreaker(Random(1))
        self.now_ns = START_NS

    def passes(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)

    def fails(self, times: int = 1, *, ago_s: float = 0.0) -> None:
        for _ in range(times):
            self.breaker.record_failure(
                self.now_ns, self.now_ns - round(ago_s * NS_PER_S), "http_500"
            )

    def answers(self, times: int = 1, *, ago_s: float = 0.0) -> None:
        for _ in range(times):
            self.breaker.record_success(self.now_ns, self.now_ns - round(ago_s * NS_PER_S))

    def asks_to_wait(self, seconds: float | None, *, ago_s: float = 0.0) -> None:
        wait_ns = None if seconds is None else round(seconds * NS_PER_S)
        self.breaker.record_rate_limit(
            self.now_ns, self.now_ns - round(ago_s * NS_PER_S), wait_ns, "http_429"
        )

    def until_probe(self) -> None:
        self.now_ns = self.breaker.open_until_ns

    def is_down(self) -> bool:
        return self.breaker.is_down(self.now_ns)

    @property
    def open_s(self) -> float:
        return (self.breaker.open_until_ns - self.now_ns) / NS_PER_S


@pytest.fixture
def clocked() -> ClockedBreaker:
    return ClockedBreaker()


# What opens it.


def test_5_failures_in_a_row_open_the_circuit_breaker(clocked: ClockedBreaker) -> None:
    clocked.fails(IN_A_ROW - 1)
    assert clocked.breaker.state == "closed"
    clocked.answers()
    clocked.fails(IN_A_ROW - 1)
    assert clocked.breaker.state == "closed"
    clocked.fails()
    assert clocked.is_down()
    assert clocked.breaker.reason == "5 failures in a row, the last: http_500"


def test_failure_of_half_the_latest_requests_opens_it(clocked: ClockedBreaker) -> None:
    for _ in range(4):
        clocked.fails()
        clocked.answers()
    assert clocked.breaker.state == "closed"  # fewer than ten
    clocked.fails()
    clocked.answers()
    clocked.fails()
    assert clocked.is_down()
    assert clocked.breaker.reason.startswith("6 of 11 requests failed lately")


def test_failures_of_half_a_minute_ago_do_not_count(clocked: ClockedBreaker) -> None:
    clocked.fails(4)
    clocked.answers()
    clocked.fails(2)
    clocked.passes(35)
    clocked.answers(3)
    clocked.fails(2)
    assert clocked.breaker.state == "closed"


def test_failure_of_every_third_request_does_not_open_it(clocked: ClockedBreaker) -> None:
    for _ in range(100):
        clocked.answers(2)
        clocked.fails()
        clocked.passes(0.1)
    assert clocked.breaker.state == "closed"


@pytest.mark.parametrize(
    ("asked_s", "waited_s"), [(20, 20), (0.5, 0.5), (1e6, LONGEST_ASKED_NS / NS_PER_S)]
)
def test_circuit_breaker_stays_open_for_the_retry_after(
    clocked: ClockedBreaker, asked_s: float, waited_s: float
) -> None:
    clocked.asks_to_wait(asked_s)
    assert clocked.open_s == waited_s
    assert clocked.breaker.must_wait(clocked.now_ns)
    clocked.until_probe()
    assert not clocked.breaker.must_wait(clocked.now_ns)
    assert not clocked.is_down()


def test_longer_retry_after_wins_over_a_shorter_older_one(clocked: ClockedBreaker) -> None:
    clocked.asks_to_wait(30)
    clocked.passes(1)
    clocked.asks_to_wait(5, ago_s=2)
    assert clocked.open_s == 29
    clocked.asks_to_wait(60, ago_s=2)
    assert clocked.open_s == 60


def test_wait_without_retry_after_doubles_up_to_a_maximum(clocked: ClockedBreaker) -> None:
    waits = []
    for _ in range(8):
        clocked.asks_to_wait(None)
        clocked.asks_to_wait(None, ago_s=0.1)  # one that had left before is no news
        waits.append(clocked.open_s)
        clocked.until_probe()
        clocked.breaker.probe_attempt = "c"
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_COOL_NS / NS_PER_S, LONGEST_COOL_NS / NS_PER_S]


def test_unserved_model_opens_it_for_about_5_minutes(clocked: ClockedBreaker) -> None:
    clocked.breaker.record_not_served(clocked.now_ns, clocked.now_ns, "http_404")
    assert 240 <= clocked.open_s <= 360
    clocked.until_probe()
    clocked.breaker.record_not_served(clocked.now_ns, clocked.now_ns, "http_404")
    assert 240 <= clocked.open_s <= 360


def test_404_of_a_working_target_does_not_open_it(clocked: ClockedBreaker) -> None:
    clocked.answers()
    clocked.passes(30)
    clocked.breaker.record_not_served(clocked.now_ns, clocked.now_ns, "http_404")
    assert clocked.breaker.state == "closed"


# How it comes back.


@pytest.mark.parametrize(
    ("lasts_s", "longest_ns"), [(1.0, LONGEST_OPEN_NS), (0.9, LONGEST_QUICK_NS)]
)
def test_the_wait_doubles_with_each_probe_that_fails(
    clocked: ClockedBreaker, lasts_s: float, longest_ns: int
) -> None:
    """A probe that fails within a second costs next to nothing, so the next one is soon."""
    clocked.fails(IN_A_ROW)
    waits = [clocked.open_s]
    for _ in range(9):
        clocked.until_probe()
        clocked.breaker.probe_attempt = "c"
        clocked.breaker.release_probe("c")
        clocked.passes(lasts_s)
        clocked.fails(ago_s=lasts_s)
        waits.append(clocked.open_s)
    for number, wait_s in enumerate(waits):
        usual_s = min(FIRST_OPEN_NS * 2**number, longest_ns) / NS_PER_S
        assert 0.8 * usual_s <= wait_s <= 1.2 * usual_s


def test_only_one_probe_is_in_flight(clocked: ClockedBreaker) -> None:
    clocked.fails(IN_A_ROW)
    clocked.until_probe()
    assert not clocked.is_down()
    clocked.breaker.probe_attempt = "c"
    assert clocked.is_down()
    clocked.breaker.release_probe("another")
    assert clocked.is_down()
    clocked.breaker.release_probe("c")  # it was given up: the next may try
    assert not clocked.is_down()


def test_success_of_an_older_request_does_not_close_it(clocked: ClockedBreaker) -> None:
    clocked.passes(10)
    clocked.fails(IN_A_ROW)
    clocked.passes(1)
    clocked.answers(ago_s=3)
    assert clocked.is_down()
    clocked.until_probe()
    clocked.answers(ago_s=clocked.now_ns / NS_PER_S)
    assert clocked.breaker.state == "open"


def test_success_of_a_newer_request_makes_it_half_open(clocked: ClockedBreaker) -> None:
    clocked.fails(IN_A_ROW)
    clocked.passes(2)
    clocked.answers(ago_s=1)
    assert not clocked.is_down()
    assert clocked.breaker.state == "half_open"


def test_success_during_retry_after_does_not_close_it(clocked: ClockedBreaker) -> None:
    clocked.asks_to_wait(20)
    clocked.passes(2)
    clocked.answers(ago_s=1)
    assert clocked.is_down()


def test_traffic_returns_over_the_time_it_was_open(clocked: ClockedBreaker) -> None:
    clocked.fails(IN_A_ROW)
    gone_s = min(clocked.open_s, RAMP_NS / NS_PER_S)
    clocked.until_probe()
    clocked.answers()
    shares = []
    for _ in range(5):
        shares.append(clocked.breaker.traffic_share(clocked.now_ns))
        clocked.passes(gone_s / 4)
    assert shares == pytest.approx([0.1, 0.25, 0.5, 0.75, 1])
    assert clocked.breaker.state == "closed"


def test_unfinished_response_admits_a_tenth_of_the_traffic(clocked: ClockedBreaker) -> None:
    clocked.fails(IN_A_ROW)
    clocked.until_probe()
    clocked.breaker.probe_attempt = "c"
    clocked.breaker.record_progress(clocked.now_ns, clocked.now_ns)
    assert not clocked.is_down()
    clocked.passes(60)
    assert clocked.breaker.traffic_share(clocked.now_ns) == MIN_RAMP
    clocked.answers(RAMP_ANSWERS, ago_s=120)  # these began before it was down
    assert clocked.breaker.traffic_share(clocked.now_ns) == MIN_RAMP
    clocked.answers(ago_s=60)
    clocked.passes(RAMP_NS / NS_PER_S)
    assert clocked.breaker.traffic_share(clocked.now_ns) == 1
    assert clocked.breaker.state == "closed"


def test_enough_successes_close_it_at_once(clocked: ClockedBreaker) -> None:
    clocked.fails(IN_A_ROW)
    clocked.until_probe()
    clocked.answers(RAMP_ANSWERS)
    assert clocked.breaker.state == "closed"


def test_failure_while_half_open_opens_it_for_longer(clocked: ClockedBreaker) -> None:
    clocked.fails(IN_A_ROW)
    clocked.until_probe()
    clocked.answers()
    clocked.fails(ago_s=60)
    assert clocked.breaker.state == "half_open"  # that one had left before all this
    clocked.fails()
    assert clocked.is_down()
    assert clocked.open_s >= 8


def test_wait_starts_from_the_shortest_after_it_has_closed(clocked: ClockedBreaker) -> None:
    for _ in range(4):
        clocked.fails(IN_A_ROW)
        assert clocked.open_s <= 6
        clocked.until_probe()
        clocked.answers(RAMP_ANSWERS)
        clocked.fails(IN_A_ROW - 1)
        clocked.answers()
        assert clocked.breaker.state == "closed"
        clocked.passes(60)


# In any order.


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order, with requests that end long after they began."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CircuitBreaker(Random(3))
        self.now_ns = START_NS
        self.in_flight: dict[str, tuple[int, str]] = {}
        self.probes: set[str] = set()
        self.probed_ns = 0
        self.begun = 0

    @rule(seconds=st.floats(0, 400))
    def time_passes(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)

    @rule(client=st.sampled_from(["", "alice", "bob"]))
    def a_call_comes(self, client: str) -> None:
        if self.breaker.is_down(self.now_ns, client):
            return
        self.begun += 1
        call = f"call-{self.begun}"
        self.in_flight[call] = self.now_ns, client
        if self.breaker.state == "open" and self.breaker.concerns(client):
            assert not self.probes, "a second probe"
            self.breaker.probe_attempt = call
            self.probes.add(call)
            self.probed_ns = self.breaker.open_until_ns

    @precondition(lambda self: self.in_flight)
    @rule(
        data=st.data(),
        ends=st.sampled_from(
            ["answered", "failed", "limited", "asked to wait", "unserved", "given up"]
        ),
    )
    def one_ends(self, data: st.DataObject, ends: str) -> None:
        call = data.draw(st.sampled_from(sorted(self.in_flight)))
        began_ns, client = self.in_flight.pop(call)
        state, undisturbed = self.breaker.state, self.breaker.open_until_ns == self.probed_ns
        was_probe = (
            call == self.breaker.probe_attempt and undisturbed
        )  # no other request was asked to wait since it began
        self.breaker.release_probe(call)
        match ends:
            case "answered":
                self.breaker.record_success(self.now_ns, began_ns, client)
                assert not was_probe or self.breaker.state in ("half_open", "closed")
            case "failed":
                self.breaker.record_failure(self.now_ns, began_ns, "http_500", client)
                assert not was_probe or (
                    self.breaker.state == "open" and self.breaker.open_until_ns > self.now_ns
                )
            case "limited":
                self.breaker.record_rate_limit(self.now_ns, began_ns, None, "http_429", client)
            case "asked to wait":
                self.breaker.record_rate_limit(
                    self.now_ns, began_ns, 7 * NS_PER_S, "http_429", client
                )
                assert self.breaker.is_down(self.now_ns, client)
            case "unserved":
                self.breaker.record_not_served(self.now_ns, began_ns, "http_404", client)
                assert not was_probe or (
                    self.breaker.state == "open" and self.breaker.open_until_ns > self.now_ns
                )
            case _:
                assert self.breaker.state == state
        self.probes.discard(call)
        if self.breaker.state != "open":
            self.probes.clear()

    @invariant()
    def it_never_stays_away_for_ever(self) -> None:
        assert self.breaker.open_until_ns <= self.now_ns + LONGEST_ASKED_NS
        assert 0 < self.breaker.traffic_share(self.now_ns) <= 1
        assert self.breaker.probe_attempt == "" or self.breaker.state == "open"
        assert self.breaker.client == "" or self.breaker.state != "closed"


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(examples(40), stateful_step_count=30)


def state(clocked: ClockedBreaker) -> str:
    return clocked.breaker.state


def received(clocked: ClockedBreaker, *, ago_s: float = 1.0, left_s: float = 5.0) -> None:
    """Report that the breaker of another worker opened, and stays open."""
    now_ns = clocked.now_ns
    opened_ns, until_ns = now_ns - round(ago_s * NS_PER_S), now_ns + round(left_s * NS_PER_S)
    clocked.breaker.receive_opening(now_ns, opened_ns, until_ns, "http_500")


def test_reports_of_others_open_it_unless_it_just_succeeded(clocked: ClockedBreaker) -> None:
    breaker = clocked.breaker
    breaker.record_success(clocked.now_ns, clocked.now_ns)
    received(clocked, left_s=200)
    assert state(clocked) == "closed"
    clocked.passes(11)
    received(clocked, left_s=200)
    assert (state(clocked), breaker.received) == ("open", True)
    assert breaker.open_until_ns == clocked.now_ns + RECEIVED_OPEN_NS
    for _ in range(60):  # others fail again and again
        clocked.passes(6)
        received(clocked, left_s=200)
    assert breaker.open_until_ns == breaker.opened_ns + LONGEST_OPEN_NS
    assert not breaker.is_down(clocked.now_ns)


def test_recovery_report_of_others_makes_it_half_open_once(clocked: ClockedBreaker) -> None:
    breaker = clocked.breaker
    clocked.fails(IN_A_ROW)
    # the request began before it opened
    breaker.receive_recovery(clocked.now_ns, clocked.now_ns - NS_PER_S)
    assert state(clocked) == "open"
    clocked.passes(2)
    breaker.receive_recovery(clocked.now_ns, clocked.now_ns - NS_PER_S)
    assert state(clocked) == "half_open"
    clocked.fails()
    assert (state(clocked), breaker.received) == ("open", False)
    clocked.passes(20)
    breaker.receive_recovery(clocked.now_ns, clocked.now_ns)
    assert state(clocked) == "open", "its own request has shown the opposite"
    clocked.passes(DISTRUST_NS / NS_PER_S)
    breaker.receive_recovery(clocked.now_ns, clocked.now_ns)
    assert state(clocked) == "half_open"


def test_own_success_outweighs_reports_for_minutes(clocked: ClockedBreaker) -> None:
    breaker = clocked.breaker
    clocked.passes(100)
    received(clocked)
    breaker.record_success(clocked.now_ns, clocked.now_ns - NS_PER_S)  # begun before the report
    assert (state(clocked), breaker.received) == ("closed", False)
    clocked.passes(60)
    received(clocked)
    assert state(clocked) == "closed"
    clocked.passes(DISTRUST_NS / NS_PER_S)
    received(clocked)
    assert state(clocked) == "open"


def test_reports_do_not_change_the_providers_retry_after(clocked: ClockedBreaker) -> None:
    breaker = clocked.breaker
    breaker.record_rate_limit(clocked.now_ns, clocked.now_ns, 20 * NS_PER_S, "http_429")
    clocked.passes(1)
    breaker.receive_recovery(clocked.now_ns, clocked.now_ns)
    received(clocked, ago_s=0, left_s=100)
    assert breaker.must_wait(clocked.now_ns)
    assert breaker.open_until_ns == START_NS + 20 * NS_PER_S


def test_probe_waits_at_most_a_minute_for_its_turn(clocked: ClockedBreaker) -> None:
    breaker = clocked.breaker
    clocked.fails(IN_A_ROW)
    breaker.turn_until_ns = 0
    clocked.passes(7)
    assert breaker.waits_for_turn(clocked.now_ns)
    assert breaker.is_down(clocked.now_ns)
    breaker.turn_until_ns = clocked.now_ns + NS_PER_S
    assert not breaker.is_down(clocked.now_ns)
    clocked.passes(1)
    assert breaker.is_down(clocked.now_ns)
    clocked.passes(TURN_PATIENCE_NS / NS_PER_S)
    assert not breaker.is_down(clocked.now_ns)
