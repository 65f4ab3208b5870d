import io
import sys
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console
from rich.table import Table
from tests.report.invented import invented_run

from splitsecond.benchmark.report.live import REFRESH_NS, LiveProgress
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import Observation


class Ticking:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ns = NS_PER_S

    def __call__(self) -> int:
        return self.ns


def terminal() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=100, color_system=None), out


def requests() -> list[Observation]:
    return invented_run(("groq/llama-3.1-70b-versatile",), concurrencies=(32,), requests=32)[1]


def test_a_pipe_gets_notes_and_a_line_every_ten_seconds() -> None:
    out = io.StringIO()
    now_ns = 0
    with clock.using(lambda: now_ns):
        progress = LiveProgress(Console(file=out))
        progress.start({"groq/llama-3.1-70b-versatile c=32": 32})
        progress.stage("measuring")
        progress.note("calibrated")
        for one in requests():
            now_ns += NS_PER_S
            progress.observed(one)
        progress.stop()
    assert out.getvalue().splitlines() == [
        "calibrated",
        "measuring; 10/32 requests, about 0:22 left",
        "measuring; 20/32 requests, about 0:12 left",
        "measuring; 30/32 requests, about 0:02 left",
    ]


def test_done_medians_errors_and_time_to_go_are_shown() -> None:
    console, out = terminal()
    now = Ticking()
    with clock.using(now):
        progress = LiveProgress(console)
        progress.start({"groq/llama-3.1-70b-versatile c=32": 64, "other": 0})
        for one in requests():
            now.ns += NS_PER_S
            progress.observed(one)
        progress.stop()
    text = out.getvalue()
    assert "32/64 requests" in text
    assert "about 0:32 left" in text
    last = [line for line in text.splitlines() if "c=32" in line][-1]
    assert last.split()[-1] == "1"
    assert "–" not in last


def test_cost_so_far_is_shown_if_known() -> None:
    console, out = terminal()
    spent = [0.0]
    progress = LiveProgress(console, lambda: spent[0])
    progress.start({"groq/llama-3.1-70b-versatile c=32": 32})
    assert "so far" not in out.getvalue()
    spent[0] = 0.0123
    progress.stop()
    assert "0/32 requests, $0.0123 so far" in out.getvalue()


def test_frames_are_drawn_at_the_refresh_rate() -> None:
    console, out = terminal()
    now = Ticking()
    with clock.using(now):
        progress = LiveProgress(console)
        progress.start({"groq/llama-3.1-70b-versatile c=32": 32})
        begun = len(out.getvalue())
        now.ns += REFRESH_NS - 1
        for one in requests()[:5]:
            progress.observed(one)
        assert len(out.getvalue()) == begun
        now.ns += 1
        progress.observed(requests()[5])
        assert len(out.getvalue()) > begun
        progress.stop()
        progress.stop()


def test_only_measured_requests_of_known_conditions_count() -> None:
    console, out = terminal()
    now = Ticking()
    with clock.using(now):
        progress = LiveProgress(console)
        progress.start({"groq/llama-3.1-70b-versatile c=32": 32})
        one = requests()[0]
        for other in (
            msgspec.structs.replace(one, role="warmup"),
            msgspec.structs.replace(one, condition="x"),
        ):
            now.ns += NS_PER_S
            progress.observed(other)
        progress.note("a word \x1b[2J")
        progress.stop()
    assert "0/32 requests" in out.getvalue()
    assert "1/32" not in out.getvalue()
    assert "a word" in out.getvalue()


def test_low_screen_shows_the_condition_in_flight() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=5, color_system=None)
    now = Ticking()
    with clock.using(now):
        progress = LiveProgress(console)
        progress.start({"first": 1, "second": 1, "groq/llama-3.1-70b-versatile c=32": 32})
        assert "c=32" not in out.getvalue()
        now.ns += NS_PER_S
        progress.observed(requests()[0])
        progress.stop()
    last_frame = out.getvalue().split("1/34 requests")[-1]
    assert "c=32" in last_frame
    assert "second" not in last_frame


def test_run_of_unknown_length_shows_no_remaining_time() -> None:
    console, out = terminal()
    now = Ticking()
    with clock.using(now):
        progress = LiveProgress(console)
        progress.start({})
        progress.expect("groq/llama-3.1-70b-versatile c=32", 20)
        progress.expect("groq/llama-3.1-70b-versatile c=32", 44)
        for one in requests():
            now.ns += NS_PER_S
            progress.observed(one)
        progress.stop()
    last = out.getvalue()
    assert "32/64" not in last, "a total that grows says nothing"
    assert "32 requests" in last
    assert "0/0" not in last
    assert " left" not in last


def test_stop_without_start_does_nothing() -> None:
    console, out = terminal()
    LiveProgress(console).stop()
    assert out.getvalue() == ""


def test_a_notebook_gets_one_output_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []

    class Display:
        """The handle that IPython's `display` returns."""

        def update(self, table: object) -> None:
            shown.append(table)

    def display(found: object, *, display_id: bool = False) -> Display | None:
        shown.append(found)
        return Display() if display_id else None

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    progress = LiveProgress(Console(force_jupyter=True, file=io.StringIO()))
    progress.start({requests()[0].condition: 32})
    progress.note("calibrated")
    for one in requests():
        progress.observed(one)
    progress.stop()
    first, note, *_, last = shown
    assert str(note) == "calibrated"
    assert isinstance(first, Table)
    assert isinstance(last, Table)
    assert last.title == "32/32 requests"
    assert len(shown) < 32
