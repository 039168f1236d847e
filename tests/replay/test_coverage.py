"""How often a quantile held, by time and by tenth of the users."""

import numpy as np

from schedd.replay.coverage import FEWEST_OF_USER, CoveragePart, by_tenth, by_time, tenths


def test_spans_are_counted_from_the_beginning_and_those_without_jobs_are_left_out() -> None:
    held = np.array([True, False, True, True])
    found = by_time(held, [0, 99, 100, 350], 100)
    assert found == (CoveragePart(1, 2, 0.5), CoveragePart(2, 1, 1.0), CoveragePart(4, 1, 1.0))
    assert by_time(held[:0], [], 100) == ()


def test_tenths_contain_users_with_enough_jobs_fewest_first() -> None:
    counts = {f"u{i:02}": FEWEST_OF_USER + i for i in range(20)} | {"rare": FEWEST_OF_USER - 1}
    users = np.repeat(list(counts), list(counts.values()))
    parts = tenths(users)
    assert [part.tolist() for part in parts] == [[f"u{i:02}", f"u{i + 1:02}"] for i in range(0, 20, 2)]
    found = by_tenth(np.isin(users, ["u00", "u19", "rare"]), users, parts)
    assert [one.jobs for one in found] == [2 * FEWEST_OF_USER + 2 * i + 1 for i in range(0, 20, 2)]
    assert found[0] == CoveragePart(1, 61, 30 / 61)
    assert found[9].p90_coverage == 49 / 97
    assert {one.p90_coverage for one in found[1:9]} == {0.0}


def test_fewer_than_ten_users_form_separate_tenths() -> None:
    users = np.repeat(["ann", "bob", "eve"], [40, 30, 29])
    parts = tenths(users)
    assert len(parts) == 10
    found = by_tenth(users == "bob", users, parts)
    assert found == (CoveragePart(1, 30, 1.0), CoveragePart(2, 40, 0.0))
    assert by_tenth(users == "bob", users, tenths(users[-29:])) == ()
