"""Options of sockets and processes: the limit of open files, packets, and bytes that cannot be sent
yet."""

import resource
import socket
import sys

import pytest

from splitsecond.core.transport.kernel import (
    UNSENT_BYTES,
    limit_unsent,
    packets_received,
    raise_file_limit,
)

ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "then"),
    [
        (1024, 20_000, 4096, 4096),
        (1024, 20_000, 131_072, 20_000),
        (1024, ENDLESS, 131_072, 131_072),
        (8192, 20_000, 4096, 8192),
        (ENDLESS, ENDLESS, 4096, ENDLESS),
    ],
)
def test_soft_limit_is_raised_up_to_the_hard_limit(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, then: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    assert raise_file_limit(wanted) == (wanted if then == ENDLESS else then)
    assert limits[-1] == (then, hard)


def test_refused_file_limit_stays_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, given: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, ENDLESS))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_file_limit(131_072) == 256


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts packets")
def test_packets_of_a_merged_read_are_all_counted() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
        listening.accept()[0] as server,
    ):
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert packets_received(client) == 0
        for number in range(1, 4):
            server.sendall(b"token")
            while len(client.recv(100, socket.MSG_PEEK)) < 5 * number:
                pass
        assert packets_received(client) == 3
    assert packets_received(client) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what is unsent")
def test_kernel_takes_little_that_it_cannot_send() -> None:
    taken = []
    for limited in (False, True):
        with socket.socket() as listening, socket.socket() as client:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            if limited:
                limit_unsent(client)
            client.connect(listening.getsockname())
            client.setblocking(False)
            taken.append(client.send(bytes(8 << 20)))
    assert taken[1] < 4 * UNSENT_BYTES < taken[0]
