"""An HTML page as a test reads it: its tags, its outline and its text."""

import re
from html.parser import HTMLParser

PREFIXES = {
    "h1": "# ",
    "h2": "## ",
    "h3": "### ",
    "li": "- ",
    "dt": "* ",
    "dd": "  ",
    "figcaption": "figure: ",
    "desc": "picture: ",
}
LINES = {*PREFIXES, "p", "tr", "summary", "pre", "title", "caption", "button"}
CELLS = {"td", "th"}


class Page(HTMLParser):
    """What a browser makes of a page.

    Args:
        text: The page. Fails unless its tags nest.

    Attributes:
        tags: Every start tag with its attributes, in order. outline: A line for each heading and
        caption. text: The text outside scripts and style sheets. words: The same for a golden file:
        a line for each paragraph, heading, list item and table row.
    """

    VOID = frozenset({"meta", "br", "input", "wbr"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.outline = ""
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._lines: list[str] = [""]
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    @property
    def words(self) -> str:
        lines = (re.sub(r"\s+", " ", line).rstrip(" |") for line in self._lines)
        return "".join(f"{line}\n" for line in lines if line.strip())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in self.VOID:
            self._open.append(tag)
        if tag in LINES:
            self._lines.append(PREFIXES.get(tag, ""))
        if tag == "small":
            self._lines[-1] += " ("

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag in CELLS:
            self._lines[-1] += " | "
        elif tag == "small":
            self._lines[-1] += ")"
        elif tag in LINES:
            self._lines.append("")

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside in {"h1", "h2", "h3", "figcaption", "caption"}:
            self.outline += f"{inside} {data.strip()}\n"
        if inside not in {"script", "style"} and not (
            inside in {"text", "title"} and "svg" in self._open
        ):
            self.text += data
            self._lines[-1] += data
