"""What the catalogue knows of a provider's models: only of those that somebody has published a speed of, or that the
public list of prices lacks. Any other model of the provider can be called just as well.
"""

from typing import Literal

from msgspec import Struct

from splitsecond.catalog.price import Price
from splitsecond.catalog.published import Speed

Prefill = Literal["plain", "prefix", "partial"] | bool
"""How one is given the beginning of an answer to go on from: as a last message of the assistant's, "plain", or with a
field of that name in it, which is true. False: not at all; true is "plain".
"""


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model. `context_tokens`: the longest prompt and answer together. `same_as`: its name in the list of prices.

    `retired`: the day (ISO) on which its provider takes it down, gone by or to come; "": none is known. `replaced_by`:
    the model that its provider names in its place; "": none is known, or the one it named is gone too.
    `price`: only where the list lacks the model, with its own source and date. `prefill`: as its provider's, where it
    differs.
    """

    context_tokens: int | None = None
    same_as: str = ""
    retired: str = ""
    replaced_by: str = ""
    prefill: Prefill | None = None
    price: Price | None = None
    speeds: tuple[Speed, ...] = ()
