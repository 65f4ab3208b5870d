"""Faults of a configuration file. Each names its place as the file writes it:
``routes.fast.policy``."""

from types import TracebackType
from typing import Any, TypeVar

from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import converted

T = TypeVar("T")


def bad(place: str, message: str, hint: str = "") -> CallerFault:
    return CallerFault(f"{place or 'the file'}: {message}", kind="bad_config", hint=hint)


def shaped(place: str, value: Any, shape: type[T]) -> T:
    """Return `value` as a `shape`, usually of `file_schema`. Raises `CallerFault` with the place of
    the first error."""
    return converted(place, value, shape, bad)


class SeveralMistakes(CallerFault):
    """Several mistakes of a configuration. Its own text is that of the first, with the number of
    the others."""

    def __init__(self, mistakes: list[CallerFault]) -> None:
        first, more = mistakes[0], len(mistakes) - 1
        others = "another mistake" if more == 1 else f"{more:,} other mistakes"
        hint = (
            f"{first.hint} The file has {others}: `splitsecond serve --check` lists all.".lstrip()
        )
        super().__init__(first.message, kind=first.kind, hint=hint)
        self.mistakes = mistakes


class Mistakes:
    """A context that collects `CallerFault`s instead of raising them, each text once."""

    def __init__(self) -> None:
        self.found: dict[str, CallerFault] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(fault, CallerFault):
            return False
        for each in fault.mistakes if isinstance(fault, SeveralMistakes) else [fault]:
            self.found.setdefault(str(each), each)
        return True

    def check(self) -> None:
        mistakes = list(self.found.values())
        if mistakes:
            raise mistakes[0] if len(mistakes) == 1 else SeveralMistakes(mistakes)
