"""Short names of targets where a line has little room: without what all of them have in common.

``groq/gpt-oss-120b`` and ``cerebras/gpt-oss-120b`` become ``groq`` and ``cerebras``, and so do
targets of one model that their providers name differently. A name is never cut within a word.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from msgspec import Struct

from splitsecond.core.catalog.model_names import identify

MIN_LETTERS = 3
PARTS = re.compile(r"[^/-]*[/-]|[^/-]+")


class ShortNames(Struct, frozen=True):
    """`names` maps each long name to its short one. `pattern`: what the long names look like, such
    as ``…/gpt-oss-120b``; "": no name is shortened."""

    names: dict[str, str] = {}
    pattern: str = ""

    def short(self, name: str) -> str:
        return self.names.get(name, name)

    def within(self, text: str) -> str:
        for name in sorted(self.names, key=len, reverse=True):
            text = text.replace(name, self.names[name])
        return text


def short_names(names: Iterable[str]) -> ShortNames:
    """Return shorter names: their common beginning and end is removed, except for the part that
    each name needs to be recognised. If one of them is a policy, nothing is removed."""
    unique_names = list(dict.fromkeys(names))
    parts = [PARTS.findall(name) for name in unique_names]
    if len(unique_names) < 2 or any("(" in name for name in unique_names):
        return ShortNames(dict(zip(unique_names, unique_names, strict=True)))
    shortest = min(map(len, parts))
    before = min(_common(parts), shortest - 1)
    after = min(_common([each[::-1] for each in parts]), shortest - 1 - before)
    short = _without(parts, before, after)
    while before + after and not all(map(_recognised, short)):
        before, after = (before - 1, after) if before else (before, after - 1)
        short = _without(parts, before, after)
    if not before + after or len(set(short)) < len(unique_names):
        return _providers(unique_names)
    prefix = "".join(parts[0][:before])
    suffix = unique_names[0][len(prefix) + len(short[0]) :]
    return ShortNames(dict(zip(unique_names, short, strict=True)), f"{prefix}…{suffix}")


def _providers(names: Sequence[str]) -> ShortNames:
    """Return the provider for each target of the model that most of them serve, if at least two do
    and no provider has two targets."""
    identities = [identify(name) for name in names]
    (model, count), *_ = Counter(each.model for each in identities).most_common(1)
    if count < 2 or len({each.provider for each in identities}) < len(names):
        return ShortNames({name: name for name in names})
    short = {each.target: each.provider for each in identities if each.model == model}
    return ShortNames({name: short.get(name, name) for name in names}, f"…/{model}")


def _without(parts: Sequence[Sequence[str]], before: int, after: int) -> list[str]:
    return ["".join(each[before : len(each) - after]).rstrip("/-") for each in parts]


def _recognised(name: str) -> bool:
    return sum(map(str.isalpha, name)) >= MIN_LETTERS


def _common(parts: Sequence[Sequence[str]]) -> int:
    """Return how many parts all names begin with; a last part differs from one that goes on."""
    return len(list(takewhile(lambda each: len(set(each)) == 1, zip(*parts, strict=False))))
