"""Faults state what happened, where, and what to try; their excerpt of a provider's bytes is
bounded."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import (
    EXCERPT_BYTES,
    AllFailed,
    CallerFault,
    Fault,
    NetworkFault,
    Overloaded,
    ProviderFault,
    TimedOut,
    excerpt,
    say,
)


def test_a_fault_reads_as_a_sentence() -> None:
    fault = NetworkFault(
        "connection refused by 127.0.0.1:9",
        kind="refused",
        phase="connect",
        target="x/y",
        hint="Is it running?",
    )
    assert str(fault) == "x/y: connection refused by 127.0.0.1:9 (while: connect). Is it running?"
    assert repr(fault).startswith("NetworkFault('refused', phase='connect', target='x/y'")


def test_fault_before_sending_names_no_phase() -> None:
    assert str(CallerFault("no target given")) == "no target given."


def test_fault_with_the_sentence_of_a_server_ends_in_one_period() -> None:
    assert str(CallerFault("it said: no.", phase="head")) == "it said: no (while: head)."


def test_a_timeout_is_counted_by_its_phase() -> None:
    assert TimedOut("too slow", phase="first token").kind == "timeout_first_token"
    assert TimedOut("too slow", phase="connect", kind="timeout_connect").kind == "timeout_connect"


def test_when_all_failed_the_first_decides() -> None:
    first = ProviderFault("busy", kind="http_503", phase="head", target="a/x", status=503)
    second = Overloaded("queue full", target="b/x")
    failed = AllFailed([first, second])
    assert failed.causes == (first, second)
    assert failed.phase == "head"
    assert "a/x: busy" in str(failed)
    assert "b/x: queue full" in str(failed)
    with pytest.raises(ValueError, match="at least one"):
        AllFailed([])


@each_case("kind", [CallerFault, ProviderFault, NetworkFault, TimedOut, Overloaded, AllFailed])
def test_faults_share_one_base_class(kind: type[Exception]) -> None:
    assert issubclass(kind, Fault)


@given(st.binary(max_size=5000))
def test_an_excerpt_is_one_bounded_printable_line(data: bytes) -> None:
    line = excerpt(data)
    assert len(line) <= EXCERPT_BYTES
    assert line.isprintable()


def test_message_to_a_full_disk_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it raises
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", full)
        say("the disk is full")
        say("it still is")
    with suppress(OSError):
        full.close()
