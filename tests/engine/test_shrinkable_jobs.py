"""Jobs that leave their walltime to the scheduler (min_walltime, max_walltime)."""

import pytest

from schedd.wire import Run
from tests.engine.cluster import Cluster


def submit(cluster: Cluster, job: str, **lengths: str) -> None:
    resources = {"select": "1:ncpus=4", "place": "free", "nodes": "", **lengths}
    cluster.submit(job, walltime=None, runtime=1000, resources=resources, family="openpbs")


def find_run(cluster: Cluster, job: str) -> Run:
    [run] = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == job]
    return run


@pytest.mark.parametrize(
    ("lengths", "walltime"),
    [
        ({"min_walltime": "5", "max_walltime": "100"}, 100),
        ({"min_walltime": "5", "max_walltime": "100", "walltime": "50"}, 100),
        ({"min_walltime": "60", "walltime": "50"}, 60),
        ({"min_walltime": "60", "walltime": "90"}, 90),
        ({"min_walltime": "60"}, None),
        ({"walltime": "50"}, None),
        ({"walltime": "50", "soft_walltime": "20"}, None),
    ],
)
def test_a_decision_carries_the_walltime_that_the_plan_counts(
    lengths: dict[str, str], walltime: int | None
) -> None:
    cluster = Cluster()
    submit(cluster, "1", **lengths)
    submit(cluster, "2", walltime="10")
    assert find_run(cluster, "1").walltime == walltime
    if walltime is not None:
        assert cluster.start("2") == walltime


def test_a_job_that_runs_ends_by_the_walltime_that_it_was_given() -> None:
    cluster = Cluster()
    submit(cluster, "1", min_walltime="5", max_walltime="100")
    submit(cluster, "2", walltime="10")
    cluster.alter_request("1", walltime="00:00:40")  # the owner shortened it meanwhile
    assert cluster.start("2") == 40
    cluster.send(*cluster.server.requeue("1"))
    assert cluster.record("1").understood.walltime == 100
