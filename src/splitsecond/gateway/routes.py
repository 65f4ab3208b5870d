"""What a request's `model` means: a route's policy, or one target by its name.

All targets share one HTTP client, so routes to the same provider share its connections. Clients name models, so what is
made for them is bounded.
"""

import difflib
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.settings import ClientKey, Settings
from splitsecond.gateway.explain import Explained, explained
from splitsecond.gateway.wishes import Wishes, wished
from splitsecond.policy.answers.resumption import resumed
from splitsecond.policy.building import build
from splitsecond.policy.expression import Expression, TargetName, targets
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Service
from splitsecond.transport.client import Client
from splitsecond.upstream.interpreter import teller
from splitsecond.upstream.target import Target, connect
from splitsecond.upstream.terms import Observer
from splitsecond.wire.openai.logprobs import without_logprobs

MOST_TARGETS = 1024
"""Targets that clients named themselves, and that are kept ready."""
MOST_WISHED = 256
"""Policies that clients wished for, and that are kept ready."""
LONGEST_MODEL = 256


class Routes:
    """The services of `settings`, which choose by how targets stand. `standing` must be told what `observer` is.

    `before`: those that were in force, made with the same of everything else. A route that has not changed keeps its
    service, and so what that remembers: how many calls are under way, what a cache holds.
    """

    def __init__(
        self,
        settings: Settings,
        observer: Observer,
        client: Client,
        standing: Standing,
        before: "Routes | None" = None,
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._client = client
        self._standing = standing
        self._numbers = count(1)
        self._named: OrderedDict[str, Service] = OrderedDict()
        self._wished: OrderedDict[tuple[str, Wishes], Service] = OrderedDict()
        self._routes: Mapping[str, Service] = {
            name: (before and before.same(name, settings)) or self._route(name, expression)
            for name, expression in settings.routes.items()
        }

    def same(self, route: str, settings: Settings) -> Service | None:
        """The service of `route`, if `settings` would make the same; None if not."""
        mine, expression = self._settings, settings.routes[route]
        if (mine.routes.get(route), mine.resumes.get(route)) != (expression, settings.resumes.get(route)):
            return None
        unchanged = all(mine.asked(target) == settings.asked(target) for target in targets(expression))
        return self._routes[route] if unchanged else None

    def names(self, key: ClientKey | None) -> list[str]:
        """The routes that `key` may use."""
        return [name for name in self._routes if key is None or key.allows(name)]

    def service(self, model: str, key: ClientKey | None, wishes: Wishes | None = None) -> Service:
        """What answers for `model`, as `wishes` would have it. Raises `CallerFault` where there is none, or `key` may
        not use it."""
        if len(model) > LONGEST_MODEL or (key is not None and not key.allows(model)):
            raise self._unknown(model, key)
        if wishes is not None and model in self._routes:
            return self._as_wished(model, wishes)
        found = self._routes.get(model) or self._named.get(model)
        if found is None:
            try:
                found = self._built(TargetName(model))
            except CallerFault as fault:  # which of our keys and addresses are missing is not for clients
                mine = key is None and "/" in model  # without keys of clients, who asks is on this machine
                raise self._unknown(model, key, fault if mine else None) from None
            self._named[model] = found
            if len(self._named) > MOST_TARGETS:
                self._named.popitem(last=False)
        return found

    def asked_for(self, model: str) -> Sequence[str]:
        """The targets that may be asked for `model`."""
        return targets(self._settings.routes.get(model) or TargetName(model))

    def counting(self, model: str) -> Target | None:
        """The first target of `model` whose provider counts tokens for others: that is Anthropic itself."""
        specs = map(self._settings.spec, self.asked_for(model))
        found = (spec.name for spec in specs if spec.dialect == "anthropic" and not spec.quirks.get("on_vertex"))
        first = next(found, None)
        return None if first is None else self._target(first)

    async def explained(self, model: str, prompt: str) -> Explained:
        """Where calls for `model` would go now. Raises `CallerFault` where there is no such model."""
        expression = self._settings.routes.get(model)
        if expression is None:
            self.service(model, None)
            expression = TargetName(model)
        return await explained(model, expression, self._standing, prompt=prompt, source=f"process {os.getpid()}")

    def _as_wished(self, route: str, wishes: Wishes) -> Service:
        found = self._wished.get((route, wishes))
        if found is None:
            expression = wished(self._settings.routes[route], wishes, self._standing.facts)
            found = self._wished[route, wishes] = self._built(self._resumed(route, expression))
            if len(self._wished) > MOST_WISHED:
                self._wished.popitem(last=False)
        return found

    def _resumed(self, route: str, expression: Expression) -> Expression:
        """`expression`, carried on as its `route` says."""
        resume = self._settings.resumes.get(route)
        return expression if resume is None else resumed(expression, resume.how, resume.stall_ns)

    def _route(self, name: str, expression: Expression) -> Service:
        """The service of a route. Raises `CallerFault` that says which one cannot be built."""
        try:
            return self._built(self._resumed(name, expression))
        except CallerFault as fault:
            file = f"{self._settings.source}: " if self._settings.source else ""
            fault.message = f"{file}routes.{name}.policy: {fault.message}"
            raise

    def _built(self, expression: Expression) -> Service:
        return build(expression, self._target, self._standing, without_logprobs=without_logprobs, teller=teller)

    def _target(self, name: str) -> Target:
        settings = self._settings
        return connect(
            settings.spec(name),
            self._observer,
            environment=settings.environment,
            client=self._client,
            attempts=self._numbers,
            raw=True,
        )

    def _unknown(self, model: str, key: ClientKey | None, why: CallerFault | None = None) -> CallerFault:
        """That there is no such model, with the nearest that `key` may use."""
        ours = self._of_ours(model[:LONGEST_MODEL])
        near = self._near(model[:LONGEST_MODEL], ours, key)
        routes = self.names(key)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        other = f"Routes: {', '.join(routes)}." if routes else 'Name a target as "provider/model".'
        return CallerFault(
            f"there is no model {model[:LONGEST_MODEL]!r} for you here" + (f": {why.message}" if why else ""),
            kind="model_not_found",
            status=404,
            hint=why.hint if why and not (ours and why.kind == "unknown_provider") else f"{meant}{other}",
        )

    def _of_ours(self, model: str) -> list[str]:
        """The same model of providers in the configuration that are called almost as the one of `model`."""
        owner, slash, rest = model.partition("/")
        owners = {*self._settings.providers, *(target.partition("/")[0] for target in self._routed())}
        alike = difflib.get_close_matches(owner, sorted(owners)) if slash else []
        return [f"{name}/{rest}" for name in alike if name != owner]

    def _routed(self) -> Iterator[str]:
        """The targets of all routes."""
        return (target for policy in self._settings.routes.values() for target in targets(policy))

    def _near(self, model: str, ours: list[str], key: ClientKey | None) -> list[str]:
        """Names that are like `model`, or end like it: routes, targets of routes, what the key names itself, `ours`."""
        own = [name for name in key.routes if not name.endswith("*")] if key is not None else []
        given = dict.fromkeys([*self._routes, *own, *self._routed(), *ours])
        known = [name for name in given if key is None or key.allows(name)]
        ends = [name for name in known if name.endswith(f"/{model}")]
        return (ends or difflib.get_close_matches(model, known))[:2]


class Model(msgspec.Struct, frozen=True):
    """An entry of ``/v1/models``."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "splitsecond"
