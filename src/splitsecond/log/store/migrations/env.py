"""What Alembic runs for each of its commands: the connection comes from `migrations.upgrade`, with
its transaction."""

from alembic import context

from splitsecond.log.store.tables import METADATA, STAMP

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=STAMP.name,
)
with context.begin_transaction():
    context.run_migrations()
