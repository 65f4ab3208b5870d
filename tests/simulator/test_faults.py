"""Injected faults: how they are selected, and how often they strike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.simulator.content.faults import InjectedFault, first_striking, from_header


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("stall; after=5; seconds=2", InjectedFault(kind="stall", after=5, seconds=2.0)),
        ("  no_done ", InjectedFault(kind="no_done")),
        ("429;retry_after=3", InjectedFault(kind="http", status=429, retry_after=3)),
        ("http; status = 503", InjectedFault(kind="http", status=503)),
        ("wrong_usage; factor=0.5", InjectedFault(kind="wrong_usage", factor=0.5)),
    ],
)
def test_header_injects_a_fault(value: str, fault: InjectedFault) -> None:
    assert from_header(value) == fault


@each_case(
    "value, message",
    [
        ("", "Invalid enum value"),
        ("stahl", "Invalid enum value 'stahl'"),
        ("stall; after", "'after' is not a setting"),
        ("stall; share=0.5", "'share=0.5' is not a setting"),
        ("stall; after=x", "after"),
        ("stall; after=-1", "after must not be negative, got -1"),
        ("stall; seconds=nan", "seconds must not be negative, got nan"),
        ("no_done; after=3", "fault no_done has no setting after"),
        ("stall; colour=3", "unknown field `colour`"),
        ("200", "from 400 to 599, not 200"),
        ("http", "from 400 to 599, not None"),
    ],
)
def test_unreadable_fault_header_is_refused(value: str, message: str) -> None:
    with pytest.raises(CallerFault, match=message):
        from_header(value)


@given(st.text(max_size=60))
def test_any_header_is_a_fault_or_refused(value: str) -> None:
    try:
        fault = from_header(value)
    except CallerFault:
        return
    assert fault.share is None
    assert fault.every is None


@given(st.floats(0, 1), st.integers(0, 10_000))
def test_a_share_is_spread_evenly(share: float, start: int) -> None:
    fault = InjectedFault(kind="cut", share=share)
    struck = sum(fault.strikes(start + i) for i in range(200))
    assert abs(struck - 200 * share) <= 4


def test_every_nth_request_is_struck() -> None:
    fault = InjectedFault(kind="cut", every=3)
    assert [count for count in range(1, 10) if fault.strikes(count)] == [3, 6, 9]


def test_the_first_fault_that_strikes_is_the_one() -> None:
    rare, always = InjectedFault(kind="cut", every=2), InjectedFault(kind="no_done")
    assert first_striking((rare, always), 1) is always
    assert first_striking((rare, always), 2) is rare
    assert first_striking((), 1) is None


@pytest.mark.parametrize("wrong", [{"share": 1.5}, {"every": 0}, {"share": 0.5, "every": 2}])
def test_invalid_fault_frequency_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"share|every"):
        InjectedFault(kind="cut", **wrong)  # type: ignore[arg-type]
