import pytest

from schedd.dialect.deadline import read_deadline, read_required_probability
from schedd.wire import NodeFacts, ShareFacts
from server_adapter.bridge.facts import Values, job_version
from server_adapter.servers.torque.facts import (
    ending,
    job_facts,
    node_facts,
    queue_facts,
    server_facts,
    unknown_node_states,
)

# Attributes of a queued job of a 4.2 server, without unused ones.
QUEUED = {
    "Job_Name": "j.sh",
    "Job_Owner": "alice@login1",
    "job_state": "Q",
    "queue": "batch",
    "ctime": "1795263568",
    "Hold_Types": "n",
    "Priority": "0",
    "qtime": "1795263568",
    "Resource_List.neednodes": "2:ppn=2",
    "Resource_List.nodect": "2",
    "Resource_List.nodes": "2:ppn=2",
    "Resource_List.walltime": "01:00:00",
    "euser": "alice",
    "egroup": "staff",
    "etime": "1795263568",
}
RUNNING = QUEUED | {
    "job_state": "R",
    "exec_host": "node1/0+node1/1+node2/0+node2/1",
    "start_time": "1795264320",
    "start_count": "1",
}


def test_a_queued_job_has_its_request_and_no_shares() -> None:
    job = job_facts("5.srv", QUEUED)
    assert (job.id, job.owner, job.group, job.queue, job.name) == ("5.srv", "alice", "staff", "batch", "j.sh")
    assert (job.state, job.holds, job.submitted, job.eligible) == ("Q", "", 1795263568, 1795263568)
    assert job.resources == {"nodect": "2", "nodes": "2:ppn=2", "walltime": "01:00:00"}
    assert (job.shares, job.started, job.starts) == ((), None, 0)


@pytest.mark.parametrize(
    "host", ["node1/0+node1/1+node2/0+node2/1", "node1/1+node1/0+node2/1+node2/0", "node1/0-1+node2/0-1"]
)
def test_a_running_job_has_its_shares_in_the_servers_order(host: str) -> None:
    job = job_facts("5.srv", RUNNING | {"exec_host": host})
    assert job.shares == (ShareFacts("node1", 2), ShareFacts("node2", 2))
    assert (job.state, job.started, job.starts) == ("R", 1795264320, 1)


def test_gpus_of_a_running_job_are_counted_by_node() -> None:
    job = job_facts("5.srv", RUNNING | {"exec_gpus": "node1-gpu/0+node1-gpu/1+node2-gpu/0"})
    assert [share.gpus for share in job.shares] == [2, 1]


def test_an_exiting_job_still_holds_its_nodes() -> None:
    assert job_facts("5.srv", RUNNING | {"job_state": "E"}) == job_facts("5.srv", RUNNING)


def test_a_start_time_written_on_a_queued_job_is_no_run() -> None:
    job = job_facts("5.srv", QUEUED | {"start_time": "1795269999", "exec_host": "node1/0"})
    assert (job.started, job.shares) == (None, ())


@pytest.mark.parametrize(
    ("changes", "state", "holds", "eligible"),
    [
        ({"job_state": "H", "Hold_Types": "u"}, "H", "u", None),
        ({"job_state": "H", "Hold_Types": "us"}, "H", "us", None),
        ({"job_state": "H", "Hold_Types": ""}, "H", "l", 1795263568),  # a slot limit in 4.2
        ({"job_state": "H", "Hold_Types": "l"}, "H", "l", 1795263568),  # and in 6.1
        ({"job_state": "W", "Execution_Time": "1795270000"}, "W", "", None),
        ({"job_state": "?"}, "T", "", 1795263568),
        ({"job_state": "?", "exec_host": "node1/0"}, "R", "", 1795263568),  # it may hold the node
    ],
)
def test_holds_and_waits(changes: Values, state: str, holds: str, eligible: int | None) -> None:
    job = job_facts("5.srv", {**QUEUED, **changes})
    assert (job.state, job.holds, job.eligible) == (state, holds, eligible)


def test_a_job_names_its_account_and_its_project() -> None:
    facts = job_facts("1.server", {"Account_Name": "geo", "project": "_pbs_project_default"})
    assert (facts.account, facts.project) == ("geo", "_pbs_project_default")
    assert job_facts("1.server", {}).project == ""


