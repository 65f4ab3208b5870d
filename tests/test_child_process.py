"""A child process answers in lines, and ends when its input closes or the parent's patience
ends."""

import asyncio
import sys

import pytest

from splitsecond.core.child_process import ChildProcess, how_it_ended, passes

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
DEAF = "import sys, time\nprint('', flush=True)\nprint('half', end='', flush=True)\ntime.sleep(60)"


@pytest.mark.system
def test_child_answers_in_lines_and_ends_when_its_input_closes() -> None:
    async def conversation() -> int:
        child = await ChildProcess.start(sys.executable, "-c", ECHO)
        await child.write(b"one\n\n")
        assert [await child.read_line(), await child.read_line()] == [b"one", b""]
        return await child.stop(patience_s=30)

    assert asyncio.run(conversation()) == 0


@pytest.mark.system
def test_child_that_does_not_end_is_killed() -> None:
    async def conversation() -> str:
        child = await ChildProcess.start(sys.executable, "-c", DEAF)
        assert await child.read_line() == b""
        ended = how_it_ended(await child.stop())
        assert await child.read_line() is None
        await child.write(b"too late\n")
        return ended

    assert asyncio.run(conversation()) == "was ended by SIGKILL"


@pytest.mark.parametrize(
    ("words", "is_passing"), [("can't start new thread", True), ("something else", False)]
)
def test_only_a_missing_thread_is_a_transient_start_error(
    words: str, is_passing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*command: str, **options: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    with pytest.raises((OSError, RuntimeError)) as raised:
        asyncio.run(ChildProcess.start("program"))
    assert (isinstance(raised.value, OSError) and passes(raised.value)) == is_passing
