"""Which request an observation belongs to.

Observations are made far below, where nobody knows of conditions; all they say is their call. The ledger is their
observer: it writes the condition and the role on each and hands it on. It also sees to it that every request leaves at
least one, including those that never became an attempt, because what is not counted flatters.

A call to a policy may take several attempts, at other targets than the one that was asked. They are kept until the call
has ended, since only then it is known which of them answered; then the call counts once, and they beside it.
"""

from collections.abc import Callable

import msgspec

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.policy.account import account
from splitsecond.service import Call, Reply, Service
from splitsecond.timing.observation import Observation, Role
from splitsecond.timing.timeline import Sending, Timeline, record_fault


class _Entry(msgspec.Struct):
    condition: str
    target: str
    role: Role
    observed: bool = False
    attempts: list[Observation] = []
    """A policy's, while its call is under way."""


class Ledger:
    """Labels observations on their way to `emit`. `observed` is the observer to give to services."""

    def __init__(self, emit: Callable[[Observation], None]) -> None:
        self._emit = emit
        self._entries: dict[str, _Entry] = {}

    def expect(self, call: str, *, condition: str, target: str, role: Role) -> None:
        """The call with this id is about to be made."""
        self._entries[call] = _Entry(condition, target, role)

    def observed(self, observation: Observation) -> None:
        """One attempt has ended."""
        entry = self._entries.get(observation.call)
        if entry is not None:
            if observation.target != entry.target and entry.role != "calibration":
                entry.attempts.append(observation)
                return
            entry.observed = True
            observation = msgspec.structs.replace(observation, condition=entry.condition, role=entry.role)
        self._emit(observation)

    def ended(self, call: Call, fault: Fault | None = None) -> None:
        """The call has ended, with its last observation behind it; with a `fault` and none, one is made here."""
        entry = self._entries[call.id]
        if entry.attempts:
            record = None if fault is None else record_fault(fault)
            for observation in account(
                entry.attempts, target=entry.target, condition=entry.condition, role=entry.role, fault=record
            ):
                self._emit(observation)
        elif fault is not None and not entry.observed:
            attempt = Timeline(
                attempt=f"{call.id}.0", call=call.id, target=entry.target, due_ns=call.due_ns, start_ns=call.start_ns
            )
            self.observed(attempt.observe(end_ns=clock.now_ns(), fault=fault, sending=Sending()))
        del self._entries[call.id]

    def labelling(self, service: Service, *, condition: str, target: str, role: Role) -> Service:
        """`service`, with every call made through it expected under this condition and role."""

        async def labelled(call: Call) -> Reply:
            self.expect(call.id, condition=condition, target=target, role=role)
            return await service(call)

        return labelled
