"""Sessions: conversations of several requests. Each request begins with the one before it and its
answer.

A session has a main conversation. A sub-agent has a conversation of its own, a branch: it runs
beside its parent, whose next turn waits for it. Lengths are in tokens, as the source of the session
counts them. A session from a file of texts has the texts, and its lengths are estimates.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Literal, TypeVar

from msgspec import Struct

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import converted
from splitsecond.core.wording import counted_as

T = TypeVar("T")
R = TypeVar("R")
Answers = Literal["server", "recorded"]
ANSWERS: tuple[Answers, ...] = ("server", "recorded")
MAX_TURNS = 200_000
"""Most turns of all sessions together; the 739 sessions of WEKA have 50,000."""
DRAWS = 32
"""How many times the first turns of a round's slots are drawn. One of these draws is used."""
LONGEST_TOOL_TIME_S = 10.0
"""Default of the longest tool time, that of AgentX."""


class Branch(Struct, frozen=True, array_like=True):
    """The conversation of a sub-agent. `name` is unique in its session."""

    name: str
    turns: list["Turn"]


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a conversation.

    The first `shared_tokens` of its `input_tokens` are those of an earlier prompt: that of turn
    `follows` of the same conversation (from 1), or of the turn before (0). The rest of that prompt
    is `cut` off, or the turn contains all of it and its answer, and only whole blocks were counted
    as shared. The first turn of a conversation shares only the system prompt of its session, if
    that is shared. `output_tokens` 0: not recorded. `wait_ns` is the tool time between the end of
    the answer before and this turn, or between its beginning and the end of its `branches`, which
    run before it.

    `messages` are the texts that are new after the answer before, and `answer` is the recorded
    answer to this turn, as JSON of OpenAI's format: a list without brackets, and one message.
    Without `messages` all texts are filler.
    """

    input_tokens: int
    output_tokens: int = 0
    shared_tokens: int = 0
    follows: int = 0
    cut: bool = False
    wait_ns: int = 0
    branches: list[Branch] = []
    messages: str = ""
    answer: str = ""

    @property
    def new_tokens(self) -> int:
        return self.input_tokens - self.shared_tokens


class Session(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session as it was recorded or drawn.

    Sessions of the same run with the same `shared_prompt` begin with the same system prompt (and
    tools) of `shared_tokens`; "": nothing is shared with other sessions. `tools` is the JSON of the
    tools of every request.
    """

    id: str
    turns: list[Turn]
    shared_prompt: str = ""
    shared_tokens: int = 0
    tools: str = ""

    def all_turns(self) -> Iterator[Turn]:
        return _all_turns(self.turns)


