"""What a federation asks of a cluster, how often, and what of the answers it uses and shows."""

import threading
from pathlib import Path
from typing import Any, Self, cast

import pytest
from fastapi.testclient import TestClient

from schedd.client import Client, Endpoint, Refused, Unreachable
from schedd.client.json_object import JsonObject
from schedd.federation.api.app import cluster_rows, create_app, job_row
from schedd.federation.api.pages.routes import add_pages
from schedd.federation.cluster_failures import describe_unusable
from schedd.federation.event_log import FederationLog
from schedd.federation.settings import FederationSettings
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.cluster_worker import ClusterWorker
from schedd.service.access.tokens import Tokens
from schedd.start_sentence import NEVER
from schedd.wire.adapter_troubles import NO_CONTACT

JOB = {
    "script": "sleep 1",
    "resources": {"nodes": "1"},
    "attributes": {},
    "variables": {},
    "queues": {},
    "cpu_seconds": 60,
    "walltime": 60,
}


class FakeClusterClient:
    """Fake client that answers for a daemon and records the calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.generation = 1
        self.rows: list[dict[str, Any]] = []
        self.fails: Exception | None = None
        self.answers: Exception | None = None
        """Applies only to questions, those of ``fails_for`` if that is a user."""
        self.fails_for = ""
        self.refuses_release: Exception | None = None
        self.booked: list[str] = []
        self.family = "torque"
        self.nodes = 3
        self.arriving = 0
        self.now = 1_700_000_000
        self.job_starts = JsonObject(state="good", words="on", reason="", remedy="", alert="")

    def cluster(self) -> JsonObject:
        self._note("cluster")
        return JsonObject(
            generation=self.generation,
            as_of=1_700_000_000,
            now=self.now,
            stale="",
            nodes=self.nodes,
            arriving=self.arriving,
            mode="scheduler",
            cpus=64,
            jobs=JsonObject(planned=5, running=2),
            server=JsonObject(family=self.family),
            job_starts=self.job_starts,
        )

    def free_capacity(self, *, begin: int, end: int) -> list[JsonObject]:
        busy = JsonObject(start=begin, end=begin + 60, cpus=0, idle_nodes=0)
        return [busy, JsonObject(start=begin + 60, end=end, cpus=16, idle_nodes=1)]

    def alerts(self) -> list[JsonObject]:
        about = {"about": "n1", "since": 1_700_000_000, "text": "node n1 is a black hole", "times": 1}
        more = {"severe": False, "remedy": "`pbsnodes n1`"}
        return [
            JsonObject(kind="black_hole", **about, **more),
            JsonObject(kind="by_hand", **{**about, **more, "remedy": ""}),
        ]

    def job_transfers(self, since: int = 0, *, after: int | None = None) -> list[dict[str, Any]]:
        self._note("transfers", since, after)
        return self.rows

    def what_if(self, **question: Any) -> JsonObject:
        self._note("what_if", question["owner"])
        if self.answers is not None and self.fails_for in ("", question["owner"]):
            raise self.answers
        known = bool(self.nodes) and not self.arriving
        return JsonObject(
            planned_start=1_700_000_100 if known else None,
            planned_end=1_700_000_160 if known else None,
            expected_start=None,
            why="room" if known else f"{NEVER}: the cluster has no nodes",
            answer="start_known" if known else "never",
            cost=2.5,
            generation=self.generation,
        )

    def bookings(self) -> list[JsonObject]:
        return [JsonObject(name=name) for name in self.booked]

    def submit_held(self, name: str, body: Any) -> None:
        self._note("submit_held", name, body["user"])

    def release_transfer(self, name: str) -> None:
        self._note("release_requested", name)
        if self.refuses_release is not None:
            raise self.refuses_release

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _note(self, *what: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.asked.append(what)

    def count(self, what: str) -> int:
        return sum(one[0] == what for one in self.asked)


class WorkerHarness:
    """Worker for one cluster; the test runs its rounds."""

    def __init__(self, path: Path, disclosure: str = "plan", family: str = "torque") -> None:
        self.log = FederationLog(f"sqlite:///{path}/fed.sqlite", "here", 6.0)
        assert self.log.leadership.try_acquire()
        place = {
            "url": "http://127.0.0.1:9",
            "token_file": str(path),
            "realms": ["org"],
            "disclosure": disclosure,
            "family": family,
        }
        settings = FederationSettings.model_validate({"clusters": {"north": place}, "routing": {"poll": 5}})
        self.now = 1_700_000_000
        self.federation = FederationState(settings, self.log, {"north": "x"}, lambda: self.now)
        self.cluster = FakeClusterClient()
        client = cast("Client", self.cluster)
        self.peer = ClusterWorker(
            "north", self.federation, "x", threading.Event(), lambda _settings, _token: client
        )

    def round(self, *, look: bool = True) -> None:
        if look:
            self.peer._look_at = 0.0
        self.peer.round()

    def row(self, **more: Any) -> dict[str, Any]:
        found = {
            "transfer": "fed.1.1",
            "phase": "held",
            "job": "7.north",
            "state": "waiting",
            "release_requested": False,
            "end": "",
            "exit_status": None,
            "planned_start": None,
            "planned_end": None,
            "promised_start": None,
            "text": "",
        }
        return found | more


@pytest.mark.parametrize(
    ("disclosure", "shown", "hidden"),
    [
        (
            "offers",
            ["Job starts: stopped, adapter silent", "Next free", "not disclosed"],
            ["black hole", "16 of 64"],
        ),
        ("load", ["Job starts: stopped, adapter silent", "16 of 64 cores"], ["black hole"]),
    ],
)
def test_the_page_shows_health_and_free_cores_of_a_cluster(
    tmp_path: Path, disclosure: str, shown: list[str], hidden: list[str]
) -> None:
    worker = WorkerHarness(tmp_path, disclosure)
    worker.round()
    words = {
        "state": "bad",
        "words": "stopped, adapter silent",
        "reason": "",
        "remedy": "",
        "alert": "adapter",
    }
    worker.cluster.job_starts = JsonObject(**words)
    worker.round()
    app = create_app(Tokens([]))
    app.state.federation = worker.federation
    add_pages(app)
    page = TestClient(app).get("/").text
    assert [text for text in shown if text not in page] == []
    assert [text for text in hidden if text in page] == []
    summary = worker.federation.cluster_summaries["north"]
    assert [one.kind for one in summary.faults] == (["black_hole"] if disclosure == "load" else [])
    worker.cluster.fails = Unreachable("no daemon answers")
    worker.round()
    assert worker.federation.cluster_summaries == {}, "nothing old is shown of a cluster that is away"


def test_an_unused_cluster_names_the_start_of_its_fault_not_of_its_discovery() -> None:
    starts = JsonObject(words="stopped, adapter silent", since=1_700_000_000)
    view: Any = JsonObject(stale=NO_CONTACT, job_starts=starts)
    words = describe_unusable(view)
    assert words.endswith("job starts: stopped, adapter silent since 2023-11-14 22:13:20 UTC")


@pytest.mark.parametrize(
    ("disclosure", "cpus", "jobs", "start"),
    [
        ("offers", None, None, None),
        ("power", 64, None, None),
        ("load", 64, {"planned": 5, "running": 2}, None),
        ("plan", 64, {"planned": 5, "running": 2}, 1_700_000_100),
    ],
)
def test_only_disclosed_cluster_data_are_used(
    tmp_path: Path, disclosure: str, cpus: int | None, jobs: dict[str, int] | None, start: int | None
) -> None:
    worker = WorkerHarness(tmp_path, disclosure)
    worker.round()
    job = worker.federation.submit("ann@org", JOB)
    worker.round()
    worker.cluster.rows = [worker.row()]
    worker.cluster.generation = 2
    worker.round()
    worker.cluster.rows = [
        worker.row(phase="released", release_requested=True, state="planned", planned_start=1_700_000_100)
    ]
    worker.cluster.generation = 3
    worker.round()
    (row,) = cluster_rows(worker.federation)
    assert (row.cpus, row.jobs, row.disclosure) == (cpus, jobs, disclosure)
    assert worker.federation.clusters["north"].cpus == (cpus or 0)
    (attempt,) = job_row(worker.federation, worker.federation.jobs[job.id]).attempts
    assert (attempt.phase, attempt.planned_start) == ("released", start)
    worker.log.close()


def test_equal_jobs_share_a_question_for_each_plan(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path)
    worker.round()
    for _ in range(5):
        worker.federation.submit("ann@org", JOB)
    worker.round()
    assert worker.cluster.count("what_if") == 1
    assert all(worker.federation.jobs[name].attempts for name in "12345")
    job = worker.federation.submit("ann@org", JOB)
    assert job.attempts, "what is known is enough to route it at once"
    worker.round()
    assert worker.cluster.count("what_if") == 1
    worker.cluster.generation, worker.now = 2, worker.now + 6
    worker.round()
    assert worker.cluster.count("what_if") == 2
    worker.round()
    assert worker.cluster.count("what_if") == 2
    worker.federation.submit("bob@org", JOB)  # another user's limits are others
    worker.round(look=False)
    assert worker.cluster.count("what_if") == 3
    worker.log.close()


def test_only_changed_transfers_are_polled(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path)
    worker.round()
    worker.round()
    assert worker.cluster.asked[-2:] == [("transfers", 0, None), ("cluster",)]
    worker.cluster.generation = 7
    worker.round()
    assert worker.cluster.asked[-1:] == [("transfers", 1_700_000_000, 1)]
    worker.cluster.fails = Unreachable("no daemon answers")
    worker.round()
    assert worker.federation.clusters["north"].away == "no daemon answers"
    worker.cluster.fails = None
    worker.round()
    assert worker.cluster.asked[-1:] == [("transfers", 0, None)], "nobody knows what was missed"
    assert worker.federation.clusters["north"].away == ""
    worker.log.close()


def test_pending_request_is_not_repeated_immediately(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path)
    worker.round()
    worker.federation.submit("ann@org", JOB)
    for _ in range(3):
        worker.round()
    assert worker.cluster.count("submit_held") == 1
    worker.peer._sent_at = {name: at - 3.5 for name, at in worker.peer._sent_at.items()}
    worker.round()
    assert worker.cluster.count("submit_held") == 2
    worker.log.close()


def test_users_read_no_host_of_an_unreachable_cluster(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path)
    with pytest.raises(Unreachable) as lost:
        Client(Endpoint("http://127.0.0.1:9", cluster="main")).cluster()
    assert str(lost.value) == "no daemon answers at http://127.0.0.1:9: Connection refused"
    worker.cluster.fails = lost.value
    worker.round()
    assert worker.federation.clusters["north"].away == "no daemon answers: Connection refused"
    detail = "database unavailable: postgresql://db.north.org/schedd cannot be reached"
    worker.cluster.fails = Refused("not-ready", 503, detail, "", [])
    worker.round()
    assert worker.federation.clusters["north"].away == "database unavailable"
    worker.log.close()


def test_restored_federation_reuses_no_name_of_a_booking(tmp_path: Path) -> None:
    """Names of users' bookings and of co-allocations count; those of another federation do not."""
    worker = WorkerHarness(tmp_path)
    worker.cluster.booked = ["fed.41.1", "fed.42.r1.0~ann", "other.90.1", "lunch"]
    worker.round()
    assert worker.federation.submit("ann@org", JOB).id == "43"
    worker.log.close()


