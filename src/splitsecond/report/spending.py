"""Where the money went, on a terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.analysis.cost import usd
from splitsecond.analysis.spending import Spending
from splitsecond.report.rows import MISSING, printable, share


def spending_table(rows: Sequence[Spending], total: Spending, by: str, console: Console) -> None:
    """Print a row for each name, their total, and what the sums leave out. `by`: what the rows are."""
    rented = total.rented_usd > 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(by, overflow="fold", min_width=12)
    headings = ["cost", *(["by the\nhour"] if rented else []), "share", "of it\nlost", "calls", "a call", "$/M\ntokens"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    whole = total.usd + total.rented_usd
    for number, row in enumerate((*rows, *([total] if len(rows) > 1 else []))):
        of_all = (row.usd + row.rented_usd) / whole if whole else None
        cells = [
            MISSING if row.unpriced == row.attempts else usd(row.usd),
            *([usd(row.rented_usd) if row.rented_usd else ""] if rented else []),
            share(of_all),
            share(row.lost_usd / row.usd) if row.usd else MISSING,
            f"{row.calls:,}",
            usd(row.usd_per_call),
            usd(row.usd_per_million),
        ]
        last = number == len(rows)
        if last:
            table.add_section()
        table.add_row(Text(printable(row.name or "(no name)")), *map(Text, cells), style="bold" if last else "")
    console.print(table)
    for line in _remarks(total):
        console.print(Text(line, "dim"))


def _remarks(total: Spending) -> list[str]:
    said: list[str] = []
    if total.lost_usd:
        said.append(f"Lost: {usd(total.lost_usd)} went to attempts that gave no answer, as races and hedges do.")
    if total.cache_saved_usd:
        moved = "saved" if total.cache_saved_usd > 0 else "cost more than they saved:"
        said.append(f"The providers' prompt caches {moved} {usd(abs(total.cache_saved_usd))}.")
    if total.rented_usd:
        said.append("By the hour: what those machines cost if they ran all of the time.")
    if total.estimated:
        said.append(f"{total.estimated:,} of {total.attempts:,} attempts did not say their counts: estimated.")
    if total.unpriced:
        said.append(
            f"{total.unpriced:,} of {total.attempts:,} attempts have no known price or counts, and are in no sum."
        )
    return said
