"""Configurations of other programs as ours: LiteLLM's `config.yaml`, and OpenRouter's list of
models.

What has no equivalent is named in `InitialConfig.not_carried`. Literal keys are never copied.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from splitsecond.core.catalog.model_names import model_name
from splitsecond.core.catalog.prices import provider_models
from splitsecond.core.catalog.provider import Provider, names, provider
from splitsecond.core.errors import CallerFault, file_faults, read_file
from splitsecond.log.store.foreign.formats import PROVIDERS
from splitsecond.routing.configuration.error_messages import bad, shaped
from splitsecond.routing.configuration.initial import InitialConfig, policy_text
from splitsecond.routing.configuration.target_specs import NAME
from splitsecond.routing.configuration.yaml_text import parsed

_STRATEGIES = {
    "simple-shuffle": "weighted", "latency-based-routing": "fastest",
    "cost-based-routing": "cheapest",
}  # fmt: skip
"""LiteLLM's routing strategies and the policies that correspond."""
_LITELLM_PROVIDERS = {
    "cohere-chat": "cohere",
    "ollama-chat": "ollama",
    "text-completion-openai": "openai",
}
_MAKERS = {
    "claude": "anthropic", "gemini": "gemini", "gpt-": "openai", "o1": "openai", "o3": "openai",
    "o4": "openai",
    "text-embedding-": "openai",
}  # fmt: skip
"""Providers by the beginnings of the model names that LiteLLM accepts without a provider."""
_NO_KEYS = frozenset({"", "none", "empty", "dummy", "fake", "sk-no-key-required", "not-needed"})
_SORTS = {
    "price": ("cheapest", {}),
    "latency": ("fastest", {"by": "ttft"}),
    "throughput": ("fastest", {"by": "tps"}),
}
"""OpenRouter's sorting of providers and the policies that correspond."""


def read_foreign(path: Path) -> InitialConfig:
    """Return a configuration made from the file of another program, without a client key unless the
    file names one.

    Raises `CallerFault` for a file that cannot be read, whose format is unknown, or without a
    usable target.
    """
    with file_faults(f"cannot read {path}", kind="bad_config"):
        text = read_file(path)
    try:
        document = shaped("", _listed(parsed(text)), dict[str, Any])
        if "model_list" in document:
            return _LiteLLM(document).config()
        if "models" in document or "provider" in document:
            return _openrouter(document)
        raise bad(
            "the file",
            "this is neither LiteLLM's configuration (model_list), nor an OpenRouter request "
            "(models, provider), "
            "nor a list of models (MAKER/MODEL)",
        )
    except CallerFault as fault:
        fault.message = f"{path}: {fault.message}"
        raise


def _listed(document: Any) -> Any:
    if isinstance(document, str) and all("/" in word for word in document.split()):
        document = document.split()
    return {"models": document} if isinstance(document, list) else document


