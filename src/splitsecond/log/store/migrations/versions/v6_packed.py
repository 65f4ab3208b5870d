"""Add the packed numbers to attempts."""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("packed", sa.LargeBinary))
