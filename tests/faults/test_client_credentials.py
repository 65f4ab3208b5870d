"""Calls with the client's own credentials, through the whole gateway: who gets them, and what a
refusal means."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case
from tests.faults.world import CLIENT_KEY, OUR_KEYS, PROMPT, World, play
from tests.gateway.visitor import Visitor, visits

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Usage
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.wire import anthropic, openai
from splitsecond.routing.configuration.reading import read

TOKEN = "sk-ant-oat01-canary-of-a-subscription-0123456789"
LOGIN = {"authorization": f"Bearer {TOKEN}", "user-agent": "agent/1.0", "x-other": "stays here"}
WITH_KEY = LOGIN | {"x-splitsecond-key": CLIENT_KEY}
BODY = {
    "model": "fast",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": PROMPT}],
    "stream": True,
}
KEYLESS = "keys: []\n"


class Vendor:
    """A provider of Anthropic's or OpenAI's format. `headers`, `models`: those of its requests.
    `refuses`: the error with which it answers; None: it answers well."""

    def __init__(
        self, form: Any = anthropic, refuses: tuple[int, Mapping[str, Any]] | None = None
    ) -> None:
        self.headers: list[dict[str, str]] = []
        self.models: list[str] = []
        self.refuses = refuses
        self._form = form

    async def __call__(self, cycle: RequestCycle) -> None:
        self.headers.append(
            {name.decode(): value.decode() for name, value in cycle.headers.items()}
        )
        self.models.append(json.loads(await cycle.body(1 << 20))["model"])
        if self.refuses is not None:
            status, error = self.refuses
            await cycle.answer(status, json.dumps({"type": "error", "error": error}).encode())
            return
        writer = self._form.StreamWriter("chat", "m", id="x", created=0)
        cycle.begin_stream([])
        text = writer.opening(0, Usage(5)) + writer.token("Hello.")
        await cycle.send(text + writer.end("stop", Usage(5, 1, 6)), last=True)


def edited(text: str, *, keys: bool = True) -> str:
    """Make "a" a vendor that is called with the client's own credentials."""
    own = text.replace("api_key: env:KEY_A", "credentials: client, api_format: anthropic")
    return own if keys else own.replace("keys: [{name: web, key: env:CLIENT_KEY}]", "keys: []")


async def ask(
    world: World, headers: Mapping[str, str] = WITH_KEY, path: str = "/v1/messages", **fields: Any
) -> Visitor:
    return await visits(world.worker.gateway).asks(BODY | fields, headers=headers, path=path)


def test_credentials_go_to_the_vendor_unchanged_and_nowhere_else(tmp_path: Path) -> None:
    a, b = Vendor(), Vendor(openai)

    async def story(world: World) -> None:
        assert (await ask(world)).status == 200
        assert (await ask(world, model="b/m")).status == 200

    world = play(
        '"a/m"',
        tmp_path,
        story,
        edit=lambda text: edited(text) + f"access_log: {tmp_path}/access.jsonl\n",
        a=a,
        b=b,
    )
    (to_vendor,), (to_other,) = a.headers, b.headers
    assert to_vendor["authorization"] == LOGIN["authorization"]
    assert to_vendor["user-agent"] == "agent/1.0"
    assert not {"x-splitsecond-key", "x-other"} & to_vendor.keys()
    assert to_other["authorization"] == f"Bearer {OUR_KEYS['KEY_B']}"
    assert TOKEN not in str(to_other)
    assert CLIENT_KEY not in f"{to_vendor}{to_other}"
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert world.database.exists()
    assert b"b/m" in stored
    assert b"canary" not in stored


def test_a_key_of_the_gateway_is_never_a_credential(tmp_path: Path) -> None:
    a = Vendor()

    async def story(world: World) -> None:
        for header in ({"x-api-key": CLIENT_KEY}, {"authorization": f"bearer {CLIENT_KEY}"}):
            client = await ask(world, header)
            assert (client.status, client.json["error"]["type"]) == (401, "authentication_error")
            assert "own credentials" in client.json["error"]["message"]

    play('"a/m"', tmp_path, story, edit=edited, a=a, b=Vendor())
    assert a.headers == []


def test_credentials_for_one_vendor_are_not_sent_to_another(tmp_path: Path) -> None:
    a = Vendor()

    async def story(world: World) -> None:
        client = await ask(world, path="/v1/chat/completions")
        assert client.status == 401
        assert "those of the request are for openai" in client.json["error"]["message"]

    play('"a/m"', tmp_path, story, edit=edited, a=a, b=Vendor())
    assert a.headers == []


