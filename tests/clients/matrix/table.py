"""The table of clients, features and targets in `docs/clients.md`, from the stored results."""

from pathlib import Path

from msgspec import Struct

RESULTS = Path(__file__).parent / "results.json"


class Cell(Struct, frozen=True):
    feature: str
    target: str
    state: str
    note: str = ""


class ClientResults(Struct, frozen=True):
    name: str
    api: str
    versions: list[str]
    cells: list[Cell]


class Results(Struct, frozen=True):
    date: str
    clients: list[ClientResults]


def write_page(results: Results) -> None:
    pass
