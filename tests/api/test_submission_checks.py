"""What-if reports each reason why qsub would refuse a job; arrays, dependencies and wishes."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.engine import JobRecord
from schedd.policy.limits import Limit
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.submission_checks import QueuedJobs
from tests.api.conftest import token
from tests.service.planner_harness import T

MAIN = "/v1/clusters/main"
USER = "our-user"
HOUR = 3600


def post(client: TestClient, *events: dict[str, Any]) -> None:
    numbered = [{"id": f"x:{hash(str(event))}", "time": T, **event} for event in events]
    answer = client.post(f"{MAIN}/events", json={"events": numbered})
    assert answer.status_code == 200, answer.text


def queue(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "queue_changed", "queue": {"name": name, **fields}}


def queued(number: int, queue: str, owner: str = USER, **fields: Any) -> dict[str, Any]:
    resources = {"nodes": "1:ppn=2", "walltime": "01:00:00"}
    job = {"id": f"{number}.server", "owner": owner, "queue": queue, "submitted": T, "resources": resources}
    return {"type": "job_queued", "job": {**job, **fields}}


@pytest.fixture
def user(app: FastAPI, busy_cluster: TestClient) -> Iterator[TestClient]:
    with TestClient(app, headers={"Authorization": f"Bearer {token('user')}"}) as client:
        yield client


def check_submission(client: TestClient, **question: Any) -> Any:
    question = {"request": "nodes=1:ppn=2,walltime=01:00:00", **question}
    if "job" in question:
        del question["request"]
    answer = client.post(f"{MAIN}/what-if", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_refused_job_moves_no_others(busy_cluster: TestClient, user: TestClient) -> None:
    vip = {"points": 2.0, "queues": ["gold"], "breaks_promises": True}
    assert busy_cluster.put(f"{MAIN}/policy", json={"classes": {"vip": vip}}).status_code == 200
    post(busy_cluster, queue("gold"))
    question = {"request": "nodes=1:ppn=4,walltime=01:00:00", "queue": "gold"}
    moves = "jobs of lower priority would move behind it, even beyond their promises"
    assert moves in check_submission(user, **question)["notes"]
    post(busy_cluster, queue("gold", enabled=False))
    found = check_submission(user, **question)
    assert found["answer"] == "never"
    assert moves not in found["notes"]


def test_a_what_if_reports_all_reasons_for_a_refusal(busy_cluster: TestClient, user: TestClient) -> None:
    post(
        busy_cluster,
        queue(
            "gold",
            enabled=False,
            limits={
                "resources_max.walltime": "00:30:00",
                "resources_min.ncpus": "8",
                "max_user_queuable": "2",
            },
            attributes={"acl_user_enable": "True", "acl_users": "ann,bob", "from_route_only": "True"},
        ),
        {
            "type": "server_changed",
            "server": {"family": "torque", "limits": {"max_job_array_size": "10", "max_user_queuable": "11"}},
        },
        *(queued(number, "gold") for number in (101, 102)),
        queued(103, "batch"),
        queued(104, "gold", "ann"),
    )
    found = check_submission(
        user, request="nodes=1:ppn=2,ncpus=2,walltime=01:00:00", queue="gold", array="1-20%2"
    )
    assert found["answer"] == "never"
    assert found["refusals"] == [
        "queue gold takes no jobs (enabled = False)",
        "queue gold takes jobs only from a routing queue (from_route_only = True)",
        f"{USER} is not on the access list of queue gold (acl_users)",
        "ncpus=2, and queue gold has resources_min.ncpus = 8",
        "walltime=01:00:00, and queue gold has resources_max.walltime = 00:30:00",
        "20 subjobs, and the server has max_job_array_size = 10",
        f"{USER} has 2 queued or running jobs, and queue gold has max_user_queuable = 2",
        f"{USER} has 3 queued or running jobs, and the server has max_user_queuable = 11",
    ]
    assert found["requirement"] == "qsub refuses it: " + "; ".join(found["refusals"])
    assert (found["planned_start"], found["expected_start"], found["promised_start"]) == (None, None, None)
    post(busy_cluster, queue("gold", attributes={"acl_user_enable": "True", "acl_users": USER}))
    assert check_submission(user, queue="gold")["refusals"] == []
    unknown = check_submission(busy_cluster, queue="gold")  # an administrator asks for nobody
    assert unknown["refusals"] == []
    assert "queue gold has an access list, and the user is not known here" in unknown["notes"]
    assert check_submission(busy_cluster, queue="gold", owner="eve")["refusals"]


@pytest.mark.parametrize(
    ("request_list", "refusals"),
    [
        ("select=2:ncpus=1:mem=32gb:gpu_share=2", []),
        (
            "select=2:ncpus=1:mem=32gb:gpu_share=2+1:ncpus=1:mem=1gb:gpu_share=1",
            [
                "gpu_share=5, and queue gold has resources_max.gpu_share = 4",
                "mem=65gb, and queue gold has resources_max.mem = 64gb",
            ],
        ),
        ("select=1:ncpus=1,min_walltime=600,max_walltime=1200", []),
        (
            "select=1:ncpus=1,min_walltime=1:00:00,max_walltime=0:30:00",
            ["min_walltime=1:00:00 is greater than max_walltime=0:30:00"],
        ),
        ("select=1:ncpus=1,max_walltime=1200", ["max_walltime=1200 without a min_walltime"]),
    ],
)
def test_openpbs_adds_up_what_chunks_request_and_checks_ranges_of_walltimes(
    busy_cluster: TestClient, user: TestClient, request_list: str, refusals: list[str]
) -> None:
    limits = {"resources_max.mem": "64gb", "resources_max.gpu_share": "4"}
    post(
        busy_cluster,
        queue("gold", limits=limits),
        {"type": "server_changed", "server": {"family": "openpbs"}},
    )
    assert check_submission(user, queue="gold", request=request_list)["refusals"] == refusals


def test_access_to_qos_and_limits_of_users_are_those_of_the_caller(
    busy_cluster: TestClient, user: TestClient
) -> None:
    """A question of a user was one of nobody: no QOS that is open to some users was open to it."""
    levels = {"high": {"users": [USER], "charge": 2.5}, "other": {"users": ["ann"]}}
    limits = [{"qos": "high", "who": "user", "what": "cpus", "amount": 3}]
    policy = {"qos": {"levels": levels}, "limits": limits, "prices": [{"core_hour": 1.0}]}
    assert busy_cluster.put(f"{MAIN}/policy", json=policy).status_code == 200
    ask = partial(check_submission, user)
    high = ask(request="nodes=1:ppn=2,walltime=600,qos=high")
    assert high["answer"] == "start_known"
    assert "its account is charged 2.5 times this cost, by its QOS or partition" in high["notes"]
    closed = ask(request="nodes=1,qos=other", changes=True, windows=3, sooner=True)
    assert "QOS other, which neither user our-user" in closed["why"]
    assert (closed["changes"], closed["windows"]) == ([], []), "a smaller request is refused, too"
    assert ask(request="nodes=1:ppn=4,walltime=600,qos=high")["waiting_for"] == "limit"


def test_queued_jobs_are_read_once_for_all_variants_and_destinations(
    busy_cluster: TestClient, loop: PlanLoop
) -> None:
    post(busy_cluster, queued(101, "gold"), queued(102, "gold", "ann"))
    known = [one for one in loop.published.records if one is not None]
    reads = []

    def read_jobs() -> list[JobRecord]:
        reads.append(1)
        return known

    jobs = QueuedJobs(read_jobs)
    assert not reads
    for _ in range(2):
        assert jobs.amount(Limit(amount=1, what="jobs", who="all"), "") == len(known)
        assert jobs.amount(Limit(amount=1, what="cpus", who="user", name=USER), "gold") == 2
        owners = [one.facts.owner.partition("@")[0] for one in known]
        assert jobs.amount(Limit(amount=1, what="jobs", who="user", name="ann"), "") == owners.count("ann")
        waiting = Limit(amount=1, what="jobs", who="all", counts="eligible")
        assert jobs.amount(waiting, "") == sum(one.facts.state != "R" for one in known)
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("family", "attributes", "refused"),
    [
        ("torque", {"acl_group_enable": "True", "acl_groups": "staff"}, "group physics is not on the access"),
        ("torque", {"acl_group_enable": "True", "acl_groups": "staff", "acl_group_sloppy": "True"}, ""),
        ("openpbs", {"acl_group_enable": "True", "acl_groups": "staff"}, ""),
        ("torque", {"acl_group_enable": "True", "acl_groups": "physics"}, ""),
        ("torque", {"disallowed_types": "batch"}, "takes only interactive jobs"),
        ("torque", {"disallowed_types": "rerunable,interactive"}, "takes only jobs with qsub -r n"),
        (
            "torque",
            {
                "acl_group_enable": "True",
                "acl_groups": "staff",
                "acl_user_enable": "True",
                "acl_users": USER,
                "acl_logic_or": "True",
            },
            "",
        ),
    ],
)
def test_access_lists_of_groups_and_kinds_of_jobs_are_checked(
    busy_cluster: TestClient, user: TestClient, family: str, attributes: dict[str, str], refused: str
) -> None:
    server = {"type": "server_changed", "server": {"family": family}}
    known = queued(101, "batch", group="physics")
    post(busy_cluster, server, known, queue("batch"), queue("lab", attributes=attributes))
    found = check_submission(user, queue="lab")
    assert bool(found["refusals"]) is bool(refused)
    assert refused in found["requirement"]
    uncertain = not refused and "staff" in attributes.get("acl_groups", "") and "acl_users" not in attributes
    assert any("groups are not known here" in note for note in found["notes"]) is uncertain


GROUPS = {"acl_group_enable": "True", "acl_groups": "staff,physics"}
HOSTS = {"acl_host_enable": "True", "acl_hosts": "login1.site,-bad.cluster.site,*.cluster.site"}


def notes_of(found: dict[str, Any]) -> list[str]:
    return [note for note in found["notes"] if "takes only jobs" in note or "takes jobs only" in note]


def test_supplementary_groups_are_known_from_the_users_jobs(
    busy_cluster: TestClient, user: TestClient
) -> None:
    server = {"type": "server_changed", "server": {"family": "openpbs"}}
    post(busy_cluster, server, queue("batch"), queue("lab", attributes=GROUPS))
    post(busy_cluster, queued(101, "batch", group="users"))
    found = check_submission(user, queue="lab")
    assert found["refusals"] == []
    (note,) = notes_of(found)
    assert note.endswith(f"(users is not among them); {USER}'s other groups are not known here")
    post(busy_cluster, queued(102, "batch", group="physics"))  # qsub -W group_list=physics
    assert notes_of(check_submission(user, queue="lab")) == []


def test_a_user_with_a_job_in_the_queue_is_taken_for_admitted(
    busy_cluster: TestClient, user: TestClient
) -> None:
    server = {"type": "server_changed", "server": {"family": "openpbs"}}
    post(busy_cluster, server, queue("lab", attributes=GROUPS))
    assert len(notes_of(check_submission(user, queue="lab"))) == 1
    post(busy_cluster, queued(101, "lab", group="users"))
    assert notes_of(check_submission(user, queue="lab")) == []


@pytest.mark.parametrize(
    ("host", "refused"),
    [
        ("login1.site", False),
        ("login1", False),  # a name without a domain: in doubt no user is refused
        ("n7.cluster.site", False),
        ("bad.cluster.site", True),
        ("login2.site", True),
    ],
)
def test_lists_of_hosts_are_checked(busy_cluster: TestClient, host: str, refused: bool) -> None:
    post(busy_cluster, queue("lab", attributes=HOSTS))
    found = check_submission(busy_cluster, queue="lab", owner=f"ann@{host}")
    assert found["refusals"] == ([f"queue lab takes no jobs from {host} (acl_hosts)"] if refused else [])
    assert notes_of(found) == []
    post(busy_cluster, queue("lab"), {"type": "server_changed", "server": {"attributes": HOSTS}})
    found = check_submission(busy_cluster, queue="lab", owner=f"ann@{host}")
    assert found["refusals"] == ([f"the server takes no jobs from {host} (acl_hosts)"] if refused else [])


def test_hosts_of_earlier_jobs_are_compared_with_a_list_of_hosts(
    busy_cluster: TestClient, user: TestClient
) -> None:
    post(busy_cluster, queue("lab", attributes=HOSTS))
    note = "queue lab takes jobs only from some hosts (acl_hosts)"
    assert notes_of(check_submission(user, queue="lab")) == [note]
    post(busy_cluster, queued(101, "batch", f"{USER}@login2.site"))
    (seen,) = notes_of(check_submission(user, queue="lab"))
    assert seen == f"{note}, not from login2.site, where {USER}'s jobs came from"
    post(busy_cluster, {"type": "job_deleted", "job_id": "101.server"})
    post(busy_cluster, queued(102, "batch", f"{USER}@login1.site"))
    assert notes_of(check_submission(user, queue="lab")) == []


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({"max_queued": f"[u:PBS_GENERIC=9],[u:{USER}=2]"}, "has 2 queued or running jobs"),
        ({"max_queued": "[o:PBS_ALL=100],[u:PBS_GENERIC=3]"}, ""),
        ({"max_queued": "[o:PBS_ALL=3]"}, "there are 3 queued or running jobs"),
        ({"max_queued_res.ncpus": "[u:PBS_GENERIC=5]"}, "queued or running jobs have 4 cpus"),
        ({"max_queued_res.ncpus": "[u:PBS_GENERIC=6]"}, ""),
        ({"queued_jobs_threshold": "[u:PBS_GENERIC=1]"}, "has 1 queued job,"),
        ({"queued_jobs_threshold": "[u:PBS_GENERIC=2]"}, ""),
        ({"max_queuable": "3"}, "there are 3 queued or running jobs"),
        ({"max_queued": "[u:PBS_GENERIC"}, ""),
    ],
)
def test_limits_on_queued_jobs_are_checked(
    busy_cluster: TestClient, user: TestClient, limits: dict[str, str], refused: str
) -> None:
    running: dict[str, Any] = {"state": "R", "started": T, "shares": [{"node": "n1", "cpus": 2}]}
    post(
        busy_cluster,
        queue("short", limits=limits),
        queued(101, "short", **running),
        queued(102, "short"),
        queued(103, "short", "ann"),
    )
    found = check_submission(user, queue="short")
    assert bool(found["refusals"]) is bool(refused)
    assert refused in found["requirement"]


def test_a_what_if_answers_for_each_destination_of_a_routing_queue(
    busy_cluster: TestClient, user: TestClient
) -> None:
    post(
        busy_cluster,
        queue("route", started=False, routes=["short", "far@other", "held", "long"]),
        queue("short", limits={"resources_max.walltime": "00:10:00"}),
        queue("held", started=False),
        queue("long", attributes={"from_route_only": "True"}),
        {"type": "server_changed", "server": {"attributes": {"default_queue": "route"}}},
    )
    found = check_submission(user)  # the server's default queue
    assert found["notes"][:2] == [
        "no queue is named: the server puts it into route",
        "queue route routes it to queue held",
    ]
    short, far, held, long = found["destinations"]
    assert short["refusals"] == ["walltime=01:00:00, and queue short has resources_max.walltime = 00:10:00"]
    assert (short["planned_start"], short["chosen"]) == (None, False)
    assert far["refusals"] == ["another server, which is not known here"]
    assert (held["queue"], held["chosen"], held["refusals"], held["planned_start"]) == (
        "held",
        True,
        [],
        None,
    )
    assert (long["queue"], long["chosen"], long["refusals"]) == ("long", False, [])
    assert long["planned_start"] >= T
    assert long["headline"]
    assert check_submission(user, queue="long")["refusals"] == [
        "queue long takes jobs only from a routing queue (from_route_only = True)"
    ]


def test_a_hypothetical_array_respects_its_slot_limit(busy_cluster: TestClient, user: TestClient) -> None:
    post(busy_cluster, {"type": "node_changed", "node": {"name": "n9", "cpus": 20, "mem": 8 << 20}})
    request = "nodes=n9:ppn=1,walltime=01:00:00"
    free = check_submission(user, request=request, array="0-7")
    assert free["array"] == {"subjobs": 8, "slot_limit": None, "planned_end": T + HOUR}
    limited = check_submission(user, request=request, array="0-7%2", tasks=[2])
    assert limited["array"] == {"subjobs": 8, "slot_limit": 2, "planned_end": T + 4 * HOUR}
    assert [one["tasks"] for one in limited["tasks"]] == [2]
    assert check_submission(user, request=request)["array"] is None
    odd = user.post(f"{MAIN}/what-if", json={"request": "nodes=1", "array": "7-0"})
    assert odd.status_code == 422
    assert "has no index" in odd.text


def test_a_list_of_alternatives_is_asked_before_submission(user: TestClient) -> None:
    alternatives = check_submission(user, request="trl=4@7200:2@1800")
    single = check_submission(user, request="procs=2,walltime=1800")
    assert alternatives["planned_end"] == single["planned_end"]
    assert alternatives["request"] == single["request"]


def test_a_hypothetical_job_starts_after_its_dependencies(busy_cluster: TestClient, user: TestClient) -> None:
    post(
        busy_cluster,
        {"type": "node_changed", "node": {"name": "n9", "cpus": 8, "mem": 8 << 20}},
        queued(101, "batch", resources={"nodes": "n9:ppn=1", "walltime": "02:00:00"}),
        queued(102, "batch", state="H", holds="u"),
        {"type": "server_changed", "server": {"open": True}},
    )
    request = "nodes=n9:ppn=1,walltime=01:00:00"
    after = check_submission(user, request=request, depend="afterok:101")
    assert after["planned_start"] == T + 2 * HOUR
    assert "it starts after job 101 succeeds, at its full walltime" in after["notes"]
    assert check_submission(user, request=request, depend="after:101.server")["planned_start"] == T
    held = check_submission(user, request=request, depend="afterany:101:102")
    assert (held["answer"], held["waiting_for"]) == ("waiting", "dependency")
    assert "job 102.server (afterany), which has no start" in held["why"]
    failed = check_submission(user, request=request, depend="afternotok:101")
    assert failed["answer"] == "waiting"
    gone = check_submission(user, request=request, depend="afterok:999")
    assert gone["planned_start"] == T
    assert "job 999 is not in the plan: it counts as ended" in gone["notes"]
    many = check_submission(
        user, request=request, depend="afterok:101:101:" + ":".join(map(str, range(900, 930)))
    )
    assert many["planned_start"] == T + 2 * HOUR
    assert "and 11 more jobs in its dependency" in many["notes"]
    part = queued(77, "batch", array="77[].server", state="H", holds="u")
    parts = [{**part, "job": {**part["job"], "id": f"77[{i}].server"}} for i in (1, 2)]
    post(busy_cluster, *parts)
    array = check_submission(user, request=request, depend="afterok:77[]")
    assert (array["answer"], array["waiting_for"]) == ("waiting", "dependency")
    with_job = user.post(f"{MAIN}/what-if", json={"job": "101", "depend": "afterok:1"})
    assert with_job.status_code == 422


def test_no_change_starts_a_queued_job_before_its_dependency_is_met(
    busy_cluster: TestClient, user: TestClient
) -> None:
    nodes = {"nodes": "n9:ppn=1", "walltime": "02:00:00"}
    wide = {"nodes": "n9:ppn=8", "walltime": "01:00:00"}
    held: dict[str, Any] = {"resources": wide, "state": "H", "holds": "s"}
    post(
        busy_cluster,
        {"type": "node_changed", "node": {"name": "n9", "cpus": 8, "mem": 8 << 20}},
        queued(101, "batch", resources=nodes),
        queued(102, "batch", resources={"nodes": "n9:ppn=4", "walltime": "05:00:00"}),
        queued(103, "batch", depend="afterok:101.server", **held),
        queued(104, "batch", depend="afternotok:101.server", **held),
        {"type": "server_changed", "server": {"open": True}},
    )
    found = check_submission(
        user, job="103", changes=True, variants=[{"request": "nodes=n9:ppn=1,walltime=01:00:00"}]
    )
    assert found["changes_by"] == T + 2 * HOUR
    assert [one["planned_start"] for one in found["changes"] if one["change"] == "cpus"] == [T + 2 * HOUR]
    assert [one["planned_start"] for one in found["variants"]] == [T + 2 * HOUR]
    windows = check_submission(user, job="103", windows=2)["windows"]
    assert windows[0]["first"] >= T + 2 * HOUR
    unmet = check_submission(user, job="104", variants=[{"request": "nodes=n9:ppn=1,walltime=01:00:00"}])
    assert [one["answer"] for one in unmet["variants"]] == ["waiting"]


def test_smallest_changes_for_a_start_in_time_or_sooner_are_found(
    busy_cluster: TestClient, user: TestClient
) -> None:
    held = {"nodes": "n9:ppn=6", "walltime": "04:00:00"}
    running: dict[str, Any] = {"state": "R", "started": T, "resources": held}
    reserved: dict[str, Any] = {"resources": {"nodes": "n9:ppn=8", "walltime": "01:00:00"}}
    post(
        busy_cluster,
        {"type": "node_changed", "node": {"name": "n9", "cpus": 8, "mem": 8 << 20}},
        queued(101, "batch", **running, shares=[{"node": "n9", "cpus": 6}]),
        queued(102, "batch", **reserved),
    )
    request = "nodes=n9:ppn=4,walltime=02:00:00"
    late = check_submission(user, request=request, start_by=T + HOUR, changes=True)
    assert late["planned_start"] == T + 5 * HOUR
    assert (late["start_by"], late["start_late_by"], late["changes_by"]) == (T + HOUR, 4 * HOUR, T + HOUR)
    assert [(one["change"], one["value"]) for one in late["changes"]] == [("cpus", 2)]
    sooner = check_submission(user, request=request, sooner=True)
    assert (sooner["changes_by"], sooner["sooner_by"]) == (None, T + 5 * HOUR - 300)
    assert ("cpus", 2) in [(one["change"], one["value"]) for one in sooner["sooner_changes"]]
    met = check_submission(user, request=request, start_by=T + 6 * HOUR, changes=True)
    assert (met["start_late_by"], met["changes"]) == (0, [])
    queued_job = check_submission(user, job="102", sooner=True)
    assert queued_job["planned_start"] == T + 4 * HOUR
    (cpus,) = queued_job["sooner_changes"]
    assert (cpus["change"], cpus["value"], cpus["planned_start"]) == ("cpus", 2, T)
    both = check_submission(user, request=request, start_by=T + HOUR, changes=True, sooner=True)
    assert (both["changes"], both["sooner_changes"]) == (late["changes"], sooner["sooner_changes"])
    assert both["halted"] == ""


def test_a_question_for_a_reservation_is_no_submission_to_the_default_queue(
    busy_cluster: TestClient, user: TestClient
) -> None:
    """A site's reservations were refused while its default queue took no jobs."""
    attributes = {"default_queue": "work"}
    post(
        busy_cluster,
        queue("work", enabled=False),
        {"type": "server_changed", "server": {"family": "openpbs", "attributes": attributes}},
    )
    assert "takes no jobs" in check_submission(user)["why"]
    assert check_submission(user, queue=":new")["planned_start"] is not None


