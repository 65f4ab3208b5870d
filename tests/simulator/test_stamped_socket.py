"""The simulator's sockets know when the kernel received what they read."""

import socket
import sys

import pytest
from tests.waiting import until

from splitsecond.core import clock
from splitsecond.core.transport.kernel import stamping
from splitsecond.simulator.stamped_socket import StampedSocket


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps received packets")
def test_accepted_connection_records_the_receive_time() -> None:
    with (
        stamping(),
        StampedSocket.of(socket.create_server(("127.0.0.1", 0))) as listening,
        socket.create_connection(listening.getsockname()) as client,
        listening.accept()[0] as accepted,
    ):
        # the kernel takes a while to begin
        until(lambda: _stamped(client, accepted), "the kernel does not stamp")
        before = clock.now_ns()
        client.sendall(b"x")
        delivered = clock.now_ns()
        while clock.now_ns() < delivered + 2 * clock.NS_PER_MS:
            pass
        before_read = clock.now_ns()
        assert accepted.recv(10) == b"x"
        received_ns = StampedSocket.received_ns[accepted.fileno()]
        # a busy kernel may take a while to deliver it
        assert before - clock.NS_PER_MS < received_ns < before_read


def _stamped(client: socket.socket, accepted: socket.socket) -> bool:
    client.sendall(b"w")
    accepted.recv(10)
    return accepted.fileno() in StampedSocket.received_ns


def test_reused_descriptor_has_no_time_of_the_old_connection() -> None:
    with StampedSocket.of(socket.create_server(("127.0.0.1", 0))) as listening:
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            StampedSocket.received_ns[accepted.fileno()] = 1
            descriptor = accepted.fileno()
            accepted.close()
        with socket.create_connection(listening.getsockname()):
            again, _ = listening.accept()
            with again:
                assert (again.fileno(), descriptor in StampedSocket.received_ns) == (
                    descriptor,
                    False,
                )
