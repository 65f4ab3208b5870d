"""Migrations of the gateway's log, by Alembic: one revision for each version of its tables after
the first.

A revision may only add columns that can be null, because a process of the older version may still
be writing.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

FOLDER = Path(__file__).parent


def upgrade(connection: Connection) -> None:
    """Migrate the tables to the newest version. Call it in a transaction that excludes other
    writers."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(FOLDER))
    command.upgrade(config, "head")
