"""Services by model name: a request's `model` is a route, which has a policy, or one target.

All targets share one HTTP client, so routes to the same provider share its connections. Clients
choose model names, so the number of services built for them is bounded.
"""

import difflib
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from splitsecond.core.catalog.provider import is_foreign
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Service
from splitsecond.core.transport.client import Client
from splitsecond.core.upstream.attempt_config import Observer
from splitsecond.core.upstream.target import Target, connect
from splitsecond.core.upstream.transcoding import continuation_encoder
from splitsecond.core.wire.openai.client_side import without_logprobs
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import Expression, TargetName, targets
from splitsecond.routing.construction.resumption import resumed
from splitsecond.routing.router.explain import Explained, explained
from splitsecond.routing.router.routing_preferences import RoutingPreferences, preferred
from splitsecond.routing.router.settings import OTHERS, ClientKey, RouterSettings
from splitsecond.routing.targets.target_states import TargetStates

MAX_TARGETS = 1024
"""Services kept for targets that clients named themselves."""
MAX_PREFERRED = 256
"""Services kept for routing preferences of clients."""
LONGEST_MODEL = 256
CHATGPT = "chatgpt"
"""The configured provider for the credentials of ChatGPT subscriptions, which OpenAI's API does not
accept."""


class Routes:
    """The services of `settings`. `observer` must pass every observation to `states`.

    `before`: the routes they replace, made with the same client and states. A route that has not
    changed keeps its service and so its memory: calls in flight, the content of a cache.
    """

    def __init__(
        self,
        settings: RouterSettings,
        observer: Observer,
        client: Client,
        states: TargetStates,
        before: "Routes | None" = None,
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._client = client
        self._states = states
        self._named: OrderedDict[str, Service] = OrderedDict()
        self._preferred: OrderedDict[tuple[str, RoutingPreferences], Service] = OrderedDict()
        self._routes: Mapping[str, Service] = {
            name: (before and before.unchanged(name, settings)) or self._route(name, expression)
            for name, expression in settings.routes.items()
        }

    @property
    def takes_credentials(self) -> bool:
        """Whether some targets are called with the client's own credentials."""
        return self._settings.takes_credentials

    def unchanged(self, route: str, settings: RouterSettings) -> Service | None:
        mine, expression = self._settings, settings.routes[route]
        if (mine.routes.get(route), mine.resumes.get(route)) != (
            expression,
            settings.resumes.get(route),
        ):
            return None
        same = all(
            mine.identity(target) == settings.identity(target) for target in targets(expression)
        )
        return self._routes[route] if same else None

    def names(self, key: ClientKey | None) -> list[str]:
        return [
            name for name in self._routes if name != OTHERS and (key is None or key.allows(name))
        ]

    def serving_name(self, model: str, vendor: str, *, subscribed: bool = False) -> str:
        """Return the route or target that serves `model`, which a client of the API of `vendor`
        named.

        `subscribed`: the client's credentials are those of a ChatGPT subscription.
        """
        if model in self._routes:
            return model
        if OTHERS in self._routes:
            return OTHERS
        if not self._settings.pass_through or self._is_target(model):
            return model
        return (
            f"{CHATGPT if subscribed and CHATGPT in self._settings.providers else vendor}/{model}"
        )

    def _is_target(self, model: str) -> bool:
        owner, slash, _ = model.partition("/")
        return bool(slash) and (owner in self._settings.providers or not is_foreign(owner))

    def service(
        self,
        model: str,
        key: ClientKey | None = None,
        preferences: RoutingPreferences | None = None,
    ) -> Service:
        service = self._routes.get(model) or self._named.get(model)
        is_valid = service is not None or (len(model) <= LONGEST_MODEL and model.isprintable())
        if not is_valid or (key is not None and not key.allows(model)):
            raise self._unknown(model, key)
        if preferences is not None and model in self._routes:
            return self._as_preferred(model, preferences)
        if service is None:
            try:
                service = self._built(TargetName(model), model)
            except (
                CallerFault
            ) as fault:  # clients must not learn which keys and addresses of ours are missing
                # without client keys, every client is on this machine
                local = key is None and "/" in model
                shows_fault = local or fault.kind == "unknown_tier"
                raise self._unknown(model, key, fault if shows_fault else None) from None
            self._named[model] = service
            if len(self._named) > MAX_TARGETS:
                self._named.popitem(last=False)
        return service

    def expression(self, model: str) -> Expression:
        return self._settings.routes.get(model) or TargetName(model)

    def context_tokens(self, model: str) -> int | None:
        """Return the context length that every target of `model` has, in tokens; None if it is not
        known of any."""
        lengths = (
            self._states.info(target).context_tokens for target in targets(self.expression(model))
        )
        return min(filter(None, lengths), default=None)

    def counting(self, model: str, api_format: str) -> Target | None:
        specs = map(self._settings.spec, targets(self.expression(model)))
        names = (
            spec.name
            for spec in specs
            if spec.api_format == api_format and not spec.quirks.get("on_vertex")
        )
        first = next(names, None)
        return None if first is None else self._target(first)

    async def explained(self, model: str, prompt: str) -> Explained:
        if model not in self._routes:
            self.service(model)
        return await explained(
            model,
            self.expression(model),
            self._states,
            prompt=prompt,
            source=f"process {os.getpid()}",
        )

    def _as_preferred(self, route: str, preferences: RoutingPreferences) -> Service:
        service = self._preferred.get((route, preferences))
        if service is None:
            expression = preferred(self._settings.routes[route], preferences, self._states.info)
            service = self._preferred[route, preferences] = self._built(
                self._resumed(route, expression), route
            )
            if len(self._preferred) > MAX_PREFERRED:
                self._preferred.popitem(last=False)
        return service

    def _resumed(self, route: str, expression: Expression) -> Expression:
        resume = self._settings.resumes.get(route)
        return expression if resume is None else resumed(expression, resume.stall_ns)

    def _route(self, name: str, expression: Expression) -> Service:
        try:
            return self._built(self._resumed(name, expression), name)
        except CallerFault as fault:
            file = f"{self._settings.source}: " if self._settings.source else ""
            fault.message = f"{file}routes.{name}.policy: {fault.message}"
            raise

    def _built(self, expression: Expression, route: str) -> Service:
        return build(
            expression,
            self._target,
            self._states,
            trim_logprobs=without_logprobs,
            make_encoder=continuation_encoder,
            route=route,
        )

    def _target(self, name: str) -> Target:
        settings = self._settings
        return connect(
            settings.spec(name),
            self._observer,
            environment=settings.environment,
            client=self._client,
            raw=True,
        )

    def _unknown(
        self, model: str, key: ClientKey | None, why: CallerFault | None = None
    ) -> CallerFault:
        renamed = self._at_similar_providers(model[:LONGEST_MODEL])
        near = self._near(model[:LONGEST_MODEL], renamed, key)
        routes = self.names(key)
        suggestion = f"Did you mean {' or '.join(near)}? " if near else ""
        other = f"Routes: {', '.join(routes)}." if routes else 'Name a target as "provider/model".'
        reason = (
            f": {why.message}" if why else ", or this key may not use it" if key is not None else ""
        )
        return CallerFault(
            f"unknown model {model[:LONGEST_MODEL]!r}{reason}",
            kind="model_not_found",
            status=404,
            hint=why.hint
            if why and not (renamed and why.kind == "unknown_provider")
            else f"{suggestion}{other}",
        )

    def _at_similar_providers(self, model: str) -> list[str]:
        owner, slash, rest = model.partition("/")
        owners = {
            *self._settings.providers,
            *(target.partition("/")[0] for target in self._routed()),
        }
        alike = difflib.get_close_matches(owner, sorted(owners)) if slash else []
        return [f"{name}/{rest}" for name in alike if name != owner]

    def _routed(self) -> Iterator[str]:
        return (target for policy in self._settings.routes.values() for target in targets(policy))

    def _near(self, model: str, renamed: list[str], key: ClientKey | None) -> list[str]:
        own = (
            [name for name in key.routes if not name.endswith("*") and name[:1] != "/"]
            if key is not None
            else []
        )
        all_names = dict.fromkeys([*self._routes, *own, *self._routed(), *renamed])
        allowed_names = [name for name in all_names if key is None or key.allows(name)]
        ends = [name for name in allowed_names if name.endswith(f"/{model}")]
        return (ends or difflib.get_close_matches(model, allowed_names))[:2]
