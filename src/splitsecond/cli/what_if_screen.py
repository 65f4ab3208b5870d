from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.report.tables import print_item, print_table
from splitsecond.core.errors import printable
from splitsecond.core.money.cost import usd
from splitsecond.core.wording import MISSING, counted_as, number, percent
from splitsecond.replay.answer import (
    DRAWN,
    LEFT_OUT,
    Coverage,
    Identity,
    PolicyAnswer,
    Robust,
    WhatIf,
)
from splitsecond.replay.arms import SplitComparison
from splitsecond.replay.exploration import Exploration
from splitsecond.replay.family import Proposal
from splitsecond.replay.figures import FigureChange
from splitsecond.replay.history import Basis

HEADINGS = {
    "ttft_p50_ms": "TTFT p50 ms",
    "ttft_p95_ms": "TTFT p95 ms",
    "total_p50_ms": "completion p50 ms",
    "total_p95_ms": "completion p95 ms",
    "usd_per_1000": "$ per 1,000 calls",
    "failed": "failed",
}


def route_in_words(comparison: WhatIf | SplitComparison) -> str:
    since, until = (
        datetime.fromtimestamp(each / 1e6, UTC)
        for each in (comparison.since_us, comparison.until_us)
    )
    return (
        f"Route {printable(comparison.route)}, {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
    )


