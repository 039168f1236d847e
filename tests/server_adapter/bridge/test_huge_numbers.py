"""The daemon accepts facts with any number in an attribute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.api.event_bounds import find_range_faults
from schedd.wire import (
    NO_TYPES,
    Event,
    JobEnded,
    JobQueued,
    NodeChanged,
    QueueChanged,
    ResourceFacts,
    ResourceTypes,
    ServerChanged,
    Snapshot,
)
from server_adapter.bridge.messages import decode_event, encode_event
from server_adapter.bridge.state import FactParsers
from server_adapter.servers.openpbs.facts import make_fact_parsers
from server_adapter.servers.torque.facts import FACT_PARSERS as TORQUE

OPENPBS = make_fact_parsers(NO_TYPES)
TYPED = make_fact_parsers(
    ResourceTypes({"licence": ResourceFacts("float", "h"), "scratch": ResourceFacts("size", "h")})
)
NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40),
    st.integers(0, 70).map(lambda n: 1 << n),
    st.sampled_from([10**18, 10**19, 253_402_300_740]),  # the last: `qsub -a` in the year 9999
).map(str) | st.sampled_from(["9" * 5_000, "-", "1_0", " 7 ", "1.5", "\u0663", "inf"])
SIZES = st.tuples(NUMBERS, st.sampled_from(["", "kb", "mw", "pb"])).map("".join)
JOB = dict.fromkeys(
    (
        *("ctime", "qtime", "etime", "stime", "start_time", "Execution_Time", "Priority", "start_count"),
        *("run_count", "array_slot_limit", "max_run_subjobs", "planned_start", "estimated.start_time"),
        *("exit_status", "Exit_status", "comp_time", "obittime", "Resource_List.walltime"),
    ),
    NUMBERS,
)
JOB |= {
    "job_array_request": NUMBERS.map("0-3%{}".format),
    "job_array_id": st.just("1"),
    "job_state": st.sampled_from("QHWREC"),
    "exec_vnode": st.tuples(NUMBERS, SIZES).map(lambda n: f"(n1:ncpus={n[0]}:ngpus={n[0]}:mem={n[1]})"),
    "exec_host": st.just("n1/0"),
}
NODE = dict.fromkeys(
    ("np", "gpus", "resources_available.ncpus", "resources_available.ngpus", "resources_available.licence"),
    NUMBERS,
)
NODE |= {
    "resources_available.mem": SIZES,
    "resources_available.vmem": SIZES,
    "resources_available.scratch": SIZES,
    "status": st.tuples(SIZES, SIZES, NUMBERS).map(lambda n: f"physmem={n[0]},totmem={n[1]},gres=a:{n[2]}+b"),
}


@pytest.mark.parametrize("words", [TORQUE, OPENPBS, TYPED], ids=["torque", "openpbs", "typed"])
@given(
    st.fixed_dictionaries({}, optional=JOB),
    st.fixed_dictionaries({}, optional=NODE),
    st.fixed_dictionaries({}, optional={"Priority": NUMBERS}),
)
def test_facts_stay_within_the_bounds_of_messages(
    words: FactParsers, job: dict[str, str], node: dict[str, str], queue: dict[str, str]
) -> None:
    one, host = words.job("1.srv", job), words.node("n1", node, None)
    line, server = words.queue("batch", queue), words.server({})
    words.writing(job)
    end = words.ending(job)
    events: list[Event] = [
        JobQueued(id="e:1", time=1, job=one),
        NodeChanged(id="e:2", time=1, node=host),
        QueueChanged(id="e:3", time=1, queue=line),
        ServerChanged(id="e:4", time=1, server=server),
        JobEnded(id="e:5", time=end.completed or 1, job_id="1.srv", exit_status=end.exit_status or 0),
        Snapshot(id="e:6", time=1, jobs=(one,), nodes=(host,), queues=(line,), server=server),
    ]
    assert find_range_faults(events) == []
    for event in events:
        assert decode_event(encode_event(event)) == event
