"""What a client is told of a failure names the target and what went wrong, and not where our targets are."""

import json
from typing import Any

import pytest

from splitsecond.errors import AllFailed, CallerFault, Fault, NetworkFault, ProviderFault, TimedOut
from splitsecond.gateway.refusal import decisive, refusal
from splitsecond.service import Spoken

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
    NetworkFault(f"the connection to {WHERE} broke", kind="reset", phase="between tokens", target="ours/m"),
    NetworkFault(f"no route to {WHERE}", kind="unreachable", phase="connect", target="ours/m"),
    NetworkFault(f"the proxy {WHERE} answered 403", kind="proxy", phase="connect", target="ours/m", hint="HTTPS_PROXY"),
    TimedOut(f"no connection to {WHERE} in time", phase="connect", target="ours/m", after_ns=5_000_000_000),
    CallerFault("no access token from the credentials in /etc/keys/a.json", kind="bad_key", target="ours/m"),
    AllFailed([REFUSED, TimedOut(f"no connection to {WHERE} in time", phase="tls", target="ours/m")]),
]


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "responses"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind} {fault.phase}")
def test_no_client_learns_where_our_targets_are(fault: Fault, dialect: Spoken) -> None:
    before = str(fault)
    no = refusal(fault, dialect)
    said: dict[str, Any] = json.loads(no.body)["error"]
    assert not [word for word in OURS if word in no.body.decode()]
    assert "ours/m: " in said["message"]
    assert no.status == (504 if isinstance(fault, TimedOut) else 502)
    if dialect == "openai":
        assert said["code"] == decisive(fault).kind
    assert str(fault) == before  # the log has it all


def test_what_a_provider_says_of_a_request_is_told() -> None:
    fault = ProviderFault("http 500: no such deployment", kind="http_500", phase="head", target="a/x", status=500)
    assert json.loads(refusal(fault).body)["error"]["message"] == str(fault)


def test_several_failures_are_told_one_by_one() -> None:
    fault = AllFailed([REFUSED, ProviderFault("http 500", kind="http_500", phase="head", target="a/x", status=500)])
    said = json.loads(refusal(fault).body)["error"]["message"]
    assert said == (
        "every target failed: ours/m: the connection was refused (while: connect); a/x: http 500 (while: head)"
        " (while: connect)."
    )
