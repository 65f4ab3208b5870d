"""The choice of a policy."""

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "4"
down_revision = "3"
_COLUMNS = ("choice", "choice_available", "choice_ppm")


def upgrade() -> None:
    """Add the columns, which are null for earlier calls."""
    for name in _COLUMNS:
        op.add_column("calls", Column(name, BigInteger))
