"""One round of a watch on a terminal: a line for each row, its figures and what they are against the past."""

from collections.abc import Mapping, Sequence

from rich.text import Text

from splitsecond.analysis.watching import News, Round, minute
from splitsecond.report import rows
from splitsecond.report.rows import number, printable

_LOOKS = {True: "green", False: "bold red", None: "dim"}


def round_lines(one: Round, news: Mapping[str, Sequence[News]]) -> list[Text]:
    """`news` by condition. Columns stand beneath each other."""
    cells = [
        (
            f"{printable(found.target)} {rows.load_words(found)}",
            f"TTFT {number(rows.ttft(found).p50)} ms, p95 {number(rows.ttft(found).p95)}",
            f"TPS {number(found.tps.p50)}",
            f"errors {rows.errors(found)}",
        )
        for found in one.rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for found, row in zip(one.rows, cells, strict=True):
        padded = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        line = Text(f"{minute(one.at)}  {padded}  ")
        for said in news.get(found.condition, ()):
            line.append(f"{printable(said.text)} ", _LOOKS[said.good])
        line.rstrip()
        lines.append(line)
    return lines
