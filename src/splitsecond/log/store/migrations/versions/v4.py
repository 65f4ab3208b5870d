"""Team, tags and stated cost of imported calls, and the choices of policies."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Text

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add the columns, which are null for earlier calls, and the index of those with a cost."""
    op.add_column("calls", Column("team", Text))
    op.add_column("calls", Column("tags", Text))
    op.add_column("calls", Column("stated_usd", Double))
    for name in ("choice", "choice_available", "choice_ppm"):
        op.add_column("calls", Column(name, BigInteger))
    op.execute("CREATE INDEX calls_with_cost ON calls (came_us) WHERE stated_usd IS NOT NULL")
