"""What changes around the gateway of the soak test: its configuration, its disk and its wall
clock."""

import asyncio
import contextlib
import os
import re
import struct
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.process.reload import ConfigSource

EDIT_S = 1.0
APPLY_S = 30.0
"""How long a valid edit may take on a loaded machine."""
INVALID_TEXTS = 100
DISK_MB = 256
CYCLE_S = 60.0
FULL_S = (22.5, 37.5)
"""Part of each cycle in which the disk is full: half of it while the hostile clients are active."""
REFILL_S = 0.2
STEP_S = 20.0
"""Time between two steps of the wall clock. The hostile clients' windows have another period."""
STEP = timedelta(hours=2)
WORDS = (
    *("trueroute", "truefoundry/"
    "m", "falsetto", "1e999", ".nan", "2026-13-45", "[]", "{}", "[[1, {a: b}]]", "-1", "*a"),
    *('"\\ud800"', '"x\\udfff"', '"\\x00"', "9" * 5000, "x" * 5000, "(" * 500,
    "!!python/object:os.system "
    "x"),
    *("<<: [", "é", "[" * 5000, "[{a: " * 400 + "}]" * 400),
)  # fmt: skip


class EditedFile:
    """The configuration file `path`, edited every `EDIT_S`: to invalid texts, and to a valid one
    with a new route.

    `wrong`: edits that were not applied.
    """

    def __init__(self, path: Path, environment: Mapping[str, str], chance: Random) -> None:
        self.wrong: list[str] = []
        self.edits = self.applied = 0
        self._path = path
        self._valid = path.read_text()
        self._chance = chance
        self._invalid = list(self._invalid_texts(environment))

    async def run(self, port: int, key: str, until_s: float) -> None:
        """Edit until `until_s` on the loop's clock, and leave the file valid."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            for _ in range(self._chance.randrange(1, 7)):
                self._path.write_bytes(self._chance.choice(self._invalid))
                self.edits += 1
                await asyncio.sleep(EDIT_S)
            name = f"edited-{self.applied}"
            self._path.write_text(f"{self._valid}\n  {name}: {{policy: '\"steady/m\"'}}\n")
            written_s = loop.time()
            while name not in await asyncio.to_thread(_models, port, key):
                if loop.time() > written_s + APPLY_S:
                    self.wrong.append("a valid edit was not applied")
                    break
                await asyncio.sleep(EDIT_S / 4)
            self.applied += 1
        self._path.write_text(self._valid)

    def _invalid_texts(self, environment: Mapping[str, str]) -> Iterator[bytes]:
        """Return texts that the gateway must refuse. Whatever else than a refusal reading them
        raises is a fault."""
        file = self._path.with_name("candidate.yaml")
        source = ConfigSource(file, environment)
        for _ in range(INVALID_TEXTS):
            text = self._edited()
            file.write_bytes(text)
            try:
                source.load()
            except CallerFault:
                yield text

    def _edited(self) -> bytes:
        chance, text = self._chance, self._valid
        values = [match.span() for match in re.finditer(r"(?<=: )[^\s,}]+", text)]
        match chance.randrange(4):
            case 0:
                return text[: chance.randrange(1, len(text))].encode()
            case 1:
                at = chance.randrange(len(text))
                return text[:at].encode() + chance.randbytes(8) + text[at:].encode()
            case _:
                begin, end = chance.choice(values)
                return (text[:begin] + chance.choice(WORDS) + text[end:]).encode()


def _models(port: int, key: str) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/models",
        headers={"authorization": f"Bearer {key}", "connection": "close"},
    )
    with urllib.request.urlopen(request, timeout=APPLY_S) as response:
        return str(response.read().decode())


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a disk of `DISK_MB` in memory; yield None if this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def fill_and_free(disk: Path, began_s: float, until_s: float) -> int:
    """Fill the disk in a part of each cycle, and free it. Return how often it was full."""
    loop = asyncio.get_running_loop()
    filling, times = disk / "filling", 0
    while loop.time() < until_s:
        if FULL_S[0] <= (loop.time() - began_s) % CYCLE_S < FULL_S[1]:
            times += not filling.exists()
            await asyncio.to_thread(_fill, filling)
        else:
            filling.unlink(missing_ok=True)
        await asyncio.sleep(REFILL_S)
    filling.unlink(missing_ok=True)
    return times


def _fill(file: Path) -> None:
    with file.open("ab", buffering=0) as filling:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while filling.write(bytes(size)) == size:
                    pass


class WallClock:
    """A wall clock for the gateway's processes, which is an hour before or an hour after a midnight
    of the past.

    It is in the past so that the arrival of a packet, which the kernel dates, counts as the moment
    of its reading.
    """

    def __init__(self, file: Path) -> None:
        self.steps = 0
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
            days=2
        )
        self._evening_ns = (
            int((midnight - STEP / 2).timestamp()) * clock.NS_PER_S - time.monotonic_ns()
        )
        file.write_bytes(struct.pack("q", self._evening_ns))
        self._file = os.open(file, os.O_WRONLY)
        folders = [str(Path(__file__).with_name("stepped_clock")), os.environ.get("PYTHONPATH", "")]
        self.environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, folders)),
            "SOAK_WALL_CLOCK": str(file),
        }

    async def run(self, until_s: float) -> None:
        """Step over midnight and back until `until_s` on the loop's clock."""
        loop = asyncio.get_running_loop()
        while (now_s := loop.time()) < until_s:
            await asyncio.sleep(min(STEP_S, until_s - now_s))
            self.steps += 1
            step_ns = int(STEP.total_seconds()) * clock.NS_PER_S * (self.steps % 2)
            os.pwrite(self._file, struct.pack("q", self._evening_ns + step_ns), 0)
        os.close(self._file)
