"""Loops of sessions."""

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Add the column, which is null for earlier calls."""
    op.add_column("calls", Column("repeated", BigInteger))
