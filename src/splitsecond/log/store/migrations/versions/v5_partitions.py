"""Divide the tables of a log in PostgreSQL into partitions by day."""

from alembic import op

from splitsecond.log.store import partitions

revision = "5"
down_revision = "4"


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        partitions.divide(op.get_bind())
