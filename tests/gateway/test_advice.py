"""Messages for clients and for the operator about failures that the operator can correct."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.cases import each_case
from tests.gateway.test_server import Configured, configured, play  # noqa: F401 - a fixture
from tests.gateway.test_settings import ENVIRONMENT, GOOD
from tests.gateway.visitor import visits

from splitsecond.core.catalog.prices import PriceLookup
from splitsecond.core.errors import AllFailed, CallerFault, Fault, Overloaded, ProviderFault
from splitsecond.core.timing.timeline import record_fault
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.gateway.http.advice import NOT_YOURS, Advice
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.verdict import of_fault

MORE = (
    GOOD + "  slow: {policy: '\"ours/llama\"'}\n  moved: {policy: '\"groq/mixtral-8x7b-32768\"'}\n"
)
MOVED = (
    "The provider's retirement date of this model is 2025-03-20. Did you mean "
    "groq/openai/gpt-oss-120b?"
)


def advice(text: str = MORE) -> Advice:
    settings = structs.replace(read(text, ENVIRONMENT), source=Path("a.yaml"))
    facts = TargetDirectory(settings)
    facts.learn(PriceLookup(models={"groq": ["llama-3.1-8b-instant", "openai/gpt-oss-20b"]}))
    return Advice(settings, facts)


def refused(status: int, target: str, message: str = "no") -> ProviderFault:
    return ProviderFault(
        message,
        kind=f"http_{status}",
        phase="head",
        target=target,
        status=status,
        hint="As it was.",
    )


@each_case(
    ("fault", "hint"),
    [
        (refused(404, "groq/llama-3.1-8b-instnt"), "Did you mean groq/llama-3.1-8b-instant?"),
        (refused(404, "groq/mixtral-8x7b-32768"), MOVED),
        (refused(404, "groq/llama-3.1-8b-instant"), "As it was."),
        (refused(404, "ours/lama"), "Did you mean ours/llama?"),
        (refused(404, "nowhere/x"), "As it was."),
        (
            CallerFault("no such model", kind="http_400", target="ours/lama"),
            "Did you mean ours/llama?",
        ),
        (
            CallerFault("no such tool", kind="http_400", target="ours/lama", hint="As it was."),
            "As it was.",
        ),
        (refused(401, "groq/x"), NOT_YOURS),
        (
            ProviderFault("no", kind="key_refused", phase="head", target="groq/x", status=400),
            NOT_YOURS,
        ),
        (refused(400, "groq/x", "this API key is not valid"), "As it was."),
        (refused(402, "groq/x"), NOT_YOURS),
        (
            ProviderFault("no", kind="key_refused", phase="head", target="groq/x", status=403),
            NOT_YOURS,
        ),
        (refused(403, "groq/x", "this API key may not"), "As it was."),
        (refused(403, "groq/x", "not in your country"), "As it was."),
        (refused(429, "groq/x"), "As it was."),
        (
            Overloaded(
                "not asked", kind="ejected", target="groq/x", status=502, hint="Change the key."
            ),
            NOT_YOURS,
        ),
        (Overloaded("not asked", kind="ejected", target="groq/x", hint="Wait."), "Wait."),
    ],
)
def test_hint_for_a_client_depends_on_the_fault(fault: Fault, hint: str) -> None:
    assert advice().for_client(fault).hint == hint
    together = advice().for_client(AllFailed([fault, refused(404, "ours/lama")]))
    assert hint.rstrip(".") in str(together)
    assert (
        str(together).endswith("Did you mean ours/llama? (while: head).") or fault.phase == "queue"
    )


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            refused(401, "ours/llama", "the prompt was: hello"),
            "ours rejects its key, env:OURS at providers.ours.api_key of a.yaml (HTTP 401). "
            "Used by routes.fast and routes.slow of a.yaml.",
        ),
        (
            refused(402, "groq/x"),
            "groq has too little credit for a request with the key in GROQ_API_KEY (HTTP 402). "
            "Used by routes.fast and routes.moved of a.yaml.",
        ),
    ],
)
def test_rejected_key_is_named_by_its_variable_and_routes(fault: ProviderFault, words: str) -> None:
    record = record_fault(fault)
    assert advice().of_key(fault.target, record, of_fault(record)) == words


def test_missing_access_token_names_the_key_variable() -> None:
    record = record_fault(
        CallerFault("no access token from [key]", kind="bad_key", target="groq/x")
    )
    words = advice().of_key("groq/x", record, "nothing")
    assert words.startswith("groq rejects the key in GROQ_API_KEY (no access token from [key]).")


def test_unserved_model_is_named_with_routes_and_file() -> None:
    record = record_fault(refused(404, "x"))
    assert advice().of_model("groq/mixtral-8x7b-32768", record) == (
        f"groq/mixtral-8x7b-32768 is not served (HTTP 404). Used by routes.moved of a.yaml. {MOVED}"
    )
    assert advice().of_model("ours/llama", record) == (
        "ours/llama is not served (HTTP 404). Used by routes.fast and routes.slow of a.yaml."
    )
    assert advice().of_model("groq/what-a-client-made-up", record) == ""


DOORS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}
PATHS = {"gemini": "/v1beta", "cohere": "/v2", "ollama": ""}
PROVIDER = """
  {name}-well: {{api_format: {name}, base_url: {url}, api_key: env:{name}}}
  {name}-locked: {{api_format: {name}, base_url: {url}, api_key: env:{name}-2,
    headers: {{x-splitsecond-fault: "401"}}}}
"""


@pytest.mark.parametrize("path", DOORS)
def test_clients_of_every_format_get_hints_for_every_provider(
    configured: Configured,  # noqa: F811
    path: str,
) -> None:
    """Refusals as the simulator's API formats say them: of a model that it has not, and of a
    key."""
    base = configured("").providers["sim"].base_url.removesuffix("/v1")
    spoken = {
        name: f"{base}{PATHS.get(name, '/v1')}" for name in API_FORMATS if name != "replicate"
    }
    providers = "".join(PROVIDER.format(name=name, url=url) for name, url in spoken.items())
    routes = "".join(f"  {name}: {{policy: '\"{name}-well/quick\"'}}\n" for name in spoken)
    keys = {
        variable: f"a-key-for-{variable}" for name in spoken for variable in (name, f"{name}-2")
    }

    async def ask(worker: GatewayWorker) -> None:
        for name in spoken:
            unknown = await error_message(worker, f"{name}-well/quik")
            assert unknown.startswith(f"{name}-well/quik: HTTP 404: "), unknown
            assert f"Did you mean {name}-well/quick?" in unknown
            locked = await error_message(worker, f"{name}-locked/quick")
            assert locked.startswith(f"{name}-locked/quick: HTTP 401: "), locked
            assert locked.endswith(NOT_YOURS)
            assert "a-key-for" not in locked

    async def error_message(worker: GatewayWorker, model: str) -> str:
        visitor = await visits(worker.gateway).asks({"model": model, **DOORS[path]}, path=path)
        assert visitor.status == 502
        message: str = visitor.json["error"]["message"]
        return message

    play(read(f"providers:{providers}routes:\n{routes}", keys), ask)
