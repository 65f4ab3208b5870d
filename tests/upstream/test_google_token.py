"""Tokens of Google Cloud: google-auth itself asks a token service of ours, which answers as
Google's does."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.cases import each_case
from tests.http_server import Received, Response, http_server
from tests.upstream.scripted_client import ScriptedClient

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, NetworkFault, ProviderFault, TimedOut
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.upstream.google_token import GoogleToken
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.testing.virtual_time import run_virtual


@dataclass
class TokenService:
    """Gives out "token-1", "token-2", … for an hour each; refuses while `refuses`."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    refuses: bool = False

    def respond(self, request: Received) -> Response:
        self.asked.append(parse_qs(request.body.decode())["grant_type"][0])
        refused = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        given = {
            "access_token": f"token-{len(self.asked)}",
            "expires_in": 3600,
            "token_type": "Bearer",
        }
        data = json.dumps(refused if self.refuses else given).encode()
        return Response(data, 400 if self.refuses else 200, {"content-type": "application/json"})


@pytest.fixture
def service() -> Iterator[TokenService]:
    service = TokenService()
    with http_server(service.respond) as url:
        service.url = f"{url}/token"
        yield service


@pytest.fixture(scope="session")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    ).decode()


@pytest.fixture
def credentials(service: TokenService, private_key: str, tmp_path: Path) -> str:
    path = tmp_path / "account.json"
    account = {
        "type": "service_account",
        "client_email": "us@project.iam.gserviceaccount.com",
        "private_key": private_key,
        "private_key_id": "1",
        "token_uri": service.url,
    }
    path.write_text(json.dumps(account))
    return str(path)


def values(token: GoogleToken, *moments_s: float) -> list[str]:
    """The token at these moments after the first was had."""

    async def main() -> list[str]:
        found = [await token.value()]
        begin, wall = clock.now_ns(), round(clock.wall_time().timestamp() * clock.NS_PER_S)
        for moment in moments_s:
            now = begin + round(moment * clock.NS_PER_S)
            with clock.using(partial(int, now), lambda: wall):
                found.append(await token.value())
        return found

    return asyncio.run(main())


def test_configured_token_is_used_unchanged() -> None:
    assert values(GoogleToken("ya29.given"), 7200) == ["ya29.given", "ya29.given"]


def test_service_account_token_is_renewed_before_it_expires(
    credentials: str, service: TokenService
) -> None:
    found = values(GoogleToken(credentials), 1, 3200, 3350, 3351)
    assert found == ["token-1", "token-1", "token-1", "token-2", "token-2"]
    assert service.asked == ["urn:ietf:params:oauth:grant-type:jwt-bearer"] * 2


def test_many_calls_share_one_request(credentials: str, service: TokenService) -> None:
    async def main() -> list[str]:
        token = GoogleToken(credentials)
        return list(await asyncio.gather(*(token.value() for _ in range(20))))

    assert asyncio.run(main()) == ["token-1"] * 20
    assert len(service.asked) == 1


def test_many_calls_share_one_refusal(credentials: str, service: TokenService) -> None:
    service.refuses = True

    async def main() -> list[str | BaseException]:
        token = GoogleToken(credentials)
        return await asyncio.gather(*(token.value() for _ in range(20)), return_exceptions=True)

    assert all(isinstance(each, CallerFault) for each in asyncio.run(main()))
    assert len(service.asked) == 1