def test_refused_federation_token_is_reported(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path)
    worker.cluster.fails = Refused("no-token", 401, "the request has no valid token", "", [])
    worker.round()
    assert "it refuses the federation" in worker.federation.clusters["north"].away
    worker.log.close()


def test_question_timeout_does_not_refuse_the_job(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path)
    worker.round()
    worker.cluster.answers = Refused("too-hard", 422, "it takes too much work", "", [])
    job = worker.federation.submit("ann@org", JOB)
    worker.round()
    assert not worker.federation.jobs[job.id].over
    worker.cluster.answers, worker.now = None, worker.now + 6
    worker.round()
    assert worker.federation.jobs[job.id].attempts
    worker.cluster.answers = Refused("invalid", 422, "no such queue", "", ["body.queue: no such queue"])
    other = worker.federation.submit("bob@org", JOB)
    worker.round()
    assert worker.federation.jobs[other.id].over == "refused"
    assert worker.federation.jobs[other.id].text == "north: body.queue: no such queue"
    worker.log.close()


@pytest.mark.parametrize(
    "error", [Unreachable("nothing came within 10 s"), Refused("defect", 500, "the daemon failed", "", [])]
)
def test_failing_question_does_not_hold_up_others(tmp_path: Path, error: Exception) -> None:
    """The cluster answers all but the question of one job."""
    worker = WorkerHarness(tmp_path)
    worker.cluster.answers, worker.cluster.fails_for = error, "ann"
    first = worker.federation.submit("ann@org", JOB)
    second = worker.federation.submit("bob@org", JOB)
    for _ in range(4):
        worker.round()
    assert [one.cluster for one in worker.federation.jobs[second.id].attempts] == ["north"]
    assert worker.federation.clusters["north"].away == ""
    assert worker.federation.jobs[first.id].over == ""
    worker.cluster.answers, worker.now, worker.cluster.generation = None, worker.now + 6, 2
    worker.round()
    assert [one.cluster for one in worker.federation.jobs[first.id].attempts] == ["north"]
    worker.log.close()


