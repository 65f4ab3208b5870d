"""Add the server's own times to attempts."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = None


def upgrade() -> None:
    for name in ("queue", "prefill", "decode", "head", "total"):
        op.add_column("attempts", sa.Column(f"server_{name}_ns", sa.BigInteger))
