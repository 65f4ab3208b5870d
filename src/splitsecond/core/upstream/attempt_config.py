"""What all attempts at one target have in common."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from splitsecond.core.errors import Fault
from splitsecond.core.observation import Observation
from splitsecond.core.timers import TimerWheel
from splitsecond.core.upstream.answer_lengths import AnswerLengths
from splitsecond.core.upstream.spec import Timeouts

Observer = Callable[[Observation], None]


class FaultReader(Protocol):
    def __call__(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault: ...


class AttemptConfig(Struct, frozen=True):
    """The configuration of all attempts at one target, built once for the target.

    `read_fault` reads error responses. `secrets` must not appear in any fault. `raw`: replies keep
    the bytes of the body for `Reply.read`, and no events; for a watched call they keep both.
    `lengths`: those of the answers so far. `output_tokens`: the maximum output of the model; None:
    not known. `of_client`: requests carry the client's own credentials, so that a refusal of them
    is for the client.
    """

    target: str
    timeouts: Timeouts
    read_fault: FaultReader
    observer: Observer
    timers: TimerWheel
    lengths: AnswerLengths = field(default_factory=AnswerLengths)
    secrets: Sequence[str] = ()
    raw: bool = False
    output_tokens: int | None = None
    of_client: bool = False
