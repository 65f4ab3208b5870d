"""One server for all tests of this folder."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.server import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    # Not below pytest's own folder: that is closed to the server's user, and too long for the name of a socket.
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture
def url(server: Server) -> str:
    return server.database()
