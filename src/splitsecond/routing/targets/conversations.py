"""Where the conversations of sessions are: which target has how much of a prompt in its cache, and
since when."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf

from msgspec import Struct

from splitsecond.core.session import CallSession

MIN_CACHED = 1024
"""Providers cache prompts from about so many tokens on; fewer are no reason to stay."""
MAX_SESSIONS = 10_000
MAX_AGENTS = 16
"""Agents of a session that are remembered at one target."""


class CachedPrompt(Struct, frozen=True):
    tokens: int
    at_ns: int


class Conversations:
    """The latest sessions of this process, the last used one at the end.

    `share`: gets what is remembered, for other processes, whose knowledge goes to `receive`.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, dict[str, dict[str, CachedPrompt]]] = OrderedDict()
        self._forgotten_ns: dict[str, int] = {}
        self.share: Callable[[CallSession, str, int, int], None] | None = None

    def at_targets(self, session: CallSession) -> dict[str, dict[str, CachedPrompt]]:
        """Return what each target was sent last of the session, by agent."""
        return self._sessions.get(session.id, _NO_TARGETS)

    def prompts(self, session: CallSession) -> dict[str, CachedPrompt]:
        """Return what each target was sent last of the session."""
        agent = session.agent
        return {
            target: agents.get(agent) or newest(agents)
            for target, agents in self.at_targets(session).items()
        }

    def before(self, session: CallSession, target: str) -> CachedPrompt | None:
        """Return what `target` was sent last of the session; None: nothing."""
        agents = self._sessions.get(session.id, _NO_TARGETS).get(target)
        return None if agents is None else agents.get(session.agent) or newest(agents)

    def is_only_at(self, session: CallSession, target: str) -> bool:
        return self._sessions.get(session.id, _NO_TARGETS).keys() <= {target}

    def latest(self, count: int, among: Collection[str]) -> list[CallSession]:
        """Return the latest sessions that are at one of the targets `among`, as their next turns
        will be."""
        sessions: list[CallSession] = []
        for id, targets in reversed(self._sessions.items()):
            prompts = [
                (each, agent) for name in among for agent, each in targets.get(name, {}).items()
            ]
            if prompts:
                last, agent = max(prompts, key=lambda each: each[0].at_ns)
                sessions.append(
                    CallSession(id=id, source="", agent=agent, reusable_tokens=last.tokens)
                )
            if len(sessions) == count:
                break
        return sessions

    def remember(self, session: CallSession, target: str, tokens: int, at_ns: int) -> None:
        id, agent, prompt = session.id, session.agent, CachedPrompt(tokens, at_ns)
        agents = self._sessions.get(id, _NO_TARGETS).get(target, _NO_AGENTS)
        if agent in agents:  # as at nearly all turns
            if not replaces(agents[agent], session, tokens):
                return
            agents[agent] = prompt
            self._sessions.move_to_end(id)
        else:
            self._add(id, target, agent, prompt)
        if self.share is not None:
            self.share(session, target, tokens, at_ns)

    def receive(self, session: str, prompts: Iterable[tuple[str, str, int, int]]) -> None:
        """Add what other processes know: targets, agents, their tokens there, and since when."""
        for target, agent, tokens, at_ns in prompts:
            own = self._sessions.get(session, _NO_TARGETS).get(target, _NO_AGENTS).get(agent)
            if at_ns > (self._forgotten_ns.get(target, -inf) if own is None else own.at_ns):
                self._add(session, target, agent, CachedPrompt(tokens, at_ns))

    def _add(self, session: str, target: str, agent: str, prompt: CachedPrompt) -> None:
        sessions = self._sessions
        agents = sessions.setdefault(session, {}).setdefault(target, {})
        agents[agent] = prompt
        sessions.move_to_end(session)
        if len(sessions) > MAX_SESSIONS:
            sessions.popitem(last=False)
        if len(agents) > MAX_AGENTS:
            del agents[min(agents, key=lambda each: agents[each].at_ns)]

    def forget(self, target: str, now_ns: int) -> None:
        """Forget `target`, which is another server from `now_ns` on."""
        self._forgotten_ns[target] = now_ns
        for targets in self._sessions.values():
            targets.pop(target, None)


def replaces(cached: CachedPrompt, session: CallSession, tokens: int) -> bool:
    """Return whether a turn of so many `tokens` takes the place of what a target was sent before.

    A shorter prompt that continues nothing is not of the conversation, as one for the title of a
    session: the conversation stays in the cache.
    """
    return session.reusable_tokens >= MIN_CACHED or tokens >= cached.tokens


def newest(agents: Mapping[str, CachedPrompt]) -> CachedPrompt:
    """Return the prompt of another agent of the session: a new one begins like it."""
    return max(agents.values(), key=lambda each: each.at_ns)


_NO_AGENTS: dict[str, CachedPrompt] = {}
_NO_TARGETS: dict[str, dict[str, CachedPrompt]] = {}
