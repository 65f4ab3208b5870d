"""The verdict on a target for each way in which an attempt can end."""

from tests.cases import each_case
from tests.policies.attempts import answered, closed, failed
from tests.policies.branches import bad_request, full, refused, reset, silent, status, too_long

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Fault, NetworkFault, Phase, ProviderFault, TimedOut
from splitsecond.core.observation import Observation
from splitsecond.core.wire.provider_errors import fault_from_response
from splitsecond.routing.targets.verdict import AttemptVerdict, verdict


def provider(kind: str, phase: Phase = "first token", code: int = 200) -> ProviderFault:
    return ProviderFault("it said so", kind=kind, phase=phase, status=code)


@each_case(
    ("fault", "expected"),
    [
        (refused(), "failing"),
        (reset(), "failing"),
        (NetworkFault("no such host", kind="dns", phase="dns"), "failing"),
        (NetworkFault("cut off", kind="truncated", phase="between tokens"), "failing"),
        (silent(), "failing"),
        (TimedOut("no token", phase="head"), "failing"),
        (TimedOut("too late", phase="total"), "failing"),
        (status(500), "failing"),
        (status(502), "failing"),
        (status(529), "failing"),
        (status(408), "failing"),
        (status(301), "failing"),
        (provider("in_band_error"), "failing"),
        (provider("malformed"), "failing"),
        (status(429), "limited"),
        (status(429, 20), "limited"),
        (status(503, 20), "limited"),
        (status(503), "failing"),
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
def test_each_fault_has_its_verdict(fault: Fault, expected: AttemptVerdict) -> None:
    assert verdict(failed(fault)) == expected


@each_case(
    ("code", "body", "expected"),
    [
        (
            400,
            b'{"error": {"details": [{"reason": "API_KEY_INVALID"}], "message": "API key not '
            b'valid."}}',
            "locked",
        ),
        (
            400,
            b'[{"error": {"details": [{"reason": "API_KEY_INVALID"}], "message": "API key not '
            b'valid."}}]',
            "locked",
        ),
        (400, b'{"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}', "locked"),
        (
            400,
            b'{"error": {"message": "API key not valid. Please pass a valid API key."}}',
            "nothing",
        ),
        (
            400,
            b'{"error": {"message": "role is \'my api key\'", "code": "invalid_value"}}',
            "nothing",
        ),
        (413, b'{"error": {"message": "role is \'my api key\'"}}', "nothing"),
        (422, b'{"detail": [{"loc": ["role"], "msg": "got \'my api_key\'"}]}', "nothing"),
        (400, b'{"error": {"message": "Unknown field"}}', "nothing"),
        (
            401,
            b'{"error": {"message": "this key may not use it", "param": "model", "type": '
            b'"auth_error"}}',
            "locked",
        ),
        (
            413,
            b'{"error": {"message": "Request too large", "code": "rate_limit_exceeded"}}',
            "nothing",
        ),
        (
            429,
            b'{"error": {"message": "Request too large", "type": "tokens", "code": '
            b'"rate_limit_exceeded"}}',
            "nothing",
        ),
        (
            403,
            b'{"error": {"message": "Invalid API key provided", "type": "authentication_error"}}',
            "locked",
        ),
        (
            403,
            b'{"error": {"message": "model \'credentials suspended\' is not allowed"}}',
            "unserved",
        ),
        (
            403,
            b'{"error": {"message": "flagged", "code": 403, "metadata": {"flagged_input": "a"}}}',
            "nothing",
        ),
        (404, b'{"error": {"message": "no such item", "param": "input", "code": null}}', "nothing"),
        (
            404,
            b'{"error": {"message": "no such response", "param": "previous_response_id"}}',
            "nothing",
        ),
        (
            404,
            b'{"error": {"message": "no such model", "param": "model", "code": "model_not_found"}}',
            "unserved",
        ),
        (403, b'{"error": {"message": "Your account may not use this model"}}', "unserved"),
        (429, b'{"error": {"details": [{"retryDelay": "34s"}]}}', "limited"),
        (429, b'{"error": {"message": "no", "code": "insufficient_quota"}}', "unpaid"),
        (400, b'{"error": {"message": "no", "code": "model_decommissioned"}}', "unserved"),
        (400, b'{"error": {"message": "Model Not Exist"}}', "nothing"),
        (410, b"gone", "unserved"),
        (
            400,
            b'{"error": {"message": "You have reached your specified API usage limits. '
            b'You will regain access on 2099-08-01 at 00:00 UTC."}}',
            "limited",
        ),
    ],
)
def test_each_error_response_has_its_verdict(
    code: int, body: bytes, expected: AttemptVerdict
) -> None:
    assert verdict(failed(fault_from_response(code, {}, body))) == expected


def test_attempts_without_a_fault_are_healthy_or_neutral() -> None:
    assert verdict(answered()) == "healthy"
    assert verdict(closed(500)) == "nothing"


@each_case(
    ("token_at_s", "end_s", "expected"),
    [
        ([0.2, 0.3, 0.4], 0.5, "nothing"),
        ([0.2, 0.3, 0.4], 5.0, "failing"),
        ([0.2, 0.3, 0.4], 2.3, "nothing"),
        ([4.0], 10.0, "nothing"),
        ([4.0], 13.0, "failing"),
        ([0.2, 3.2, 3.3], 9.0, "nothing"),
    ],
)
def test_deadline_counts_as_failing_only_if_the_stream_stalled(
    token_at_s: list[float], end_s: float, expected: AttemptVerdict
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