def figures_table(numbers: tuple[str, str], *words: str) -> Table:
    """Return a table with a column of names, two of numbers, and those of `words`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in words:
        table.add_column(heading, no_wrap=True)
    return table


def print_what_if(replay: WhatIf, console: Console) -> None:
    _print_identity(replay.identity, console)
    console.print()
    replayed = counted_as(replay.calls, "call")
    if replay.logged_calls > replay.replayed_calls:
        replayed += f" of {replay.logged_calls:,}, in whole hours that are evenly spread"
    print_item(console, "", f"{route_in_words(replay)}: {replayed}")
    print_item(console, "", f"Today: {printable(replay.today)}")
    if replay.unpriced:
        print_item(
            console,
            "",
            f"Cost: not known, because {printable(' and '.join(replay.unpriced))} have no price.",
        )
    for each in replay.answers:
        console.print()
        _print_answer(each, console)


def print_proposal(proposal: Proposal, console: Console) -> None:
    _print_identity(proposal.answer.identity, console)
    if not proposal.answer.identity.agrees:
        return
    figure, tried = (
        HEADINGS[proposal.by],
        counted_as(len(proposal.answer.answers), "policy", "policies"),
    )
    console.print()
    if proposal.policy:
        best = next(each for each in proposal.answer.answers if each.policy == proposal.policy)
        words = f"Of {tried}, this one surely improves {figure} most for route"
        print_item(console, "", f"{words} {printable(proposal.answer.route)}:")
        console.print()
        _print_answer(best, console)
    else:
        print_item(console, "", f"None of {tried} surely improves {figure}: keep today's.")
    console.print()
    for each in proposal.answer.answers:
        if each.policy != proposal.policy:
            text = f"{printable(each.policy)}: {_outcome(each, proposal)}"
            print_item(console, "  ", text, "dim")


def _outcome(answer: PolicyAnswer, proposal: Proposal) -> str:
    if answer.refused:
        return f"no answer: {answer.refused}"
    figure = next((each for each in answer.figures if each.name == proposal.by), None)
    words = MISSING if figure is None else _difference(figure)
    return (
        f"{words}; {proposal.refused[answer.policy]}"
        if answer.policy in proposal.refused
        else words
    )


def print_exploration(plan: Exploration, route: str, console: Console) -> None:
    print_item(console, "", f"To replay {printable(plan.policy)}, route this for a week:")
    console.print(Text(f"  {printable(route)}: {printable(plan.route)}", "cyan"), soft_wrap=True)
    names = " and ".join(plan.explored)
    print_item(
        console,
        "",
        f"About {plan.per_day:,.0f} calls a day then go to {printable(names)}, whatever happened "
        f"before. With them, {percent(plan.coverage)} of the calls rest on at least 20 similar "
        "attempts within an hour.",
    )
    if plan.coverage < 0.8:
        more = (
            "No share up to 50% is enough"
            if plan.needed is None
            else f"{percent(plan.needed)} would be enough"
        )
        print_item(console, "", f"{more} for 80% of the calls.", "yellow")


def _print_identity(identity: Identity, console: Console) -> None:
    if identity.agrees:
        text = ", ".join(
            _replayed(each) for each in identity.figures if each.name in HEADINGS and _known(each)
        )
        print_item(
            console,
            "✓ ",
            f"Today's policy, replayed over its own log, gives the log's figures: {text}.",
            "green",
        )
        if identity.unproven:
            off = ", ".join(
                f"{_name(name)} by up to {_part(name, share)}"
                for name, share in identity.unproven.items()
            )
            calls = counted_as(identity.coverage.covered, "call")
            words = f"But {calls} prove little. These may be off: {off}."
            print_item(console, "  ", words, "yellow")
        return
    if not identity.figures:
        print_item(
            console,
            "✗ ",
            "Today's policy cannot be replayed over its own log: see what is left out.",
            "red",
        )
        _print_coverage(identity.coverage, console)
        return
    print_item(
        console,
        "✗ ",
        "Today's policy, replayed over its own log, does not give the log's figures:",
        "red",
    )
    for kind, figures in (("", identity.figures), (DRAWN, identity.drawn)):
        for each in figures:
            if f"{each.name}{kind}" in identity.differs:
                print_item(console, "  ", f"{_replayed(each)}{kind}")
    print_item(
        console,
        "  ",
        "So there is no answer. Is this the policy of that time? Name it with --today, or look "
        "back less far.",
    )


def _print_answer(answer: PolicyAnswer, console: Console) -> None:
    console.print(Text(printable(answer.policy), "bold"), soft_wrap=True)
    _print_coverage(answer.coverage, console)
    if answer.refused:
        print_item(console, "  ", f"No answer: {answer.refused}.", "yellow")
        if LEFT_OUT[Basis.LOAD] in answer.coverage.left_out:
            words = "If no target is slower with more of these calls, say so with --any-load."
            print_item(console, "  ", words)
        print_item(console, "  ", "--explore 1% proposes what to route so that the log can answer.")
        return
    table = figures_table(("today", "what if"), "difference (95% interval)")
    for each in answer.figures:
        if each.name in HEADINGS and not _known(each):
            continue
        name = HEADINGS.get(each.name, f"answered by {each.name}")
        cells = (_text(each, each.today), _text(each, each.what_if))
        table.add_row(
            printable(name), *cells, Text(_difference(each), "" if each.is_real else "dim")
        )
    print_table(table, console)
    _print_robust(answer.robust, console)


def _print_robust(robust: Robust, console: Console) -> None:
    if robust.refused:
        words = f"Direct method only, as {robust.refused}."
        print_item(console, "  ", words, "dim")
        return
    words = (
        f"Doubly robust, by the probabilities of the log's choices ({robust.effective_calls:,.0f} "
        "calls of equal weight): "
    )
    if not robust.differs:
        print_item(console, "  ", f"{words}the same, up to chance.", "dim")
        return
    names = ", ".join(HEADINGS.get(each, f"answered by {each}") for each in robust.differs)
    words += f"the direct method is off in {printable(names)}, which are the doubly robust ones."
    print_item(console, "  ", words, "yellow")


def _print_coverage(coverage: Coverage, console: Console) -> None:
    words = (
        f"{percent(coverage.share)} of {counted_as(coverage.calls, 'call')} rest on at least "
        "20 similar attempts."
    )
    if coverage.left_out:
        reasons = sorted(coverage.left_out.items(), key=lambda one: -one[1])
        listed = "; ".join(
            f"{reason} ({percent(count / coverage.calls)})" for reason, count in reasons
        )
        hours = f", mostly {coverage.hours}" if coverage.hours else ""
        words += f" Left out{hours}: {listed}."
    print_item(console, "  ", words)
    if coverage.over_load:
        share = percent(coverage.over_load / coverage.calls)
        words = (
            f"{share} met more calls at a target than it ever had in the log: taken to be no "
            "slower (--any-load)."
        )
        print_item(console, "  ", words, "yellow")


def _name(figure: str) -> str:
    return printable(HEADINGS.get(figure, f"share of {figure}"))


def _part(figure: str, share: float) -> str:
    return (
        f"{number(share * 100)} points" if figure == "failed" or "/" in figure else percent(share)
    )


def _known(figure: FigureChange) -> bool:
    return figure.today is not None or figure.what_if is not None


def _replayed(figure: FigureChange) -> str:
    what_if, today = (_text(figure, each) for each in (figure.what_if, figure.today))
    return f"{_name(figure.name)} {what_if} for {today}"


def _text(figure: FigureChange, value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return MISSING
    sign = ("+" if value > 0 else "−" if value < 0 else "") if signed else ""
    size = abs(value)
    if figure.name == "usd_per_1000":
        return f"{sign}{usd(size)}"
    if figure.name == "failed" or "/" in figure.name:
        return f"{sign}{number(size * 100)}" if signed else percent(size)
    return f"{sign}{number(size)}"


def _difference(figure: FigureChange) -> str:
    low, high = figure.ci95
    if figure.difference is None:
        return MISSING
    points = " points" if figure.name == "failed" or "/" in figure.name else ""
    moved = f"{_text(figure, figure.difference, signed=True)}{points}"
    if low is None or high is None:
        return moved
    return f"{moved} ({_text(figure, low, signed=True)} to {_text(figure, high, signed=True)})"
