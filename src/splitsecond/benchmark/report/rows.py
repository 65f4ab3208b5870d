"""Content of reports, independent of its looks: load levels, columns, cells, remarks and sentences.

A level is one concurrency or one request rate, with a table of its own. A remark below a table
applies to some of its rows, or all, and is printed once.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from splitsecond.benchmark.findings.causes import check_words
from splitsecond.benchmark.findings.change_statements import ConditionChange
from splitsecond.benchmark.rows.figures import (
    FIGURES,
    LATENCY,
    TOTALS,
    main_figures,
    main_totals,
    wait_figure,
)
from splitsecond.benchmark.rows.metric import Figure, Total
from splitsecond.benchmark.rows.records import ConditionFindings, FigureChange, Run
from splitsecond.benchmark.rows.row_fields import Instrument, NodeFindings
from splitsecond.benchmark.rows.usable_rows import load_of
from splitsecond.core.money.cost import price_words, usd, usd_or_free
from splitsecond.core.pages.figure_cells import (
    MAIN_PERCENTILES,
    MISSING,
    FigureCell,
    Remark,
    cell,
    interval_text,
    number,
    safe_text,
    share,
)
from splitsecond.core.wording import ENGINE, SIMULATED, Loaded, counted_as, listed, rate
from splitsecond.log.statistics.summary import PERCENTILES, Summary, advised

NODES_SHOWN = 8


class LoadLevel(Struct, frozen=True, kw_only=True):
    """Rows that were measured under the same load: a concurrency, or a rate (None: arrivals of a
    trace).

    Rows with `cache_reuse` have tables of their own. `searched`: they are of a capacity search,
    which decides on its own how many requests they need.
    """

    open_loop: bool
    load: float | None
    cache_reuse: bool
    workload: str
    conditions: list[ConditionFindings]
    searched: bool

    @property
    def title(self) -> str:
        return level_title(self.conditions[0])

    @property
    def inputs(self) -> bool:
        """Whether the answers are no text, but embeddings or rankings."""
        return any(c.inputs for c in self.conditions)

    @property
    def more(self) -> "list[MetricColumn]":
        """Columns of the first table that only some runs have."""
        columns: list[MetricColumn] = []
        if any(c.reasoning_tokens for c in self.conditions):
            answer = FIGURES["first_answer_ms"]
            columns.append(MetricColumn(metric=answer, percentile=MAIN_PERCENTILES[0]))
            columns.append(MetricColumn(metric=TOTALS["reasoning_tokens"]))
        if any(c.checked for c in self.conditions):
            columns.append(MetricColumn(metric=TOTALS["valid_share"]))
        return columns

    @property
    def heading(self) -> str:
        figure = "latency" if self.inputs else "TTFT"
        return self.title + (f", {figure} from when a request was due" if self.open_loop else "")


def levels(run: Run) -> list[LoadLevel]:
    order = list(dict.fromkeys(condition.workload for condition in run.conditions))
    by_load: dict[tuple[bool, float, bool, int], list[ConditionFindings]] = {}
    for condition in run.conditions:
        at = order.index(condition.workload)
        by_load.setdefault(
            (open_loop(condition), load_of(condition), condition.cache_reuse, at), []
        ).append(condition)
    return [
        LoadLevel(
            open_loop=is_open,
            load=under or None,
            cache_reuse=reuse,
            workload=order[at],
            conditions=by_load[is_open, under, reuse, at],
            searched=run.capacity is not None,
        )
        for is_open, under, reuse, at in sorted(by_load)
    ]


def kinds(run: Run) -> list[tuple[bool, str]]:
    distinct_kinds = dict.fromkeys(
        (condition.cache_reuse, condition.workload) for condition in run.conditions
    )
    return sorted(distinct_kinds, key=lambda kind: kind[0])


def remarks(level: LoadLevel) -> list[Remark]:
    kinds_of_remarks: Sequence[tuple[str, Callable[[ConditionFindings], Iterable[str]]]] = (
        ("invalid", lambda c: c.invalid),
        ("error", lambda c: [_errors_of(c, kind) for kind in c.error_kinds]),
        ("note", lambda c: [*c.notes, *_too_few(c, searched=level.searched)]),
        ("server", lambda c: [server_words(c)] if c.server_ms else []),
        ("server", lambda c: filter(None, [check_words(c)])),
    )
    targets_by_remark: dict[tuple[str, str], list[str]] = {}
    for kind, texts in kinds_of_remarks:
        for c in level.conditions:
            for text in texts(c):
                targets_by_remark.setdefault((kind, text), []).append(c.target)
    everyone = [c.target for c in level.conditions]
    return [
        Remark(kind=kind, who="" if who == everyone and who[1:] else ", ".join(who), text=text)
        for (kind, text), who in targets_by_remark.items()
    ]


def _errors_of(condition: ConditionFindings, kind: str) -> str:
    example = condition.error_examples.get(kind, "")
    return f"{condition.error_kinds[kind]} × {kind}{f': {example}' if example else ''}"


def _too_few(condition: ConditionFindings, *, searched: bool) -> list[str]:
    """Return a note on the percentiles of the main figures that need more requests than the row
    has.

    A row that was `searched` has as many as its verdict needed.
    """
    needed: dict[str, int] = {}
    for figure in main_figures(inputs=condition.inputs > 0):
        summary = figure.under(open_loop=open_loop(condition)).summary(condition)
        needed |= summary.needs if summary.n else {}
    main = {name: needed[name] for name in MAIN_PERCENTILES if name in needed}
    if not main:
        return []
    advice = "" if searched else f": use -n {max(advised(PERCENTILES[name]) for name in main)}"
    return [f"too few requests for an interval of {listed(list(main))}{advice}."]


def server_words(condition: ConditionFindings) -> str:
    theirs = ", ".join(
        f"{server_step(name)} {number(ms)}" for name, ms in condition.server_ms.items()
    )
    ours = f"TTFT {number(condition.ttft_ms.p50)}, E2E {number(condition.e2e_ms.p50)}"
    return f"the server's own times, p50 in ms: {theirs}; measured here: {ours}."


def server_step(name: str) -> str:
    return safe_text(name.replace("_", " "))


def open_loop(condition: Loaded) -> bool:
    return condition.concurrency is None


def level_title(condition: Loaded) -> str:
    way = kind_title(cache_reuse=condition.cache_reuse, workload=condition.workload)
    if condition.concurrency is not None:
        return f"Concurrency {condition.concurrency}{way}"
    return ("Arrivals from a trace" if condition.rate is None else rate(condition)) + way


def kind_title(*, cache_reuse: bool, workload: str) -> str:
    return (", cache reuse" if cache_reuse else "") + (f", workload {workload}" if workload else "")


def load_words(condition: Loaded) -> str:
    way = (" reuse" if condition.cache_reuse else "") + (
        f" {condition.workload}" if condition.workload else ""
    )
    if condition.concurrency is not None:
        return f"c={condition.concurrency}{way}"
    return ("trace" if condition.rate is None else f"{condition.rate:g}/s") + way


def targets(run: Run) -> list[str]:
    return list(dict.fromkeys(condition.target for condition in run.conditions))


def ttft(condition: ConditionFindings) -> Summary:
    """Return the TTFT of a row, or its latency if the answers are no text."""
    return wait_figure(condition).summary(condition)


class MetricColumn(Struct, frozen=True, kw_only=True):
    metric: Figure | Total
    percentile: str = ""
    label: str = ""

    @property
    def name(self) -> str:
        return f"{self.label or self.metric.label} {self.percentile}".rstrip()

    @property
    def heading(self) -> str:
        with_unit = (
            self.metric.unit == "ms"
            if self.percentile
            else self.metric.unit in ("ms", "s") and self.metric.unit_after
        )
        return f"{self.name}, {self.metric.unit}" if with_unit else self.name

    def formatted(self, value: float | None) -> str:
        return {"share": share, "USD": usd}.get(self.metric.unit, number)(value)

    def change(self, changed: ConditionChange) -> FigureChange | None:
        changes = changed.figures if self.percentile else changed.totals
        return next(
            (f for f in changes if (f.figure, f.percentile) == (self.metric.name, self.percentile)),
            None,
        )

    def cell(self, condition: ConditionFindings) -> FigureCell:
        if isinstance(self.metric, Total):
            between = interval_text(self.metric.ci95_of(condition), self.formatted)
            return FigureCell(
                figure=self.formatted(self.metric.value(condition)),
                interval=between.replace("%–", "–"),
            )
        if not self.metric.applies(condition):
            return FigureCell(figure=MISSING)
        return cell(self.metric.summary(condition), self.percentile)


def main_columns(
    *,
    open_loop: bool,
    percentiles: Sequence[str] = MAIN_PERCENTILES,
    more: Sequence[Figure] = (),
    inputs: bool = False,
) -> list[MetricColumn]:
    """Return the columns of the first table: figures at p50, then at p95, then totals.

    `inputs`: of requests whose answers are no text.

    In an open loop the figures count from due, under the label of the plain ones. `more` stands
    after the main figures.
    """
    columns = [
        MetricColumn(metric=figure.under(open_loop=open_loop), percentile=p, label=figure.label)
        for p in percentiles
        for figure in (*main_figures(inputs=inputs), *(() if inputs else more))
    ]
    return columns + [MetricColumn(metric=total) for total in main_totals(inputs=inputs)]


def compared_columns(
    changes: Sequence[ConditionChange], more: Sequence[Figure] = ()
) -> list[MetricColumn]:
    """Return the columns of the first table that a comparison of rows under one load has."""
    moved = [each for c in changes for each in (*c.figures, *c.totals) if each.after is not None]
    inputs = any(each.figure == LATENCY.name for each in moved)
    columns = main_columns(open_loop=open_loop(changes[0]), more=more, inputs=inputs)
    if any(each.figure == "valid_share" for each in moved):
        columns.append(MetricColumn(metric=TOTALS["valid_share"]))
    return [column for column in columns if column.metric.compared]


def listed_columns(group: str) -> list[MetricColumn]:
    figures = [figure for figure in FIGURES.values() if figure.group == group]
    columns = [
        MetricColumn(metric=figure, percentile=p) for figure in figures for p in figure.listed
    ]
    return columns + [
        MetricColumn(metric=total) for total in TOTALS.values() if total.group == group
    ]


def errors(condition: ConditionFindings) -> str:
    return f"{condition.errors:,} of {condition.requests:,}" if condition.errors else "0"


def priced(run: Run) -> bool:
    return any(condition.cost_usd is not None for condition in run.conditions)


def per_million(condition: ConditionFindings) -> str:
    has_price = condition.price is not None or condition.cost_usd is not None
    return (usd if has_price and condition.usd_per_million is None else usd_or_free)(
        condition.usd_per_million
    )


def cost(condition: ConditionFindings) -> str:
    """Format the cost; "≥" if some attempts may have cost more; "" if no price is known."""
    if condition.cost_usd is None:
        return ""
    return ("≥ " if condition.cost_estimated else "") + usd(condition.cost_usd)


def price_sentences(run: Run) -> list[str]:
    by_source: dict[str, list[str]] = {}
    for condition in run.conditions:
        if (price := condition.price) is not None:
            whose = f"{price.source or 'no source'}{f', {price.as_of}' if price.as_of else ''}"
            words = f"{condition.target} {price_words(price)}"
            if words not in by_source.setdefault(whose, []):
                by_source[whose].append(words)
    prices = [f"Prices of {whose}: {'; '.join(words)}." for whose, words in by_source.items()]
    if not run.cost_usd:
        return prices
    unknown = [c.target for c in run.conditions if c.cost_usd is None and c.requests]
    paid = dict.fromkeys(target for target in unknown if not target.startswith((SIMULATED, ENGINE)))
    but = f" Without {listed(list(paid))}: the price or the token count is unknown." if paid else ""
    return [*prices, f"The whole run cost {usd(run.cost_usd)}, calibration included.{but}"]


def regional(run: Run) -> bool:
    return any(condition.region for condition in run.conditions)


def location_sentence(run: Run) -> str:
    place = run.environment.get("location", "")
    return f"Measured from: {place}." if place else ""


def server_sentence(run: Run) -> str:
    servers, devices = run.environment.get("servers"), run.environment.get("gpus")
    servers = servers if isinstance(servers, dict) else {}
    descriptions = [f"{target}: {software}" for target, software in servers.items()]
    if isinstance(devices, list) and devices:
        descriptions.append(
            f"GPU of this machine: {listed(list(dict.fromkeys(map(str, devices))))}"
        )
    return (
        f"Server software: {'; '.join(descriptions)}."
        if servers
        else "".join(f"{words}." for words in descriptions)
    )


def caveats(run: Run) -> list[str]:
    return [*filter(None, [server_sentence(run)]), *_unreal(run)]


def _unreal(run: Run) -> list[str]:
    return [
        sentence
        for beginning, sentence in (
            (
                SIMULATED,
                "sim/… targets are simulated from published figures: no provider was measured.",
            ),
            (
                ENGINE,
                "engine/… is llama.cpp on this machine with a toy model of random weights. Its "
                "streams are real, but "
                "its speed is not comparable with a provider's, so it is ranked separately.",
            ),
        )
        if any(target.startswith(beginning) for target in targets(run))
    ]


def asked_command(run: Run) -> str:
    command = run.asked.get("command", "")
    return command if isinstance(command, str) else shlex.join(map(str, command))


def flat(settings: object, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(settings, dict):
        return [
            row
            for key, value in settings.items()
            for row in flat(value, f"{prefix}.{key}" if prefix else str(key))
        ]
    if (
        isinstance(settings, list | tuple)
        and settings
        and all(isinstance(record, dict) for record in settings)
    ):
        return [
            _record(record, f"{prefix}.{record.get('name', i)}")
            for i, record in enumerate(settings, 1)
        ]
    text = _setting_text(settings)
    return [(prefix, text)] if text else []


def _setting_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _record(record: dict[str, object], name: str) -> tuple[str, str]:
    return name, ", ".join(f"{key} {value}" for key, value in flat(record) if key != "name")


def instrument_sentences(run: Run) -> list[str]:
    readings = [condition.instrument for condition in run.conditions]
    if not readings:
        return []
    sentences = _clock_sentences(
        [reading for reading in readings if reading.lag_p50_ms is not None]
    )
    sentences += _worst_sentences(readings)
    used = worst(readings, lambda i: i.cpu_share)
    if used is not None and all(reading.cpu_ms_per_1000_tokens is None for reading in readings):
        sentences.append(f"Each measuring process used up to {share(used)} of a core.")
    sentences += _node_sentences(run)
    waited = worst(readings, lambda i: i.runqueue_wait_share)
    if waited is not None:
        sentences.append(
            f"Our own process waited for a processor up to {share(waited)} of the time."
        )
    if priorities := dict.fromkeys(reading.priority for reading in readings if reading.priority):
        sentences.append(f"Our process ran at priority: {', '.join(priorities)}.")
    if collections := sum(reading.collections for reading in readings):
        times = counted_as(collections, "time")
        sentences.append(f"Garbage collection ran {times} during a measurement; it must not.")
    return sentences


_WORST: Sequence[tuple[str, Sequence[Callable[[Instrument], float | None]]]] = (
    (
        "Arrived bytes waited up to {0} ms (p50), {1} ms (p99), {2} ms (max) to be read.",
        (lambda i: i.lag_p50_ms, lambda i: i.lag_p99_ms, lambda i: i.lag_max_ms),
    ),
    (
        "Requests were sent up to {0} ms (p50), {1} ms (p99) after they were due.",
        (lambda i: i.late_p50_ms, lambda i: i.late_p99_ms),
    ),
    (
        "Measuring took up to {0} ms of processor time per 1,000 tokens.",
        (lambda i: i.cpu_ms_per_1000_tokens,),
    ),
)


def _worst_sentences(readings: Sequence[Instrument]) -> list[str]:
    worst_values = ((text, [worst(readings, of) for of in figures]) for text, figures in _WORST)
    return [
        text.format(*map(number, values))
        for text, values in worst_values
        if any(value is not None for value in values)
    ]


def _node_sentences(run: Run) -> list[str]:
    parts: dict[str, list[NodeFindings]] = {}
    for part in (part for condition in run.conditions for part in condition.nodes):
        parts.setdefault(part.node, []).append(part)
    if not parts:
        return []
    error = max(
        (part.clock_error_ms for own in parts.values() for part in own if part.clock_error_ms),
        default=None,
    )
    sentences = [
        f"{counted_as(len(parts), 'node')} sent the requests. Their clocks are known to "
        f"±{number(error)} ms, "
        "which matters for throughput only: each latency is measured by one clock."
    ]
    for name, own in list(parts.items())[:NODES_SHOWN]:
        readings = [part.instrument for part in own]
        lag, late = (
            worst(readings, lambda i: i.lag_p99_ms),
            worst(readings, lambda i: i.late_p99_ms),
        )
        sentences.append(
            f"Node {name}: arrived bytes waited up to {number(lag)} ms (p99), requests were sent "
            f"up to {number(late)} "
            f"ms (p99) late{', INVALID' if any(part.invalid for part in own) else ''}."
        )
    if len(parts) > NODES_SHOWN:
        sentences.append(f"report.html has all {len(parts):,} nodes.")
    return sentences


def worst(readings: Sequence[Instrument], of: Callable[[Instrument], float | None]) -> float | None:
    return max((value for reading in readings if (value := of(reading)) is not None), default=None)


def _clock_sentences(readings: Sequence[Instrument]) -> list[str]:
    if not readings:
        return []
    packets = [reading.packets for reading in readings if reading.packets is not None]
    if all(reading.packet_time for reading in readings):
        reordered, repeated = (
            sum(each.reordered for each in packets),
            sum(each.repeated for each in packets),
        )
        return [
            "Arrival times are those of the packets: how long bytes waited for us is not part of "
            f"the figures. Of {counted_as(sum(each.packets for each in packets), 'packet')}, "
            f"{reordered:,} came out of order and {counted_as(repeated, 'was', 'were')} repeated."
        ]
    if packets:
        lost, missed = sum(each.lost for each in packets), sum(each.missed for each in packets)
        return [
            "Arrival times are those of the packets, but "
            f"{counted_as(missed, 'read has', 'reads have')} the time of the last packet. The ring "
            f"had no room for {counted_as(lost, 'packet')}, or connections were opened unseen by "
            "it."
        ]
    return [_kernel_sentence(sum(reading.kernel_time for reading in readings), len(readings))]


def _kernel_sentence(by_kernel: int, conditions: int) -> str:
    if by_kernel == conditions:
        return (
            "Arrival times are the kernel's: how long bytes waited for us is not part of the "
            "figures."
        )
    has = "has" if by_kernel < 2 else "have"
    where = (
        f"Only {by_kernel} of {conditions} conditions {has}" if by_kernel else "No condition has"
    )
    return (
        f"{where} arrival times from the kernel. Elsewhere they are the moment of our read, "
        "so the time that bytes waited for us is part of the figures."
    )
