from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from splitsecond.report.markup import joined, raw, tag


class Reader(HTMLParser):
    """What a browser would make of it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


TEXT = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]))


@given(TEXT, TEXT)
def test_any_text_stays_text(content: str, attribute: str) -> None:
    reader = Reader()
    reader.feed(tag("p", content, title=attribute))
    reader.close()
    assert reader.tags == ["p"]
    assert reader.text == content
    assert reader.attributes == {"title": attribute}


def test_markup_is_passed_through_and_text_is_not() -> None:
    assert tag("p", tag("b", "<"), "&") == "<p><b>&lt;</b>&amp;</p>"
    assert joined(["<", raw("<br>")]) == "&lt;<br>"


def test_attribute_names_are_python_names() -> None:
    assert tag("td", class_="weak", aria_label="x", colspan=7) == '<td class="weak" aria-label="x" colspan="7"></td>'
    assert tag("br") == "<br>"