class _LiteLLM:
    """LiteLLM's configuration: docs.litellm.ai, "Proxy config.yaml"."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._providers: dict[str, dict[str, str]] = {}
        self._not_carried: list[str] = []
        self._targets: dict[str, list[tuple[str, int]]] = {}
        """Targets and their weights, by the name of their group."""

    def config(self) -> InitialConfig:
        for number, entry in enumerate(
            shaped("model_list", self._document["model_list"], list[Any])
        ):
            self._add(f"model_list[{number}]", entry)
        if not self._targets:
            raise bad("model_list", "no entry can be carried over", " ".join(self._not_carried))
        router = self._section("router_settings")
        settings = self._section("litellm_settings")
        general = self._section("general_settings")
        strategy = str(router.pop("routing_strategy", "simple-shuffle"))
        if strategy not in _STRATEGIES:
            self._drop(
                "router_settings.routing_strategy",
                f"{strategy} has no equivalent; weighted is used",
            )
        policies = self._policies(strategy, router, settings)
        master_key = general.pop("master_key", None)
        variable = _variable(master_key)
        if master_key and not variable:
            self._drop(
                "general_settings.master_key", "secrets are not copied; clients need the new key"
            )
        self._drop_unread(
            {"router_settings": router, "litellm_settings": settings, "general_settings": general}
        )
        return InitialConfig(
            routes={self._route_name(name): policy for name, policy in policies.items()},
            providers=self._providers,
            key=f"env:{variable}" if variable else "",
            comments=_twice(_STRATEGIES.get(strategy, "weighted"), policies.values()),
            not_carried=self._not_carried,
        )

    def _policies(
        self, strategy: str, router: dict[str, Any], settings: dict[str, Any]
    ) -> dict[str, str]:
        groups = {name: [each for each, _ in targets] for name, targets in self._targets.items()}
        fallbacks = self._fallbacks(router, settings)
        policies: dict[str, str] = {}
        for name, targets in self._targets.items():
            policies[name] = self._policy(targets, strategy, self._others(name, groups, fallbacks))
        for alias, name in _mapping(
            "router_settings.model_group_alias", router.pop("model_group_alias", {})
        ).items():
            if isinstance(name, str) and name in policies:
                policies[alias] = policies[name]
            else:
                self._drop(
                    f"router_settings.model_group_alias.{alias}",
                    "only names of models are carried over",
                )
        return policies

    def _drop_unread(self, sections: Mapping[str, Mapping[str, Any]]) -> None:
        for section, fields in sections.items():
            for field in fields:
                self._drop(f"{section}.{field}")
        for field in self._document.keys() - {"model_list", *sections}:
            self._drop(field)

    def _add(self, place: str, entry: Any) -> None:
        fields = shaped(place, entry, dict[str, Any])
        name = shaped(f"{place}.model_name", fields.get("model_name"), str)
        params = dict(
            shaped(f"{place}.litellm_params", fields.get("litellm_params"), dict[str, Any])
        )
        model = shaped(f"{place}.litellm_params.model", params.pop("model", None), str)
        if "*" in name or "*" in model:
            self._drop(
                f"{place} ({name})", "wildcards are not needed: clients may name any PROVIDER/MODEL"
            )
            return
        provider_model = _provider_of(model, str(params.pop("custom_llm_provider", "") or ""))
        api_base = params.pop("api_base", None) or params.pop("base_url", None)
        if provider_model is None:
            self._drop(f"{place} ({model})", "its provider is not in the catalogue")
            return
        entry_name = self._provider(
            f"{place} ({name})", provider_model[0], api_base, params.pop("api_key", None)
        )
        if entry_name is None:
            return
        weight = params.pop("weight", 1)
        if provider_model[0].name == "azure":
            params.pop("api_version", None)  # its address /openai/v1 needs none
        for field in params:
            self._drop(f"{place}.litellm_params.{field}")
        for field in fields.keys() - {"model_name", "litellm_params"}:
            self._drop(f"{place}.{field}")
        parts = weight if isinstance(weight, int) and weight > 0 else 1
        self._targets.setdefault(name, []).append((f"{entry_name}/{provider_model[1]}", parts))

    def _provider(self, place: str, entry: Provider, api_base: Any, api_key: Any) -> str | None:
        settings: dict[str, str] = {}
        if api_base:
            address = _address(entry, api_base)
            if not address:
                self._drop(
                    place,
                    f"the address {api_base} is not carried over; give {entry.name} a base_url",
                )
                return None
            if address != entry.base_url:
                own = entry.name == "openai"  # LiteLLM's name for any server with OpenAI's API
                settings = ({} if own else {"like": entry.name}) | {"base_url": address}
        variable = _variable(api_key)
        if variable and (settings or variable not in entry.api_key_env):
            settings |= ({} if settings else {"like": entry.name}) | {"api_key": f"env:{variable}"}
        elif isinstance(api_key, str) and not variable and api_key.lower() not in _NO_KEYS:
            variable = entry.api_key_env[0] if entry.api_key_env else "SERVER_API_KEY"
            self._drop(f"{place}: its key", f"secrets are not copied; put it into {variable}")
            if settings:
                settings["api_key"] = f"env:{variable}"
        return self._named(settings, entry.name) if settings else entry.name

    def _named(self, settings: dict[str, str], entry_name: str) -> str:
        for name, others in self._providers.items():
            if others == settings:
                return name
        stem = entry_name if "like" in settings else "server"
        number = sum(name.startswith(f"{stem}.") for name in self._providers) + 1
        self._providers[f"{stem}.{number}"] = settings
        return f"{stem}.{number}"

    def _policy(self, targets: list[tuple[str, int]], strategy: str, others: Iterable[str]) -> str:
        own = list(dict.fromkeys(target for target, _ in targets))
        in_turn = policy_text("fallback", [*own, *others])
        if len(own) == 1:
            return in_turn
        policy = _STRATEGIES.get(strategy, "weighted")
        weights = {
            target: sum(weight for each, weight in targets if each == target) for target in own
        }
        uneven = policy == "weighted" and len(set(weights.values())) > 1
        chosen = policy_text(
            policy, own, **({"weights": ",".join(map(str, weights.values()))} if uneven else {})
        )
        return f"fallback({chosen}, {in_turn.removeprefix('fallback(')}"

    def _fallbacks(self, router: dict[str, Any], settings: dict[str, Any]) -> dict[str, list[Any]]:
        fallbacks: dict[str, list[Any]] = {}
        for section, where in (("router_settings", router), ("litellm_settings", settings)):
            for each in shaped(
                f"{section}.fallbacks",
                where.pop("fallbacks", None) or [],
                list[dict[str, list[Any]]],
            ):
                fallbacks |= each
            place = f"{section}.default_fallbacks"
            if default := shaped(place, where.pop("default_fallbacks", None) or [], list[Any]):
                fallbacks["*"] = default
        return fallbacks

    def _others(
        self, name: str, groups: Mapping[str, list[str]], fallbacks: Mapping[str, list[Any]]
    ) -> list[str]:
        others: list[str] = []
        for other in fallbacks.get(name, fallbacks.get("*", [])):
            if isinstance(other, str) and other in groups:
                others += groups[other]
            else:
                self._drop(f"the fallback of {name} to {other}", "no such model is carried over")
        return others

    def _section(self, name: str) -> dict[str, Any]:
        return dict(_mapping(name, self._document.get(name)))

    def _route_name(self, name: str) -> str:
        fitting = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64]
        if not NAME.fullmatch(name):
            self._drop(
                f"the name {name}",
                f"a route's name has letters, digits, dots and dashes only; it is {fitting}",
            )
        return fitting

    def _drop(self, what: str, why: str = "") -> None:
        line = f"{what}: {why}." if why else f"{what}."
        if line not in self._not_carried:
            self._not_carried.append(" ".join(line.split()))


def _mapping(place: str, value: Any) -> dict[str, Any]:
    return {} if value is None else shaped(place, value, dict[str, Any])


def _provider_of(model: str, custom_provider: str) -> tuple[Provider, str] | None:
    prefix, slash, rest = model.partition("/")
    if custom_provider and not model.startswith(f"{custom_provider}/"):
        prefix, slash, rest = custom_provider, "/", model
    if not slash:
        maker = next((maker for begin, maker in _MAKERS.items() if model.startswith(begin)), "")
        return (provider(maker), model) if maker else None
    plain = prefix.lower().replace("_", "-")
    name = _LITELLM_PROVIDERS.get(plain, PROVIDERS.get(plain, plain))
    return (provider(name), rest) if name in names() and rest else None


def _address(entry: Provider, api_base: Any) -> str:
    """Return our address of a provider whose address is `api_base` at LiteLLM; "" if there is none.

    For Azure, LiteLLM has the address of the resource; ours has the path of the API, too.
    """
    address = str(api_base).rstrip("/")
    if not address.startswith(("http://", "https://")):
        return ""
    if "{" not in entry.base_url:
        return address
    resource, end, path = entry.base_url.partition("}")
    is_resource = (
        resource.startswith("{") and end and "{" not in path and address.count("/") == len("//")
    )
    return address + path if is_resource else ""


def _variable(value: Any) -> str:
    return (
        value.removeprefix("os.environ/")
        if isinstance(value, str) and value.startswith("os.environ/")
        else ""
    )


def _openrouter(document: dict[str, Any]) -> InitialConfig:
    models = shaped("models", document.get("models") or [], list[str])
    if document.get("model"):
        models = [shaped("model", document["model"], str), *models]
    routing = dict(_mapping("provider", document.get("provider")))
    order = shaped(
        "provider.order", routing.pop("order", None) or routing.pop("only", None) or [], list[str]
    )
    others_allowed = routing.pop("allow_fallbacks", True) is not False
    sort = routing.pop("sort", None)
    not_carried = [f"provider.{field}." for field in routing]
    not_carried += [
        f"{field}." for field in document.keys() - {"model", "models", "provider", "messages"}
    ]
    targets = list[str]()
    for model in dict.fromkeys(models):
        targets += _targets_of(model, order, not_carried, others_allowed=others_allowed)
    if not targets:
        raise bad("models", "there is no model", "Name one, such as openai/gpt-oss-120b.")
    policy, comments = policy_text("fallback", targets), list[str]()
    if sort is not None and str(sort) in _SORTS and len(set(targets)) > 1 and len(set(models)) == 1:
        name, settings = _SORTS[str(sort)]
        policy = (
            f"fallback({policy_text(name, targets, **settings)}, {policy.removeprefix('fallback(')}"
        )
        comments = _twice(name, [policy])
    elif sort is not None:
        not_carried.append(f"provider.sort: {sort}: it needs one model at several providers.")
    return InitialConfig(
        routes={"default": policy}, comments=comments, not_carried=list(dict.fromkeys(not_carried))
    )


def _targets_of(
    model: str, order: Sequence[str], not_carried: list[str], *, others_allowed: bool
) -> list[str]:
    direct = list(filter(None, [_at(slug, model, not_carried) for slug in order]))
    return [*direct, f"openrouter/{model}"] if others_allowed or not direct else direct


def _twice(choosing: str, policies: Iterable[str]) -> list[str]:
    if not any(policy.startswith(f"fallback({choosing}(") for policy in policies):
        return []
    return [
        f"fallback({choosing}(A, B), A, B): {choosing} chooses A or B; if that one fails, each is "
        f"tried in order."
    ]


def _at(slug: str, model: str, not_carried: list[str]) -> str:
    plain = slug.partition("/")[0].lower()
    name = PROVIDERS.get(plain, plain)
    if name not in names():
        not_carried.append(f"provider.order: {slug}: it is not in the catalogue.")
        return ""
    entry = provider(name)
    plain_model = model_name(model)
    for candidate in [*entry.models, *provider_models(entry)]:
        if model_name(candidate) == plain_model:
            return f"{name}/{candidate}"
    not_carried.append(
        f"provider.order: {slug}: its name for {model} is not known; see splitsecond models {name}."
    )
    return ""
