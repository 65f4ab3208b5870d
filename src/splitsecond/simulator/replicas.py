"""The replicas of a simulated provider: each has its own prompt cache and, with an engine, its own
engine.

A request goes to a replica at random, by its session, or by its prompt. Routing by session sends
all requests of a session to one replica, and those without a session to a random one. Routing by
prefix takes the replica whose cache has most of the prompt; if none has half of it, the one with
the fewest requests, and of those the fewest cached tokens.
"""

from random import Random
from zlib import crc32

from splitsecond.core import clock
from splitsecond.core.pacing import Pacer
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.producers import EngineProducer, TableProducer, producer_for
from splitsecond.simulator.profile import Profile
from splitsecond.simulator.prompt_cache import (
    CacheLookup,
    PromptCache,
    PromptPrefixes,
    automatic_prefixes,
    marked_prefixes,
)
from splitsecond.simulator.request import SimulatedRequest


class Replica:
    """One replica. `number` counts from 0, and `in_flight` is changed by the caller."""

    def __init__(
        self, number: int, producer: TableProducer | EngineProducer, cache: PromptCache | None
    ) -> None:
        self.number = number
        self.producer = producer
        self.cache = cache
        self.in_flight = 0

    def look_up(self, prompt: PromptPrefixes) -> CacheLookup | None:
        return None if self.cache is None else self.cache.look_up(prompt, clock.now_ns())

    def store(self, lookup: CacheLookup | None) -> int:
        """Store a prompt that was processed. Return how many tokens were dropped because the cache
        was full."""
        return (
            0
            if self.cache is None or lookup is None
            else self.cache.store(lookup.prefixes, clock.now_ns())
        )


class Replicas:
    """The replicas behind one address. The same seed and requests give the same choices."""

    def __init__(self, profile: Profile, pacer: Pacer, seed: int) -> None:
        self._spec = profile.prompt_cache
        self._routing = profile.replicas.routing if profile.replicas else "random"
        self._random = Random(f"{seed}/{profile.name}")
        count = profile.replicas.count if profile.replicas else 1
        # a table has the times of the address
        shared = None if profile.engine else producer_for(profile, pacer, seed)
        self._all = [
            Replica(
                number,
                shared or producer_for(profile, pacer, seed),
                None if self._spec is None else PromptCache(self._spec),
            )
            for number in range(count)
        ]

    @property
    def engines(self) -> list[Engine[int]]:
        """Return the engines of the replicas; none if the profile has a table."""
        return [
            each.producer.engine for each in self._all if isinstance(each.producer, EngineProducer)
        ]

    def choose(self, request: SimulatedRequest) -> tuple[Replica, CacheLookup | None]:
        """Return the replica for a request, with what its cache has of the prompt, which is used
        now."""
        prompt = self._prefixes(request)
        if len(self._all) == 1:
            replica = self._all[0]
        elif self._routing == "prefix":
            replica = self._nearest(prompt, request.prompt_tokens)
        elif self._routing == "session" and request.session:
            replica = self._all[crc32(request.session.encode()) % len(self._all)]
        else:
            replica = self._random.choice(self._all)
        lookup = replica.look_up(prompt)
        if replica.cache is not None and lookup is not None:
            replica.cache.use(lookup)
        return replica, lookup

    def _prefixes(self, request: SimulatedRequest) -> PromptPrefixes:
        if self._spec is None:
            return PromptPrefixes(())
        text = request.parsed.prompt_text
        if request.endpoint.marked_cache:
            return marked_prefixes(self._spec, text, request.parsed.cache_marks)
        return automatic_prefixes(self._spec, text)

    def _nearest(self, prompt: PromptPrefixes, prompt_tokens: int) -> Replica:
        read = {
            replica.number: lookup.read_tokens
            for replica in self._all
            if (lookup := replica.look_up(prompt))
        }
        best = max(self._all, key=lambda replica: read.get(replica.number, 0))
        if 2 * read.get(best.number, 0) >= prompt_tokens:
            return best
        return min(
            self._all,
            key=lambda replica: (replica.in_flight, replica.cache.tokens if replica.cache else 0),
        )
