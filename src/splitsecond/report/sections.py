"""The sections of the HTML report, in the order in which a reader asks: what came out, how sure it is, why, and how to
do it again.

Everything here is text and tables; a picture is a place of known height that the page's script draws into, with its
description as text for who does not see it.
"""

from collections.abc import Callable, Mapping

from splitsecond.analysis.cost import usd
from splitsecond.analysis.findings import Capacity, ConditionFindings, Run
from splitsecond.analysis.wording import counted_as, listed
from splitsecond.report import capacity, rows
from splitsecond.report.definitions import DEFINITIONS
from splitsecond.report.figures import figures_section, percentile_of
from splitsecond.report.markup import Markup, joined, tag
from splitsecond.report.picture import Picture
from splitsecond.report.rows import MISSING, number
from splitsecond.report.savings import savings_section
from splitsecond.report.series import STAGES, STEPS
from splitsecond.report.tables import Column, condition_table, named, plot, section, statement_list, table

DERIVED = ("command", "conditions.", "notes", "prices.")
"""What of a run's settings stands elsewhere on the page."""

Pictures = Mapping[str, Picture]


def title(run: Run) -> Markup:
    """What stands on the tab and at the top."""
    said = rows.targets(run)
    what = "How much load is borne by" if run.capacity else "Inference speed of"
    return joined([f"{what} {said[0] if len(said) == 1 else f'{len(said)} targets'}"])


def body(run: Run, pictures: Pictures) -> Markup:
    """Everything between the page's head and its scripts."""
    shown = _search(run, run.capacity, pictures) if run.capacity else _comparison(run, pictures)
    return joined(
        [_opening(run), _verdict(run), shown, _instrument(run), _errors(run), _definitions(), _again(run)],
    )


def _search(run: Run, found: Capacity, pictures: Pictures) -> Markup:
    """What a search for capacity showed: its steps first, the figures of each a click away."""
    figures = figures_section(run, _legend(run, "targets"))
    return joined(
        [
            _plotted(run, pictures, "capacity", capacity.TITLE, capacity.TEXT, capacity.step_table(run, found)),
            tag("details", tag("summary", "The figures of each step"), figures),
            _one_or_many(run, pictures),
            _money(run),
            _stages(run, pictures),
        ]
    )


def _one_or_many(run: Run, pictures: Pictures) -> Markup:
    return _plotted(
        run,
        pictures,
        "throughput",
        "One user or many",
        "Batching trades the speed of one request for the throughput of all. Further right is faster for one, "
        "further up is more for all; the larger the mark, the more load.",
    )


def _comparison(run: Run, pictures: Pictures) -> Markup:
    """What a run of several targets and loads showed."""
    return joined(
        [
            figures_section(run, _legend(run, "targets")),
            savings_section(run),
            _plotted(
                run,
                pictures,
                "ttft",
                "Time to first token",
                "How the waiting times are spread. A steep curve is a steady target; a long tail to the right is what "
                "one user in twenty feels.",
            ),
            _load(run, pictures),
            _one_or_many(run, pictures),
            _money(run),
            _stages(run, pictures),
            _plotted(
                run,
                pictures,
                "waterfall",
                "Single requests",
                "Two requests of each target, from the moment they were due: above a typical one, below the slowest.",
            ),
        ]
    )


def _opening(run: Run) -> Markup:
    shown = rows.targets(run)
    levels = rows.levels(run)
    closed = dict.fromkeys(f"{level.load:g}" for level in levels if not level.open_loop)
    loads = [f"concurrency {listed(list(closed))}"] if closed else []
    loads += [level.title.lower() for level in levels if level.open_loop and not level.cache_reuse]
    ways = " by prompts that begin differently and by prompts that begin alike," if run.cache_savings else ""
    sent = sum(condition.requests for condition in run.conditions)
    failed = sum(condition.errors for condition in run.conditions)
    what = (
        f"{sent:,} requests to {listed(shown)}, at {listed(loads)},{ways} "
        f"measured on {run.began[:10]} at {run.began[11:16]} UTC. "
        + (f"{failed:,} of them failed." if failed else "None of them failed.")
    )
    parts = [tag("h1", title(run)), tag("p", what if run.conditions else "Nothing was measured.", class_="lead")]
    parts += [tag("p", sentence, class_="note") for sentence in rows.caveats(run)]
    if not run.finished:
        parts.append(tag("p", "This run was stopped before its end: the figures are of what had finished."))
    return tag("header", *parts)


