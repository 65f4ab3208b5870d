"""Where the conversations of sessions are: which target has how much of a prompt in its cache, and since when."""

from collections import OrderedDict
from math import inf

from msgspec import Struct

from splitsecond.core.session import CallSession

MAX_SESSIONS = 10_000
MAX_AGENTS = 16
"""Agents of a session that are remembered at one target."""


class CachedPrompt(Struct, frozen=True):
    tokens: int
    at_ns: int


class Conversations:
    """The latest sessions of this process, the last used one at the end."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, dict[str, dict[str, CachedPrompt]]] = OrderedDict()

    def cached(self, session: CallSession, target: str, now_ns: int) -> tuple[int, float]:
        """Return the tokens of the next prompt that `target` has been sent before, and how long ago (ns).

        A new agent begins like the others of its session.
        """
        agents = self._sessions.get(session.id, _NO_TARGETS).get(target)
        if agents is None:
            return 0, inf
        found = agents.get(session.agent) or max(agents.values(), key=lambda each: each.at_ns)
        return min(found.tokens, session.reusable_tokens), max(now_ns - found.at_ns, 0)

    def is_only_at(self, session: CallSession, target: str) -> bool:
        """Return whether no other target has been sent anything of the session."""
        targets = self._sessions.get(session.id, _NO_TARGETS)
        return not targets or (len(targets) == 1 and target in targets)

    def remember(self, session: CallSession, target: str, tokens: int, at_ns: int) -> None:
        targets = self._sessions.get(session.id)
        if targets is None:
            targets = self._sessions[session.id] = {}
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        else:
            self._sessions.move_to_end(session.id)
        agents = targets.setdefault(target, {})
        agents.pop(session.agent, None)
        agents[session.agent] = CachedPrompt(tokens, at_ns)
        if len(agents) > MAX_AGENTS:
            del agents[next(iter(agents))]

    def forget(self, target: str) -> None:
        for targets in self._sessions.values():
            targets.pop(target, None)


_NO_TARGETS: dict[str, dict[str, CachedPrompt]] = {}
