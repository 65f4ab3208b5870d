"""All shipped profiles at one port, each below its own path: ``/groq/v1/chat/completions``. For gateways."""

from collections.abc import Callable

from splitsecond.errors import CallerFault
from splitsecond.serving.request_cycle import RequestCycle
from splitsecond.simulator.app import SimulatedProvider
from splitsecond.simulator.endpoints import endpoint_at
from splitsecond.simulator.profile import Profile, load
from splitsecond.simulator.request import RejectedRequest
from splitsecond.simulator.response import send_error


class ProvidersByPath:
    """Simulated providers, each created by `create` at its first request. An alias and its profile are one provider.

    Paths to profile files are refused, so that clients cannot read files.
    """

    def __init__(self, create: Callable[[Profile], SimulatedProvider]) -> None:
        self._create = create
        self._providers: dict[str, SimulatedProvider] = {}

    def abandon(self) -> None:
        """Abort every response."""
        for provider in self._providers.values():
            provider.abandon()

    async def __call__(self, cycle: RequestCycle) -> None:
        name, _, path = cycle.path.removeprefix("/").partition("/")
        cycle.path = f"/{path}"
        try:
            provider = self._provider(name)
        except CallerFault as fault:
            message = f"{fault.message}; `splitsecond simulate --list` shows all"
            rejected = RejectedRequest(404, message, code="model_not_found")
            await send_error(cycle, rejected, endpoint_at(cycle.path))
        else:
            await provider(cycle)

    def _provider(self, name: str) -> SimulatedProvider:
        if name.endswith(".toml"):
            raise CallerFault("gateways simulate shipped profiles only", kind="unknown_profile")
        profile = load(name)
        if profile.name not in self._providers:
            self._providers[profile.name] = self._create(profile)
        return self._providers[profile.name]
