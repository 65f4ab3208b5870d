"""Errors that Anthropic's official library raises for a provider's refusals behind the gateway."""

import anthropic
import pytest
from tests.gateway.conftest import KEY, ServedGateway
from tests.simulator.on_loopback import WAIT_S

pytestmark = pytest.mark.system


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "client_status", "word"),
    [
        (400, 400, "invalid_request_error"),
        (401, 502, "api_error"),  # our key is refused: the client's is good
        (404, 502, "api_error"),
        (413, 413, "request_too_large"),
        (429, 429, "rate_limit_error"),
        (500, 502, "api_error"),
        (503, 529, "overloaded_error"),
        (529, 529, "overloaded_error"),
    ],
)
def test_each_status_has_anthropics_status_and_error_type(
    served: ServedGateway, status: int, client_status: int, word: str, stream: bool
) -> None:
    with (
        anthropic.Anthropic(
            base_url=served.base_url.removesuffix("/v1"), api_key=KEY, max_retries=0, timeout=WAIT_S
        ) as client,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        client.messages.create(
            model=f"says-{status}/quick",
            max_tokens=8,
            stream=stream,
            messages=[{"role": "user", "content": "hello"}],
        )
    assert (caught.value.status_code, caught.value.type) == (client_status, word)
    assert f"says-{status}/quick" in caught.value.message
    assert caught.value.request_id
    assert KEY not in str(caught.value)