def _verdict(run: Run) -> Markup:
    """The banner where something is INVALID, and the sentences."""
    banner = [_banner(run)] if run.invalid or any(c.invalid for c in run.conditions) else []
    return joined([*banner, statement_list(run.statements)])


def _banner(run: Run) -> Markup:
    reasons = [tag("li", reason) for reason in run.invalid]
    spoilt = [condition for condition in run.conditions if condition.invalid]
    for condition in spoilt:
        name = tag("b", f"{condition.target}, {rows.load_words(condition)}: ")
        reasons += [tag("li", name, reason) for reason in condition.invalid]
    heading = (
        "INVALID" if run.invalid else f"INVALID: {len(spoilt)} of {counted_as(len(run.conditions), 'row', 'rows')}"
    )
    words = tag("p", "These figures must not be relied on:")
    return tag("div", tag("h2", heading), words, tag("ul", *reasons), class_="invalid", role="alert", id="invalid")


def _money(run: Run) -> Markup:
    """What it cost, row by row, and by which prices; nothing where no price is known."""
    if not rows.priced(run):
        return joined([])
    columns: list[Column] = [
        ("a million tokens", lambda c: usd(c.usd_per_million)),
        ("a million of output", lambda c: usd(c.usd_per_million_output)),
        ("a request", lambda c: usd(c.usd_per_request)),
        ("output of all tokens", lambda c: rows.share(_output_share(c))),
        ("cached of the input", lambda c: rows.share(_cached_share(c))),
        ("this row", rows.cost),
    ]
    text = (
        "A million tokens are priced in each row's own mix of input and output, with its cached input at the price of "
        "cached input. A row's cost has its warm-ups and failures in it."
    )
    said = tag("ul", *(tag("li", sentence) for sentence in rows.price_sentences(run)))
    return section("money", "What it cost", tag("p", text), *condition_table(run, "Money, US dollars", columns), said)


def _output_share(condition: ConditionFindings) -> float | None:
    tokens_in, tokens_out = condition.input_tokens, condition.output_tokens
    return None if tokens_in is None or not tokens_out else tokens_out / (tokens_in + tokens_out)


def _cached_share(condition: ConditionFindings) -> float | None:
    if condition.cached_tokens is None or not condition.input_tokens:
        return None
    return condition.cached_tokens / condition.input_tokens


def _plotted(run: Run, pictures: Pictures, name: str, heading: str, text: str, *after: str) -> Markup:
    shown = [picture for picture in pictures.values() if picture.section == name]
    if not shown:
        return section(name, heading, tag("p", "No request gave the figures for this plot.", class_="note"), *after)
    figures = [plot(picture) for picture in shown]
    grid = tag("div", *figures, class_=f"plots {name}" if len(figures) > 1 else "plots single")
    return section(name, heading, tag("p", text), _legend(run, shown[0].legend), grid, *after)


def _load(run: Run, pictures: Pictures) -> Markup:
    if len({(level.open_loop, level.load) for level in rows.levels(run)}) > 1:
        return _plotted(
            run, pictures, "load", "What load does", "The line is the median, the band holds nine of ten requests."
        )
    text = "The mark is the median, nine of ten requests lie on the bar."
    return _plotted(run, pictures, "load", "How far requests differ", text)


def _stages(run: Run, pictures: Pictures) -> Markup:
    text = (
        "Means over the requests, so that the stages add up. Network is the round-trip time of the connection; "
        "provider is what is left until the first token: queue, prefill and the first step. DNS, TCP and TLS took no "
        "time where a connection was reused."
    )
    columns: list[Column] = [(label, _stage(stage)) for stage, label in STAGES.items()]
    tables = condition_table(run, "Means of the stages, ms", columns) + _server_times(run)
    return _plotted(run, pictures, "stages", "Where the time goes", text, *tables)


