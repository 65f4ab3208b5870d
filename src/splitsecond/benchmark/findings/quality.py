"""Quality of models by the user's own scores, and what the catalogue knows of their capabilities.

Neither is measured here. A file of the user gives a score for a model, on any scale on which more
is better:

    [scores]
    "gpt-oss-120b" = 61             # the model, at every provider
    "groq/openai/gpt-oss-120b" = 60 # one target

    [billions]                      # parameters, where the name does not say them ("llama-3.3-70b")
    "gpt-oss-120b" = 120
"""

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from splitsecond.core.catalog.model_names import capabilities
from splitsecond.core.errors import content_faults

CAPABILITIES = ("tools", "images")
_BILLIONS = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)b(?![a-z0-9])")
"""A number of parameters in a name: 70b, 8x7b."""


class Quality(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores of models, and their numbers of parameters in billions, by target or by model."""

    scores: dict[str, float] = {}
    billions: dict[str, float] = {}

    def score(self, target: str) -> float | None:
        return _known(self.scores, target)

    def size(self, target: str) -> float | None:
        billions = _known(self.billions, target)
        match = _BILLIONS.search(target.lower())
        if billions is not None or match is None:
            return billions
        return int(match[1] or 1) * float(match[2])


def _known(figures: Mapping[str, float], target: str) -> float | None:
    model = target.partition("/")[2]
    return next(
        (figures[name] for name in (target, model, model.rpartition("/")[2]) if name in figures),
        None,
    )


def parse_quality(text: str, name: str) -> Quality:
    """Parse the file `name` (see the module). Raises `CallerFault` for one that cannot be read."""
    hint = 'Scores stand in a table: [scores], then "gpt-oss-120b" = 61.'
    with content_faults(name, kind="bad_quality", hint=hint):
        return msgspec.toml.decode(text, type=Quality)


class Requirements(Struct, frozen=True, kw_only=True):
    """What a target must be able to do: `needs` of `CAPABILITIES`, a context of so many tokens, a
    score."""

    needs: Sequence[str] = ()
    context_tokens: int | None = None
    least_quality: float | None = None
    quality: Quality = Quality()

    def refusal(self, target: str, context_tokens: int | None) -> str:
        """Return why a target does not meet the requirements; "" if it does, or if the catalogue
        does not know.

        `context_tokens`: its context window; None: unknown.
        """
        takes = capabilities(target)
        lacking = [each for each in self.needs if getattr(takes, each) is False]
        if lacking:
            return f"the catalogue says that it takes no {' and no '.join(lacking)}"
        if self.context_tokens and context_tokens and context_tokens < self.context_tokens:
            return f"its context has {context_tokens:,} tokens"
        if self.least_quality is None:
            return ""
        score = self.quality.score(target)
        if score is None:
            return "it has no quality score"
        return (
            f"its quality is {score:g}, at least {self.least_quality:g} is required"
            if score < self.least_quality
            else ""
        )

    def unknown(self, target: str, context_tokens: int | None) -> str:
        """Return what the catalogue would have to know of a target to decide; "" if it knows
        all."""
        takes = capabilities(target)
        open_needs = [f"takes {each}" for each in self.needs if getattr(takes, each) is None]
        if self.context_tokens and not context_tokens:
            open_needs.append(f"has a context of {self.context_tokens:,} tokens")
        return (
            f"the catalogue does not know whether it {' and '.join(open_needs)}"
            if open_needs
            else ""
        )