def test_a_sub_job_names_its_array() -> None:
    assert job_facts("9[3].srv", QUEUED | {"job_array_id": "3"}).array == "9[].srv"
    assert job_facts("9.srv", QUEUED).array == ""


@pytest.mark.parametrize("deadline", ["1800000000", "+1:30:00", "2027-01-15T08:00Z", "1800000000@95%"])
def test_a_deadline_given_to_qsub_reaches_the_planner(deadline: str) -> None:
    facts = job_facts("5.srv", QUEUED | {"x": f"FLAGS:RESTARTABLE;deadline:{deadline}"})
    expected = {"+1:30:00": facts.submitted + 5400}.get(deadline, 1_800_000_000)
    assert read_deadline(facts.resources, facts.submitted) == expected
    assert read_required_probability(facts.resources) == (0.95 if deadline.endswith("%") else None)


def test_whole_nodes_can_be_requested_in_three_forms() -> None:
    assert job_facts("5.srv", QUEUED | {"node_exclusive": "True"}).exclusive
    extended = job_facts("5.srv", QUEUED | {"x": "NACCESSPOLICY:SINGLEJOB;FLAGS:RESTARTABLE"})
    assert extended.resources["naccesspolicy"] == "SINGLEJOB"
    assert extended.resources["x.flags"] == "RESTARTABLE"
    plain = job_facts(
        "5.srv", QUEUED | {"x": "NACCESSPOLICY:SHARED", "Resource_List.naccesspolicy": "singlejob"}
    )
    assert plain.resources["naccesspolicy"] == "singlejob"


@pytest.mark.parametrize(
    "change",
    [
        {"Resource_List.walltime": "02:00:00"},
        {"queue": "long"},
        {"depend": "afterok:4.srv"},
        {"start_count": "1"},
        {"Execution_Time": "1795270000"},
    ],
)
def test_the_version_changes_with_everything_that_a_run_relies_on(change: Values) -> None:
    assert job_facts("5.srv", {**QUEUED, **change}).version != job_facts("5.srv", QUEUED).version


@pytest.mark.parametrize(
    "change",
    [
        {"job_state": "H", "Hold_Types": "u"},
        {"comment": "planned"},
        {"Priority": "7"},
        {"Resource_List.neednodes": "node1:ppn=2"},
    ],
)
def test_the_version_ignores_everything_else(change: Values) -> None:
    job = job_facts("5.srv", {**QUEUED, **change})
    assert job.version == job_facts("5.srv", QUEUED).version == job_version(job)


def test_odd_values_never_hide_a_job() -> None:
    odd = {"job_state": "R", "exec_host": "++", "start_time": "soon", "Priority": "", "start_count": "x"}
    job = job_facts("5.srv", QUEUED | odd)
    assert (job.state, job.shares, job.started, job.priority, job.starts) == ("R", (), None, 0, 0)


def test_a_completed_job_has_its_exit_status_and_its_run() -> None:
    ran = ending(RUNNING | {"job_state": "C", "exit_status": "271", "comp_time": "1795264330"})
    assert (ran.exit_status, ran.completed, ran.started, ran.starts) == (271, 1795264330, 1795264320, 1)
    assert ran.shares == (ShareFacts("node1", 2), ShareFacts("node2", 2))
    assert ending(QUEUED | {"job_state": "C", "start_time": "1795269999"}).started is None


NODE = {
    "state": "free",
    "np": "4",
    "properties": "odd,big",
    "status": "rectime=1,varattr=,gres=scratch:100+lic=2,physmem=24684096kb,totmem=26000000kb,state=free",
}


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("free", "up"),
        ("job-exclusive", "up"),
        ("busy", "up"),
        ("offline", "drain"),
        ("offline,job-exclusive", "drain"),
        ("down", "down"),
        ("down,offline", "down"),
        ("state-unknown,down", "down"),
        ("free,MOM-list-not-sent", "down"),
        ("of-a-newer-server", "drain"),
        ("", "down"),
    ],
)
def test_node_states(text: str, state: str) -> None:
    assert node_facts("n1", NODE | {"state": text}).state == state
    assert bool(unknown_node_states(text)) == ("newer" in text)