def test_renewal_continues_when_the_call_that_began_it_ends(
    credentials: str, service: TokenService
) -> None:
    async def main() -> str:
        token = GoogleToken(credentials)
        first, second = (asyncio.get_running_loop().create_task(token.value()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(main()) == "token-1"
    assert len(service.asked) == 1


def test_deadline_of_a_call_holds_while_it_waits_for_a_token() -> None:
    async def never() -> str:
        await asyncio.sleep(1000)
        return ""

    async def main() -> None:
        seen: list[Observation] = []
        spec = TargetSpec(
            name="v/m", base_url="http://x.test", model="m", auth="google", api_key_env=("TOKEN",)
        )
        client = ScriptedClient().as_client()
        target = connect(spec, seen.append, environment={"TOKEN": "ya29.given"}, client=client)
        assert target._token is not None
        target._token.value = never  # type: ignore[method-assign]
        now_ns = clock.now_ns()
        call = Call(
            id="c", body={"messages": []}, start_ns=now_ns, deadline_ns=now_ns + 2 * clock.NS_PER_S
        )
        with pytest.raises(
            TimedOut,
            match="no access token when the deadline of 2,000 ms for the whole call passed",
        ):
            await target(call)
        assert clock.now_ns() == now_ns + 2 * clock.NS_PER_S
        assert [each.outcome for each in seen] == ["failed"]

    run_virtual(main())


def test_credentials_rejected_by_google_are_a_caller_fault(
    credentials: str, service: TokenService
) -> None:
    service.refuses = True
    with pytest.raises(
        CallerFault, match=r"no access token from the credentials in .*Invalid JWT Signature"
    ):
        values(GoogleToken(credentials))


def test_old_token_is_used_until_it_expires(credentials: str, service: TokenService) -> None:
    token = GoogleToken(credentials)
    assert values(token) == ["token-1"]
    service.refuses = True
    assert values(token, 3400) == ["token-1", "token-1"]
    with pytest.raises(CallerFault, match="no access token"):
        values(token, 3700)


@each_case(
    "content",
    [
        None,
        "",
        "{}",
        "[]",
        "[" * 1_500,
        '{"type": "service_account"}',
        '{"type": "external_account"}',
        '{"type": "service_account", "private_key": 5, "client_email": [], "token_uri": {}}',
        '{"type": "authorized_user", "refresh_token": "a", "client_id": "b", "client_secret": '
        '"c", "expiry": 5}',
    ],
)
def test_invalid_credentials_file_is_refused(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CallerFault, match=r"wrong\.json"):
        values(GoogleToken(str(path)))


def test_a_path_is_never_sent_as_a_token(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match=r"in .*/service-account: .*No such file"):
        values(GoogleToken(str(tmp_path / "service-account")))


def test_unreachable_token_service_is_a_network_fault(
    credentials: str, service: TokenService
) -> None:
    path = Path(credentials)
    path.write_text(path.read_text().replace(service.url, "http://127.0.0.1:9/token"))
    with pytest.raises(NetworkFault, match="Google could not be reached"):
        values(GoogleToken(credentials))


def test_a_token_that_a_provider_repeats_is_not_shown(
    credentials: str, service: TokenService
) -> None:
    async def main() -> None:
        client = ScriptedClient()
        spec = TargetSpec(
            name="v/m", base_url="http://x.test", model="m", auth="google", api_key_env=("FILE",)
        )
        target = connect(
            spec, lambda _: None, environment={"FILE": credentials}, client=client.as_client()
        )
        begin, wall = clock.now_ns(), round(clock.wall_time().timestamp() * clock.NS_PER_S)
        for hour in range(5):
            with clock.using(partial(int, begin + hour * 3600 * clock.NS_PER_S), lambda: wall):
                waiting = asyncio.get_running_loop().create_task(
                    target(Call(id="c", body={"messages": []}))
                )
                exchange = await client.exchange()
                ((_, sent),) = (
                    each for each in client.sent[-1][1].fresh if each[0] == "authorization"
                )
                assert sent == f"Bearer token-{hour + 1}"
                exchange.head(401)
                exchange.body(f"no {sent} here, nor token-{hour}".encode())
                exchange.end()
                with pytest.raises(ProviderFault) as caught:
                    await waiting
                said = str(caught.value) + caught.value.excerpt
                assert "no Bearer [key] here" in said
                assert "token-" not in said.replace("token-0", "")

    asyncio.run(main())


def test_a_target_sends_the_token_and_never_shows_it() -> None:
    async def main() -> None:
        client = ScriptedClient()
        spec = TargetSpec(
            name="v/m", base_url="http://x.test", model="m", auth="google", api_key_env=("TOKEN",)
        )
        target = connect(
            spec,
            lambda _: None,
            environment={"TOKEN": "ya29.secret-token"},
            client=client.as_client(),
        )
        waiting = asyncio.get_running_loop().create_task(
            target(Call(id="c", body={"messages": []}))
        )
        await client.exchange()
        waiting.cancel()
        request = client.sent[0][1]
        assert ("authorization", "Bearer ya29.secret-token") in request.fresh
        assert "ya29" not in repr(request.headers) + repr(target)

    run_virtual(main())
