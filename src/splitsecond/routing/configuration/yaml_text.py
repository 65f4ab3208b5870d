"""YAML as configurations use it: the words of YAML 1.2's core schema, and no tags.

PyYAML reads YAML 1.1, in which `off`, `1:30`, `0777`, `1_000` and `2026-01-31` are no strings.
Sources: chapter 10.3 of the specification of YAML 1.2.2, and https://yaml.org/type/merge.html for
the merge key `<<`.
"""

import math
import re
from typing import Any

import yaml

from splitsecond.routing.configuration.error_messages import bad

MAX_VALUES = 1_000_000
"""Values in a file, those that aliases repeat included."""
MAX_NUMBER = 2**63 - 1
MAX_DIGITS = 1000
_WORDS = {
    "null": (r"|~|null|Null|NULL", ["", *"~nN"]),
    "bool": ("true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": ("[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
    "merge": ("<<", ["<"]),
}
"""The plain scalars of each type: their pattern, and the characters that they can begin with."""
_BASES = {"0o": 8, "0x": 16}


class CoreLoader(yaml.SafeLoader):
    """Loader of YAML 1.2's core schema. It refuses tags, duplicate names, and text that is not
    Unicode."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own form

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0
        self._anchored: dict[str, int] = {}
        """The number of values below each anchor."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        before, is_alias = self._values, isinstance(event, yaml.AliasEvent)
        if not is_alias and event.tag is not None:
            raise _error("tags are not supported", event)
        self._values += self._anchored.get(event.anchor, 1) if is_alias else 1
        if self._values > MAX_VALUES:
            raise _error(f"the file has more than {MAX_VALUES:,} values", event)
        node: Any = super().compose_node(parent, index)
        if isinstance(event, yaml.ScalarEvent):
            node.value = _unicode(event)
        if event.anchor and not is_alias:
            self._anchored[event.anchor] = self._values - before
        return node

    def construct_document(self, node: yaml.Node) -> Any:
        return self.construct_object(node, deep=True)  # which finds aliases of what they are in

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise _error("expected a name", name)
            if name.value in seen:
                raise _error(f"{name.value} is given twice", name)
            seen.add(name.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text: str = node.value
        number = int(text, _BASES.get(text[:2], 10)) if len(text) <= MAX_DIGITS else MAX_NUMBER + 1
        if abs(number) > MAX_NUMBER:
            raise _error("the number is too large", node)
        return number

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        text: str = node.value
        number = math.inf if text.strip("+-.").isalpha() else float(text)
        if not math.isfinite(number):
            raise _error("expected a finite number", node)
        return number


class CoreDumper(yaml.SafeDumper):
    """Dumper that also quotes the strings that `CoreLoader` would read as something else."""


for _name, (_pattern, _begins) in _WORDS.items():
    for _class in (CoreLoader, CoreDumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _begins
        )
CoreLoader.add_constructor("tag:yaml.org,2002:int", CoreLoader.construct_yaml_int)
CoreLoader.add_constructor("tag:yaml.org,2002:float", CoreLoader.construct_yaml_float)


def parsed(text: str) -> Any:
    """Return what the YAML `text` describes. Raises `CallerFault` with the place of what is
    wrong."""
    try:
        return yaml.load(text, CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the file"
        raise bad(place, error.problem or "this is not YAML") from None
    except RecursionError:
        raise bad("the file", "this is nested too deeply") from None
    except yaml.YAMLError as error:
        raise bad("the file", f"this is not YAML: {' '.join(str(error).split())}") from None
    except (ValueError, OverflowError):
        raise bad(
            "the file", "this is not YAML: an escape such as \\UFFFFFFFF is no character"
        ) from None


def _unicode(event: yaml.ScalarEvent) -> str:
    """Return the text of a scalar. Two halves of a surrogate pair, as in escapes of JSON, become
    one character."""
    text: str = event.value
    if "\0" in text:
        raise _error("the text has a NUL character. Remove it", event)
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _error(
            "the text has half of a surrogate pair. Write the whole character, or remove it", event
        ) from None


def _error(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)
