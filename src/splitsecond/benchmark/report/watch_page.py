from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from splitsecond.benchmark.findings.watching import (
    DriftPeriod,
    SeriesPoint,
    WatchedSeries,
    WatchFindings,
    minute,
)
from splitsecond.benchmark.report.plots.watch_plots import STATES, skipped_words, watch_plots
from splitsecond.benchmark.statistics.control_chart import SETTLES
from splitsecond.benchmark.statistics.expectation import MIN
from splitsecond.benchmark.statistics.times_model import HOURS_KNOWN_AFTER, WINDOW_HOURS
from splitsecond.core.pages.figure_cells import MISSING, number, share
from splitsecond.core.pages.html import Badge, Headline, HtmlTable, TableCell, Tile, render
from splitsecond.core.wording import counted_as, listed

HEADINGS = {
    "ttft_ms": "Time to first token, ms",
    "tps": "TPS of one request, tokens/s",
    "errors": "Errors",
}
FAILURES_SHOWN = 20
_UNBROKEN = [
    name.replace(" p", "\N{NO-BREAK SPACE}p")
    for name in ("TTFT p50, ms", "TTFT p95, ms", "TPS p50")
]
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
_STATES = {
    "usual": "usual",
    "unusual": "unusual: one round outside the band",
    "drifted": "drifted: a lasting change",
    "learning": f"one of the first {MIN} rounds",
    "invalid": "failed, INVALID or skipped: no figures",
}


def render_watch(findings: WatchFindings) -> str:
    targets = list(dict.fromkeys(line.target for line in findings.lines))
    subject = targets[0] if len(targets) == 1 else counted_as(len(targets), "target")
    gone = [(minute(at), "all rows", why) for at, why in findings.failed.items()]
    gone += [
        (minute(at), name, why)
        for name, own in findings.left_out.items()
        for at, why in own.items()
    ]
    gone += [
        (minute(at), "all rows", skipped_words(count)) for at, count in findings.skipped.items()
    ]
    gone.sort(reverse=True)
    return render(
        "watch.html",
        watch_plots(findings),
        {
            "states": {
                state: replace(STATES[state], label=words) for state, words in _STATES.items()
            }
        },
        title=f"{subject} over time",
        lead=_lead(findings, targets),
        headline=_headline(findings),
        statements=findings.statements[1:],
        last=_last_round(findings),
        headings=HEADINGS,
        failures=HtmlTable(
            caption="Rounds without figures",
            head=["UTC", "of", "reason"],
            body=gone[:FAILURES_SHOWN],
            prose=True,
        ),
        rule={
            "days": WINDOW_HOURS // 24,
            "least": MIN,
            "early": HOURS_KNOWN_AFTER // 24,
            "settles": SETTLES,
        },
    )


def _headline(findings: WatchFindings) -> Headline:
    drifting = [line.drifting for line in findings.lines if line.drifting]
    learning = [line for line in findings.lines if line.points[-1].state == "learning"]
    early = _too_early(learning) if len(learning) == len(findings.lines) else ""
    doubts = _last_doubts(findings)
    sentence = findings.statements[0] if findings.statements else "Nothing has drifted."
    if early and not findings.statements:
        sentence = f"{early.capitalize()}. What is usual is known after {MIN}."
    if findings.last in findings.failed:
        sentence = f"The last round failed. {sentence}"
    elif doubts and not drifting:
        sentence = f"{sentence} In the last round, {listed(doubts)}."
    return Headline(
        sentence=sentence,
        tiles=_tiles(findings),
        badge=_badge(findings, drifting, bool(doubts), early),
    )


def _badge(
    findings: WatchFindings, drifting: Sequence[DriftPeriod], doubts: bool, early: str
) -> Badge | None:
    worse = sum(drift.worse for drift in drifting)
    if findings.last in findings.failed:
        return Badge(text="last round failed", look="bad")
    if not findings.lines:
        return None
    if worse:
        return Badge(text=f"{counted_as(worse, 'figure')} drifted for the worse", look="bad")
    if drifting:
        return Badge(
            text=f"{counted_as(len(drifting), 'figure')} drifted for the better",
            look="good",
        )
    if doubts or early:
        return Badge(text="last round in doubt" if doubts else early, look="warn")
    return Badge(text="no drift", look="good")


