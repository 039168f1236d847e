"""What limits count of a job, and whether one is what keeps it from an earlier start."""

from dataclasses import replace

import numpy as np
import pytest

from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.pools import binding, make_claim
from schedd.model import Chunk, Request
from schedd.wire import JobFacts, ShareFacts


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


def test_claim_has_the_amounts_that_limits_count() -> None:
    chunks = (
        Chunk(2, cpus=3, gpus=1, mem=10, resources=(("fpga", 2),)),
        Chunk(1, cpus=4, resources=(("fpga", 1), ("lic", 1))),
    )
    facts = JobFacts(id="1", owner="ann@x", queue="q", submitted=1, resources={"lic": "5"})
    found = make_claim(facts, ParsedRequest(Request(chunks), 60, assumed=False), ("lic",)).amounts
    assert found == {
        "jobs": 1, "lic": 5, "cpus": 10, "nodes": 3, "gpus": 2, "mem": 20, "fpga": 5,
        "walltime": 60, "planned_walltime": 60, "cpu_seconds": 600, "node_seconds": 180, "gpu_seconds": 120,
    }  # fmt: skip
    held = replace(facts, shares=(ShareFacts("n1", 4), ShareFacts("n2", 2)))
    found = make_claim(held, ParsedRequest(None, 60, assumed=False), ()).amounts
    assert found == {
        "jobs": 1, "cpus": 6, "nodes": 2,
        "walltime": 60, "planned_walltime": 60, "cpu_seconds": 360, "node_seconds": 120, "gpu_seconds": 0,
    }  # fmt: skip