def _server_times(run: Run) -> list[Markup]:
    """The servers' own account of their time, beside ours; nothing where none gives one."""
    names = dict.fromkeys(name for c in run.conditions for name in c.server_ms)
    if not names:
        return []
    ours: list[Column] = [
        ("TTFT, ours", percentile_of(lambda c: c.ttft_ms)),
        ("E2E, ours", percentile_of(lambda c: c.e2e_ms)),
    ]
    theirs: list[Column] = [(f"{rows.server_step(name)}, theirs", _server_time(name)) for name in names]
    return condition_table(run, "What servers say of their own time, p50 in ms", [*ours, *theirs])


def _server_time(name: str) -> Callable[[ConditionFindings], str]:
    return lambda condition: number(condition.server_ms.get(name))


def _stage(name: str) -> Callable[[ConditionFindings], str]:
    return lambda condition: number(condition.phases_ms.get(name))


def _instrument(run: Run) -> Markup:
    columns: list[Column] = [
        ("arrival times", lambda c: "kernel" if c.instrument.kernel_time else "at the read"),
        ("read lag p50", lambda c: number(c.instrument.lag_p50_ms)),
        ("read lag p99", lambda c: number(c.instrument.lag_p99_ms)),
        ("read lag max", lambda c: number(c.instrument.lag_max_ms)),
        ("sent late p50", lambda c: number(c.instrument.late_p50_ms)),
        ("sent late p99", lambda c: number(c.instrument.late_p99_ms)),
        ("in flight", lambda c: number(c.instrument.in_flight)),
        ("waited for a processor", lambda c: rows.share(c.instrument.runqueue_wait_share)),
        ("CPU per 1,000 tokens", lambda c: number(c.instrument.cpu_ms_per_1000_tokens)),
        ("garbage collections", lambda c: str(c.instrument.collections)),
    ]
    words = tag("ul", *(tag("li", sentence) for sentence in rows.instrument_sentences(run)))
    each = condition_table(run, "The instrument in each condition, times in ms", columns)
    return section("instrument", "The instrument's own error", words, *each)


def _errors(run: Run) -> Markup:
    body = [
        tag(
            "tr",
            tag("th", *named(run, c.target), scope="row"),
            tag("td", rows.load_words(c)),
            tag("td", kind),
            tag("td", f"{count} of {c.requests}"),
            tag("td", c.error_examples.get(kind, MISSING)),
        )
        for level in rows.levels(run)
        for c in level.conditions
        for kind, count in c.error_kinds.items()
    ]
    if not body:
        return section("errors", "Errors", tag("p", "No measured request failed."))
    head = ["target", "load", "class", "requests", "an example"]
    return section("errors", "Errors", table("Errors by class", head, body, prose=True))


def _definitions() -> Markup:
    terms = [tag("div", tag("dt", word), tag("dd", text)) for word, text in DEFINITIONS.items()]
    return section("definitions", "What the figures mean", tag("dl", *terms))


def _again(run: Run) -> Markup:
    parts = []
    if command := rows.asked_command(run):
        parts.append(tag("pre", tag("code", command), tabindex=0))
    for caption, held in (("Settings", run.asked), ("Environment", run.environment)):
        settings = [(name, value) for name, value in rows.flat(held) if not name.startswith(DERIVED)]
        if settings:
            body = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in settings]
            parts += [tag("h3", caption), table(caption, ["name", "value"], body, prose=True)]
    identity = f"Run {run.id}, begun {run.began}, splitsecond {run.version or MISSING}, format {run.schema}."
    return section("again", "To run it again", *parts, tag("p", identity, class_="note"))


def _legend(run: Run, kind: str) -> Markup:
    if kind == "targets":
        entries = [tag("li", *named(run, target)) for target in rows.targets(run)]
    else:
        words = list(STAGES.values() if kind == "stages" else STEPS)
        colours = range(len(words) - 1, -1, -1)
        entries = [tag("li", tag("i", class_=f"box stage-{i}"), word) for i, word in zip(colours, words, strict=True)]
    return tag("ul", *entries, class_="legend")
