"""A PostgreSQL server of the tests' own: in a temporary folder, behind a socket there, with no
port."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.processes import Process
from tests.waiting import WITHIN_S

from splitsecond.core import clock

OWNER = "postgres" if os.geteuid() == 0 else None
"""The server refuses to run as root; Debian's package brings this user."""


def programs() -> Path | None:
    """Where PostgreSQL's programs are: on PATH, or where Debian puts them. The newest."""
    found = shutil.which("postgres")
    if found and shutil.which("initdb"):
        return Path(found).parent
    return max(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda path: int(path.parent.name),
        default=None,
    )


class Server:
    """One server: `start`, `stop`, and a database of its own for each test. `fsync`: it syncs its
    files, as usual."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        found = programs()
        assert found is not None, "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        self._programs = found
        self._folder = folder
        self._fsync = "on" if fsync else "off"
        self._made = 0
        self._process: Process[bytes] | None = None
        if OWNER:
            shutil.chown(folder, OWNER)
        made = [
            "--pgdata",
            str(folder / "data"),
            "--username",
            "tester",
            "--auth",
            "trust",
            "--encoding",
            "UTF8",
        ]
        self._run("initdb", *made, "--no-sync", "--locale", "C")

    def _run(self, program: str, *arguments: str) -> None:
        command: list[str | Path] = [self._programs / program, *arguments]
        subprocess.run(command, check=True, capture_output=True, user=OWNER, cwd=self._folder)

    def start(self) -> None:
        """Returns when it takes connections."""
        options: list[str | Path] = [
            "-D",
            self._folder / "data",
            "-k",
            self._folder,
            "-c",
            "listen_addresses=",
            "-c",
            f"fsync={self._fsync}",
        ]
        with (self._folder / "server.log").open("ab") as log:
            self._process = Process(
                [self._programs / "postgres", *options],
                user=OWNER,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        give_up_ns = clock.now_ns() + WITHIN_S * clock.NS_PER_S
        while True:
            try:
                psycopg.connect(self._address("postgres")).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or clock.now_ns() > give_up_ns:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        """Ends it at once, as a crash would, and every connection with it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(WITHIN_S)
            self._process = None

    @property
    def socket(self) -> Path:
        """The socket that it listens on."""
        return self._folder / ".s.PGSQL.5432"

    @property
    def pid(self) -> int:
        """The server's main process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def ensure_running(self) -> None:
        """Start the server again if the test before this one has stopped it and failed."""
        if self._process is None:
            self.start()
        else:
            self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and to all of its processes."""
        assert self._process is not None
        children = (
            Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        )
        for pid in (self._process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):  # a connection has just been closed
                os.kill(pid, number)

    def database(self) -> str:
        """The URL of a new, empty database."""
        self._made += 1
        name = f"log{self._made}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return self._address(name)

    def execute(self, url_or_name: str, statement: str) -> list[tuple[object, ...]]:
        """What `statement` gives in a database."""
        address = url_or_name if "://" in url_or_name else self._address(url_or_name)
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _address(self, name: str) -> str:
        return f"postgresql://tester:unused-password@/{name}?host={self._folder}"


@pytest.fixture(scope="session")
def started_server(system: None) -> Iterator[Server]:
    """One server for all tests. A folder with tests that need it imports this fixture and `server`
    in its conftest."""
    # Not below pytest's own folder: that is closed to the server's user, and too long for the name
    # of a socket.
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture
def server(started_server: Server) -> Server:
    """The server, running. A test may stop it."""
    started_server.ensure_running()
    return started_server
