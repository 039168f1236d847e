"""The ledger: each change of an account is stored once; filters, pages and totals."""

from dataclasses import replace

import pytest

from schedd.store import Store
from schedd.store.records import ChargeTotal, LedgerRow

MOST = 2**62


def row(number: int, amount: int, **more: object) -> LedgerRow:
    plain = LedgerRow(
        number=number,
        time=1000 + number,
        month="2026-11",
        account="phys",
        unit="core_hours",
        kind="charge",
        amount=amount,
        balance=0,
        other="",
        job=f"{number}.srv",
        owner="ann@login",
        payer="ann",
        start=1,
        end=2,
        cpu_seconds=-amount,
        gpu_seconds=0,
        by="",
        reason="",
    )
    return replace(plain, **more)  # type: ignore[arg-type]


@pytest.fixture
def cluster(store: Store) -> int:
    other = store.register_cluster("another", 1)
    store.insert_ledger_rows(other, [row(1, -7)])
    return store.register_cluster("c", 1)


ROWS = [
    row(1, -100),
    row(2, -50, month="2026-12"),
    row(3, 500, kind="transfer", job="", owner="", payer="", cpu_seconds=0, by="root", reason="a grant"),
    row(4, 30, job="1.srv", kind="correction"),
    row(5, -9, account="chem", owner="bob@login", payer="bob", gpu_seconds=4, unit="money"),
]


def test_repeated_ledger_row_is_stored_once(store: Store, cluster: int) -> None:
    store.insert_ledger_rows(cluster, ROWS[:3])
    store.insert_ledger_rows(cluster, [replace(ROWS[1], amount=-99), *ROWS])
    assert list(store.ledger_rows(cluster, 0, MOST, 99)) == ROWS[::-1]


def test_ledger_rows_are_filtered_and_paged(store: Store, cluster: int) -> None:
    store.insert_ledger_rows(cluster, ROWS)
    assert [one.number for one in store.ledger_rows(cluster, 1002, 1005, 99)] == [4, 3, 2]
    assert [one.number for one in store.ledger_rows(cluster, 0, MOST, 2, before=4)] == [3, 2]
    assert [one.number for one in store.ledger_rows(cluster, 0, MOST, 9, account="chem")] == [5]
    assert [one.number for one in store.ledger_rows(cluster, 0, MOST, 9, user="ann")] == [4, 2, 1]
    assert [one.number for one in store.ledger_rows(cluster, 0, MOST, 9, user="ann@login")] == [4, 2, 1]


def test_charges_and_corrections_are_totalled_by_group(store: Store, cluster: int) -> None:
    store.insert_ledger_rows(cluster, ROWS)
    assert store.charges(cluster, 0, MOST, ("month", "account", "user")) == [
        ChargeTotal("money", 1, 9, 4, 9, "2026-11", "chem", "bob"),
        ChargeTotal("core_hours", 1, 70, 0, 70, "2026-11", "phys", "ann"),
        ChargeTotal("core_hours", 1, 50, 0, 50, "2026-12", "phys", "ann"),
    ]
    assert store.charges(cluster, 0, MOST, ("account",), user="ann") == [
        ChargeTotal("core_hours", 2, 120, 0, 120, "", "phys", "")
    ]
    assert {one.unit: one.amount for one in store.charges(cluster, 0, MOST, ())} == {
        "core_hours": 120,
        "money": 9,
    }
