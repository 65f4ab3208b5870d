"""Client keys and teams of a configuration, as settings."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from msgspec import structs

from splitsecond.core.validation import nearest
from splitsecond.routing.configuration.error_messages import Mistakes, bad, shaped
from splitsecond.routing.configuration.file_schema import KeyConfig, SessionLimits, TeamConfig
from splitsecond.routing.configuration.secrets import Secrets
from splitsecond.routing.configuration.settings import FleetSettings
from splitsecond.routing.router.settings import (
    ClientKey,
    FormerKey,
    Limits,
    SessionBudget,
    Team,
)

MIN_KEY = 16
"""Least length of a client's key in characters. Shorter keys can be guessed."""
MAX_LIMITED = 2048
"""Keys and teams with limits in a fleet: half the places of `shared_counters`. The others are for
keys that replace these while the gateway runs."""
MAX_TEAM_NAME = 64


def check_number(keys: Sequence[ClientKey], shared: FleetSettings | None) -> None:
    """Raise `CallerFault` if a fleet has no places for so many keys with limits."""
    limited = len({bearer.counter for key in keys for bearer in key.bearers})
    if shared is not None and limited > MAX_LIMITED:
        what = f"{limited:,} keys have limits; with `shared` the maximum is {MAX_LIMITED:,}"
        raise bad("keys", what, "Remove limits, or divide the keys between two fleets.")


def client_teams(entries: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Team | None]:
    """Return the teams by name; None for one whose entry is wrong."""
    teams: dict[str, Team | None] = dict.fromkeys(entries)
    for name, entry in entries.items():
        with mistakes:
            if not name.isprintable() or not 1 <= len(name) <= MAX_TEAM_NAME:
                words = f"a team's name has 1 to {MAX_TEAM_NAME} characters that can be printed"
                raise bad(f"teams.{name[:MAX_TEAM_NAME]}", words)
            config = shaped(f"teams.{name}", {} if entry is None else entry, TeamConfig)
            teams[name] = Team(name, **_limits(config))
    return teams


def _limits(config: KeyConfig | TeamConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in Limits.__struct_fields__}


def session_budget(place: str, limits: SessionLimits) -> SessionBudget | None:
    if limits.usd_per_session is None and limits.turns_per_session is None:
        if limits.at_limit is not None:
            raise bad(
                f"{place}.at_limit",
                "at_limit has no effect without a budget of sessions",
                "Add usd_per_session or turns_per_session.",
            )
        return None
    return SessionBudget(
        usd=limits.usd_per_session,
        turns=limits.turns_per_session,
        at_limit=limits.at_limit or "stop",
    )


def client_keys(
    entries: list[Any],
    secrets: Secrets,
    routes: Collection[str],
    teams: Mapping[str, Team | None],
    mistakes: Mistakes,
) -> tuple[ClientKey, ...]:
    keys: dict[str, ClientKey] = {}
    for number, entry in enumerate(entries):
        with mistakes:
            key = _key(f"keys[{number}]", entry, secrets, routes, keys)
            keys[key.name] = structs.replace(key, team=_team(f"keys[{number}]", entry, teams))
    return tuple(keys.values())


def _team(place: str, entry: Any, teams: Mapping[str, Team | None]) -> Team | None:
    name: str | None = entry.get("team")
    if name is None:
        return None
    if name not in teams:
        hint = nearest(name, teams) or f"Add teams: {{{name}: {{usd_per_day: 20}}}}."
        raise bad(f"{place}.team", f"there is no team {name}", hint)
    return teams[name]


def _key(
    place: str,
    entry: Any,
    secrets: Secrets,
    routes: Collection[str],
    others: Mapping[str, ClientKey],
) -> ClientKey:
    config = shaped(place, entry, KeyConfig)
    if config.name in others:
        raise bad(f"{place}.name", f"{config.name} is given twice")
    digest = _digest(f"{place}.key", config.key, secrets)
    former = tuple(
        FormerKey(
            _digest(f"{place}.former_keys[{number}].key", each.key, secrets), _end_s(each.until)
        )
        for number, each in enumerate(config.former_keys)
    )
    own = [digest, *(each.digest for each in former)]
    if len({*own}) < len(own):
        raise bad(f"{place}.former_keys", "a key is given twice")
    if any(not {*own}.isdisjoint(other.digests) for other in others.values()):
        raise bad(f"{place}.key", "another client has the same key")
    for route in config.routes:
        if route != "*" and "/" not in route and route not in routes:
            raise bad(f"{place}.routes", f"there is no route {route}", nearest(route, routes))
    limits, budget = _limits(config), session_budget(place, config)
    return ClientKey(config.name, digest, config.routes, budget, former, **limits)


def _digest(place: str, reference: str, secrets: Secrets) -> bytes:
    """Return the SHA-256 of a client's key."""
    key = secrets.take(place, reference)
    if len(key) < MIN_KEY:
        hint = "Make one with: openssl rand -hex 32"
        raise bad(place, f"the key has {len(key)} characters, expected {MIN_KEY} or more", hint)
    return hashlib.sha256(key.encode()).digest()


def _end_s(last_day: date | None) -> float | None:
    """Return the end of a day in UTC, in seconds since 1970."""
    if last_day is None:
        return None
    return datetime.combine(last_day, time.max, UTC).timestamp()
