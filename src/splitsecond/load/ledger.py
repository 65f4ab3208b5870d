"""Which request an observation belongs to.

Observations are made far below, where nobody knows of conditions; all they say is their call. The ledger is their
observer: it writes the condition and the role on each and hands it on. It also sees to it that every request leaves at
least one, including those that never became an attempt, because what is not counted flatters.
"""

from collections.abc import Callable

import msgspec

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.service import Call, Reply, Service
from splitsecond.timing.observation import Observation, Role
from splitsecond.timing.timeline import Sending, Timeline


class _Entry(msgspec.Struct):
    condition: str
    target: str
    role: Role
    observed: bool = False


class Ledger:
    """Labels observations on their way to `emit`. `observed` is the observer to give to services."""

    def __init__(self, emit: Callable[[Observation], None]) -> None:
        self._emit = emit
        self._entries: dict[str, _Entry] = {}

    def expect(self, call: str, *, condition: str, target: str, role: Role) -> None:
        """The call with this id is about to be made."""
        self._entries[call] = _Entry(condition, target, role)

    def observed(self, observation: Observation) -> None:
        """One attempt has ended. A policy's own role for it (winner, loser) stays, in measured calls."""
        entry = self._entries.get(observation.call)
        if entry is not None:
            entry.observed = True
            role = observation.role if entry.role == "measured" else entry.role
            observation = msgspec.structs.replace(observation, condition=entry.condition, role=role)
        self._emit(observation)

    def ended(self, call: Call, fault: Fault | None = None) -> None:
        """The call has ended, with its last observation behind it; with a `fault` and none, one is made here."""
        entry = self._entries[call.id]
        if fault is not None and not entry.observed:
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
