"""A database for each test of this folder."""

import pytest
from tests.store.server import Server
from tests.store.server import server as server
from tests.store.server import started_server as started_server


@pytest.fixture
def url(server: Server) -> str:
    return server.database()
