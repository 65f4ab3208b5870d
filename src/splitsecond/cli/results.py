from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import rich.console

from splitsecond.benchmark.report.exports import csv_text, markdown_text
from splitsecond.cli.console import Console
from splitsecond.cli.files import check_file, write_data, write_json
from splitsecond.core.errors import CallerFault
from splitsecond.core.pages.png import check_png


class Output(msgspec.Struct, frozen=True, kw_only=True):
    folder: Path | None = None
    json: str = ""
    csv: str = ""
    markdown: str = ""
    html: bool = True
    png: bool = False
    verbose: bool = False

    def check(self) -> None:
        """Raise `CallerFault` if a file cannot be written, if two go to standard output, or if
        pictures need a package that is missing."""
        if self.png:
            check_png()
        files = {"--json": self.json, "--csv": self.csv, "--markdown": self.markdown}
        if [*files.values()].count("-") > 1:
            names = " and ".join(option for option, where in files.items() if where == "-")
            raise CallerFault(
                f"{names} cannot both go to standard output", kind="bad_option", hint="Name a file."
            )
        for option, where in files.items():
            if where != "-":
                check_file(where, option)

    def screen(self) -> Console:
        return Console(stderr="-" in (self.json, self.csv, self.markdown))

    def show(
        self,
        result: object,
        records: Callable[[], Iterable[object]],
        tables: Callable[[rich.console.Console], None],
    ) -> None:
        """Write the files that are asked for, and print the tables. Raises as `write` does."""
        self.write(result, records, tables)
        tables(self.screen())

    def write(
        self,
        result: object,
        records: Callable[[], Iterable[object]],
        tables: Callable[[rich.console.Console], None],
    ) -> None:
        """Write the files that are asked for. Raises `CallerFault` if one cannot be written."""
        write_json(result, self.json)
        if self.csv:
            write_data(csv_text(records()).encode(), self.csv, "--csv")
        if self.markdown:
            write_data(markdown_text(tables).encode(), self.markdown, "--markdown")