def test_a_server_of_ones_own_needs_no_credentials(tmp_path: Path) -> None:
    """That is Ollama, whose clients have none."""

    def edit(text: str) -> str:
        return edited(text, keys=False).replace("api_format: anthropic", "api_format: ollama")

    async def story(world: World) -> None:
        # the vendor of this test speaks another format
        assert (await ask(world, {}, path="/api/chat")).status == 502

    a = Vendor()
    play('"a/m"', tmp_path, story, edit=edit, a=a, b=Vendor())
    assert len(a.headers) == 1
    assert "authorization" not in a.headers[0]


def test_a_client_without_credentials_gets_the_next_target(tmp_path: Path) -> None:
    a, b = Vendor(), Vendor(openai)

    async def story(world: World) -> None:
        client = await ask(world, {"x-api-key": CLIENT_KEY})
        assert (client.status, client.headers["x-splitsecond-target"]) == (200, "b/m")

    play('fallback("a/m", "b/m")', tmp_path, story, edit=edited, a=a, b=b)
    assert a.headers == []


@each_case(
    ("status", "error", "target"),
    [
        (401, {"type": "authentication_error", "message": f"invalid bearer token {TOKEN}"}, ""),
        (
            403,
            {"type": "permission_error", "message": "OAuth is not allowed for this organization"},
            "",
        ),
        (404, {"type": "not_found_error", "message": "model: m"}, "b/m"),
        (
            429,
            {"type": "rate_limit_error", "message": "This would exceed your account's rate limit"},
            "b/m",
        ),
    ],
)
def test_a_refusal_is_for_the_client(
    tmp_path: Path, status: int, error: dict[str, str], target: str
) -> None:
    """With the vendor's status: a client renews its token at 401. A limit makes a fallback go
    on."""
    a, b = Vendor(refuses=(status, error)), Vendor(openai)

    async def story(world: World) -> None:
        alone = await ask(world, model="a/m")
        assert alone.status == status
        assert TOKEN not in alone.body.decode()
        second = await ask(world)
        assert (second.status, second.headers.get("x-splitsecond-target", "")) == (
            (200, target) if target else (status, "")
        )
        a.refuses = None
        if status != 429:  # there the vendor asked for a pause
            assert (await ask(world, model="a/m")).status == 200

    play('fallback("a/m", "b/m")', tmp_path, story, edit=edited, a=a, b=b)
    assert TOKEN not in str(b.headers)


@each_case(
    ("routes", "model", "called"),
    [
        ("pass_through: true\n", "claude-x", "claude-x"),
        ("pass_through: true\n", "fast", "m"),
        ("pass_through: true\n", "b/other", "other"),
        ("", "claude-x", ""),
    ],
)
def test_other_models_pass_through_to_the_vendor(
    tmp_path: Path, routes: str, model: str, called: str
) -> None:
    a, b = Vendor(), Vendor(openai)

    def edit(text: str) -> str:
        return edited(text, keys=False).replace("  a:\n", "  anthropic:\n") + routes

    async def story(world: World) -> None:
        assert (await ask(world, LOGIN, model=model)).status == (200 if called else 404)

    play('"anthropic/m"', tmp_path, story, edit=edit, a=a, b=b)
    assert a.models + b.models == ([called] if called else [])


def test_the_route_of_every_other_model(tmp_path: Path) -> None:
    a = Vendor()

    async def story(world: World) -> None:
        assert (await ask(world, LOGIN, model="whatever")).status == 200
        listed = await visits(world.worker.gateway).asks(method="GET", path="/v1/models")
        assert listed.json["data"] == []

    play(
        '"a/m"',
        tmp_path,
        story,
        edit=lambda text: edited(text, keys=False).replace("{fast:", "{'*':"),
        a=a,
        b=Vendor(),
    )
    assert a.models == ["m"]


@each_case(
    ("text", "words"),
    [
        (
            "providers: {anthropic: {credentials: client}, x: {like: anthropic, base_url: "
            "'https://x.example/v1', "
            'credentials: client}}\nroutes: {r: {policy: \'race("anthropic/m", "x/m")\'}}',
            "routes.r.policy: api.anthropic.com and x.example would get the "
            "same credentials of a client",
        ),
        ("providers: {anthropic: {credentials: client, api_key: env:K}}", "api_key has no effect"),
        (
            "providers: {cohere: {credentials: client}}",
            "clients have no credentials for the API format cohere",
        ),
    ],
)
def test_unsafe_settings_are_refused(text: str, words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        read(text, {"K": "sk-0123456789abcdef"})
