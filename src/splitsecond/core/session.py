"""The session of a call: the requests of one conversation or agent, as the gateway recognised
it."""

from msgspec import Struct

CONVERSATION = "conversation"
"""The source of a session that its client does not name."""


class CallSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where in a session of a client a call stands, and what of its prompt the session has sent
    before."""

    id: str
    """Identifies the session among all sessions of this installation: a hash, keyed with its
    secret, of the client and of what the client calls the session (or of the beginning of its
    conversation)."""
    source: str
    """What it was recognised by: the name of a header or of a field of the body, or
    `CONVERSATION`."""
    agent: str = ""
    """A hash, as `id`, of the agent within the session that sent the call; empty for the main one
    or if unknown."""
    parent: str = ""
    """The agent that started this agent, if the client says so."""
    turn: int = 1
    """The number of the call within its agent, from 1."""
    new_tokens: int = 0
    """Estimated input tokens that no earlier call of the session contained."""
    reusable_tokens: int = 0
    """Estimated input tokens that a prompt cache without limits would contain: the ideal."""
    idle_ns: int | None = None
    """How long ago the latest answer to the same agent ended; 0 while the call before is open, None
    for its first call."""
    repeated: int = 0
    """How often in a row the model had called the same tool with the same arguments; 0: less than a
    loop."""
