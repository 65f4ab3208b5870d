"""The first version of the tables, which `tables.prepare` creates, with all later ones, in a new
log."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Change nothing: every log has these tables."""
