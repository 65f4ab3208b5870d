"""Error responses name the target and the failure, and not the addresses of targets."""

import json
from typing import Any

from tests.cases import each_case

from splitsecond.core.errors import (
    AllFailed,
    CallerFault,
    Fault,
    NetworkFault,
    Overloaded,
    ProviderFault,
    TimedOut,
)
from splitsecond.core.service import Spoken
from splitsecond.core.wire.client_format import CLIENT_FORMATS
from splitsecond.routing.requests.error_response import error_response
from splitsecond.routing.router.call_tracker import decisive

WHERE = "http://10.0.0.5:8000"
OURS = ("10.0.0.5", "8000", "/etc/keys", "addresses", "HTTPS_PROXY")
REFUSED = NetworkFault(
    f"cannot connect to {WHERE}, tried 1 of its addresses (10.0.0.5:8000: Connection refused)",
    kind="refused",
    phase="connect",
    target="ours/m",
    hint="Is the server running, and is the port right?",
)
FAULTS: list[Fault] = [
    REFUSED,
    NetworkFault("cannot resolve the host name 10.0.0.5", kind="dns", phase="dns", target="ours/m"),
    NetworkFault(
        f"the connection to {WHERE} broke", kind="reset", phase="between tokens", target="ours/m"
    ),
    NetworkFault(f"no route to {WHERE}", kind="unreachable", phase="connect", target="ours/m"),
    NetworkFault(
        f"the proxy {WHERE} answered 403",
        kind="proxy",
        phase="connect",
        target="ours/m",
        hint="HTTPS_PROXY",
    ),
    TimedOut(
        f"no connection to {WHERE} in time",
        phase="connect",
        target="ours/m",
        after_ns=5_000_000_000,
    ),
    CallerFault(
        "no access token from the credentials in /etc/keys/a.json", kind="bad_key", target="ours/m"
    ),
    AllFailed(
        [REFUSED, TimedOut(f"no connection to {WHERE} in time", phase="tls", target="ours/m")]
    ),
]


@each_case("api_format", ["openai", "anthropic", "responses"])
@each_case("fault", FAULTS, ids=lambda fault: f"{fault.kind} {fault.phase}")
def test_error_responses_hide_the_addresses_of_targets(fault: Fault, api_format: Spoken) -> None:
    before = str(fault)
    no = error_response(fault, CLIENT_FORMATS[api_format])
    said: dict[str, Any] = json.loads(no.body)["error"]
    assert not [word for word in OURS if word in no.body.decode()]
    assert "ours/m: " in said["message"]
    assert no.status == (504 if isinstance(fault, TimedOut) else 502)
    if api_format == "openai":
        assert said["code"] == decisive(fault).kind
    assert str(fault) == before  # the log has it all


def test_the_message_of_a_provider_is_passed_on() -> None:
    fault = ProviderFault(
        "http 500: no such deployment", kind="http_500", phase="head", target="a/x", status=500
    )
    assert json.loads(error_response(fault).body)["error"]["message"] == str(fault)


def test_several_failures_are_listed() -> None:
    fault = AllFailed(
        [
            REFUSED,
            ProviderFault("http 500", kind="http_500", phase="head", target="a/x", status=500),
        ]
    )
    said = json.loads(error_response(fault).body)["error"]["message"]
    assert said == (
        "every target failed: ours/m: the connection was refused (while: connect); a/x: http 500 "
        "(while: head)"
        " (while: connect)."
    )


SILENT = TimedOut('no token from "b/m" in 10 s', phase="first token", after_ns=10_000_000_000)
FAILING = ProviderFault("http 500", kind="http_500", phase="head", target="a/x", status=500)
LIMITED = ProviderFault(
    "http 429",
    kind="http_429",
    phase="head",
    target="a/x",
    status=429,
    retry_after_ns=7_000_000_000,
)
DOWN = Overloaded("not asked: down", kind="ejected", target="b/m", retry_after_ns=3_000_000_000)
REJECTED = ProviderFault("http 401", kind="http_401", phase="head", target="b/m", status=401)


@each_case(
    ("causes", "status", "wait_s"),
    [
        ([REFUSED, FAILING], 503, "5"),
        ([FAILING, DOWN], 503, "3"),
        ([DOWN, FAILING], 503, "3"),
        ([SILENT, REFUSED], 503, "5"),
        ([LIMITED, DOWN], 503, "3"),
        ([LIMITED, LIMITED], 429, "7"),
        ([FAILING, FAILING], 502, None),
        ([REJECTED, FAILING], 502, None),
    ],
)
def test_status_and_retry_after_if_all_targets_are_down(
    causes: list[Fault], status: int, wait_s: str | None
) -> None:
    """Before, it was 502 or 503 by which of them was probed."""
    response = error_response(AllFailed(causes))
    waits = [value.decode() for name, value in response.headers if name == b"retry-after"]
    assert (response.status, waits) == (status, [wait_s] if wait_s else [])