def _tiles(findings: WatchFindings) -> list[Tile]:
    kinds = (
        (len(findings.failed), "failed"),
        (len({at for own in findings.left_out.values() for at in own}), "with rows not judged"),
        (sum(findings.skipped.values()), "skipped"),
    )
    note = (
        ", ".join(f"{count:,} {word}" for count, word in kinds if count)
        or "none failed, INVALID or skipped"
    )
    tiles = [Tile(label="rounds", value=f"{findings.rounds:,}", note=note)]
    for figure, unit in (("ttft_ms", "ms"), ("tps", "tokens/s")):
        line = next((line for line in findings.lines if line.figure == figure), None)
        if line is not None:
            point = line.points[-1]
            usual = (
                "" if point.low is None else f", usually {number(point.low)}–{number(point.high)}"
            )
            tiles.append(
                Tile(
                    label=f"last {line.label}",
                    value=number(point.value),
                    unit=unit,
                    note=f"{line.name}{usual}",
                )
            )
    return tiles


def _last_doubts(findings: WatchFindings) -> list[str]:
    lost = sum(findings.last in own for own in findings.left_out.values())
    unusual = [
        line
        for line in findings.lines
        if line.points[-1].at == findings.last and line.points[-1].state == "unusual"
    ]
    doubts = [f"{counted_as(lost, 'row was', 'rows were')} not judged"] if lost else []
    if len(unusual) == 1:
        doubts.append(f"{unusual[0].label} of {unusual[0].name} was unusual")
    elif unusual:
        doubts.append(f"{len(unusual):,} figures were unusual")
    return doubts


def _too_early(lines: Iterable[WatchedSeries]) -> str:
    rounds = max((len(line.points) for line in lines), default=0)
    return f"too early: {rounds} of {MIN} rounds"


def _lead(findings: WatchFindings, targets: list[str]) -> str:
    failed = (
        f" {counted_as(len(findings.failed), 'round')} failed as a whole."
        if findings.failed
        else ""
    )
    return (
        f"{counted_as(findings.rounds, 'round')} from {minute(findings.first)} to "
        f"{minute(findings.last)} UTC, now one every {_interval(findings.every_s)}: "
        f"{listed(targets) or 'nothing was measured'}.{failed}"
    )


def _interval(seconds: float) -> str:
    unit, size = next(each for each in _UNITS if seconds >= each[1] or each[1] == 1)
    return unit if seconds == size else f"{seconds / size:g} {unit}s"


def _last_round(findings: WatchFindings) -> HtmlTable:
    rows: dict[str, dict[str, WatchedSeries]] = {}
    for line in findings.lines:
        rows.setdefault(line.name, {})[line.figure] = line
    head = ["target and load", "last measured, UTC", *_UNBROKEN, "errors", "state"]
    body = [
        (
            name,
            *_cells(
                lines,
                gone=findings.last in findings.failed
                or findings.last in findings.left_out.get(name, ()),
            ),
        )
        for name, lines in rows.items()
    ]
    return HtmlTable(caption="The last round", head=head, body=body, prose=True)


def _cells(lines: dict[str, WatchedSeries], *, gone: bool) -> list[str | TableCell]:
    last = max((line.points[-1] for line in lines.values()), key=lambda point: point.at)
    ttft, tps, errors = (lines.get(figure) for figure in HEADINGS)
    state = _state(lines.values(), last)
    words = f"no figures in the last round; before: {state}" if gone else state
    bad = gone or any(line.drifting for line in lines.values())
    return [
        minute(last.at),
        _cell(ttft, last, shares=False),
        number(ttft.points[-1].tail if ttft else None),
        _cell(tps, last, shares=False),
        _cell(errors, last, shares=True),
        TableCell(text=words, look="bad" if bad else ""),
    ]


def _state(lines: Collection[WatchedSeries], last: SeriesPoint) -> str:
    drifting = [line.label for line in lines if line.drifting]
    unusual = [line.label for line in lines if line.points[-1].state == "unusual"]
    if drifting or unusual:
        labelled = ((drifting, "drifted"), (unusual, "unusual"))
        return "; ".join(f"{listed(labels)}: {word}" for labels, word in labelled if labels)
    if last.state == "learning":
        return _too_early(lines)
    early = any(line.points[-1].early for line in lines)
    return "usual, by the wide limits of the first days" if early else "usual"


def _cell(line: WatchedSeries | None, last: SeriesPoint, *, shares: bool) -> str | TableCell:
    if line is None or line.points[-1].at != last.at:
        return MISSING
    point, words = line.points[-1], share if shares else number
    if point.low is None:
        return words(point.value)
    usual = f"up to {words(point.high)}" if shares else f"{words(point.low)}–{words(point.high)}"
    return TableCell(text=words(point.value), notes=[usual])
