"""Finding models by what one remembers of their names: "groq", "groq/llama", "llama 70b".

Providers write the name of one model with other dashes, dots and capitals ("Llama-3.3-70B", "llama-v3p3-70b"), so none
of these count.
"""

import difflib
import re
from collections.abc import Iterable, Sequence

from splitsecond.catalog.provider import names, provider
from splitsecond.cli.model_list import ModelEntry, entries_of
from splitsecond.errors import CallerFault

LIKE = 0.7
"""How like a part of a name must be to what was asked for to be named in its place."""
_ANY = "One that is not known can be called just as well, as PROVIDER/MODEL."
_MARKS = re.compile(r"[^a-z0-9]+")


def search(words: Sequence[str]) -> list[ModelEntry]:
    """The models with all of `words` in their names. A provider's name alone gives all of its models (perhaps none that
    is known), "PROVIDER/TEXT" those of its own; where it has none of them, those of all.

    Raises `CallerFault` where nothing is found, with what may be meant.
    """
    first, slash, text = words[0].partition("/")
    unknown: CallerFault | None = None
    mine: list[ModelEntry] = []
    if slash or len(words) == 1:
        try:
            mine = entries_of(provider(first), everything=True)
        except CallerFault as fault:
            if fault.kind != "unknown_provider":
                raise
            unknown = fault.kept()
        else:
            if not slash:
                return mine
    everything = [entry for name in names() for entry in entries_of(provider(name), everything=True)]
    found = [entry for entry in mine if _has(entry.target.partition("/")[2], [text, *words[1:]])]
    if found := found or [entry for entry in everything if _has(entry.target, words)]:
        return found
    what = " and ".join(repr(word) for word in words)
    raise CallerFault(
        f"{unknown.message}, and no model that is known has it in its name"
        if unknown and not slash
        else f"no model that is known has {what} in its name",
        kind="unknown_model",
        hint=_meant(words, mine or everything),
    )


def _has(name: str, words: Iterable[str]) -> bool:
    plain = _plain(name)
    return all(_plain(word) in plain for word in words)


def _plain(name: str) -> str:
    return _MARKS.sub("", name.lower())


def _meant(words: Sequence[str], known: Sequence[ModelEntry]) -> str:
    """The parts of names, or the names of providers, that are nearest to what nobody has in theirs."""
    asked = [part for word in words for part in word.lower().split("/") if part]
    names_of = [entry.target.lower().partition("/")[2] for entry in known]
    parts = {part for name in names_of for part in (name, *re.split(r"[/:@-]", name))}
    parts |= {each for name in names() for each in (name, *(f"{name}-{region}" for region in provider(name).regions))}
    near = [
        found
        for word in asked
        if not any(_has(entry.target, [word]) for entry in known)
        for found in difflib.get_close_matches(word, sorted(parts), n=3, cutoff=LIKE)
    ]
    return f"Did you mean {' or '.join(dict.fromkeys(near))}? {_ANY}" if near else _ANY
