"""Advice about rejections that only the operator can fix: a rejected key, no credit, a model that
is not served.

The operator reads on standard error which variable and which file to change, once when it begins
and once when it is over; a provider's own message is not in it, because it may quote a prompt. If
several workers share a folder, the first to notice reports it: it creates a file there, which is
deleted when the problem is over.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from splitsecond.core.catalog.prices import replacement_hint
from splitsecond.core.catalog.provider import split_target
from splitsecond.core.errors import MODEL_NOT_SERVED, AllFailed, CallerFault, Fault, Overloaded
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.timing.timeline import record_fault
from splitsecond.core.wording import listed
from splitsecond.routing.configuration.secrets import is_reference
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.construction.expression import targets
from splitsecond.routing.machinery.fault_handling import BAD_KEY
from splitsecond.routing.requests.error_response import BAD_GATEWAY
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.routing.targets.verdict import AttemptVerdict, of_fault
from splitsecond.routing.targets.verdict import verdict as attempt_verdict

NOT_YOURS = "This is the gateway's own key, which only its operator can change."
_REFUSED = frozenset({"locked", "unpaid"})


class Advice:
    def __init__(self, settings: GatewaySettings, directory: TargetDirectory) -> None:
        self._settings = settings
        self._directory = directory

    def for_client(self, fault: Fault) -> Fault:
        if isinstance(fault, AllFailed):
            return AllFailed(
                [self.for_client(cause) for cause in fault.causes], target=fault.target
            )
        locked = isinstance(fault, Overloaded) and fault.status == BAD_GATEWAY
        if locked or of_fault(record_fault(fault)) in _REFUSED:
            fault.hint = NOT_YOURS
        elif _of_the_model(fault):
            fault.hint = replacement_hint(*self._directory.instead_of(fault.target)) or fault.hint
        return fault

    def of_key(self, target: str, fault: FaultRecord, says: AttemptVerdict) -> str:
        owner, spec = split_target(target)[0], self._settings.spec(target)
        held = spec.key_variable(self._settings.environment)
        key = f"the key in {held}" if held else "requests without a key"
        if is_reference(held):
            key = (
                f"its key, {held} at providers.{owner}.api_key of "
                f"{self._settings.source or 'the configuration'}"
            )
        what = "has too little credit for a request with" if says == "unpaid" else "rejects"
        used = [
            name
            for name, route_targets in self._routed()
            if any(target.startswith(f"{owner}/") for target in route_targets)
        ]
        return f"{owner} {what} {key} ({_how(fault)}).{self._place(used)}"

    def of_model(self, target: str, fault: FaultRecord) -> str:
        used = [name for name, route_targets in self._routed() if target in route_targets]
        if not used:
            return ""
        near = replacement_hint(*self._directory.instead_of(target))
        return f"{target} is not served ({_how(fault)}).{self._place(used)} {near}".rstrip()

    def _routed(self) -> list[tuple[str, list[str]]]:
        return [(name, targets(policy)) for name, policy in self._settings.routes.items()]

    def _place(self, routes: list[str]) -> str:
        file = f" of {self._settings.source}" if self._settings.source else ""
        return f" Used by {listed([f'routes.{name}' for name in routes])}{file}." if routes else ""


def _of_the_model(fault: Fault) -> bool:
    """Return whether a provider may have rejected the model's name."""
    return fault.kind in ("http_404", MODEL_NOT_SERVED) or (
        fault.kind == "http_400" and "model" in fault.message.lower()
    )


def _how(fault: FaultRecord) -> str:
    # the message for `BAD_KEY` is ours
    return fault.message if fault.kind == BAD_KEY else f"HTTP {fault.status}"


MAX_NOTICES = 256
"""Open notices. Each is about an account, or a target that a route names."""


class OperatorNotices:
    """Notices for the operator.

    It must observe every failed attempt, and all attempts while there are `open` notices, after
    `states` observed them.
    """

    def __init__(
        self, states: TargetStates, say: Callable[[str], None], folder: Path | None = None
    ) -> None:
        self.open: dict[str, str] = {}
        """Messages that end the open notices, by account or target."""
        self._states = states
        self._say = say
        self._folder = folder

    def observe(self, attempt: Observation, advice: Advice) -> None:
        if attempt.outcome == "ok":
            self._over(attempt.target)
        elif attempt.fault is not None and len(self.open) < MAX_NOTICES:
            with suppress(CallerFault):  # its provider has left the configuration
                self._failed(attempt.target, attempt.fault, attempt_verdict(attempt), advice)

    def renew(self) -> None:
        for name in [*self.open]:
            del self.open[name]
            self._unmark(name)

    def _failed(
        self, target: str, fault: FaultRecord, verdict: AttemptVerdict, advice: Advice
    ) -> None:
        status = self._states.status(target)
        if verdict in ("locked", "unpaid") or fault.kind == BAD_KEY:
            name, end = self._account(target), f"{target.partition('/')[0]} accepts its key again"
        elif verdict == "unserved" and status.state == "down":  # otherwise the request was at fault
            name, end = target, f"{target} is served again"
        else:
            return
        if name in self.open:
            return
        message = (
            advice.of_model(target, fault)
            if name == target
            else advice.of_key(target, fault, verdict)
        )
        if status.state == "locked" and status.until_ns is None:
            message += " It gets no requests until that changes."
        if message:
            self.open[name] = end
            if self._mark(name):
                self._say(message)

    def _over(self, target: str) -> None:
        for name in (target, self._account(target)):
            end = self.open.pop(name, None)
            if end is not None and self._unmark(name):
                self._say(f"{end}.")

    def _account(self, target: str) -> str:
        return f"key {self._states.info(target).account}"

    def _mark(self, name: str) -> bool:
        if self._folder is None:
            return True
        try:
            self._file(self._folder, name).touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError:  # a full disk must not suppress the notice
            return True
        return True

    def _unmark(self, name: str) -> bool:
        if self._folder is None:
            return True
        try:
            self._file(self._folder, name).unlink()
        except OSError:
            return False
        return True

    @staticmethod
    def _file(folder: Path, name: str) -> Path:
        return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.said"
