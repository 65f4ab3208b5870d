"""Errors of this program: counted, reported without the exception's text, and survived."""

import asyncio
import gc
import io
import threading

import pytest

from splitsecond.core.errors import say
from splitsecond.core.internal_errors import causes, contained, handling, report_internal_error

PROMPT = "a prompt that nobody may read"


def broken(error: BaseException) -> None:
    raise error


def test_report_has_type_and_lines_but_not_the_text(
    capsys: pytest.CaptureFixture[str], error_counts: dict[str, int]
) -> None:
    with contained("observer"):
        broken(KeyError(PROMPT))
    reported = capsys.readouterr().err
    assert "internal error (observer): KeyError. The process continues." in reported
    assert "raise error" in reported
    assert PROMPT not in reported
    assert error_counts == {"observer": 1}


def test_error_of_the_system_is_named(
    capsys: pytest.CaptureFixture[str], error_counts: dict[str, int]
) -> None:
    with contained("task"):
        broken(OSError(28, "No space left on device"))
    assert "OSError: No space left on device" in capsys.readouterr().err


def test_each_error_of_a_group_is_reported(
    capsys: pytest.CaptureFixture[str], error_counts: dict[str, int]
) -> None:
    group = ExceptionGroup("outer", [KeyError(), ExceptionGroup("inner", [cause := ValueError()])])
    assert causes(group)[1] is cause
    report_internal_error("task", group)
    reported = capsys.readouterr().err
    assert "KeyError" in reported
    assert "ValueError" in reported
    assert error_counts == {"task": 1}


def test_same_line_is_reported_once_and_counted_always(
    capsys: pytest.CaptureFixture[str], error_counts: dict[str, int]
) -> None:
    for _ in range(3):
        with contained("task"):
            broken(KeyError())
    assert capsys.readouterr().err.count("internal error") == 1
    assert error_counts == {"task": 3}


def test_cancellation_is_not_an_error(error_counts: dict[str, int]) -> None:
    with pytest.raises(asyncio.CancelledError), contained("task"):
        raise asyncio.CancelledError
    assert not error_counts


def test_callbacks_and_forgotten_tasks_are_reported(error_counts: dict[str, int]) -> None:
    reports: list[int] = []

    async def fail() -> None:
        raise KeyError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with handling(lambda: reports.append(sum(error_counts.values()))):
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
    assert error_counts == {"callback": 1, "task": 1, "request": 2}
    assert len(reports) == 3


def test_unwritable_line_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stderr", Full())
    say("something")
