"""The breaker: what opens it, when one request may try, and how traffic comes back."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from splitsecond.clock import NS_PER_S
from splitsecond.policy.targets.health import (
    FIRST_OPEN_NS,
    IN_A_ROW,
    LEAST_RAMP,
    LONGEST_ASKED_NS,
    LONGEST_COOL_NS,
    LONGEST_OPEN_NS,
    RAMP_ANSWERS,
    RAMP_NS,
    Health,
)

START_NS = 1000 * NS_PER_S


class Watched:
    """A health, and its clock."""

    def __init__(self) -> None:
        self.health = Health(Random(1))
        self.now_ns = START_NS

    def passes(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)

    def fails(self, times: int = 1, *, ago_s: float = 0.0) -> None:
        for _ in range(times):
            self.health.failed(self.now_ns, self.now_ns - round(ago_s * NS_PER_S), "http_500")

    def answers(self, times: int = 1, *, ago_s: float = 0.0) -> None:
        for _ in range(times):
            self.health.answered(self.now_ns, self.now_ns - round(ago_s * NS_PER_S))

    def asks_to_wait(self, seconds: float | None, *, ago_s: float = 0.0) -> None:
        wait_ns = None if seconds is None else round(seconds * NS_PER_S)
        self.health.limited(self.now_ns, self.now_ns - round(ago_s * NS_PER_S), wait_ns, "http_429")

    def until_probe(self) -> None:
        self.now_ns = self.health.until_ns

    def is_down(self) -> bool:
        return self.health.down(self.now_ns)

    @property
    def open_s(self) -> float:
        return (self.health.until_ns - self.now_ns) / NS_PER_S


@pytest.fixture
def watched() -> Watched:
    return Watched()


# What opens it.


def test_failures_in_a_row_open_it(watched: Watched) -> None:
    watched.fails(IN_A_ROW - 1)
    assert watched.health.state == "closed"
    watched.answers()
    watched.fails(IN_A_ROW - 1)
    assert watched.health.state == "closed"
    watched.fails()
    assert watched.is_down()
    assert watched.health.reason == "5 failures in a row, the last: http_500"


def test_half_of_the_latest_requests_open_it(watched: Watched) -> None:
    for _ in range(4):
        watched.fails()
        watched.answers()
    assert watched.health.state == "closed"  # fewer than ten
    watched.fails()
    watched.answers()
    watched.fails()
    assert watched.is_down()
    assert watched.health.reason.startswith("6 of 11 requests failed lately")


def test_failures_of_half_a_minute_ago_do_not_count(watched: Watched) -> None:
    watched.fails(4)
    watched.answers()
    watched.fails(2)
    watched.passes(35)
    watched.answers(3)
    watched.fails(2)
    assert watched.health.state == "closed"


def test_one_failure_in_three_does_not_open_it(watched: Watched) -> None:
    for _ in range(100):
        watched.answers(2)
        watched.fails()
        watched.passes(0.1)
    assert watched.health.state == "closed"


@pytest.mark.parametrize(("asked_s", "waited_s"), [(20, 20), (0.5, 0.5), (1e6, LONGEST_ASKED_NS / NS_PER_S)])
def test_a_target_that_says_when_is_left_alone_until_then(watched: Watched, asked_s: float, waited_s: float) -> None:
    watched.asks_to_wait(asked_s)
    assert watched.open_s == waited_s
    assert watched.health.told(watched.now_ns)
    watched.until_probe()
    assert not watched.health.told(watched.now_ns)
    assert not watched.is_down()


def test_a_longer_wait_holds_a_shorter_one_of_an_older_request_does_not(watched: Watched) -> None:
    watched.asks_to_wait(30)
    watched.passes(1)
    watched.asks_to_wait(5, ago_s=2)
    assert watched.open_s == 29
    watched.asks_to_wait(60, ago_s=2)
    assert watched.open_s == 60


def test_a_target_that_does_not_say_when_cools_off_longer_and_longer(watched: Watched) -> None:
    waits = []
    for _ in range(8):
        watched.asks_to_wait(None)
        watched.asks_to_wait(None, ago_s=0.1)  # one that had left before is no news
        waits.append(watched.open_s)
        watched.until_probe()
        watched.health.probe = "c"
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_COOL_NS / NS_PER_S, LONGEST_COOL_NS / NS_PER_S]


def test_a_model_that_is_not_served_is_left_alone_for_long(watched: Watched) -> None:
    watched.health.unserved(watched.now_ns, watched.now_ns, "http_404")
    assert 240 <= watched.open_s <= 360
    watched.until_probe()
    watched.health.unserved(watched.now_ns, watched.now_ns, "http_404")
    assert 240 <= watched.open_s <= 360


def test_a_404_of_a_target_that_serves_others_is_about_the_request(watched: Watched) -> None:
    watched.answers()
    watched.passes(30)
    watched.health.unserved(watched.now_ns, watched.now_ns, "http_404")
    assert watched.health.state == "closed"


# How it comes back.


def test_the_wait_doubles_with_each_probe_that_fails(watched: Watched) -> None:
    watched.fails(IN_A_ROW)
    waits = [watched.open_s]
    for _ in range(9):
        watched.until_probe()
        watched.health.probe = "c"
        watched.health.released("c")
        watched.fails()
        waits.append(watched.open_s)
    for number, wait_s in enumerate(waits):
        usual_s = min(FIRST_OPEN_NS * 2**number, LONGEST_OPEN_NS) / NS_PER_S
        assert 0.8 * usual_s <= wait_s <= 1.2 * usual_s


def test_one_probe_at_a_time(watched: Watched) -> None:
    watched.fails(IN_A_ROW)
    watched.until_probe()
    assert not watched.is_down()
    watched.health.probe = "c"
    assert watched.is_down()
    watched.health.released("another")
    assert watched.is_down()
    watched.health.released("c")  # it was given up: the next may try
    assert not watched.is_down()


def test_a_success_of_before_does_not_close_it(watched: Watched) -> None:
    watched.passes(10)
    watched.fails(IN_A_ROW)
    watched.passes(1)
    watched.answers(ago_s=3)
    assert watched.is_down()
    watched.until_probe()
    watched.answers(ago_s=watched.now_ns / NS_PER_S)
    assert watched.health.state == "open"


def test_a_success_since_does(watched: Watched) -> None:
    watched.fails(IN_A_ROW)
    watched.passes(2)
    watched.answers(ago_s=1)
    assert not watched.is_down()
    assert watched.health.state == "ramp"


def test_but_not_while_it_asked_us_to_wait(watched: Watched) -> None:
    watched.asks_to_wait(20)
    watched.passes(2)
    watched.answers(ago_s=1)
    assert watched.is_down()


def test_traffic_comes_back_over_the_time_it_was_gone(watched: Watched) -> None:
    watched.fails(IN_A_ROW)
    gone_s = min(watched.open_s, RAMP_NS / NS_PER_S)
    watched.until_probe()
    watched.answers()
    shares = []
    for _ in range(5):
        shares.append(watched.health.share(watched.now_ns))
        watched.passes(gone_s / 4)
    assert shares == pytest.approx([0.1, 0.25, 0.5, 0.75, 1])
    assert watched.health.state == "closed"
    assert not watched.health.troubled


def test_an_answer_that_goes_on_lets_a_tenth_come_back_and_one_that_has_ended_the_rest(watched: Watched) -> None:
    watched.fails(IN_A_ROW)
    watched.until_probe()
    watched.health.probe = "c"
    watched.health.lasted(watched.now_ns, watched.now_ns)
    assert not watched.is_down()
    watched.passes(60)
    assert watched.health.share(watched.now_ns) == LEAST_RAMP
    watched.answers(RAMP_ANSWERS, ago_s=120)  # these began before it was down
    assert watched.health.share(watched.now_ns) == LEAST_RAMP
    watched.answers(ago_s=60)
    watched.passes(RAMP_NS / NS_PER_S)
    assert watched.health.share(watched.now_ns) == 1
    assert watched.health.state == "closed"


def test_or_with_so_many_answers(watched: Watched) -> None:
    watched.fails(IN_A_ROW)
    watched.until_probe()
    watched.answers(RAMP_ANSWERS)
    assert watched.health.state == "closed"


def test_a_failure_on_the_way_back_opens_it_for_longer(watched: Watched) -> None:
    watched.fails(IN_A_ROW)
    watched.until_probe()
    watched.answers()
    watched.fails(ago_s=60)
    assert watched.health.state == "ramp"  # that one had left before all this
    watched.fails()
    assert watched.is_down()
    assert watched.open_s >= 8


def test_once_closed_it_begins_anew(watched: Watched) -> None:
    for _ in range(4):
        watched.fails(IN_A_ROW)
        assert watched.open_s <= 6
        watched.until_probe()
        watched.answers(RAMP_ANSWERS)
        watched.fails(IN_A_ROW - 1)
        watched.answers()
        assert watched.health.state == "closed"
        watched.passes(60)


# In any order.


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order, with requests that end long after they began."""

    def __init__(self) -> None:
        super().__init__()
        self.health = Health(Random(3))
        self.now_ns = START_NS
        self.under_way: dict[str, int] = {}
        self.probes: set[str] = set()
        self.probed_ns = 0
        self.begun = 0

    @rule(seconds=st.floats(0, 400))
    def time_passes(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)

    @rule()
    def a_call_comes(self) -> None:
        if self.health.down(self.now_ns):
            return
        self.begun += 1
        call = f"call-{self.begun}"
        self.under_way[call] = self.now_ns
        if self.health.state == "open":
            assert not self.probes, "a second probe"
            self.health.probe = call
            self.probes.add(call)
            self.probed_ns = self.health.until_ns

    @precondition(lambda self: self.under_way)
    @rule(
        data=st.data(),
        ends=st.sampled_from(["answered", "failed", "limited", "told", "unserved", "given up"]),
    )
    def one_ends(self, data: st.DataObject, ends: str) -> None:
        call = data.draw(st.sampled_from(sorted(self.under_way)))
        began_ns = self.under_way.pop(call)
        state, undisturbed = self.health.state, self.health.until_ns == self.probed_ns
        was_probe = call == self.health.probe and undisturbed  # no other request was told to wait since it began
        self.health.released(call)
        match ends:
            case "answered":
                self.health.answered(self.now_ns, began_ns)
                assert not was_probe or self.health.state in ("ramp", "closed")
            case "failed":
                self.health.failed(self.now_ns, began_ns, "http_500")
                assert not was_probe or (self.health.state == "open" and self.health.until_ns > self.now_ns)
            case "limited":
                self.health.limited(self.now_ns, began_ns, None, "http_429")
            case "told":
                self.health.limited(self.now_ns, began_ns, 7 * NS_PER_S, "http_429")
                assert self.health.down(self.now_ns)
            case "unserved":
                self.health.unserved(self.now_ns, began_ns, "http_404")
                assert not was_probe or (self.health.state == "open" and self.health.until_ns > self.now_ns)
            case _:
                assert self.health.state == state
        self.probes.discard(call)
        if self.health.state != "open":
            self.probes.clear()

    @invariant()
    def it_never_stays_away_for_ever(self) -> None:
        assert self.health.until_ns <= self.now_ns + LONGEST_ASKED_NS
        assert 0 < self.health.share(self.now_ns) <= 1
        assert self.health.probe == "" or self.health.state == "open"
        assert self.health.troubled == (self.health.state != "closed")


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
