"""What every view shows, before it is decided how it looks: levels, cells, and the instrument's error in words.

A level is one concurrency or one request rate; a table is printed for each. A cell is one figure with its 95 %
interval. What holds for several rows of a table is a remark beneath it, said once. Figures have three significant
digits, because no interval of a benchmark of this size supports a fourth.
"""

import shlex
from collections.abc import Callable, Sequence
from math import floor, log10

from msgspec import Struct

from splitsecond.analysis.cost import price_words, usd
from splitsecond.analysis.findings import ConditionFindings, Instrument, Run, Spread
from splitsecond.analysis.wording import ENGINE, SIMULATED, Loaded, listed

MISSING = "–"


def printable(text: str) -> str:
    """`text` without control characters: what a provider says must not steer the reader's terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def number(value: float | None) -> str:
    """Three significant digits and thousands separators; a dash where there is no figure."""
    if value is None:
        return MISSING
    rounded = abs(float(f"{value:.3g}"))
    decimals = 2 - floor(log10(rounded)) if rounded else 0
    return f"{value:,.{min(max(decimals, 0), 3)}f}"


def share(value: float | None) -> str:
    """A fraction as a percentage; a dash where there is none."""
    return MISSING if value is None else f"{number(100 * value)} %"


class Cell(Struct, frozen=True, kw_only=True):
    """One figure for a table, with its interval or, in `needs`, the n that its percentile needs and did not have."""

    figure: str
    interval: str = ""
    needs: int = 0


class Remark(Struct, frozen=True, kw_only=True):
    """What stands beneath a table about some of its rows: once, whatever the number of rows that it is true of.

    `kind` is "invalid", "error", "note" or "server" (its own account of its time). `who` names the rows; "" stands for
    every row of the table.
    """

    kind: str
    who: str
    text: str


def cell(spread: Spread, percentile: str) -> Cell:
    """The figure of `percentile` ("p50", "p95", "p99") with its interval; a bound that n cannot give is "?"."""
    value: float | None = getattr(spread, percentile)
    if value is None:
        return Cell(figure=MISSING)
    needs = spread.needs.get(percentile, 0)
    low, high = (None, None) if needs else spread.ci95.get(percentile, (None, None))
    bounds = [number(bound) if bound is not None else "?" for bound in (low, high)]
    return Cell(
        figure=number(value),
        interval="" if low is None and high is None else "–".join(bounds),
        needs=needs,
    )


class Level(Struct, frozen=True, kw_only=True):
    """The rows that were measured under the same load: a concurrency, or requests/s (None: those of a trace).

    `cache_reuse`: by prompts that begin alike. These are never in one table with the others.
    """

    open_loop: bool
    load: float | None
    cache_reuse: bool
    conditions: list[ConditionFindings]

    @property
    def title(self) -> str:
        """For a heading: "Concurrency 8", "2.5 requests/s"."""
        return level_title(self.conditions[0])

    @property
    def heading(self) -> str:
        """The title of a table, which says where TTFT counts from another moment."""
        return self.title + (", TTFT from when a request was due" if self.open_loop else "")


def levels(run: Run) -> list[Level]:
    """The conditions of a run by load, lightest first; concurrencies before rates, fresh prompts before cache reuse."""
    found: dict[tuple[bool, float, bool], list[ConditionFindings]] = {}
    for condition in run.conditions:
        place = open_loop(condition), load(condition) or 0.0, condition.cache_reuse
        found.setdefault(place, []).append(condition)
    return [
        Level(open_loop=is_open, load=under or None, cache_reuse=reuse, conditions=found[is_open, under, reuse])
        for is_open, under, reuse in sorted(found)
    ]


def remarks(level: Level) -> list[Remark]:
    """What a reader of this table should know: what is INVALID first, then errors, then notes."""
    said = [("invalid", reason, c) for c in level.conditions for reason in c.invalid]
    said += [("error", _errors_of(c, kind), c) for c in level.conditions for kind in c.error_kinds]
    said += [("note", note, c) for c in level.conditions for note in (*c.notes, *_too_few(c))]
    said += [("server", server_words(c), c) for c in level.conditions if c.server_ms]
    found: dict[tuple[str, str], list[str]] = {}
    for kind, text, c in said:
        found.setdefault((kind, text), []).append(c.target)
    everyone = [c.target for c in level.conditions]
    return [
        Remark(kind=kind, who="" if who == everyone and who[1:] else ", ".join(who), text=text)
        for (kind, text), who in found.items()
    ]


def _errors_of(condition: ConditionFindings, kind: str) -> str:
    example = condition.error_examples.get(kind, "")
    return f"{condition.error_kinds[kind]} × {kind}{f': {example}' if example else ''}"


def _too_few(condition: ConditionFindings) -> list[str]:
    """Which figures of a row in the table rest on too few requests."""
    needed: dict[str, int] = {}
    for spread in (ttft(condition), condition.tps):
        needed |= spread.needs if spread.n else {}
    said = [f"{name} (needs {needed[name]})" for name in ("p50", "p95") if name in needed]
    return [f"too few requests for {listed(said)}."] if said else []


def server_words(condition: ConditionFindings) -> str:
    """What a server says of its own time, beside what was seen here."""
    theirs = ", ".join(f"{server_step(name)} {number(ms)}" for name, ms in condition.server_ms.items())
    ours = f"TTFT {number(condition.ttft_ms.p50)}, E2E {number(condition.e2e_ms.p50)}"
    return f"the server's own times, p50 in ms: {theirs}; seen from here: {ours}."


def server_step(name: str) -> str:
    """A server's name for one of its times, for a person: "prompt_eval" becomes "prompt eval"."""
    return printable(name.replace("_", " "))


