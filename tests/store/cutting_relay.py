"""A relay to a PostgreSQL server that breaks a connection after a number of the server's
messages."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Break = Literal["closed", "reset", "terminated", "internal error"]
BREAKS: tuple[Break, ...] = ("closed", "reset", "terminated", "internal error")
_HEADER = struct.Struct("!cI")
_ERRORS = {"terminated": ("FATAL", "57P01"), "internal error": ("ERROR", "XX000")}
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class CuttingRelay:
    """Listens on a loopback port. `left`: messages of the server that it still passes; None: all.

    After the last one it breaks the connection as `how` says, and `left` is None again: the next
    connection is whole.
    """

    def __init__(self, path: Path) -> None:
        """`path`: the server's socket."""
        self._path = path
        self.left: int | None = None
        self.how: Break = "closed"
        self.broken = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, direct: str) -> str:
        """Return the URL of a database through the relay. `direct`: its URL through the server's
        socket."""
        name = direct.partition("?")[0].rpartition("/")[2]
        return f"postgresql://tester:unused-password@127.0.0.1:{self.port}/{name}?sslmode=disable&gssencmode=disable"

    def cut_after(self, messages: int, how: Break) -> None:
        """Break the connection that carries this many more messages of the server."""
        self.how, self.left, self.broken = how, messages, 0

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._path))
                threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
                threading.Thread(target=self._to_client, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
        _shut(server)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError), server, client:
            for message in _messages(server):
                if self.left is not None:
                    self.left -= 1
                    if self.left < 0:
                        self.left = None
                        self.broken += 1
                        self._break(client)
                        _shut(server)
                        return
                client.sendall(message)
            _shut(client)

    def _break(self, client: socket.socket) -> None:
        if self.how in _ERRORS:
            severity, code = _ERRORS[self.how]
            fields = b"".join(
                field + value.encode() + b"\0"
                for field, value in (
                    (b"S", severity),
                    (b"V", severity),
                    (b"C", code),
                    (b"M", f"injected: {self.how}"),
                )
            )
            client.sendall(_HEADER.pack(b"E", len(fields) + 5) + fields + b"\0")
        if self.how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            # wakes the other thread, whose `recv` would keep the socket open
            client.shutdown(socket.SHUT_RD)
            client.close()
        else:
            _shut(client)


def _messages(server: socket.socket) -> Iterator[bytes]:
    with server.makefile("rb") as stream:
        while len(header := stream.read(_HEADER.size)) == _HEADER.size:
            length = _HEADER.unpack(header)[1]
            yield header + stream.read(length - 4)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
