"""The router: one HTTP client, the states of all targets, the routes, prices, the call tracker and
the log.

Requests go through `service(model)`, or through `call`, which also tracks the call from its start
to its record.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Service
from splitsecond.core.transport.client import Client
from splitsecond.core.upstream.attempt_config import Observer
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.validation import nearest
from splitsecond.core.wording import counted_as
from splitsecond.routing.construction.expression import Expression, TargetName, targets
from splitsecond.routing.router.call_tracker import CallTracker, RecordSink
from splitsecond.routing.router.explain import PROMPT, Explained, explained
from splitsecond.routing.router.routes import Routes
from splitsecond.routing.router.settings import RouterSettings
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.router.warm_start import history, open_log
from splitsecond.routing.targets.target_states import TargetStates

if TYPE_CHECKING:
    from splitsecond.log.store.hub_connection import HubConnection

ROUTE = "route"
"""Name of the only route of a router made from an expression."""

Say = Callable[[str], None]


class Listeners(Struct, frozen=True):
    """`observe` gets each attempt, after the target states did, and `sinks` the record of each
    call. `charge`: see `CallTracker`."""

    observe: Observer | None = None
    sinks: Sequence[RecordSink] = ()
    charge: Callable[[str, Observation], None] | None = None


class Router:
    """Targets, their states, routes and calls. Use it within one event loop, and close it at the
    end.

    `states`: what is known of each target from its answers. `directory`: prices, regions and limits
    of the targets. `routes`: the services. `tracker`: the calls in flight. `log`: where their
    records go, or None.
    """

    def __init__(
        self,
        settings: RouterSettings,
        *,
        say: Say = lambda message: None,
        is_first: bool = True,
        listeners: Listeners | None = None,
        chance: Random | None = None,
        hub: "HubConnection | None" = None,
    ) -> None:
        """Open the log and build all routes.

        `say` reports problems that do not stop the router. Of the routers of several workers, only
        the first reports what all of them read: seeds, log and prices. Raises `CallerFault` for
        settings that cannot be built, or a log that cannot be opened.
        """
        self.settings = settings
        self.directory = TargetDirectory(settings)
        self.states = TargetStates(self.directory.facts, chance=chance)
        self._say = say if is_first else lambda message: None
        listeners = listeners or Listeners()
        self._observe_attempt = listeners.observe
        self._client = Client()
        # may raise: before the log's thread
        self.routes = Routes(settings, self._observe, self._client, self.states)
        self.log = open_log(settings.log, say, hub=hub)
        self.tracker = CallTracker(
            *listeners.sinks,
            *([self.log.put] if self.log is not None else []),
            charge=listeners.charge,
            context=lambda target: self.directory.context_tokens(target),
        )

    def __repr__(self) -> str:
        return repr(self._client)

    def service(self, model: str = ROUTE) -> Service:
        return self.routes.service(model)

    def renew(self, settings: RouterSettings) -> None:
        """Serve by other settings from the next request on. Raises `CallerFault`, and then nothing
        has changed.

        Requests in flight end with the old settings. Connections and target states are kept. The
        refusals and the rate limit of a key are forgotten if it has changed; a target whose address
        has changed is untested. The same settings again mean that something has changed elsewhere:
        targets that refused our key are tried again.
        """
        check_settings(settings)
        before, self.settings = self.settings, settings
        self.directory = TargetDirectory(settings, self.directory)
        again = before == settings
        self.states.renew(
            self.directory.facts,
            lambda target: again or _access(before, target) != _access(settings, target),
            lambda target: _server(before, target) != _server(settings, target),
        )
        self.routes = Routes(settings, self._observe, self._client, self.states, self.routes)

    async def learn_prices(self, names: Iterable[str]) -> None:
        """Look up the prices of the targets `names` in the public list, in a child process; about
        one second.

        A failure is reported: targets without a configured price cannot be used by keys with a
        limit in dollars.
        """
        try:
            lookup = await asyncio.to_thread(self.directory.look_up, list(names))
            self.directory.learn(lookup)  # by now another one may be in use
        except CallerFault as fault:
            self._say(f"{fault} Targets without a price in the configuration have none.")
        self.states.renew(self.directory.facts)

    async def warm_start(self) -> int:
        past = await asyncio.to_thread(history, self.log, self.settings.seeds, self._say)
        ages_ns = {id(attempt): age_ns for attempt, age_ns in past.attempts}
        self.states.seed(
            [attempt for attempt, _ in past.attempts], lambda attempt: ages_ns[id(attempt)]
        )
        self.states.seed_turns(past.turns)
        return len(past.attempts)

    def routed(self) -> list[str]:
        return list(
            dict.fromkeys(name for each in self.settings.routes.values() for name in targets(each))
        )

    def price(self, target: str) -> Price | None:
        return self.directory.price(target)

    async def drain(self) -> None:
        self.tracker.flush()
        if self.log is not None:
            await self.log.drain()

    def close(self) -> None:
        self._client.close()
        self.tracker.flush()
        if self.log is not None:
            self.log.close()

    def _observe(self, attempt: Observation) -> None:
        self.states.observe(attempt)
        if self._observe_attempt is not None:
            self._observe_attempt(attempt)


def check_settings(settings: RouterSettings) -> None:
    """Raise `CallerFault` if no router can be built from `settings`. Sends nothing and opens
    nothing."""
    client = Client()
    Routes(settings, lambda _: None, client, TargetStates(TargetDirectory(settings).facts))
    client.close()


async def explained_by_history(
    settings: RouterSettings, route: str, prompt: str = PROMPT, *, say: Say
) -> Explained:
    """Explain `route` as a gateway that starts now would see it: by its log and seed runs.

    Raises `CallerFault` for an unknown route or target, or a log that cannot be opened.
    """
    expression: Expression | None = settings.routes.get(route)
    if expression is None:
        if "/" not in route:
            message = (
                f"there is no route {route!r} in "
                f"{settings.source or 'a gateway without a configuration'}"
            )
            routes_hint = (
                f"Routes: {', '.join(settings.routes)}." if settings.routes else "There are none."
            )
            raise CallerFault(
                message,
                kind="unknown_route",
                hint=f"{nearest(route, settings.routes)} {routes_hint}".lstrip(),
            )
        settings.spec(route)
        expression = TargetName(route)
    router = Router(settings, say=say)
    try:
        await router.learn_prices(targets(expression))
        attempts = await router.warm_start()
        warm = f"{counted_as(attempts, 'attempt is', 'attempts are')} in its log and seeds"
        source = f"a gateway that starts now: none runs; {warm}"
        return await explained(route, expression, router.states, prompt=prompt, source=source)
    finally:
        router.close()


def _access(settings: RouterSettings, target: str) -> tuple[TargetSpec, str] | None:
    try:
        return settings.spec(target), settings.credential(target)
    except CallerFault:
        return None


def _server(settings: RouterSettings, target: str) -> tuple[str, str] | None:
    access = _access(settings, target)
    return None if access is None else (access[0].base_url, access[0].api_format)
