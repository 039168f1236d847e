"""Whether empty nodes could hold all units of a request, compared with a search of all ways."""

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from schedd.plan.feasibility import UnitGroup, could_hold


def _units(count: int, rows: Sequence[int], per_node: int = 1) -> UnitGroup:
    return UnitGroup(count, per_node, (1,), tuple(rows))


def _distinct(needed: list[tuple[int, ...]], used: frozenset[int]) -> bool:
    """Whether each unit finds a row of its own, by trying all."""
    if not needed:
        return True
    return any(row not in used and _distinct(needed[1:], used | {row}) for row in needed[0])


_CHUNK = st.tuples(st.integers(1, 4), st.sets(st.integers(0, 5)))


@given(chunks=st.lists(_CHUNK, min_size=1, max_size=4))
def test_scattered_units_fit_exactly_if_an_assignment_exists(
    chunks: list[tuple[int, set[int]]],
) -> None:
    found = could_hold([_units(count, sorted(rows)) for count, rows in chunks], dict.fromkeys(range(6), (1,)))
    needed = [tuple(sorted(rows)) for count, rows in chunks for _ in range(count)]
    assert found == _distinct(needed, frozenset())


class _Rows(tuple[int, ...]):
    """Row numbers that count accesses."""

    __slots__ = ()
    read = 0

    def __iter__(self) -> Iterator[int]:
        for row in super().__iter__():
            _Rows.read += 1
            yield row


def test_work_is_linear_in_the_number_of_rows() -> None:
    sizes = (1_000, 4_000)
    work = []
    for n in sizes:
        _Rows.read = 0
        all_of_them, even, fourth = (_Rows(range(0, n, step)) for step in (1, 2, 4))
        chunks = [
            UnitGroup(n // 3, 1, (1,), all_of_them),
            UnitGroup(n // 3, 1, (1,), even),
            UnitGroup(n // 6, 1, (1,), fourth),
        ]
        assert could_hold(chunks, {})
        work.append(_Rows.read)
    assert work[1] <= 5 * work[0]
