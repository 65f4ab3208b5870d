"""Add the number of tokens that were not streamed to attempts."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("unstreamed_tokens", sa.BigInteger))
