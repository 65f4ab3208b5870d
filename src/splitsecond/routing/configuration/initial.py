"""The first configuration of a gateway, as `splitsecond init` writes it: few settings, each with a
comment."""

import json
from collections.abc import Sequence
from typing import Any

import yaml
from msgspec import Struct

from splitsecond.core.errors import printable
from splitsecond.routing.configuration.yaml_text import CoreDumper

PORT = 8800


class InitialConfig(Struct, kw_only=True):
    """Content of a configuration file that is to be written.

    `routes`: policies by route. `providers`: their entries by name, with secrets as references.
    `key`: the reference to the client's key. `comments`: lines above the routes, such as other
    models of a server. `not_carried`: what another program's configuration has and this one does
    not, one sentence each.
    """

    routes: dict[str, str]
    providers: dict[str, dict[str, str]] = {}
    key: str = ""
    port: int = PORT
    comments: list[str] = []
    not_carried: list[str] = []


def config_text(config: InitialConfig) -> str:
    parts = [
        _block(
            "Written by splitsecond init. All settings: docs/gateway.md. Check with: splitsecond "
            "serve --check"
        ),
        _block(
            "Where clients connect. A running gateway applies changes of this file by itself, "
            "except this line."
        )
        + _entry("listen", {"host": "127.0.0.1", "port": config.port}),
        _block("Clients. Secrets are references: env:NAME or file:PATH, relative to this file.")
        + "keys:\n"
        + _line(f"  - {flow_mapping({'name': 'me', 'key': config.key})}"),
    ]
    if config.providers:
        parts.append(
            _block(
                "Servers and providers whose settings differ from the catalogue (splitsecond "
                "providers)."
            )
            + "providers:\n"
            + "".join(
                _line(f"  {scalar(name)}: {flow_mapping(entry)}")
                for name, entry in config.providers.items()
            )
        )
    routes = _block(
        "Clients give a route's name as the model. fallback tries its targets in this order; "
        "fastest, cheapest, race,",
        "hedge and others are in docs/policies.md. Clients may also name any PROVIDER/MODEL.",
        *config.comments,
    )
    parts.append(routes + "routes:\n" + "".join(_route(*route) for route in config.routes.items()))
    parts.append(
        _block(
            "One line per call, for splitsecond speed, cost and recommend: no prompts, no "
            "responses."
        )
        + _entry("log", "sqlite:///splitsecond.db")
    )
    if config.not_carried:
        parts.append(_block("Not carried over:", *(f"- {line}" for line in config.not_carried)))
    return "\n".join(parts)


def policy_text(policy: str, targets: Sequence[str], **settings: str) -> str:
    unique = list(dict.fromkeys(targets))
    if len(unique) == 1 and not settings:
        return json.dumps(unique[0], ensure_ascii=False)
    branches = [json.dumps(name, ensure_ascii=False) for name in unique]
    keywords = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    return f"{policy}({', '.join([*branches, *keywords])})"


def _route(name: str, policy: str) -> str:
    return _line(f"  {scalar(name)}:") + _line(f"    policy: {scalar(policy)}")


def _block(*lines: str) -> str:
    return "".join(_line(f"# {printable(line)}") for line in lines)


def _line(text: str) -> str:
    return f"{text}\n"


def _entry(name: str, value: Any) -> str:
    return _line(f"{name}: {flow_mapping(value) if isinstance(value, dict) else scalar(value)}")


def flow_mapping(entry: dict[str, Any]) -> str:
    fields = (f"{name}: {scalar(value, inside=True)}" for name, value in entry.items())
    return f"{{{', '.join(fields)}}}"


def scalar(value: Any, *, inside: bool = False) -> str:
    """Return a value as YAML in one line. `inside`: within a mapping or sequence in brackets."""
    if inside:
        return _dumped([value], default_flow_style=True).strip()[1:-1]
    return _dumped(value).split("\n")[0]


def _dumped(value: Any, **form: Any) -> str:
    return str(yaml.dump(value, Dumper=CoreDumper, width=float("inf"), allow_unicode=True, **form))
