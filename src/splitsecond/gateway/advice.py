"""What to do about a refusal that only whoever runs the gateway can mend: a key that a provider refuses, an account
without credit, a model that is not served.

Clients are told the nearest name, and that a refused key is none of theirs. Whoever runs the gateway is told which
variable and which file to change; a provider's own words are not in that, as they may repeat a prompt. Looked into only
when such a refusal has come.
"""

from splitsecond.analysis.wording import listed
from splitsecond.catalog.prices import words_of
from splitsecond.catalog.provider import split_target
from splitsecond.errors import AllFailed, CallerFault, Fault, Overloaded
from splitsecond.gateway.configuration.secrets import is_reference
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.gateway.facts import TargetFacts
from splitsecond.gateway.refusal import BAD_GATEWAY
from splitsecond.policy.expression import targets
from splitsecond.policy.remedy import BAD_KEY
from splitsecond.policy.targets.verdict import Verdict, of_fault
from splitsecond.timing.observation import FaultRecord
from splitsecond.timing.timeline import record_fault

NOT_YOURS = "That is the gateway's own key, which only whoever runs it can change."
_REFUSED = frozenset({"locked", "unpaid"})


class Advice:
    """By one configuration, and what is known of its targets."""

    def __init__(self, settings: Settings, facts: TargetFacts) -> None:
        self._settings = settings
        self._facts = facts

    def for_client(self, fault: Fault) -> Fault:
        """`fault`, with a hint that helps who asked."""
        if isinstance(fault, AllFailed):
            return AllFailed([self.for_client(cause) for cause in fault.causes], target=fault.target)
        locked = isinstance(fault, Overloaded) and fault.status == BAD_GATEWAY
        if locked or of_fault(record_fault(fault)) in _REFUSED:
            fault.hint = NOT_YOURS
        elif _of_the_model(fault):
            fault.hint = words_of(*self._facts.instead_of(fault.target)) or fault.hint
        return fault

    def of_key(self, target: str, fault: FaultRecord, says: Verdict) -> str:
        """That the provider of `target` refused its key with `fault`, for whoever runs the gateway."""
        owner, spec = split_target(target)[0], self._settings.spec(target)
        held = next((name for name in spec.api_key_env if self._settings.environment.get(name)), "")
        key = f"the key in {held}" if held else "to answer without a key"
        if is_reference(held):
            key = f"its key, {held} at providers.{owner}.api_key of {self._settings.source or 'the configuration'}"
        what = "has no credit left for" if says == "unpaid" else "refuses"
        used = [name for name, asked in self._routed() if any(target.startswith(f"{owner}/") for target in asked)]
        return f"{owner} {what} {key} ({_how(fault)}).{self._place(used)}"

    def of_model(self, target: str, fault: FaultRecord) -> str:
        """That `target` is not served; "" where no route names it: then it is a client's mistake."""
        used = [name for name, asked in self._routed() if target in asked]
        if not used:
            return ""
        near = words_of(*self._facts.instead_of(target))
        return f"{target} is not served ({_how(fault)}).{self._place(used)} {near}".rstrip()

    def _routed(self) -> list[tuple[str, list[str]]]:
        """Every route with its targets."""
        return [(name, targets(policy)) for name, policy in self._settings.routes.items()]

    def _place(self, routes: list[str]) -> str:
        file = f" of {self._settings.source}" if self._settings.source else ""
        return f" Used by {listed([f'routes.{name}' for name in routes])}{file}." if routes else ""


def _of_the_model(fault: Fault) -> bool:
    """Whether a provider may have refused the model's name."""
    if fault.kind == "http_404":
        return True
    return isinstance(fault, CallerFault) and fault.kind == "http_400" and "model" in fault.message.lower()


def _how(fault: FaultRecord) -> str:
    return fault.message if fault.kind == BAD_KEY else f"HTTP {fault.status}"  # the former is in our own words
