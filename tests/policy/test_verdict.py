"""What each sort of ending says of a target's health."""

import pytest
from tests.policy.attempts import answered, closed, failed
from tests.policy.branches import bad_request, full, refused, reset, silent, status, too_long

from splitsecond.clock import NS_PER_S
from splitsecond.errors import Fault, NetworkFault, Phase, ProviderFault, TimedOut
from splitsecond.policy.targets.verdict import Verdict, verdict
from splitsecond.timing.observation import Observation
from splitsecond.wire.refusals import fault_from_response


def provider(kind: str, phase: Phase = "first token", code: int = 200) -> ProviderFault:
    return ProviderFault("it said so", kind=kind, phase=phase, status=code)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (refused(), "ill"),
        (reset(), "ill"),
        (NetworkFault("no such host", kind="dns", phase="dns"), "ill"),
        (NetworkFault("cut off", kind="truncated", phase="between tokens"), "ill"),
        (silent(), "ill"),
        (TimedOut("no token", phase="head"), "ill"),
        (TimedOut("too late", phase="total"), "ill"),
        (status(500), "ill"),
        (status(502), "ill"),
        (status(529), "ill"),
        (status(408), "ill"),
        (status(301), "ill"),
        (provider("in_band_error"), "ill"),
        (provider("malformed"), "ill"),
        (status(429), "limited"),
        (status(429, 20), "limited"),
        (status(503, 20), "limited"),
        (status(503), "ill"),
        (status(401), "locked"),
        (status(401, 20), "locked"),
        (status(402), "unpaid"),
        (status(403), "unserved"),
        (status(404), "unserved"),
        (bad_request(), "nothing"),
        (too_long(), "nothing"),
        (full(), "nothing"),
        (provider("empty_answer"), "nothing"),
    ],
    ids=str,
)
def test_of_each_fault(fault: Fault, expected: Verdict) -> None:
    assert verdict(failed(fault)) == expected


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (400, b'{"error": {"message": "API key not valid. Please pass a valid API key."}}', "locked"),
        (400, b'{"error": {"message": "Unknown field"}}', "nothing"),
        (403, b'{"error": {"message": "Invalid API key provided"}}', "locked"),
        (403, b'{"error": {"message": "Your account may not use this model"}}', "unserved"),
        (429, b'{"error": {"details": [{"retryDelay": "34s"}]}}', "limited"),
    ],
)
def test_of_what_providers_say(code: int, body: bytes, expected: Verdict) -> None:
    assert verdict(failed(fault_from_response(code, {}, body))) == expected


def test_of_what_did_not_fail() -> None:
    assert verdict(answered()) == "well"
    assert verdict(closed(500)) == "nothing"


@pytest.mark.parametrize(
    ("token_at_s", "end_s", "expected"),
    [
        ([0.2, 0.3, 0.4], 0.5, "nothing"),
        ([0.2, 0.3, 0.4], 5.0, "ill"),
        ([0.2, 0.3, 0.4], 2.3, "nothing"),
        ([4.0], 10.0, "nothing"),
        ([4.0], 13.0, "ill"),
        ([0.2, 3.2, 3.3], 9.0, "nothing"),
    ],
)
def test_an_answer_that_ran_into_the_callers_deadline_is_an_illness_only_where_it_had_stopped(
    token_at_s: list[float], end_s: float, expected: Verdict
) -> None:
    token_at = [round((100 + at) * NS_PER_S) for at in token_at_s]
    late = Observation(
        id="c.1",
        call="c",
        target="a/x",
        outcome="failed",
        fault=failed(TimedOut("too late", phase="total")).fault,
        sent_ns=100 * NS_PER_S,
        first_token_ns=token_at[0],
        token_at=token_at,
        end_ns=round((100 + end_s) * NS_PER_S),
    )
    assert verdict(late) == expected
