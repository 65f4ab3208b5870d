"""What the gateway remembers of one call when it is over: made once, frozen, put into the log.

No prompt, no answer, no key and no price: what a call cost is worked out from its tokens and the price of the day.
"""

from msgspec import Struct

from splitsecond.timing.observation import Observation, Outcome


class Served(Struct, frozen=True, kw_only=True):
    """One call that a client made, and the attempts that were made for it.

    Moments are monotonic nanoseconds, as everywhere; the log dates them when it writes. `start_ns`: the call came in.
    `first_token_ns`: the first token was there to hand on; None where none came. `end_ns`: the answer's last byte was
    handed on, or the call was refused or abandoned.

    `call`: its id. `route`: what the client put into `model`. `client`: the name of its key. `stream`: it asked for a
    stream. `status`: the HTTP status that it was told; 499 where it left before. `cache`: "", "hit", "miss" or
    "shared". `target`: which answered, "" for none. `fault`: the `kind` of what the client was told had failed, or "".

    `attempts` in the order in which they ended, each with the role "winner" or "loser". The tokens of the call are
    those of its last winner.
    """

    call: str
    start_ns: int
    end_ns: int
    first_token_ns: int | None = None
    route: str
    client: str = ""
    operation: str = "chat"
    stream: bool = False
    status: int
    cache: str = ""
    target: str = ""
    outcome: Outcome = "ok"
    fault: str = ""
    attempts: tuple[Observation, ...] = ()
