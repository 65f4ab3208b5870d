"""Fakes and readers for tests of Responses over a WebSocket."""

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from tests.gateway.visitor import OneRoute
from websockets.frames import Frame, Opcode

from splitsecond.gateway.app import Gateway
from splitsecond.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeCall, FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

WORDS = ("It ", "is ", "sunny.")


def service(script: Script | None = None) -> FakeService:
    answer = script or Script(tokens=len(WORDS), texts=WORDS, input_tokens=5)
    return FakeService(script=lambda call: answer, target="fake/model")


def gateway(fake: FakeService, *keys: ClientKey, max_body_bytes: int = 1 << 20, **settings: Any) -> Gateway:
    routes: Any = OneRoute(fake)
    return Gateway(routes, keys, max_body_bytes=max_body_bytes, **settings)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(test())


def types(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


def text(events: list[Any]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def identity(events: list[Any]) -> str:
    assert events[-1]["type"] == "response.completed", events[-1]
    return str(events[-1]["response"]["id"])


def key(name: str, **limits: Any) -> ClientKey:
    return ClientKey(name, hashlib.sha256(name.encode()).digest(), **limits)


def field(call: FakeCall, name: str) -> Any:
    return msgspec.json.decode(call.call.body[name])


def inputs(fake: FakeService) -> list[Any]:
    return [field(call, "input") for call in fake.calls]


def frame(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)
