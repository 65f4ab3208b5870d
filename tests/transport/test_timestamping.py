"""Times at which packets leave, and what network cards can stamp."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.cases import each_case

from splitsecond.core import clock
from splitsecond.core.transport import timestamping
from splitsecond.core.transport.timestamping import (
    CardStamps,
    SendStamps,
    card_stamps,
    loopback_send_delays_ns,
    sent_stamps,
    stamp_sends,
)

PTP_ONLY = "hardware timestamps of PTP packets only"
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux has these timestamps")


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
    ):
        theirs, _ = server.accept()
        with theirs:
            yield ours, theirs


@linux
def test_packets_leave_between_the_write_and_their_arrival() -> None:
    with connected() as (ours, theirs):
        assert stamp_sends(ours)
        before_ns = clock.now_ns()
        ours.sendall(b"request")
        assert theirs.recv(100) == b"request"
        found = sent_stamps(ours)
        slack_ns = clock.NS_PER_MS  # the stamps are of the wall clock
        assert found.queued_ns
        assert found.left_ns
        assert before_ns - slack_ns <= found.queued_ns <= found.left_ns <= clock.now_ns() + slack_ns
        assert sent_stamps(ours) == SendStamps()  # they are taken once


def test_a_socket_without_stamps_has_none() -> None:
    with connected() as (ours, theirs):
        ours.sendall(b"request")
        assert theirs.recv(100) == b"request"
        assert sent_stamps(ours) == SendStamps()


@linux
def test_each_write_on_the_loopback_has_a_delay() -> None:
    assert len(loopback_send_delays_ns()) == timestamping._WRITES


def info(features: int, received: int) -> bytes:
    return timestamping._TS_INFO.pack(0x41, features, 0, 0, 0, 0, 0, received, 0, 0, 0)


@each_case(
    ("features", "received", "config", "found"),
    [
        (
            2 | 8 | 16,
            0,
            0,
            CardStamps("eth0", able=False, enabled=False, reason="software timestamps only"),
        ),
        (
            4 | 64,
            1 << 12,
            0,
            CardStamps("eth0", able=False, enabled=False, reason=PTP_ONLY),
        ),
        (4 | 64, 0b11, 0, CardStamps("eth0", able=True, enabled=False, reason="")),
        (4 | 64, 0b11, 1, CardStamps("eth0", able=True, enabled=True, reason="")),
        (4 | 64, 0b11, None, CardStamps("eth0", able=True, enabled=None, reason="")),
        (
            None,
            0,
            0,
            CardStamps("eth0", able=False, enabled=None, reason="operation not supported"),
        ),
    ],
)
def test_a_card_is_asked_what_it_can(
    features: int | None, received: int, config: int | None, found: CardStamps
) -> None:
    def asked(_: socket.socket, interface: str, request: int, data: bytes) -> bytes:
        reading_config = request == timestamping._SIOCGHWTSTAMP
        if (config if reading_config else features) is None:
            raise OSError(95, "Operation not supported")
        return (
            timestamping._CONFIG.pack(0, 0, config or 0)
            if reading_config
            else info(features or 0, received)
        )

    with pytest.MonkeyPatch.context() as patched, socket.socket() as sock:
        patched.setattr(timestamping, "_asked", asked)
        assert timestamping._card(sock, "eth0") == found


def test_every_card_of_this_machine_has_an_answer() -> None:
    for card in card_stamps():
        assert card.able is (card.reason == "")