def test_all_transfers_are_polled_after_the_cluster_was_restored_from_a_backup(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path)
    worker.cluster.generation = 7
    worker.round()
    worker.cluster.generation = 3
    worker.round()
    assert worker.cluster.asked[-1:] == [("transfers", 0, None)], "what changed up to 7 is unknown"
    worker.log.close()


def test_number_of_an_item_that_the_log_lost_is_not_used_again(tmp_path: Path) -> None:
    """Its cluster would take the new job for the old one, and report its end."""
    worker = WorkerHarness(tmp_path)
    worker.cluster.rows = [
        worker.row(transfer="fed.7.2", phase="released", release_requested=True, end="ended", exit_status=0),
        worker.row(transfer="other.99.1", phase="held"),
        worker.row(transfer="fed.12", phase="held"),
    ]
    worker.round()
    assert worker.federation.submit("ann@org", JOB).id == "8"
    worker.log.close()


@pytest.mark.parametrize(("lead", "words"), [(5, ""), (120, "120 s ahead of"), (-90, "90 s behind")])
def test_clock_of_a_cluster_that_differs_is_reported(tmp_path: Path, lead: int, words: str) -> None:
    worker = WorkerHarness(tmp_path)
    worker.cluster.now = worker.now + lead
    worker.round()
    (row,) = cluster_rows(worker.federation)
    assert row.away == ""
    assert (words in row.trouble) if words else not row.trouble
    worker.log.close()