def open_loop(condition: Loaded) -> bool:
    """Whether requests left on a schedule, whatever the target did."""
    return condition.concurrency is None


def load(condition: Loaded) -> float | None:
    """The concurrency, or in an open loop the rate in requests/s; None for a trace."""
    return condition.rate if condition.concurrency is None else condition.concurrency


def level_title(condition: Loaded) -> str:
    """The load as a heading."""
    way = ", cache reuse" if condition.cache_reuse else ""
    if condition.concurrency is not None:
        return f"Concurrency {condition.concurrency}{way}"
    return ("Arrivals from a trace" if condition.rate is None else f"{condition.rate:g} requests/s") + way


def load_words(condition: Loaded) -> str:
    """The load in a narrow column: "c=8", "2.5/s", "trace"; "c=8 reuse" where prompts begin alike."""
    way = " reuse" if condition.cache_reuse else ""
    if condition.concurrency is not None:
        return f"c={condition.concurrency}{way}"
    return ("trace" if condition.rate is None else f"{condition.rate:g}/s") + way


def targets(run: Run) -> list[str]:
    """Every target once, in the order of the run: the order that colours go by."""
    return list(dict.fromkeys(condition.target for condition in run.conditions))


def ttft(condition: ConditionFindings) -> Spread:
    """The TTFT to show first: in an open loop it counts from when the request was due, else from when it was sent."""
    return condition.ttft_due_ms if open_loop(condition) else condition.ttft_ms


def tps(condition: ConditionFindings) -> Spread:
    """The tokens per second of a request."""
    return condition.tps


def errors(condition: ConditionFindings) -> str:
    """ "0", or "3 of 50"."""
    return f"{condition.errors} of {condition.requests}" if condition.errors else "0"


def priced(run: Run) -> bool:
    """Whether any row has a cost, so that there is something to show of money."""
    return any(condition.cost_usd is not None for condition in run.conditions)


def cost(condition: ConditionFindings) -> str:
    """The money for a row; "≥" where some of its attempts may have cost more than is known."""
    return ("≥ " if condition.cost_estimated else "") + usd(condition.cost_usd)


def price_sentences(run: Run) -> list[str]:
    """By which prices the money was worked out: of what day, and whose; and what the whole run cost."""
    said: dict[str, list[str]] = {}
    for condition in run.conditions:
        if (price := condition.price) is not None:
            whose = f"{price.source or 'no source'}{f', {price.as_of}' if price.as_of else ''}"
            words = f"{condition.target} {price_words(price)}"
            if words not in said.setdefault(whose, []):
                said[whose].append(words)
    prices = [f"Prices of {whose}: {'; '.join(words)}." for whose, words in said.items()]
    if not run.cost_usd:
        return prices
    unknown = [c.target for c in run.conditions if c.cost_usd is None and c.requests]
    paid = dict.fromkeys(target for target in unknown if not target.startswith((SIMULATED, ENGINE)))
    but = f" Without {listed(list(paid))}: the price, or the count of the tokens, is not known." if paid else ""
    return [*prices, f"The whole run cost {usd(run.cost_usd)}, finding the prompts' length included.{but}"]


