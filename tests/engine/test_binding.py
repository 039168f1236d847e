"""Whether a limit is what keeps a job from an earlier start, on a pool's free amounts over time."""

import numpy as np
import pytest

from schedd.engine.facts.pools import binding


@pytest.mark.parametrize(
    ("times", "free", "start", "end", "binds"),
    [
        ([0, 100, 200], [3, 1, 3], 100, 200, False),  # the pool is free before it
        ([0, 100, 200], [1, 1, 3], 100, 200, True),  # others hold two of three until it starts
        ([0, 60, 100, 200], [3, 1, 1, 3], 100, 200, True),  # free for 60 s, which it outlasts
        ([0, 60, 100, 150], [3, 1, 1, 3], 100, 150, False),  # free for 60 s, and it takes 50
        ([0, 100, 120, 220], [3, 1, 1, 3], 120, 220, False),  # free for just as long as it takes
        ([0, 99, 120, 220], [3, 1, 1, 3], 120, 220, True),
        ([0, 100, 200], [1, 1, 3], 0, 100, False),  # it starts at the first moment that is asked about
    ],
)
def test_a_limit_binds_that_leaves_no_room_for_as_long_as_the_job_takes(
    times: list[int], free: list[int], start: int, end: int, binds: bool
) -> None:
    pool = np.array(times, np.int64), np.array(free, np.int64)
    assert binding(*pool, start, end, 2, 0) is binds
