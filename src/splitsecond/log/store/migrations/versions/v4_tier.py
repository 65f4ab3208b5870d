"""Add the speed tier to attempts."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("tier", sa.Text))
