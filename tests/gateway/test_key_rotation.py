"""Several keys of one client: both are valid during a rotation, the former one up to its date."""

import asyncio
import hashlib

import pytest
from tests.gateway.limits import PricedTargets
from tests.gateway.test_app import fake
from tests.gateway.test_settings import ENVIRONMENT, GOOD
from tests.gateway.visitor import CHAT, visitor, visits

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.settings import ClientKey, FormerKey
from splitsecond.testing.virtual_time import run_virtual

NEW, OLD = "the-new-key-of-our-client", "the-old-key-of-our-client"
AN_HOUR_S = 3600


def rotating(former: str) -> str:
    return GOOD.replace("key: env:WEB_KEY,", f"key: env:WEB_KEY, former_keys: {former},")


def free(attempt: Observation) -> float | None:
    return 0.0


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


async def statuses(until_s: float | None) -> list[tuple[int, int]]:
    """Return the statuses with the new and the old key, now and an hour later."""
    key = ClientKey("web", digest(NEW), former=(FormerKey(digest(OLD), until_s),))
    gateway, found = visitor(fake(), key).gateway, []
    for _ in range(2):
        clients = [
            await visits(gateway).asks(CHAT, headers={"authorization": f"Bearer {each}"})
            for each in (NEW, OLD)
        ]
        found.append((clients[0].status, clients[1].status))
        await asyncio.sleep(AN_HOUR_S)
    return found


def test_a_former_key_is_valid_up_to_its_date() -> None:
    async def main() -> list[tuple[int, int]]:
        return await statuses(clock.wall_time().timestamp() + AN_HOUR_S / 2)

    assert run_virtual(main()) == [(200, 200), (200, 401)]


def test_a_former_key_without_a_date_stays_valid() -> None:
    assert run_virtual(statuses(None)) == [(200, 200), (200, 200)]


def test_a_former_key_ends_with_the_day_in_utc() -> None:
    (key,) = read(rotating("[{key: env:OTHER_KEY, until: 2026-12-31}]"), ENVIRONMENT).keys
    assert key.digests == [digest(ENVIRONMENT["WEB_KEY"]), digest(ENVIRONMENT["OTHER_KEY"])]
    assert key.former[0].until_s == pytest.approx(1_798_761_600)  # 2027-01-01T00:00Z


@pytest.mark.parametrize(
    ("former", "message"),
    [
        ("[{key: env:SHORT}]", r"keys\[0\]\.former_keys\[0\]\.key: the key has 3"),
        ("[{key: env:WEB_KEY}]", r"keys\[0\]\.former_keys: a key is given twice"),
        ("[{key: env:OTHER_KEY, until: soon}]", r"former_keys\[0\]\.until"),
    ],
)
def test_a_wrong_former_key_is_named(former: str, message: str) -> None:
    with pytest.raises(CallerFault, match=message):
        read(rotating(former), ENVIRONMENT)


def test_no_client_has_the_former_key_of_another() -> None:
    text = rotating("[{key: env:OTHER_KEY}]").replace(
        "providers:", "  - {name: app, key: env:OTHER_KEY}\nproviders:", 1
    )
    with pytest.raises(CallerFault, match=r"keys\[1\]\.key: another client has the same key"):
        read(text, ENVIRONMENT)


def test_both_keys_of_a_client_share_its_limit() -> None:
    async def main() -> list[int]:
        key = ClientKey("web", digest(NEW), requests_per_minute=2, former=(FormerKey(digest(OLD)),))
        limits = KeyLimits([key], PricedTargets(free))
        gateway = visitor(fake(), key, limits=limits).gateway
        return [
            (await visits(gateway).asks(CHAT, headers={"x-api-key": each})).status
            for each in (NEW, OLD, NEW, OLD)
        ]

    assert run_virtual(main()) == [200, 200, 429, 429]
