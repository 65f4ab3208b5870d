"""Errors of this program: counted, reported without the exception's text, and survived."""

import asyncio
import gc
import io
import threading
from collections.abc import Iterator

import pytest

from splitsecond import internal_errors
from splitsecond.errors import say
from splitsecond.internal_errors import contained, handling, report_internal_error

PROMPT = "a prompt that nobody may read"


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The counts, and the reports, of this test alone."""
    before = dict(internal_errors.counts)
    internal_errors.counts.clear()
    monkeypatch.setattr(internal_errors, "_reported_ns", {})
    yield internal_errors.counts
    internal_errors.counts.clear()
    internal_errors.counts.update(before)


def broken(error: BaseException) -> None:
    raise error


def test_report_has_type_and_lines_but_not_the_text(capsys: pytest.CaptureFixture[str], counts: dict[str, int]) -> None:
    with contained("observer"):
        broken(KeyError(PROMPT))
    reported = capsys.readouterr().err
    assert "internal error (observer): KeyError. The gateway continues." in reported
    assert "raise error" in reported
    assert PROMPT not in reported
    assert counts == {"observer": 1}


def test_error_of_the_system_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with contained("task"):
        broken(OSError(28, "No space left on device"))
    assert "OSError: No space left on device" in capsys.readouterr().err


def test_each_error_of_a_group_is_reported(capsys: pytest.CaptureFixture[str], counts: dict[str, int]) -> None:
    report_internal_error("task", ExceptionGroup("", [KeyError(), ExceptionGroup("", [ValueError()])]))
    reported = capsys.readouterr().err
    assert "KeyError" in reported
    assert "ValueError" in reported
    assert counts == {"task": 1}


def test_same_line_is_reported_once_and_counted_always(
    capsys: pytest.CaptureFixture[str], counts: dict[str, int]
) -> None:
    for _ in range(3):
        with contained("task"):
            broken(KeyError())
    assert capsys.readouterr().err.count("internal error") == 1
    assert counts == {"task": 3}


def test_cancelling_is_no_error(counts: dict[str, int]) -> None:
    with pytest.raises(asyncio.CancelledError), contained("task"):
        raise asyncio.CancelledError
    assert not counts


def test_callbacks_and_forgotten_tasks_are_reported(counts: dict[str, int]) -> None:
    reports: list[int] = []

    async def fail() -> None:
        raise KeyError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with handling(lambda: reports.append(sum(counts.values()))):
            loop.call_soon(broken, KeyError())
            forgotten = loop.create_task(fail())
            await asyncio.wait([forgotten])
            del forgotten
            gc.collect()
            thread = threading.Thread(target=report_internal_error, args=("request", KeyError()))
            thread.start()
            thread.join()
            await asyncio.sleep(0)
        report_internal_error("request", KeyError())  # the context is closed
        await asyncio.sleep(0)

    asyncio.run(main())
    assert counts == {"callback": 1, "task": 1, "request": 2}
    assert len(reports) == 3


def test_line_that_cannot_be_written_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stderr", Full())
    say("something")
