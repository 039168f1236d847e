"""Successful responses of the API."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from schedd.api.planner_calls import TIMEOUTS
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.job_columns import PLAIN
from schedd.wire import Decision, Run
from server_adapter.bridge.messages import decode_decisions
from tests.api.conftest import EVENTS
from tests.service.planner_harness import T
from tests.service.test_plan_loop import busy_planner
from tests.waits import WAIT_S

MAIN = "/v1/clusters/main"


def get(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(f"{MAIN}{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask_what_if(client: TestClient, **question: Any) -> Any:
    answer = client.post(f"{MAIN}/what-if", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_clusters_are_listed_with_their_state(busy_cluster: TestClient) -> None:
    listed = busy_cluster.get("/v1/clusters").json()["clusters"]
    assert [cluster["name"] for cluster in listed] == ["main", "other"]
    assert listed[0] == get(busy_cluster, "")
    assert listed[0]["jobs"] == {"running": 0, "starting": 2, "planned": 3, "without_start": 0}
    assert (listed[0]["nodes"], listed[0]["cpus"], listed[0]["policy"]) == (2, 8, "conservative")


def test_events_are_acknowledged_once(busy_cluster: TestClient) -> None:
    again = busy_cluster.post(f"{MAIN}/events", json={"events": EVENTS})
    assert again.json()["accepted"] == 0
    assert again.json()["duplicates"] == [event["id"] for event in EVENTS]
    assert busy_cluster.post(f"{MAIN}/events", json={"events": []}).json()["accepted"] == 0


def test_a_snapshot_is_accepted(client: TestClient) -> None:
    job = {**EVENTS[2]["job"], "state": "R", "started": T, "shares": [{"node": "n1", "cpus": 4}]}
    snapshot = {"type": "snapshot", "id": "s:1", "time": T, "jobs": [job], "nodes": [EVENTS[0]["node"]]}
    assert client.post(f"{MAIN}/events", json={"events": [snapshot]}).json()["accepted"] == 1
    assert get(client, "/jobs/1.server")["state"] == "running"


def test_decisions_can_be_read_repeatedly_in_order(busy_cluster: TestClient) -> None:
    page = get(busy_cluster, "/decisions", wait=1)
    assert [item["type"] for item in page["decisions"]] == [
        "run",
        "run",
        "write_attributes",
        "write_attributes",
        "write_attributes",
    ]
    assert page == get(busy_cluster, "/decisions")
    rest = get(busy_cluster, "/decisions", after=page["decisions"][0]["id"])
    assert rest["decisions"] == page["decisions"][1:]
    first = get(busy_cluster, "/decisions", limit=2)
    assert get(busy_cluster, "/decisions", after=first["last"])["decisions"] == page["decisions"][2:]


def test_decisions_parse_with_the_adapters_types(busy_cluster: TestClient) -> None:
    answer = busy_cluster.get(f"{MAIN}/decisions")
    read = decode_decisions(answer.content)
    assert read.problems == ()
    assert list(read.decisions) == TypeAdapter(list[Decision]).validate_python(answer.json()["decisions"])
    assert isinstance(read.decisions[0], Run)


def test_outcome_closes_its_decision(busy_cluster: TestClient) -> None:
    run = get(busy_cluster, "/decisions")["decisions"][0]
    outcome = {
        "type": "run_accepted",
        "id": "e:90",
        "time": T,
        "decision_id": run["id"],
        "job_id": run["job_id"],
    }
    busy_cluster.post(f"{MAIN}/events", json={"events": [outcome]})
    assert run["id"] not in [item["id"] for item in get(busy_cluster, "/decisions")["decisions"]]


def test_a_job_has_start_nodes_and_explanation(busy_cluster: TestClient) -> None:
    job = get(busy_cluster, "/jobs/3.server")
    assert (job["answer"], job["state"], job["job_state"]) == ("start_known", "planned", "Q")
    assert job["planned_end"] - job["planned_start"] == 3600
    assert job["promised_start"] == job["planned_start"] > T
    assert [share["node"] for share in job["planned_nodes"]] in (["n1"], ["n2"])
    assert job["resources"] == {"nodes": "1:ppn=4", "walltime": "3600", "mem": "2gb"}
    assert job["why"].startswith("planned start ")
    assert job["as_of"] == T


def test_jobs_are_listed_filtered_and_paged(busy_cluster: TestClient) -> None:
    everything = get(busy_cluster, "/jobs")
    assert [job["id"] for job in everything["jobs"]] == [f"{i}.server" for i in range(1, 6)]
    assert everything["next"] is None
    assert everything["jobs"][2] == get(busy_cluster, "/jobs/3.server")
    first = get(busy_cluster, "/jobs", limit=2)
    second = get(busy_cluster, "/jobs", limit=2, cursor=first["next"])
    assert first["jobs"] + second["jobs"] == everything["jobs"][:4]
    assert [job["id"] for job in get(busy_cluster, "/jobs", user="bob")["jobs"]] == ["2.server", "4.server"]
    assert len(get(busy_cluster, "/jobs", state="planned")["jobs"]) == 3
    assert get(busy_cluster, "/jobs", queue="none")["jobs"] == []


def test_nodes_plan_and_gaps_agree(busy_cluster: TestClient) -> None:
    nodes = get(busy_cluster, "/nodes")["nodes"]
    assert [(node["name"], node["free_cpus"]) for node in nodes] == [("n1", 0), ("n2", 0)]
    assert {job for node in nodes for job in node["jobs"]} == {"1.server", "2.server"}
    plan = get(busy_cluster, "/plan")
    assert (plan["begin"], plan["end"]) == (T, T + 86_400)
    assert len(plan["jobs"]) == 5
    last = max(bar["end"] for bar in plan["jobs"])
    gaps = get(busy_cluster, "/gaps")
    assert gaps["totals"][-1] == {"start": last, "end": T + 86_400, "cpus": 8, "idle_nodes": 2}
    assert {gap["node"] for gap in gaps["gaps"]} == {"n1", "n2"}
    page = get(busy_cluster, "/nodes", limit=1)
    assert get(busy_cluster, "/nodes", limit=1, cursor=page["next"])["nodes"] == nodes[1:]
    assert get(busy_cluster, "/nodes", state="down")["nodes"] == []
    cut = get(busy_cluster, "/plan", begin=T, end=T + 60, limit=1)
    rest = get(busy_cluster, "/plan", begin=T, end=T + 60, cursor=cut["next"])
    assert [bar["job"] for bar in cut["jobs"] + rest["jobs"]] == ["1.server", "2.server"]
    for path, query in (("/plan", {"end": T + 7_200, "begin": T + 60}), ("/gaps", {"end": last + 60})):
        page = get(busy_cluster, path, limit=1, **query)
        more = get(busy_cluster, path, limit=1, cursor=page["next"])
        assert (more["begin"], more["end"]) == (page["begin"], page["end"]) != (T, T + 86_400)


def test_a_reservation_shows_in_the_plan(client: TestClient) -> None:
    reserve = {
        "type": "reserve",
        "id": "r",
        "time": T,
        "name": "dig",
        "nodes": ["n1"],
        "start": T + 9,
        "end": T + 99,
    }
    client.post(f"{MAIN}/events", json={"events": [*EVENTS, reserve]})
    (shown,) = get(client, "/plan")["reservations"]
    assert (shown["name"], shown["nodes"], shown["start"], shown["end"]) == ("dig", ["n1"], T + 9, T + 99)
    assert get(client, "/plan", begin=T + 99)["reservations"] == []


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ({"request": "nodes=1:ppn=4,walltime=1:00:00"}, "start_known"),
        ({"request": "select=1:ncpus=4:mem=1gb,place=pack,walltime=60"}, "start_known"),
        ({"resources": {"nodes": "2:ppn=4", "walltime": "60"}}, "start_known"),
        ({"resources": {"select": "1:ncpus=4"}, "family": "openpbs"}, "start_known"),
        ({"request": "nodes=1:ppn=5"}, "never"),
        ({"request": "nodes=3:ppn=4"}, "never"),
    ],
)
def test_a_whatif_submits_nothing(busy_cluster: TestClient, question: dict[str, Any], answer: str) -> None:
    before = get(busy_cluster, "/plan")
    found = busy_cluster.post(f"{MAIN}/what-if", json=question)
    assert found.status_code == 200, found.text
    assert found.json()["answer"] == answer
    assert (found.json()["planned_start"] is None) == (answer == "never")
    assert get(busy_cluster, "/plan") == before


def test_a_whatif_agrees_with_the_later_submission(busy_cluster: TestClient) -> None:
    asked = busy_cluster.post(
        f"{MAIN}/what-if", json={"request": "nodes=1:ppn=4,mem=2gb,walltime=3600"}
    ).json()
    event = {**EVENTS[-1], "id": "e:99", "job": {**EVENTS[-1]["job"], "id": "99.server"}}
    busy_cluster.post(f"{MAIN}/events", json={"events": [event]})
    job = get(busy_cluster, "/jobs/99.server")
    assert job["planned_start"] == asked["planned_start"]
    assert job["planned_end"] == asked["planned_end"]


def test_a_whatif_reports_a_missed_deadline_and_the_required_delay(
    busy_cluster: TestClient,
) -> None:
    def ask_what_if(deadline: str) -> dict[str, Any]:
        asked = {"request": f"nodes=1:ppn=4,walltime=3600,deadline={deadline}"}
        answer = busy_cluster.post(
            f"{MAIN}/what-if", json={**asked, "variants": [{"request": "walltime=600"}]}
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    end = ask_what_if("+100:00:00")["planned_end"]
    assert end > T + 3600, "it waits"
    met = ask_what_if(str(end))
    assert (met["deadline"], met["late_by"]) == (end, 0)
    late = ask_what_if(str(end - 600))
    assert (late["planned_end"], late["late_by"]) == (end, 600)
    (shorter,) = late["variants"]
    assert (shorter["deadline"], shorter["late_by"]) == (end - 600, 0)
    none = busy_cluster.post(f"{MAIN}/what-if", json={"request": "nodes=1:ppn=4"}).json()
    assert (none["deadline"], none["late_by"]) == (None, None)
    never = busy_cluster.post(f"{MAIN}/what-if", json={"request": f"nodes=99,deadline={end}"}).json()
    assert (never["deadline"], never["late_by"]) == (end, None)


def test_a_whatif_names_an_unknown_queue(busy_cluster: TestClient) -> None:
    assert ask_what_if(busy_cluster, request="nodes=1", queue="nosuch")["notes"] == [], (
        "no queue is known yet"
    )
    events = [
        {"type": "queue_changed", "id": f"q:{name}", "time": T, "queue": {"name": name}}
        for name in ("batch", "a", "b", "c")
    ]
    assert busy_cluster.post(f"{MAIN}/events", json={"events": events}).status_code == 200
    found = ask_what_if(busy_cluster, request="nodes=1", queue="nosuch")
    assert (found["answer"], found["planned_start"]) == ("never", None)
    assert found["requirement"] == (
        "qsub refuses it: the server has no queue nosuch; it has a, b, batch and 1 more"
    )
    assert ask_what_if(busy_cluster, request="nodes=1", queue="batch")["notes"] == []


def post_queues(client: TestClient, *queues: dict[str, Any]) -> None:
    events = [
        {"type": "queue_changed", "id": f"q:{hash(str(queue))}", "time": T, "queue": queue}
        for queue in queues
    ]
    assert client.post(f"{MAIN}/events", json={"events": events}).status_code == 200


SHORT = {
    "name": "short",
    "limits": {"resources_max.walltime": "02:00:00", "resources_max.nodect": "2", "resources_min.mem": "1gb"},
}


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (
            "nodes=1,walltime=5:00:00",
            "walltime=5:00:00, and queue short has resources_max.walltime = 02:00:00",
        ),
        ("nodes=3,walltime=1:00:00", "nodect=3, and queue short has resources_max.nodect = 2"),
        ("nodes=1,mem=512mb", "mem=512mb, and queue short has resources_min.mem = 1gb"),
        ("select=3:ncpus=1", "nodect=3, and queue short has resources_max.nodect = 2"),
    ],
)
def test_a_whatif_refuses_requests_refused_by_qsub(
    busy_cluster: TestClient, request_: str, refusal: str
) -> None:
    post_queues(busy_cluster, SHORT, {"name": "closed", "enabled": False})
    found = ask_what_if(busy_cluster, request=request_, queue="short")
    assert (found["answer"], found["planned_start"]) == ("never", None)
    assert found["requirement"] == f"qsub refuses it: {refusal}"
    closed = ask_what_if(busy_cluster, request="nodes=1", queue="closed")
    assert closed["requirement"] == "qsub refuses it: queue closed takes no jobs (enabled = False)"


def test_a_whatif_uses_the_servers_default_walltime(busy_cluster: TestClient) -> None:
    post_queues(busy_cluster, SHORT)
    found = ask_what_if(busy_cluster, request="nodes=1", queue="short")
    assert (found["walltime"], found["walltime_assumed"]) == (7_200, False)
    assert found["notes"] == [
        "it requests no walltime: the server sets 02:00:00 (resources_max of queue short)"
    ]


def test_a_whatif_follows_a_routing_queue_to_its_destination(busy_cluster: TestClient) -> None:
    route = {"name": "route", "started": False, "routes": ["short", "far@other", "long"]}
    post_queues(busy_cluster, SHORT, {"name": "long"}, route)
    long = ask_what_if(busy_cluster, request="nodes=1,walltime=5:00:00", queue="route")
    assert (long["answer"], long["notes"]) == ("start_known", ["queue route routes it to queue long"])
    short = ask_what_if(busy_cluster, request="nodes=1,walltime=1:00:00", queue="route")
    assert short["notes"] == ["queue route routes it to queue short"]
    post_queues(busy_cluster, {**route, "routes": ["short", "gone"]})
    none = ask_what_if(busy_cluster, request="nodes=1,walltime=5:00:00", queue="route")
    assert none["answer"] == "never"
    assert "no destination of routing queue route takes it (short: walltime=5:00:00" in none["requirement"]
    post_queues(busy_cluster, {**route, "routes": ["route"]})
    circle = ask_what_if(busy_cluster, request="nodes=1", queue="route")
    assert "routes in a circle" in circle["requirement"]


def test_a_job_in_a_routing_queue_waits_for_its_route(busy_cluster: TestClient) -> None:
    post_queues(busy_cluster, {"name": "route", "started": False, "routes": ["short", "long"]})
    job = {"id": "70", "owner": "ann", "queue": "route", "submitted": T, "resources": {"nodes": "1"}}
    event = {"type": "job_queued", "id": "e:70", "time": T, "job": job}
    assert busy_cluster.post(f"{MAIN}/events", json={"events": [event]}).status_code == 200
    why = busy_cluster.get(f"{MAIN}/jobs/70").json()["why"]
    assert why.startswith("waiting for queue route, which routes its jobs to short, long")


def test_a_whatif_refuses_an_alteration_beyond_the_queues_limits(busy_cluster: TestClient) -> None:
    post_queues(busy_cluster, {**SHORT, "name": "batch"})
    found = busy_cluster.post(
        f"{MAIN}/what-if", json={"job": "5", "variants": [{"request": "walltime=5:00:00"}]}
    ).json()
    assert found["answer"] != "never"
    (variant,) = found["variants"]
    assert variant["requirement"].startswith("qalter refuses it: walltime=5:00:00, and queue batch has")


def test_a_whatif_of_an_unaltered_job_has_the_start_of_its_page(busy_cluster: TestClient) -> None:
    """Also as a variant, and if its request is written differently."""
    job = get(busy_cluster, "/jobs/5?fields=headline")
    same, hours = f"walltime={job['walltime']}", f"walltime={job['walltime'] // 3600}:00:00"
    assert job["walltime"] % 3600 == 0
    asked = ask_what_if(busy_cluster, job="5", variants=[{"request": same}, {"request": hours}])
    for answer in (asked, *asked["variants"]):
        for name in ("planned_start", "expected_start", "expected_by", "promised_start"):
            assert answer[name] == job[name], name


def test_a_whatif_lists_its_assumptions(busy_cluster: TestClient) -> None:
    found = ask_what_if(busy_cluster, request="nodes=1:ppn=1")
    assert found["walltime_assumed"]
    assert found["walltime"] == 86_400
    later = busy_cluster.post(
        f"{MAIN}/what-if", json={"request": "nodes=1:ppn=1", "not_before": T + 10**6}
    ).json()
    assert later["planned_start"] == T + 10**6


def test_reads_continue_while_the_planner_is_busy(
    busy_cluster: TestClient, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = busy_cluster.post(f"{MAIN}/what-if", json={"request": "nodes=1:ppn=4"}).json()
    with busy_planner(loop):
        for path in ("", "/jobs", "/jobs/3.server", "/nodes", "/plan", "/gaps", "/decisions"):
            get(busy_cluster, path)
        assert busy_cluster.get("/metrics").status_code == 200
        # Questions are answered from the copy that is there, or not at all.
        with monkeypatch.context() as patch:
            patch.setattr(TIMEOUTS, "fork", 0.2)
            again = busy_cluster.post(f"{MAIN}/what-if", json={"request": "nodes=1:ppn=4"})
        assert again.json() == asked
        other = busy_cluster.post("/v1/clusters/other/what-if", json={"request": "nodes=1:ppn=4"})
        assert other.status_code == 200
    assert loop.fork().result(WAIT_S).generation >= asked["generation"]


def test_a_whatif_without_a_fork_is_refused_while_the_planner_is_busy(
    client: TestClient, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TIMEOUTS, "fork", 0.2)
    with busy_planner(loop):
        found = client.post(f"{MAIN}/what-if", json={"request": "nodes=1:ppn=4"})
    assert found.status_code == 503
    assert found.headers["retry-after"]


@pytest.mark.parametrize(
    "path", ["/jobs", "/jobs/3.server", "/jobs/3.server/explain", "/nodes", "/plan", "/gaps"]
)
def test_unchanged_responses_are_not_sent_again(busy_cluster: TestClient, path: str) -> None:
    def ask_what_if(tag: str = "") -> Any:
        return busy_cluster.get(MAIN + path, headers={"If-None-Match": tag} if tag else {})

    etag = ask_what_if().headers["etag"]
    # Something else changes: there is another plan, but nothing new in this answer.
    server = {"type": "server_changed", "id": "e:98", "time": T, "server": {"open": False}}
    busy_cluster.post(f"{MAIN}/events", json={"events": [server]})
    same = ask_what_if(etag)
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    gone = {"type": "job_deleted", "id": "e:99", "time": T, "job_id": "1.server"}
    busy_cluster.post(f"{MAIN}/events", json={"events": [gone]})
    changed = ask_what_if(etag)
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag


def test_rows_have_only_the_requested_fields(busy_cluster: TestClient) -> None:
    found = get(busy_cluster, "/jobs", fields="id, planned_start", limit=2)
    whole = get(busy_cluster, "/jobs", limit=2)
    assert found["jobs"] == [{k: job[k] for k in ("id", "planned_start")} for job in whole["jobs"]]
    assert {k: v for k, v in found.items() if k != "jobs"} == {k: v for k, v in whole.items() if k != "jobs"}
    assert set(get(busy_cluster, "/plan", fields="job,nodes")["jobs"][0]) == {"job", "nodes"}
    assert get(busy_cluster, "/nodes", fields="name")["nodes"] == [{"name": "n1"}, {"name": "n2"}]
    answer = busy_cluster.get(f"{MAIN}/jobs", params={"fields": "id,when"})
    assert answer.status_code == 422
    assert "planned_start" in answer.json()["errors"][0]["allowed"]


def test_long_answers_are_compressed(busy_cluster: TestClient) -> None:
    assert busy_cluster.get(f"{MAIN}/jobs").headers["content-encoding"] == "gzip"


def test_pause_is_shown_until_resume(busy_cluster: TestClient) -> None:
    paused = busy_cluster.post(f"{MAIN}/pause", json={"reason": "the cooling failed"})
    assert paused.json()["paused"] == "the cooling failed"
    assert get(busy_cluster, "")["paused"] == "the cooling failed"
    assert busy_cluster.post(f"{MAIN}/resume").json()["paused"] == ""
    assert get(busy_cluster, "")["paused"] == ""


def test_variants_windows_and_changes_are_answered_together(busy_cluster: TestClient) -> None:
    asked = ask_what_if(
        busy_cluster,
        request="nodes=1:ppn=4,walltime=3600",
        variants=[{"request": "walltime=60"}, {"resources": {"nodes": "1:ppn=9", "walltime": ""}}],
        windows=3,
        changes=True,
    )
    assert asked["planned_start"] > T
    assert asked["windows"][0]["first"] == asked["planned_start"]
    assert asked["changes"] == []
    short, never = asked["variants"]
    assert (short["walltime"], short["answer"]) == (60, "start_known")
    assert (never["answer"], never["walltime_assumed"]) == ("never", True)
    alone = ask_what_if(busy_cluster, request="nodes=1:ppn=4,walltime=60")
    assert all(alone[name] == value for name, value in short.items())


def test_a_whatif_accepts_a_queued_job(busy_cluster: TestClient) -> None:
    job = get(busy_cluster, "/jobs/5")
    asked = ask_what_if(busy_cluster, job="5", variants=[{"request": "walltime=60"}])
    assert asked["planned_start"] == job["planned_start"]
    assert asked["variants"][0]["planned_end"] - asked["variants"][0]["planned_start"] == 60
    for question, status in (({"job": "77"}, 404), ({"job": "1"}, 422), ({"job": "5", "queue": "x"}, 422)):
        assert busy_cluster.post(f"{MAIN}/what-if", json=question).status_code == status
    answer = busy_cluster.post(
        f"{MAIN}/what-if", json={"job": "5", "variants": [{"request": "nodes=x:y:z=,"}]}
    )
    assert answer.status_code == 422
    answer = busy_cluster.post(
        f"{MAIN}/what-if", json={"job": "5", "variants": [{"request": "nodes=0:ppn=1"}]}
    )
    assert answer.json()["errors"][0]["where"] == "body.variants[0]"


@pytest.mark.parametrize("fields", [None, "id,cpus,planned_start", "id,why,planned_nodes", "why"])
def test_columns_and_rows_agree(busy_cluster: TestClient, fields: str | None) -> None:
    chosen = {"fields": fields} if fields is not None else {}
    rows = get(busy_cluster, "/jobs", **chosen, limit=5)
    found = busy_cluster.get(f"{MAIN}/jobs", params={**chosen, "limit": 5, "form": "columns"})
    columns = found.json()
    assert columns["jobs"] == {name: [row[name] for row in rows["jobs"]] for name in rows["jobs"][0]}
    assert {**columns, "jobs": None} == {**rows, "jobs": None}
    tag = {"If-None-Match": found.headers["etag"]}
    again = busy_cluster.get(f"{MAIN}/jobs", params={**chosen, "limit": 5, "form": "columns"}, headers=tag)
    assert again.status_code == 304
    none = get(busy_cluster, "/jobs", **chosen, form="columns", user="nobody")["jobs"]
    assert none == {name: [] for name in rows["jobs"][0]}


def test_selected_fields_agree_with_the_full_view(busy_cluster: TestClient) -> None:
    whole = get(busy_cluster, "/jobs")
    only = sorted(PLAIN)
    some = get(busy_cluster, "/jobs", fields=",".join(only))
    assert some["jobs"] == [{name: row[name] for name in only} for row in whole["jobs"]]
    assert {name: some[name] for name in ("as_of", "generation", "stale", "next")} == {
        name: whole[name] for name in ("as_of", "generation", "stale", "next")
    }
    first = get(busy_cluster, "/jobs", fields="id", limit=2)
    assert [row["id"] for row in get(busy_cluster, "/jobs", fields="id", cursor=first["next"])["jobs"]] == [
        row["id"] for row in whole["jobs"][2:]
    ]
    again = busy_cluster.get(f"{MAIN}/jobs?fields=id,state")
    tag = {"If-None-Match": again.headers["etag"]}
    assert busy_cluster.get(f"{MAIN}/jobs?fields=id,state", headers=tag).status_code == 304


def test_a_whatif_computes_the_end_for_several_equal_jobs(busy_cluster: TestClient) -> None:
    asked = {"request": "nodes=1:ppn=1,walltime=60", "tasks": [1, 8]}
    (one, eight) = busy_cluster.post(f"{MAIN}/what-if", json=asked).json()["tasks"]
    assert (one["tasks"], eight["tasks"]) == (1, 8)
    assert eight["end"] >= one["end"]
    for wrong in ([2, 2], [3, 1], [0], list(range(1, 102))):
        assert busy_cluster.post(f"{MAIN}/what-if", json={**asked, "tasks": wrong}).status_code == 422


def test_a_whatif_in_a_reservation_skips_queue_checks(busy_cluster: TestClient) -> None:
    """An adapter asks this for an altered reservation: the queue names an access list."""
    post_queues(busy_cluster, SHORT)
    assert (
        ask_what_if(busy_cluster, request="nodes=1,walltime=5:00:00", queue="R1:anew")["answer"]
        == "start_known"
    )
