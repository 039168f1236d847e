"""Conditions on the jobs of a report."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement, func, or_

from schedd.store.codec import replace_nul
from schedd.store.tables import jobs


def job_filter(queue: str, user: str) -> Iterator[ColumnElement[bool]]:
    """Yield conditions on the job's queue and owner (`ann` or `ann@host`), if given.

    Case is significant in both databases; LIKE of SQLite would take `Ann@host` for a job of `ann`.
    """
    if queue:
        yield jobs.c.queue == replace_nul(queue)
    if user:
        name = replace_nul(user)
        of_user = func.substr(jobs.c.owner, 1, len(name) + 1) == f"{name}@"
        yield or_(jobs.c.owner == name, of_user)
