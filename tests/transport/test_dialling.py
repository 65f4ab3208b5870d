"""Names to addresses, and the race between addresses."""

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transport.conftest import Run
from tests.waiting import WITHIN_S

from splitsecond.core.errors import NetworkFault
from splitsecond.core.transport.connecting import Address, connect, interleaved, resolve

V4, V6 = socket.AF_INET, socket.AF_INET6
REFUSING = Address(V4, ("127.0.0.1", 1))


def six(name: str) -> Address:
    return Address(V6, (name, 1, 0, 0))


def four(name: str) -> Address:
    return Address(V4, (name, 1))


def test_families_alternate_from_the_first_on() -> None:
    assert interleaved([six("a"), six("b"), six("c"), four("d"), four("e")]) == [
        six("a"),
        four("d"),
        six("b"),
        four("e"),
        six("c"),
    ]
    assert interleaved([four("d"), six("a")]) == [four("d"), six("a")]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_interleaving_keeps_all_addresses_in_order_per_family(
    given_: list[tuple[bool, int]],
) -> None:
    addresses = [six(str(n)) if is_six else four(str(n)) for is_six, n in given_]
    result = interleaved(addresses)
    for family in (V4, V6):
        assert [a for a in result if a.family == family] == [
            a for a in addresses if a.family == family
        ]


def test_literals_need_no_resolver(run: Run) -> None:
    async def story() -> None:
        assert await resolve("127.0.0.1", 80) == [Address(V4, ("127.0.0.1", 80))]
        assert await resolve("::1", 80) == [Address(V6, ("::1", 80, 0, 0))]
        assert [str(a) for a in await resolve("::1", 80)] == ["[::1]:80"]

    run(story())


def test_known_names_resolve_and_unknown_ones_raise(run: Run) -> None:
    async def story() -> None:
        assert any(a.sockaddr[0] in ("127.0.0.1", "::1") for a in await resolve("localhost", 80))
        with pytest.raises(NetworkFault, match=r"no-such-host\.invalid") as caught:
            await resolve("no-such-host.invalid", 80)
        assert caught.value.kind == caught.value.phase == "dns"

    run(story())


def test_refusing_address_leads_to_the_next(run: Run) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            here = Address(V4, server.getsockname())
            sock, address = await connect([REFUSING, REFUSING, here], "the test")
            assert address == here
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            sock.close()

    run(story())


def test_message_names_each_refusing_address(run: Run) -> None:
    async def story() -> None:
        with pytest.raises(NetworkFault) as caught:
            await connect([REFUSING, Address(V4, ("127.0.0.2", 1))], "the test")
        assert caught.value.kind == "refused"
        assert "tried 2" in str(caught.value)
        assert "127.0.0.1:1" in str(caught.value)
        assert "127.0.0.2:1" in str(caught.value)
        assert "the test" in str(caught.value)

    run(story())


class SilentLoop:
    """The running loop's `sock_connect`, but one address never answers, as one behind a broken
    route."""

    def __init__(self, silent: Address) -> None:
        self.silent = silent
        self.tried: list[socket.socket] = []
        self.waiting = asyncio.Event()
        self._real = asyncio.get_running_loop().sock_connect

    async def sock_connect(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.tried.append(sock)
        if address == self.silent.sockaddr:
            self.waiting.set()
            await asyncio.Event().wait()
        await self._real(sock, address)


@pytest.fixture
def no_stagger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitsecond.core.transport.connecting.STAGGER_S", 0.01)


@pytest.mark.usefixtures("no_stagger")
def test_silent_address_is_overtaken_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        loop = SilentLoop(four("192.0.2.1"))
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", loop.sock_connect)
        with socket.create_server(("127.0.0.1", 0)) as server:
            here = Address(V4, server.getsockname())
            sock, address = await connect([loop.silent, here], "the test")
        assert address == here
        assert [tried.fileno() == -1 for tried in loop.tried] == [True, False]
        sock.close()

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))


def test_cancellation_closes_all_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        loop = SilentLoop(four("192.0.2.1"))
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", loop.sock_connect)
        dialling = asyncio.ensure_future(connect([loop.silent], "the test"))
        await loop.waiting.wait()
        dialling.cancel()
        await asyncio.wait([dialling])
        assert dialling.cancelled()
        assert [tried.fileno() for tried in loop.tried] == [-1]

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))


def test_too_many_open_files_is_reported_as_file_limit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    async def story() -> None:
        monkeypatch.setattr("splitsecond.core.transport.connecting.socket.socket", full)
        with pytest.raises(NetworkFault, match="ulimit") as caught:
            await connect([four("192.0.2.1")], "the test")
        monkeypatch.undo()
        assert caught.value.kind == "file_limit"

    run(story())
