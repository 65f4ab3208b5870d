from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from splitsecond.benchmark.findings.change_statements import ConditionChange
from splitsecond.benchmark.report.rows import LoadLevel, MetricColumn
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.row_fields import TurnClass
from splitsecond.core.pages.figure_cells import MISSING, FigureCell, cell

TITLE = "Sessions"
BROKE = "Broke: sessions that ended with a failed request."
CLASSES_TITLE = "TTFT by class of turn, ms"


class SessionColumn(Struct, frozen=True):
    """A column of the table of sessions. `heading`: its lines for a terminal; `narrow`: a narrow
    terminal shows it; `note`: what its heading means."""

    heading: str
    column: MetricColumn
    narrow: bool = False
    note: str = ""

    def cell(self, condition: ConditionFindings) -> FigureCell:
        return self.column.cell(condition)


def _figure(
    heading: str, name: str, percentile: str, *, narrow: bool = False, note: str = ""
) -> SessionColumn:
    return SessionColumn(
        heading, MetricColumn(metric=FIGURES[name], percentile=percentile), narrow, note
    )


def _total(heading: str, name: str, *, narrow: bool = False, note: str = "") -> SessionColumn:
    return SessionColumn(heading, MetricColumn(metric=TOTALS[name]), narrow, note)


_FIRST, _LATER = "First: TTFT of first turns, in ms.", "Later: TTFT of later turns, in ms."
COLUMNS = (
    _total(
        "session\ns", "session_s", narrow=True, note="Session time is a mean and includes tools."
    ),
    _total(
        "of it\nwaiting",
        "session_waiting_share",
        narrow=True,
        note="Waiting is until first tokens.",
    ),
    _figure("first\nTTFT p50", "ttft_first_turn_ms", "p50", note=_FIRST),
    _figure("later\nTTFT p50", "ttft_later_turns_ms", "p50", narrow=True, note=_LATER),
    _figure("later\nTTFT p95", "ttft_later_turns_ms", "p95", note=_LATER),
    _total(
        "cached,\nof ideal",
        "cached_of_ideal",
        note="Of ideal: cached input ÷ that of a cache without limits.",
    ),
    _total("cache\nmisses", "cache_miss_share", narrow=True),
    _total("$ per\nsession", "usd_per_session"),
)

CHANGES = (
    _total("session\ns", "session_s"),
    _total("waiting\ns", "session_waiting_s"),
    _figure("later\nTTFT p50", "ttft_later_turns_ms", "p50"),
    _total("cached,\nof ideal", "cached_of_ideal"),
    _total("$ per\nsession", "usd_per_session"),
)
"""The columns of a comparison."""


def changed_columns(changes: Sequence[ConditionChange]) -> list[SessionColumn]:
    """Return the columns of sessions in which a row of a comparison has a change; none without
    sessions."""
    return [
        each
        for each in CHANGES
        if any((f := each.column.change(c)) and f.after is not None for c in changes)
    ]


def of_sessions(level: LoadLevel) -> list[ConditionFindings]:
    return [c for c in level.conditions if c.session is not None]


def columns_of(
    conditions: Sequence[ConditionFindings], *, narrow: bool = False
) -> list[SessionColumn]:
    """Return the columns in which a row has a figure."""
    chosen = [each for each in COLUMNS if each.narrow or not narrow]
    return [each for each in chosen if any(each.cell(c).figure != MISSING for c in conditions)]


def note(columns: Iterable[SessionColumn], *, whole_headings: bool = False) -> str:
    """Return what headings mean. `whole_headings`: they are those of a page, which say whose TTFT
    it is."""
    notes = dict.fromkeys(each.note for each in columns if each.note)
    return " ".join(
        [each for each in notes if not (whole_headings and each in (_FIRST, _LATER))] + [BROKE]
    )


def broke(condition: ConditionFindings) -> str:
    session = condition.session
    return f"{session.broken:,} of {session.broken + session.finished:,}" if session else ""


CLASS_COLUMNS: Sequence[tuple[str, Callable[[TurnClass], str]]] = (
    ("turns", lambda each: f"{each.ttft_ms.n:,}"),
    ("p50", lambda each: cell(each.ttft_ms, "p50").figure),
    ("95% interval", lambda each: cell(each.ttft_ms, "p50").interval or MISSING),
    ("p95", lambda each: cell(each.ttft_ms, "p95").figure),
)


def class_words(of: TurnClass) -> str:
    if of.by == "turn":
        return "first turns" if of.low == 1 else "later turns"
    if of.high is None:
        return f"{of.low:,} {of.by} or more"
    return f"{of.low:,} to {of.high - 1:,} {of.by}" if of.low else f"below {of.high:,} {of.by}"
