"""The table of clients, features and targets in `docs/reference/client-matrix.md`, from the stored
results."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from tests.clients.matrix.clients import BY_NAME as CLIENTS
from tests.clients.matrix.features import FEATURES

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[3] / "docs/reference/client-matrix.md"
BEGIN, END = "<!-- matrix -->\n", "<!-- end of matrix -->"
TITLES = {
    "chat": "OpenAI's chat (`/v1/chat/completions`)",
    "responses": "OpenAI's Responses (`/v1/responses`)",
    "messages": "Anthropic's Messages (`/v1/messages`)",
    "gemini": "Gemini (`/v1beta/models/…`)",
    "ollama": "Ollama (`/api/chat`)",
}
SHORT = {
    "openai": "ch",
    "responses": "re",
    "anthropic": "an",
    "gemini": "ge",
    "ollama": "ol",
    "cohere": "co",
    "": "-",
}
MARKS = {"refused": "r", "left out": "l", "estimated": "e", "wrong": "w"}


class Cell(Struct, frozen=True, array_like=True):
    """What came of a `feature` with a `target`: "passes", "refused", "left out", "estimated" or
    "wrong". `note`: why it is wrong."""

    feature: str
    target: str
    state: str
    note: str = ""


class ClientResults(Struct, frozen=True):
    name: str
    versions: list[str]
    cells: list[Cell]


class Results(Struct, frozen=True):
    date: str
    clients: list[ClientResults]


def stored() -> Results:
    """Return the results in the repository."""
    if not RESULTS.exists():
        return Results("", [])
    return msgspec.json.decode(RESULTS.read_bytes(), type=Results)


def write(results: Results) -> None:
    """Store the results, one client in a line, and write their tables into the page."""
    lines = [msgspec.json.encode(each).decode() for each in results.clients]
    joined = ",\n".join(lines)
    RESULTS.write_text(f'{{"date": "{results.date}", "clients": [\n{joined}\n]}}\n', "utf-8")
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + rendered(results) + END + after, "utf-8")


def rendered(results: Results) -> str:
    """Return the tables in Markdown."""
    return "".join(f"{line}\n" for line in _lines(results))


def _lines(results: Results) -> Iterator[str]:
    states = Counter(cell.state for client in results.clients for cell in client.cells)
    named = states["refused"] + states["left out"] + states["estimated"]
    yield (
        f"On {results.date}, {states['passes']:,} of {states.total():,} cells pass, {named:,} are "
        f"refused, left out or "
        f"estimated by name, and {states['wrong']:,} are wrong."
    )
    yield ""
    yield "| client | version | API | cells | pass | refused | left out | estimated | wrong |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for client in results.clients:
        count = Counter(cell.state for cell in client.cells)
        counts = [count.total(), *(count[state] for state in ("passes", *MARKS))]
        api = CLIENTS[client.name].api
        yield (
            f"| `{client.name}` | {', '.join(client.versions)} | {api} | "
            f"{' | '.join(map(str, counts))} |"
        )
    for api, title in TITLES.items():
        clients = [client for client in results.clients if CLIENTS[client.name].api == api]
        if clients:
            yield ""
            yield f"### {title}"
            yield ""
            yield f"| feature | {' | '.join(f'`{client.name}`' for client in clients)} |"
            yield f"|---|{'---|' * len(clients)}"
            for feature in FEATURES:
                cells = [_cell(client, feature.name) for client in clients]
                if any(cells):
                    yield f"| {feature.title} | {' | '.join(cells)} |"
    wrong = [
        (client, cell)
        for client in results.clients
        for cell in client.cells
        if cell.state == "wrong"
    ]
    if wrong:
        titles = {feature.name: feature.title for feature in FEATURES}
        yield ""
        yield "### Wrong cells"
        yield ""
        groups: dict[tuple[str, str], list[Cell]] = {}
        for client, cell in wrong:
            groups.setdefault((client.name, cell.feature), []).append(cell)
        for (name, feature_name), cells_of in groups.items():
            targets = ", ".join(cell.target or "gateway" for cell in cells_of)
            note = cells_of[0].note.replace("`", "'").replace("|", "/").replace("<", "&lt;")[:160]
            yield f"- `{name}`, {titles[feature_name]} ({targets}): `{note}`"


def _cell(client: ClientResults, feature: str) -> str:
    """Return the text of a cell: "✓" if all targets pass, "" if the client lacks the feature, else
    what does not."""
    cells = [cell for cell in client.cells if cell.feature == feature]
    parts = ["✓"] if any(cell.state == "passes" for cell in cells) else []
    for state, mark in MARKS.items():
        targets = [SHORT[cell.target] for cell in cells if cell.state == state]
        if targets:
            parts.append(f"{mark}: {' '.join(targets)}")
    return "; ".join(parts)