@pytest.mark.parametrize(
    ("depend", "said"),
    [
        ("aftermath:1", "'aftermath' is no kind of dependency; known are after, afterok"),
        ("afterok:1,:2", "':2' is no kind of dependency"),
        ("afterok", "afterok: afterok takes jobs, such as afterok:123"),
        ("afterany:1::2", "afterany takes jobs"),
        ("afterok:abc", "afterok takes jobs"),
        ("on:x", "on:x: on takes a number of jobs, such as on:2"),
    ],
)
def test_a_dependency_that_qsub_refuses_is_refused(user: TestClient, depend: str, said: str) -> None:
    answer = user.post(f"{MAIN}/what-if", json={"request": "nodes=1", "depend": depend})
    assert answer.status_code == 422
    assert said in answer.text
    for known in ("afterok:1.server@server:2,before:3", "on:2", "afterokarray:7[]", "afterany:7[3].server"):
        assert user.post(f"{MAIN}/what-if", json={"request": "nodes=1", "depend": known}).status_code == 200


def test_access_and_limits_of_groups_are_those_of_the_latest_job(
    busy_cluster: TestClient, user: TestClient
) -> None:
    policy = {
        "qos": {"levels": {"high": {"groups": ["physics"]}, "paid": {"accounts": ["chem"]}}},
        "limits": [{"who": "group", "what": "cpus", "amount": 3}],
    }
    assert busy_cluster.put(f"{MAIN}/policy", json=policy).status_code == 200
    ask = partial(check_submission, user)
    unknown = ask(request="nodes=1:ppn=4,walltime=600")
    assert unknown["answer"] == "start_known"
    assert f"the group of {USER} is not known here" in " ".join(unknown["notes"])
    assert ask(request="nodes=1,qos=high", group="physics")["answer"] == "start_known"
    post(busy_cluster, queued(101, "batch", group="old"), queued(102, "batch", group="physics", state="H"))
    assert ask(request="nodes=1,walltime=600,qos=high")["answer"] == "start_known"
    assert "not known" not in " ".join(ask(request="nodes=1,walltime=600")["notes"])
    assert ask(request="nodes=1:ppn=4,walltime=600")["waiting_for"] == "limit"
    assert "group old" in ask(request="nodes=1,qos=high", group="old")["why"]
    assert "account none" in ask(request="nodes=1,qos=paid", account="none")["why"]
    assert ask(request="nodes=1,walltime=600,qos=paid", account="chem")["answer"] == "start_known"
    assert ask(request="nodes=1,walltime=600", extensions="QOS:high")["answer"] == "start_known"
    with_job = user.post(f"{MAIN}/what-if", json={"job": "101", "group": "physics"})
    assert with_job.status_code == 422


def test_changes_of_a_request_that_waits_for_a_limit_respect_it(
    busy_cluster: TestClient, user: TestClient
) -> None:
    """A walltime shorter by a second was said to let it start at once."""
    use = {"counts": "used", "what": "cpu_seconds", "amount": 4000, "period": "1d"}
    use |= {"who": "user", "name": USER}
    post(busy_cluster, {"type": "node_changed", "node": {"name": "n9", "cpus": 20, "mem": 8 << 20}})
    assert busy_cluster.put(f"{MAIN}/policy", json={"limits": [use]}).status_code == 200
    question = {"request": "nodes=n9:ppn=2,walltime=3600", "changes": True, "windows": 3}
    found = check_submission(user, **question)
    assert (found["waiting_for"], found["windows"]) == ("limit", [])
    assert [(one["change"], one["enough"]) for one in found["changes"]] == [
        ("walltime", "00:33:20"),
        ("cpus", "1"),
    ]
