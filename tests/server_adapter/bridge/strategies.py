"""Hypothesis strategies: a server's words, and states made of them."""

from dataclasses import replace

from hypothesis import strategies as st

from schedd.wire import NodeFacts, QueueFacts, ServerFacts
from schedd.wire.facts import NodeStateName
from server_adapter.bridge.facts import Values
from server_adapter.bridge.state import ServerState
from server_adapter.servers.torque.facts import ending, job_facts

NAMES = [f"{number}.srv" for number in range(5)] + ["7[1].srv", "7[2].srv"]
HOSTS = ["n1/0+n1/1", "n1/0-1+n2/0", "n2/3"]
NODE_STATES: list[NodeStateName] = ["up", "down", "drain"]
ACTIVE = ("R", "E", "S")
BY = st.sampled_from(["", "carol@login1"])


@st.composite
def job_values(draw: st.DrawFn, states: str = "QHWRES") -> Values:
    """A job as a 4.2 or 6.1 server describes it, in any order of events."""
    state = draw(st.sampled_from(states))
    values = {
        "job_state": state,
        "queue": draw(st.sampled_from(["batch", "long"])),
        "euser": "alice",
        "ctime": "1000",
        "Resource_List.nodes": draw(st.sampled_from(["1", "2:ppn=2"])),
        "Resource_List.neednodes": draw(st.sampled_from(["1", "n1:ppn=2"])),
        "Priority": draw(st.sampled_from(["0", "10"])),
        "start_count": str(draw(st.integers(1, 3) if state in ACTIVE else st.integers(0, 3))),
    }
    if state == "H":
        values["Hold_Types"] = draw(st.sampled_from(["u", "s", "us", "", "l"]))
    elif draw(st.booleans()):
        values["Hold_Types"] = draw(st.sampled_from(["n", "u"])) if state in ACTIVE else "n"
    if state in ("Q", "R", "E", "S") and draw(st.booleans()):
        values["etime"] = str(draw(st.integers(1000, 1003)))
    if state == "W" or draw(st.booleans()):
        values["Execution_Time"] = str(draw(st.integers(2000, 2002)))
    if state in ACTIVE or draw(st.booleans()):
        values["start_time"] = str(draw(st.integers(1100, 1104)))
    if state in ACTIVE:
        values["exec_host"] = draw(st.sampled_from(HOSTS))
    if draw(st.booleans()):
        values["comment"] = draw(st.sampled_from(["Not Running", "my job"]))
    return values


@st.composite
def ended_values(draw: st.DrawFn) -> Values:
    """A completed job that ran, or was deleted before."""
    values = {"job_state": "C", "comp_time": "1200", "exit_status": str(draw(st.sampled_from([0, 1, 271])))}
    if draw(st.booleans()):
        values |= {"exec_host": draw(st.sampled_from(HOSTS)), "start_time": "1150", "start_count": "1"}
    return values


@st.composite
def states(draw: st.DrawFn) -> ServerState:
    """A whole server."""
    alive = draw(st.dictionaries(st.sampled_from(NAMES), job_values()))
    done = draw(st.dictionaries(st.sampled_from(NAMES), ended_values()))
    nodes = draw(st.dictionaries(st.sampled_from(["n1", "n2"]), st.sampled_from(NODE_STATES)))
    queues = draw(st.dictionaries(st.sampled_from(["batch", "long"]), st.booleans()))
    return ServerState(
        jobs={
            name: replace(facts, by=draw(BY)) if facts.state in ACTIVE else facts
            for name, facts in ((name, job_facts(name, values)) for name, values in alive.items())
        },
        ended={
            name: replace(ending(values), by=draw(BY)) for name, values in done.items() if name not in alive
        },
        nodes={name: NodeFacts(name=name, cpus=4, state=state) for name, state in nodes.items()},
        queues={name: QueueFacts(name=name, started=started) for name, started in queues.items()},
        server=ServerFacts(scheduling=draw(st.booleans())),
    )
