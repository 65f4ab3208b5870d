"""One request of a benchmark, and the observations that it leaves.

Every request leaves at least one, also if it never became an attempt: a failure that is not counted
flatters the target. The attempts of a call to a policy are kept until all have ended, because only
then is it known which one answered. The call then gets an observation of its own, with its attempts
as its winner and losers.
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.events import Event
from splitsecond.core.observation import Observation, Role, SessionTurn
from splitsecond.core.service import Call, Notes
from splitsecond.core.timing.timeline import Sending, Timeline, record_fault
from splitsecond.routing.machinery.call_observation import call_observations


class MeasuredCall:
    """Collects the observations of one call and passes them on to `emit`, labelled with condition
    and role, and with `turn` if it is one of a session.

    It does not hold the call or its notes: the notes hold it, and inside a block nothing collects
    reference cycles. With a `check`, its own observation waits for the end of the call and has what
    `check` says of the answer.
    """

    def __init__(
        self,
        *,
        condition: str,
        target: str,
        role: Role,
        emit: Callable[[Observation], None],
        turn: SessionTurn | None = None,
        check: Callable[[Sequence[Event]], bool | None] | None = None,
    ) -> None:
        self.complete = asyncio.Event()
        """Set when the call and all of its attempts have ended and everything was emitted."""
        self._condition = condition
        self._target = target
        self._role = role
        self._turn = turn
        self._on_observation = emit
        self.observation: Observation | None = None
        """That of the call, once it was emitted."""
        self.check = check
        self.valid: bool | None = None
        """What `check` said."""
        self._unchecked: list[Observation] = []
        self._attempts: list[Observation] = []  # the attempts of a policy's call
        self._seen = 0
        self._expected: int | None = None  # known when the call has ended
        self._fault: Fault | None = None

    def notes(self) -> Notes:
        return Notes(condition=self._condition, role=self._role, observer=self._observed)

    def ended(self, call: Call, fault: Fault | None = None) -> None:
        self._fault = fault
        self._expected = call.notes.attempts
        if fault is not None and not self._expected:
            timeline = Timeline(
                attempt=f"{call.id}.0",
                call=call.id,
                target=self._target,
                condition=self._condition,
                role=self._role,
                due_ns=call.due_ns,
                start_ns=call.start_ns,
            )
            self._emit(timeline.observe(end_ns=clock.now_ns(), fault=fault, sending=Sending()))
        if self._seen >= self._expected:
            self.report()

    def report(self) -> None:
        """Emit what was kept, with the attempts observed so far. Calling it again does nothing."""
        if self.complete.is_set():
            return
        self.complete.set()
        for observation in self._unchecked:
            self._emit(observation)
        if self._attempts:
            for observation in call_observations(
                self._attempts,
                target=self._target,
                condition=self._condition,
                role=self._role,
                fault=None if self._fault is None else record_fault(self._fault),
            ):
                self._emit(observation)

    def _emit(self, observation: Observation) -> None:
        if self._turn is not None:
            observation = replace(observation, turn=self._turn)
        if observation.target == self._target:
            if self.valid is not None:
                observation = replace(observation, valid=self.valid)
            self.observation = observation
        self._on_observation(observation)

    def _observed(self, observation: Observation) -> None:
        self._seen += 1
        if observation.target == self._target and self.check is None:
            self._emit(observation)
        elif observation.target == self._target:
            self._unchecked.append(observation)
        else:
            self._attempts.append(observation)
        if self._expected is not None and self._seen >= self._expected:
            self.report()
