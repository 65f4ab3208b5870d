"""Migrations of the gateway's log, by Alembic: one revision for each version of its tables after the first.

A revision may only add columns that can be null, because a process of the older version may still be writing.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from splitsecond.log.store.tables import STAMP

FOLDER = Path(__file__).parent


def upgrade(connection: Connection, unknown: int = 0) -> None:
    """Migrate the tables to the newest version. Call it in a transaction that excludes other writers.

    `unknown`: the version of a log from before Alembic, which does not know it; 0 for other logs.
    """
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(FOLDER))
    if unknown:
        STAMP.drop(connection)
    if unknown > 1:  # the first version is the one before all revisions
        command.stamp(config, str(unknown))
    command.upgrade(config, "head")
