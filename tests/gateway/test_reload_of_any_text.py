"""Edits of a configuration at random: each gives settings or a fault of ours, and the running
gateway continues."""

import asyncio
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from splitsecond.core.errors import CallerFault, say
from splitsecond.gateway.process.reload import ConfigSource, ConfigWatcher, reloadable
from splitsecond.gateway.process.service_manager import ServiceManager
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.routing.configuration.settings import decode, encode
from splitsecond.routing.router.router import check_settings

EDITS, RELOADS = 40, 20
ENVIRONMENT = {
    "WEB_KEY": "0123456789abcdef",
    "OURS": "sk-ours-1234",
    "GROQ_API_KEY": "gsk-1",
    "BINARY": "\udcff" * 20,
}
CONFIGURATION: dict[str, Any] = {
    "listen": {
        "host": "127.0.0.1",
        "port": 8801,
        "workers": 2,
        "cors": ["https://a.example"],
        "metrics": "loopback",
    },
    "keys": [
        {
            "name": "web",
            "key": "env:WEB_KEY",
            "routes": ["fast"],
            "requests_per_minute": 9,
            "usd_per_day": 5.5,
        }
    ],
    "providers": {
        "ours": {
            "base_url": "http://10.0.0.5:8000/v1",
            "api_key": "env:OURS",
            "headers": {"x-team": "web"},
            "timeouts": {"connect": "2s"},
            "quirks": {"stream_options": False},
            "price": {"input_usd": 1, "output_usd": 2.5},
            "models": {"m": {"context": 8000}},
        }
    },
    "routes": {
        "fast": {
            "policy": 'fallback("ours/m", "groq/x", ttft="2s")',
            "resume": "replay",
            "stall": "2s",
        }
    },
    "policies": None,
    "log": {"url": "sqlite:///calls.db", "keep_days": 30},
    "access_log": None,
    "telemetry": {"endpoint": "http://x:4318", "headers": {}, "sample": 0.5},
    "shared": None,
    "seeds": ["runs/*"],
}
WORDS = (
    *(
        "trueroute",
        "truefoundry/m",
        "falsetto",
        "nulls",
        "nan",
        ".nan",
        "-.inf",
        "1e5",
        "1e5x",
        "1e999",
        "0xZZ",
    ),
    *(
        "0x1F",
        "010",
        "1_000",
        "1:30",
        "2026-01-31",
        "2026-13-45",
        "<<",
        "=",
        "off",
        "~",
        "",
        "*",
        "&a",
        "!!bool x",
    ),
    *("\ud800", "x\udfff", "\ud83d\ude00", "\0", "\x07", "\u2028", "é", "٣", "²", "a/b", "/", ".."),
    *(
        "env:",
        "env:BINARY",
        "env:WEB_KEY",
        "file:",
        "file:none",
        "file:\0",
        "http://[",
        "http://x:99999",
        "http://é",
    ),
    *(
        "postgresql://[x/",
        "sqlite:///",
        "x" * 300,
        "9" * 5000,
        "(" * 500,
        "f(" * 90,
        '"ours/m"',
        '"\\ud800/x"',
    ),
    *(
        'hedge("ours/m", "groq/x", extra_load=1e999)',
        'fallback("groq/a", "ours/b", ttft="\\ud800")',
        "lambda: 0",
    ),
)
NESTED = "nested"
VALUES: tuple[Any, ...] = (
    *(*WORDS, NESTED, NESTED, None, True, 0, -1, 2.5, 2**63, 10**30, 1e308, float("inf")),
    *([], {}, [[None]], {"": ""}, {"\ud800": 1}),
)
MARKS = (
    *"{}[],:\"'#&*!|>%@`?-\n\t \\",
    "\\ud800",
    "\\UFFFFFFFF",
    "\\x00",
    "\x00",
    "\udc00",
    "<<: ",
)


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values below `value`."""
    for key, below in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield (*above, key)
        yield from places(below, (*above, key))


def edited(chance: Random) -> str:
    """The configuration with a few strange values or names, and sometimes with strange
    characters."""
    tree = deepcopy(CONFIGURATION)
    for _ in range(chance.choice((1, 1, 1, 3))):
        *path, key = chance.choice([*places(tree)])
        parent = tree
        for each in path:
            parent = parent[each]
        value = chance.choice(VALUES)
        if chance.random() < 0.2 and isinstance(parent, dict):
            parent[str(value)] = parent.pop(key)
        else:
            parent[key] = value
    depth = chance.choice((5, 400))
    text = written(tree, chance).replace(json.dumps(NESTED), "[{a: " * depth + "}]" * depth)
    while chance.random() < 0.2:
        begin, end = chance.randrange(len(text)), chance.choice((0, 0, 5))
        text = text[:begin] + chance.choice((*MARKS, *WORDS)) + text[begin + end :]
    return text


def written(value: Any, chance: Random) -> str:
    """A value as JSON, which is YAML, with some strings plain."""
    match value:
        case dict():
            return (
                "{"
                + ", ".join(
                    f"{json.dumps(key)}: {written(each, chance)}" for key, each in value.items()
                )
                + "}"
            )
        case list():
            return "[" + ", ".join(written(each, chance) for each in value) + "]"
        case str() if chance.random() < 0.3 and value.isalnum():
            return value
        case float() if value == float("inf"):
            return ".inf"
    return json.dumps(value)


def test_any_edit_gives_settings_or_a_caller_fault(tmp_path: Path) -> None:
    chance = Random(1)
    file = tmp_path / "splitsecond.yaml"
    source = ConfigSource(file, ENVIRONMENT)
    file.write_text(written(CONFIGURATION, chance))
    running, settings_read = source.load(), 0
    for _ in range(EDITS):
        text = edited(chance)
        file.write_text(text, "utf-8", "replace")
        try:
            settings, _ = reloadable(source.load(), running)
            check_settings(decode(encode(settings)))
        except CallerFault as fault:
            str(fault).encode()
        else:
            settings_read += 1
    assert 0 < settings_read < EDITS


def test_half_a_surrogate_is_refused_at_every_place(tmp_path: Path) -> None:
    file = tmp_path / "splitsecond.yaml"
    for *path, key in places(CONFIGURATION):
        for value in ("\ud800", {"\ud800": 1}):
            tree = deepcopy(CONFIGURATION)
            parent = tree
            for each in path:
                parent = parent[each]
            parent[key] = value
            file.write_text(json.dumps(tree))
            with pytest.raises(
                CallerFault, match=r"line 1, column \d+: the text has half of a surrogate pair"
            ):
                ConfigSource(file, ENVIRONMENT).load()


def test_gateway_keeps_its_settings_or_uses_new_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = Random(2)
    file = tmp_path / "splitsecond.yaml"
    source = ConfigSource(file, ENVIRONMENT)
    whole = written(CONFIGURATION | {"log": None, "telemetry": None}, chance)
    file.write_text(whole)

    async def main() -> None:
        worker = GatewayWorker(source.load())
        reloads = asyncio.Semaphore(0)

        class Manager(ServiceManager):
            def ready(self) -> None:
                reloads.release()

        async def apply(settings: Any) -> None:
            worker.renew(settings)

        watcher = ConfigWatcher(source, source.load(), apply, Manager(say, {}))
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watcher.run())
            for text in [*(edited(chance) for _ in range(RELOADS)), whole]:
                before = watcher.running
                file.write_text(text, "utf-8", "replace")
                watcher.now()
                await reloads.acquire()
                said = capsys.readouterr().err
                assert "internal error" not in said
                assert ("is loaded" in said) != ("The old configuration keeps running" in said)
                assert "is loaded" in said or watcher.running is before
                assert worker.router.settings == watcher.running
            watching.cancel()
        worker.close()

    asyncio.run(main())
