"""Alembic's environment: it migrates the connection that ``schedd.store.schema_version`` hands over."""

# ruff: noqa: INP001

from alembic import context

from schedd.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