def test_a_node_has_capacities_properties_and_generic_resources() -> None:
    node = node_facts("n1", NODE)
    assert (node.cpus, node.mem, node.vmem) == (4, 24684096, 26000000)
    assert node.properties == ("odd", "big")
    assert node.resources == {"scratch": 100, "lic": 2}


def test_a_silent_node_keeps_the_memory_it_last_reported() -> None:
    silent = {"state": "down", "np": "4"}
    assert node_facts("n1", silent, node_facts("n1", NODE)).mem == 24684096
    assert node_facts("n1", silent) == NodeFacts(name="n1", cpus=4, state="down")


def test_a_routing_queue_counts_as_stopped() -> None:
    words = {"queue_type": "Execution", "started": "True", "enabled": "True", "max_user_run": "3"}
    queue = queue_facts("batch", words | {"resources_default.walltime": "01:00:00", "total_jobs": "4"})
    assert (queue.started, queue.enabled) == (True, True)
    assert queue.limits == {"max_user_run": "3"}
    assert queue.defaults == {"walltime": "01:00:00"}
    lists = {"acl_user_enable": "True", "acl_users": "ann,bob", "from_route_only": "True"}
    assert queue_facts("gold", words | lists | {"mtime": "1"}).attributes == lists
    route = queue_facts("in", words | {"queue_type": "Route", "route_destinations": "batch, far@other"})
    assert (route.started, route.routes) == (False, ("batch", "far@other"))
    needs = words | {"features_required": "big, ib"}
    assert queue_facts("big", needs).defaults == {"neednodes": "big:ib"}
    both = needs | {"resources_default.neednodes": "fast"}
    assert queue_facts("big", both).defaults == {"neednodes": "fast:big:ib"}


def test_features_that_the_server_appends_at_each_alteration_count_once() -> None:
    first = job_facts("1.server", {**QUEUED, "Resource_List.feature": "fast:ib,big"})
    later = job_facts("1.server", {**QUEUED, "Resource_List.feature": "fast:ib,big,big,big"})
    assert first.resources["feature"] == "fast:ib:big"
    assert later == first


def test_the_server_says_whether_it_wants_to_be_scheduled() -> None:
    words = {"scheduling": "True", "pbs_version": "4.2.10", "max_running": "9", "state_count": "Queued:1 "}
    server = server_facts(words)
    assert (server.scheduling, server.version, server.limits) == (True, "4.2.10", {"max_running": "9"})
    assert not server_facts({}).scheduling


def test_a_kill_delay_of_the_server_is_reported() -> None:
    assert server_facts({"kill_delay": "10"}).attributes == {"kill_delay": "10"}
    assert server_facts({"kill_delay": "0"}).attributes == server_facts({}).attributes == {}


def test_dependencies_have_the_form_of_ids_without_the_servers_name() -> None:
    """4.2 with display_job_server_suffix = False lists `81` with `afterany:80.srv`."""
    depend = "afterany:80.srv:79.srv.site,afterokarray:84[].srv,afterok:7.far@far,on:2"
    short = job_facts("81", QUEUED | {"depend": depend})
    assert short.depend == "afterany:80:79,afterokarray:84[],afterok:7.far@far,on:2"
    assert job_facts("81.srv", QUEUED | {"depend": depend}).depend == depend


def test_a_new_dependent_does_not_change_a_jobs_version() -> None:
    job = {"job_state": "Q", "queue": "batch", "Resource_List.nodes": "1"}
    alone = job_facts("1.here", job)
    waited_for = job_facts("1.here", job | {"depend": "beforeany:2.here@here"})
    waiting = job_facts("1.here", job | {"depend": "afterok:0.here@here,beforeok:2.here@here"})
    assert waited_for.version == alone.version
    assert waited_for.depend
    assert waiting.version != alone.version


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"job_array_request": "0-99%10"}, 10),
        ({"job_array_request": "0-99"}, None),
        ({"job_array_request": "0-99%10", "array_slot_limit": "4"}, 4),
        ({"job_array_request": "1-3%x"}, None),
    ],
)
def test_the_slot_limit_of_an_array_is_parsed(values: dict[str, str], limit: int | None) -> None:
    assert job_facts("9[3].srv", QUEUED | {"job_array_id": "3"} | values).slot_limit == limit
    assert job_facts("9.srv", QUEUED | values).slot_limit is None
