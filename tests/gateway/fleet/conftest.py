"""A PostgreSQL server for the tests of this folder that ask for it."""

from tests.store.server import server as server
from tests.store.server import started_server as started_server
