"""Every form of request, from the server's notation over the wire to the plan and the comment."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from schedd.dialect import canonical
from schedd.engine import Engine, EngineSettings
from schedd.engine.run.job_attributes import comment_text
from schedd.start_sentence import NEVER
from schedd.wire import Snapshot, WriteAttributes
from server_adapter.batch.sockets import Address
from server_adapter.bridge.diff import snapshot
from server_adapter.bridge.job_comments import comment
from server_adapter.emulator import EmulatedServer, JobOrder, NodeSpec
from server_adapter.emulator.submission import submit
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.servers.torque.reader import TorqueReader
from server_adapter.torque.credentials import TorqueAnyPort

NODES = [
    NodeSpec(f"node{i}", 8, ("odd" if i % 2 else "even", *(("big",) if i == 4 else ()))) for i in range(1, 5)
]
PLANNED = "planned start "


@dataclass(frozen=True)
class Form:
    """A submitted request, its interpretation, and its comment beside or instead of a planned start.

    `planned` empty: it cannot be planned.
    """

    asked: Mapping[str, str]
    planned: str
    said: str = ""
    queue: str = "batch"
    extra: Mapping[str, str] = field(default_factory=dict)
    array: str = ""
    holds: str = ""
    depend: str = ""


def nodes(text: str, **more: str) -> dict[str, str]:
    return {"nodes": text, **more}


FORMS = {
    # -- nodes= -------------------------------------------------------------------------------------
    "a number of nodes": Form(nodes("2"), "2 x (1 cpu); scatter"),
    "cores of each": Form(nodes("2:ppn=4"), "2 x (4 cpus); scatter"),
    "a property": Form(nodes("1:ppn=2:odd"), "1 x (2 cpus on odd); free"),
    "either property": Form(nodes("1:ppn=2", feature="odd|big"), "1 x (2 cpus on big|odd); free"),
    "parts": Form(nodes("1:ppn=8+2:ppn=2:even"), "1 x (8 cpus) + 2 x (2 cpus on even); scatter"),
    "a host": Form(nodes("node3:ppn=4+1"), "1 x (4 cpus on node3) + 1 x (1 cpu); scatter"),
    # -- other ways to ask for cores ----------------------------------------------------------------
    "cores anywhere": Form({"procs": "6"}, "6 x (1 cpu); free"),
    "cores of one node": Form({"ncpus": "4"}, "1 x (4 cpus); free"),
    "both": Form(
        nodes("2:ppn=2", procs="9"), "2 x (2 cpus); scatter", "(procs=9 was not followed: nodes= wins)"
    ),
    # -- memory and time ----------------------------------------------------------------------------
    "memory of the job": Form(nodes("2:ppn=2", mem="8gb"), "2 x (2 cpus, 4gb); scatter"),
    "memory of a core": Form(nodes("1:ppn=4", pmem="1gb"), "1 x (4 cpus, 4gb); free"),
    "virtual memory": Form(nodes("2:ppn=2", vmem="8gb"), "2 x (2 cpus, 4gb vmem); scatter"),
    "virtual memory of a core": Form(nodes("1:ppn=4", pvmem="2gb"), "1 x (4 cpus, 8gb vmem); free"),
    "the larger of both": Form(nodes("1:ppn=2", mem="4gb", pmem="3gb"), "1 x (2 cpus, 6gb); free"),
    "time of the processor": Form(
        nodes("1", cput="00:10:00"), "1 x (1 cpu); free", "(not planned: cput=00:10:00)"
    ),
    # -- alone on its nodes -------------------------------------------------------------------------
    "qsub -n": Form(nodes("1:ppn=2"), "1 x (2 cpus); free; exclusive", extra={"node_exclusive": "True"}),
    "naccesspolicy": Form(nodes("1", naccesspolicy="singlejob"), "1 x (1 cpu); free; exclusive"),
    "naccesspolicy of a user": Form(
        nodes("1", naccesspolicy="singleuser"),
        "1 x (1 cpu); free; exclusive",
        "(naccesspolicy=singleuser is planned as whole nodes (singlejob), which is stricter)",
    ),
    "-W x=": Form(nodes("1"), "1 x (1 cpu); free; exclusive", extra={"x": "NACCESSPOLICY:SINGLEJOB"}),
    "-W x= with more": Form(
        nodes("1"),
        "1 x (1 cpu); free",
        "(not planned: x.flags=RESTARTABLE)",
        extra={"x": "FLAGS:RESTARTABLE"},
    ),
    # -- requests that cannot be planned ------------------------------------------------------------
    "software": Form(nodes("1", software="matlab"), "1 x (1 cpu); free", "(not planned: software=matlab)"),
    "gpus of the job, not divisible": Form(
        nodes("3", gres="gpus:4"), "", "cannot be divided evenly over its 3 units"
    ),
    "tasks of a node": Form(nodes("2:ppn=4", tpn="2"), "", "tpn= is not planned"),
    "tasks of a node and cores": Form({"procs": "8", "tpn": "4"}, "", "allowed: nodes=2:ppn=4"),
    "a mode of gpus": Form(nodes("1", gres="gpus:1:shared"), "1 x (1 cpu, 1 gpu); free", "never on"),
    "a partition": Form(nodes("1", partition="big"), "1 x (1 cpu on big); free"),
    "a partition by -W x=": Form(nodes("1"), "1 x (1 cpu on odd); free", extra={"x": "PARTITION:odd"}),
    "an unknown partition": Form(
        nodes("1", partition="north"), "1 x (1 cpu on north); free", "never on this"
    ),
    "a generic resource that nobody has": Form(
        nodes("1", gres="matlab:2"), "", "no node reports matlab and the site does not count it"
    ),
    "an operating system": Form(nodes("1", opsys="linux"), "", "opsys= is not planned"),
    "an unknown reservation": Form(
        nodes("1"),
        "1 x (1 cpu); free",
        "waiting for reservation r1, which",
        extra={"x": "ADVRES:r1"},
    ),
    "a reservation among flags": Form(
        nodes("1"),
        "1 x (1 cpu); free",
        "waiting for reservation r1, which",
        extra={"x": "FLAGS:RESTARTABLE,ADVRES:r1"},
    ),
    "gpus of the job": Form(nodes("2", gres="gpus:2"), "2 x (1 cpu, 1 gpu); scatter", f"{NEVER}: "),
    "wider than the cluster": Form({"procs": "99"}, "99 x (1 cpu); free", f"{NEVER}: "),
    # -- defaults -----------------------------------------------------------------------------------
    "the queue's default": Form({}, "1 x (2 cpus); free", queue="small"),
    # -- preconditions ------------------------------------------------------------------------------
    "a hold": Form(nodes("1"), "1 x (1 cpu); free", "waiting for a user hold", holds="u"),
    "a dependency": Form(
        nodes("1"), "1 x (1 cpu); free", "if afterok:0.localhost", depend="afterok:0.localhost"
    ),
    "an array with a slot limit": Form(nodes("1"), "1 x (1 cpu); free", array="1-4%2"),
}


@dataclass(frozen=True)
class WrittenComment:
    """What the daemon makes of one submission."""

    planned: str
    why: str
    comment: str


@pytest.fixture(scope="module", params=["4.2", "6.1"])
def known(request: pytest.FixtureRequest) -> dict[str, list[WrittenComment]]:
    """By form, one for each job that it makes."""
    return asyncio.run(_known(request.param))


async def _known(version: str) -> dict[str, list[WrittenComment]]:
    async with EmulatedServer(NODES, version=version, queues=("batch", "small")) as server:
        server.cluster.queues["small"].attributes |= {"resources_default.nodes": "1:ppn=2"}
        names = {name: submit(server.cluster, _order(form)) for name, form in FORMS.items()}
        link = TorqueLink(Address(*server.address), TorqueAnyPort())
        state = await TorqueReader(link).read()
        await link.close()
    now = int(server.now)
    told = snapshot(state, id="1:1", now=now, mode="adviser")
    assert isinstance(told, Snapshot)
    engine = Engine(EngineSettings(publish_rate=1000), now)
    tells = {
        decision.job_id: decision
        for decision in engine.handle([told], now).decisions
        if isinstance(decision, WriteAttributes)
    }
    found: dict[str, list[WrittenComment]] = {}
    for form, name in names.items():
        members = [job for job in state.jobs if job == name or state.jobs[job].array == name]
        found[form] = []
        for job in members:
            record = engine.state.records[job]
            asked = record.understood.request
            text = "" if asked is None else canonical(asked).removesuffix("; no walltime")
            found[form].append(WrittenComment(text, comment_text(engine.state, record), comment(tells[job])))
    return found


def _order(form: Form) -> JobOrder:
    return JobOrder(
        user="alice",
        queue=form.queue,
        resources={**form.asked, "walltime": "00:30:00"},
        extra=form.extra,
        array=form.array,
        holds=form.holds,
        depend=form.depend,
    )


@pytest.mark.parametrize("name", [name for name in FORMS if not FORMS[name].array])
def test_a_request_is_planned_as_intended_or_its_owner_is_informed(
    known: dict[str, list[WrittenComment]], name: str
) -> None:
    form = FORMS[name]
    (job,) = known[name]
    assert job.planned == form.planned
    waits = not form.said.startswith("(") and form.said
    assert job.comment.startswith("schedd: " + ("" if waits else PLANNED))
    assert form.said in job.comment
    assert form.said.strip("()") in job.why
    assert waits or form.said or "(" not in job.comment


def test_subjobs_beyond_the_slot_limit_are_planned_after_the_others(
    known: dict[str, list[WrittenComment]],
) -> None:
    jobs = known["an array with a slot limit"]
    assert {job.planned for job in jobs} == {"1 x (1 cpu); free"}
    starts = [job.comment.partition(PLANNED)[2][:19] for job in jobs]
    assert "" not in starts
    assert starts[0] == starts[1] < starts[2] == starts[3]
