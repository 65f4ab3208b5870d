"""The session of each call."""

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "2"
down_revision = "1"
_COLUMNS = ("session", "agent", "parent", "turn", "new_tokens", "reusable_tokens", "idle_ms")


def upgrade() -> None:
    """Add the columns, which are null for earlier calls."""
    for name in _COLUMNS:
        op.add_column("calls", Column(name, BigInteger))