@pytest.mark.parametrize(("nodes", "arriving"), [(0, 0), (1, 2)])
def test_unread_server_refuses_no_job(tmp_path: Path, nodes: int, arriving: int) -> None:
    worker = WorkerHarness(tmp_path)
    worker.cluster.nodes, worker.cluster.arriving = nodes, arriving
    first = worker.federation.submit("ann@org", JOB)  # before the first poll
    worker.round()
    second = worker.federation.submit("bob@org", JOB)
    worker.round(look=False)
    assert [worker.federation.jobs[one.id].over for one in (first, second)] == ["", ""]
    worker.cluster.nodes, worker.cluster.arriving, worker.cluster.generation = 3, 0, 2
    worker.now += 6
    worker.round()
    assert all(worker.federation.jobs[one.id].attempts for one in (first, second))
    worker.log.close()


BY_SELECT: dict[str, Any] = {**JOB, "resources": {"select": "1:ncpus=2", "walltime": "60"}}


def test_torque_declared_as_openpbs_gets_no_select_and_is_logged(tmp_path: Path) -> None:
    worker = WorkerHarness(tmp_path, family="openpbs")
    worker.cluster.family = "torque"
    job = worker.federation.submit("ann@org", BY_SELECT)
    worker.round()
    worker.round()
    assert worker.federation.jobs[job.id].attempts == ()
    worker.federation.submit("ann@org", {**BY_SELECT, "resources": {"select": "1:ncpus=3", "walltime": "60"}})
    worker.round()
    assert worker.cluster.count("what_if") == 0
    words = "its server is TORQUE, but clusters.north.family is openpbs"
    assert words in cluster_rows(worker.federation)[0].trouble
    app = create_app(Tokens([]))
    add_pages(app)
    app.state.federation = worker.federation
    client = TestClient(app)
    assert words.capitalize()[0] + words[1:] in client.get("/").text
    assert words in client.get("/readyz").json()["trouble"]["north"]
    plain = worker.federation.submit("ann@org", JOB)
    worker.round()
    assert [one.cluster for one in worker.federation.jobs[plain.id].attempts] == ["north"]
    worker.log.close()


@pytest.mark.parametrize(("said", "trouble"), [("openpbs", "OpenPBS"), ("torque", ""), ("", "")])
def test_openpbs_declared_as_torque_is_logged(tmp_path: Path, said: str, trouble: str) -> None:
    worker = WorkerHarness(tmp_path)
    worker.cluster.family = said
    worker.round()
    (row,) = cluster_rows(worker.federation)
    assert row.trouble.startswith(f"its server is {trouble}, but") if trouble else row.trouble == ""
    assert worker.federation.unsupported_reason("north", BY_SELECT["resources"])
    worker.cluster.family = "torque"  # an admin investigates the conflict
    worker.round()
    assert cluster_rows(worker.federation)[0].trouble == ""
    worker.log.close()


def test_a_refused_release_is_said_while_it_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.federation.workers.cluster_worker._AGAIN_S", 0.0)
    worker = WorkerHarness(tmp_path)
    worker.round()
    job = worker.federation.submit("ann@org", JOB)
    worker.round()
    worker.cluster.refuses_release = Refused("not-now", 409, "the server is being upgraded")
    worker.cluster.rows, worker.cluster.generation = [worker.row()], 2
    worker.round()
    for _ in range(3):
        worker.round()
    (attempt,) = job_row(worker.federation, worker.federation.jobs[job.id]).attempts
    words = "north refuses to release the job: the server is being upgraded; the request is repeated"
    assert attempt.refusal == words
    assert worker.cluster.count("release_requested") > 1
    assert capsys.readouterr().out.count("will be repeated") == 1, "the log says it once"
    worker.cluster.refuses_release = None
    worker.round()
    (attempt,) = job_row(worker.federation, worker.federation.jobs[job.id]).attempts
    assert attempt.refusal == ""
    worker.log.close()