def caveats(run: Run) -> list[str]:
    """What a reader must know of targets that are not what their names suggest."""
    return [
        sentence
        for beginning, sentence in (
            (SIMULATED, "sim/… are simulated after published figures: no provider was measured."),
            (
                ENGINE,
                "engine/… is llama.cpp on this machine with a toy model of random weights: its streams are real, its "
                "speed is comparable with no provider's, so it is ranked apart.",
            ),
        )
        if any(target.startswith(beginning) for target in targets(run))
    ]


def asked_command(run: Run) -> str:
    """The command line of the run, "" where it was not kept."""
    command = run.asked.get("command", "")
    return command if isinstance(command, str) else shlex.join(map(str, command))


def flat(settings: object, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of a table: {"slo": {"ttft": 300}} becomes [("slo.ttft", "300")].

    Of a list of records each is one row, named by its "name". What is empty is left out.
    """
    if isinstance(settings, dict):
        nested = [flat(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in settings.items()]
        return [row for group in nested for row in group]
    if isinstance(settings, list | tuple) and settings and all(isinstance(record, dict) for record in settings):
        return [_record(record, f"{prefix}.{record.get('name', i)}") for i, record in enumerate(settings, 1)]
    said = ", ".join(map(str, settings)) if isinstance(settings, list | tuple) else str(settings)
    return [] if settings is None or not said else [(prefix, said)]


def _record(record: dict[str, object], name: str) -> tuple[str, str]:
    return name, ", ".join(f"{key} {value}" for key, value in flat(record) if key != "name")


def instrument_sentences(run: Run) -> list[str]:
    """The instrument's own error over the whole run, each figure from the condition where it was worst."""
    readings = [condition.instrument for condition in run.conditions]
    if not readings:
        return []
    sentences = _clock_sentences([reading for reading in readings if reading.lag_p50_ms is not None])
    for text, values in (
        (
            "Bytes that had arrived waited up to {0} ms (p50), {1} ms (p99), {2} ms (most).",
            [worst(readings, of) for of in (lambda i: i.lag_p50_ms, lambda i: i.lag_p99_ms, lambda i: i.lag_max_ms)],
        ),
        (
            "Requests left up to {0} ms (p50), {1} ms (p99) after they were due.",
            [worst(readings, of) for of in (lambda i: i.late_p50_ms, lambda i: i.late_p99_ms)],
        ),
        (
            "Measuring cost up to {0} ms of processor time per 1,000 tokens.",
            [worst(readings, lambda i: i.cpu_ms_per_1000_tokens)],
        ),
    ):
        if any(value is not None for value in values):
            sentences.append(text.format(*map(number, values)))
    waited = worst(readings, lambda i: i.runqueue_wait_share)
    if waited is not None:
        sentences.append(f"Our own process waited for a processor up to {share(waited)} of the time.")
    if collections := sum(reading.collections for reading in readings):
        sentences.append(f"Garbage collection ran {collections} times inside a measurement; it must not.")
    return sentences


def worst(readings: Sequence[Instrument], of: Callable[[Instrument], float | None]) -> float | None:
    """The largest of one figure over all conditions, None where no condition has it."""
    return max((value for reading in readings if (value := of(reading)) is not None), default=None)


def _clock_sentences(readings: Sequence[Instrument]) -> list[str]:
    """Whose clock the arrivals are of; `readings` are of conditions in which something arrived."""
    if not readings:
        return []
    by_kernel = sum(reading.kernel_time for reading in readings)
    if by_kernel == len(readings):
        return ["Arrival times are the kernel's: how long bytes waited for us is not in the figures."]
    where = "No condition has" if not by_kernel else f"Only {by_kernel} of {len(readings)} conditions have"
    return [
        f"{where} arrival times from the kernel; elsewhere they are the moment we read, "
        "so the time that bytes waited for us is in the figures."
    ]
