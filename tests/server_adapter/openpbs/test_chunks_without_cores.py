"""Chunks without cores: from the plan to `exec_vnode`."""

from pathlib import Path

import pytest

from schedd.wire import NO_TYPES, ResourceFacts, ResourceTypes, Run, ShareFacts
from server_adapter.bridge.run_checks import RunVerdict, check_decision
from server_adapter.servers.openpbs.exec_vnodes import NOT_AS_DECIDED, exec_vnode
from server_adapter.servers.openpbs.vnode_capacity import VnodesFullError
from tests.server_adapter.openpbs.site import NODE, QUEUED, Site, start

pytestmark = pytest.mark.anyio
GIB = 1 << 20
TYPES = ResourceTypes({"scratch": ResourceFacts("size", "hn")})


@pytest.mark.parametrize("cpus", [0, 1])
def test_a_decision_without_cores_on_a_node_may_be_carried_out(cpus: int) -> None:
    run = Run(
        id="1", cause="", time=0, job_id="1.s", shares=(ShareFacts("n1", cpus),), version="", expires=10
    )
    assert check_decision(run, now=0, term=0).verdict is RunVerdict.RUN


def test_every_node_of_the_decision_gets_a_chunk() -> None:
    where = exec_vnode("1:ncpus=1+2:ncpus=0:mem=1gb", [ShareFacts("n1", 1), ShareFacts("n2", 0, 2 * GIB)])
    assert where == "(n1:ncpus=1)+(n2:ncpus=0:mem=1048576kb)+(n2:ncpus=0:mem=1048576kb)"


def test_a_chunk_without_cores_is_placed_on_a_node_with_its_amounts() -> None:
    def place(**free: dict[str, int]) -> str:
        shares = [ShareFacts("n1", 1), ShareFacts("n2", 0), ShareFacts("n3", 0)]
        select = "1:ncpus=0:scratch=2gb+1:ncpus=1+1:ncpus=0:scratch=1gb"
        return exec_vnode(select, shares, {"scratch"}, types=TYPES, free=free)

    full = {"scratch": 2 * GIB}
    assert place(n1={}, n2={"scratch": GIB}, n3=full) == (
        f"(n3:ncpus=0:scratch={2 * GIB}kb)+(n1:ncpus=1)+(n2:ncpus=0:scratch={GIB}kb)"
    )
    with pytest.raises(VnodesFullError, match="too little left"):
        place(n1=full, n2={}, n3=full)


def test_a_decision_node_without_a_chunk_means_an_altered_select() -> None:
    with pytest.raises(ValueError, match=NOT_AS_DECIDED):
        exec_vnode("1:ncpus=1", [ShareFacts("n1", 1), ShareFacts("n2", 0)], types=NO_TYPES)


async def test_a_job_without_cores_is_run(tmp_path: Path) -> None:
    site = Site(jobs={"1.s": QUEUED | {"schedselect": "1:ncpus=0:mem=100mb"}})
    site.nodes["n1"] = NODE | {"resources_assigned.ncpus": "4"}
    async with site.peer.listening():
        assert (await start(site, tmp_path, ShareFacts("n1", 0, 102_400)))[0]
    [request] = site.runs()
    assert request.destination == "(n1:ncpus=0:mem=102400kb)"
