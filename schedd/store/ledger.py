"""The ledger of accounts: one immutable row per change."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from schedd.store.codec import replace_nul
from schedd.store.records import ChargeTotal, LedgerRow
from schedd.store.tables import ledger

_FIELDS = tuple(LedgerRow.__dataclass_fields__)


def insert_rows(connection: Connection, cluster: int, new: Iterable[LedgerRow]) -> None:
    """Insert rows; existing ones stay unchanged."""
    values = [{"cluster": cluster, **{name: _plain(getattr(one, name)) for name in _FIELDS}} for one in new]
    if values:
        dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
        connection.execute(dialect.insert(ledger).on_conflict_do_nothing(), values)


def _plain(value: Any) -> Any:
    return replace_nul(value) if isinstance(value, str) else value


def rows(
    connection: Connection,
    cluster: int,
    since: int,
    until: int,
    limit: int,
    *,
    account: str = "",
    user: str = "",
    before: int | None = None,
) -> Sequence[LedgerRow]:
    """Return up to ``limit`` rows of ``[since, until)``, newest first.

    Optional filters: account, user (owner or payer), and row numbers below ``before``.
    """
    query = select(*(ledger.c[name] for name in _FIELDS)).where(
        *_row_filter(cluster, since, until, account, user)
    )
    if before is not None:
        query = query.where(ledger.c.number < before)
    found = connection.execute(query.order_by(ledger.c.number.desc(), ledger.c.time.desc()).limit(limit))
    return [LedgerRow(*row) for row in found]


def charges(
    connection: Connection,
    cluster: int,
    since: int,
    until: int,
    by: Sequence[str],
    *,
    account: str = "",
    user: str = "",
) -> Sequence[ChargeTotal]:
    """Return sums of charges in ``[since, until)`` ``by`` month, account or user, in order."""
    name = {"month": ledger.c.month, "account": ledger.c.account, "user": ledger.c.payer}
    keys = [name[one] for one in ("month", "account", "user") if one in by]
    sums = (
        func.count(func.distinct(ledger.c.job)),
        func.sum(ledger.c.cpu_seconds),
        func.sum(ledger.c.gpu_seconds),
        func.sum(-ledger.c.amount),
    )
    query = (
        select(*keys, ledger.c.unit, *sums)
        .where(
            *_row_filter(cluster, since, until, account, user), ledger.c.kind.in_(("charge", "correction"))
        )
        .group_by(*keys, ledger.c.unit)
        .order_by(*keys, ledger.c.unit)
    )
    found = []
    for row in connection.execute(query):
        values = dict(zip([one for one in ("month", "account", "user") if one in by], row, strict=False))
        unit, jobs, cpus, gpus, amount = row[len(keys) :]
        found.append(ChargeTotal(unit, int(jobs), int(cpus), int(gpus), int(amount), **values))
    return found


def _row_filter(cluster: int, since: int, until: int, account: str, user: str) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [
        ledger.c.cluster == cluster,
        ledger.c.time >= since,
        ledger.c.time < until,
    ]
    if account:
        found.append(ledger.c.account == replace_nul(account))
    if user:
        name = replace_nul(user)
        found.append(or_(ledger.c.owner == name, ledger.c.payer == name))
    return found
