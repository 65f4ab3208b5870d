"""The time for reading options, headers and tables of operators' tools is proportional to their
length."""

from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from tests.cases import each_case
from tests.worst_case import check_linear, repeated

from splitsecond.benchmark.findings.gate import parse_equivalence, parse_gate
from splitsecond.benchmark.report.exports import csv_text, markdown_text
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.core.pages.html import contents
from splitsecond.log.store.foreign.formats import parse_map
from splitsecond.simulator.recording import _is_kept


def markdown(text: str) -> str:
    def show(console: Console) -> None:
        table = Table("target", text)
        table.add_row(text, f"1 {text}")
        console.print(table)

    return markdown_text(show)


READERS: dict[str, Callable[[str], object]] = {
    "gate": parse_gate,
    "equivalence": parse_equivalence,
    "limits": parse_slo,
    "columns of an import": parse_map,
    "header of a recording": _is_kept,
    "contents of a page": contents,
    "Markdown": markdown,
    "CSV": lambda text: csv_text([{"target": text, text: [text]}]),
}
KINDS = {
    "spaces after a gate": repeated(b" ", b"tps.p50 < 1", b"!"),
    "spaces after an equivalence": repeated(b" ", b"tps.p50 +- 1%", b"!"),
    "spaces after a limit": repeated(b" ", b"ttft = 1", b"!"),
    "digits": repeated(b"1", b"tps.p50 < ", b"!"),
    "letters": repeated(b"a", b"", b"!"),
    "limits": repeated(b"tps=1,"),
    "dashes": repeated("–".encode(), b"a", b"\n"),
    "dashes and spaces": repeated("– ".encode()),
    "rate limits": repeated(b"ratelimit", b"", b"\n"),
    "request ids": repeated(b"request-id", b"", b"\n"),
    "sections without an end": repeated(b'<section id="a"'),
    "headings without an end": repeated(b'<section id="a"><h2>'),
    "formulas": repeated(b"=-+@\t"),
    "line ends": repeated(b"\r\n"),
}


@each_case("kind", KINDS)
@each_case("reader", READERS)
def test_each_reader_is_linear(reader: str, kind: str) -> None:
    check_linear(lambda text: READERS[reader](text.decode()), KINDS[kind], size=1 << 16)