class SessionSet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sessions of a run, and how they are sent.

    `longest_wait_ns` limits the tool time. `answers`: what the next turn contains as the answer to
    the one before it.
    """

    name: str
    format: str
    sessions: list[Session]
    longest_wait_ns: int = round(LONGEST_TOOL_TIME_S * NS_PER_S)
    answers: Answers = "server"
    note: str = ""

    def wait_ns(self, turn: Turn) -> int:
        return min(turn.wait_ns, self.longest_wait_ns)

    def in_progress(self, random: Random, slots: int, at: float) -> list[tuple[Session, int]]:
        """Return what each slot of the steady state is at: a session, and the number of its next
        turn, from 1.

        A slot is more often in a long session than in a short one. Of `DRAWS` draws for all slots,
        ordered by the tokens of their prompts together, the one `at` this share of them is
        returned. Rounds with evenly spread shares are thus like the long run, in which the sessions
        in flight are sometimes long and sometimes short.
        """
        ends = list(accumulate(len(session.turns) for session in self.sessions))
        draws = [random.choices(self.sessions, cum_weights=ends, k=slots) for _ in range(DRAWS)]
        placed = [
            [(session, random.randrange(len(session.turns)) + 1) for session in draw]
            for draw in draws
        ]
        placed.sort(
            key=lambda draw: sum(session.turns[number - 1].input_tokens for session, number in draw)
        )
        return placed[int(at * DRAWS)]

    def next_session(self, random: Random) -> Session:
        return random.choice(self.sessions)

    def mean(
        self, figure: Literal["input_tokens", "output_tokens", "shared_tokens", "wait_ns"]
    ) -> float:
        """Return the mean of a figure over all turns, with the waits as they are sent."""
        turns = [turn for session in self.sessions for turn in session.all_turns()]
        values = [
            self.wait_ns(turn) if figure == "wait_ns" else getattr(turn, figure) for turn in turns
        ]
        return sum(values) / len(values)

    def in_words(self) -> str:
        shape = distributions(self)
        words = f"{self.name} ({self.format}): {counted_as(len(self.sessions), 'session')}"
        turns, first, added = shape["turns"], shape["first_prompt_tokens"], shape["new_tokens"]
        words += f", median {counted_as(round(turns['p50']), 'turn')} (p90 {round(turns['p90']):,})"
        words += (
            f", first prompt {round(first['p50']):,} tokens, then {round(added['p50']):,} "
            "new ones a turn"
        )
        words += (
            f", answer {round(shape['output_tokens']['p50']):,}, wait "
            f"{shape['wait_s']['p50']:.3g} s"
        )
        if agents := sum(_agents(session.turns) for session in self.sessions):
            words += f", {counted_as(agents, 'sub-agent')}"
        return f"{words}.{' ' + self.note if self.note else ''}"


def distributions(of: SessionSet) -> dict[str, dict[str, float]]:
    """Return the distributions of a set of sessions as the run's record has them, with the waits as
    they are sent."""
    main = [session.turns for session in of.sessions]
    turns = [turn for session in of.sessions for turn in session.all_turns()]
    later = [turn for turns in main for turn in turns[1:]]
    samples: dict[str, Sequence[float]] = {
        "turns": [len(turns) for turns in main],
        "first_prompt_tokens": [turns[0].input_tokens for turns in main],
        "prompt_tokens": [turn.input_tokens for turn in turns],
        "new_tokens": [turn.new_tokens for turn in later],
        "reusable_share": [turn.shared_tokens / turn.input_tokens for turn in later],
        "output_tokens": [turn.output_tokens for turn in turns],
        "wait_s": [of.wait_ns(turn) / NS_PER_S for turn in later],
        "sub_agents": [_agents(turns) for turns in main],
    }
    return {name: _quantiles(values) for name, values in samples.items()}


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values) or [0.0]
    quantiles = {
        f"p{share}": ordered[min(len(ordered) * share // 100, len(ordered) - 1)]
        for share in (5, 50, 90, 95)
    }
    return quantiles | {"mean": sum(ordered) / len(ordered)}


def _all_turns(turns: Sequence[Turn]) -> Iterator[Turn]:
    for turn in turns:
        for branch in turn.branches:
            yield from _all_turns(branch.turns)
        yield turn


def _agents(turns: Sequence[Turn]) -> int:
    return sum(1 + _agents(branch.turns) for turn in turns for branch in turn.branches)


def at_most_turns(records: Iterator[tuple[str, R]]) -> Iterator[tuple[str, R]]:
    """Yield records of single requests, which are sorted into sessions in memory. Raises
    `CallerFault` for too many."""
    for number, (place, record) in enumerate(records):
        if number == MAX_TURNS:
            raise bad_session(
                place, f"the file has more than {MAX_TURNS:,} requests", "Use a part of it."
            )
        yield place, record


def bad_session(place: str, why: str, hint: str = "") -> CallerFault:
    return CallerFault(f"{place}: {why}", kind="bad_sessions", hint=hint)


def read_record(place: str, record: object, shape: type[T]) -> T:
    """Return a record of a file as a `shape`. Raises `CallerFault` that names what does not fit,
    such as a field."""
    return converted(
        place,
        record,
        shape,
        lambda at, message, hint: bad_session(
            at.replace(f"{place}.", f"{place}: ", 1), message, hint
        ),
    )
