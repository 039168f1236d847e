"""A node where jobs failed is tried by one short job after a pause, and opened if that succeeds."""

from typing import Any

from schedd.engine import Cause, Engine
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.node_trials.state import trial_records
from schedd.wire import ClockSet, JobEnded, NodeChanged, PolicyChanged, Run
from tests.engine.cluster import Cluster, T


def closed_cluster(nodes: int = 1, **trials: Any) -> Cluster:
    """A cluster where n1 was closed at 25 s, since five jobs of two users failed there."""
    cluster = Cluster(nodes=nodes, site={"node_trials": trials} if trials else {})
    for number in range(5):
        cluster.submit(f"f{number}", "n1:ppn=4", 1000, owner=f"{'ann' if number else 'bob'}@x")
        end(cluster, f"f{number}", 5, status=1)
    assert list(cluster.engine.state.black_holes) == ["n1"]
    assert cluster.server.now == T + 25
    return cluster


def end(cluster: Cluster, job: str, after: int, status: int) -> None:
    """A running job ends after these seconds."""
    cluster.server.now += after
    cluster.server.jobs.pop(job, None)
    cluster.send(JobEnded(id=f"end:{job}", time=cluster.server.now, job_id=job, exit_status=status))


def refuse(cluster: Cluster, run: Run) -> None:
    """A daemon of a node refuses a run decision."""
    cluster.send(*cluster.server.refuse(run, 15043, "refused"))


def closed_words(cluster: Cluster) -> str:
    return publish_snapshot(cluster.engine.state).closed.get("n1", "")


def test_one_short_job_tries_a_closed_node_after_the_pause_and_a_success_opens_it() -> None:
    cluster = closed_cluster()
    cluster.submit("long", "1:ppn=1", 3601)
    cluster.submit("short", "1:ppn=1", 600)
    cluster.submit("other", "1:ppn=1", 600)
    assert [cluster.runs(job) for job in ("long", "short", "other")] == [[], [], []]
    assert "one job of up to 60 min may try it from 2023-11-14 22:23:45 UTC on" in closed_words(cluster)
    cluster.at(625)
    assert [cluster.runs(job) for job in ("long", "short", "other")] == [[], [625], []]
    assert closed_words(cluster).endswith("job short tries it")
    end(cluster, "short", 5, status=0)
    assert closed_words(cluster) == ""
    assert cluster.engine.state.black_holes == {}
    assert not publish_snapshot(cluster.engine.state).alerts
    assert [cluster.runs(job) for job in ("long", "other")] == [[630], [630]]


def test_a_job_that_leaves_the_node_for_a_trial_has_lost_the_node() -> None:
    cluster = closed_cluster()
    for job in "ab":
        cluster.submit(job, "1:ppn=1", 600)
    cluster.at(625)
    assert [cluster.runs(job) for job in "ab"] == [[625], []]
    assert cluster.at_risk("b") == Cause.NODE_LOST


def test_the_pause_is_no_longer_when_the_clock_was_set_forward_and_back() -> None:
    cluster = Cluster(nodes=1)
    cluster.server.now += 86_400
    cluster.send()
    for number in range(5):
        cluster.submit(f"f{number}", "n1:ppn=4", 1000, owner=f"{'ann' if number else 'bob'}@x")
        end(cluster, f"f{number}", 5, status=1)
    assert list(cluster.engine.state.black_holes) == ["n1"]
    again_in = trial_records(cluster.engine.state)["n1"].again_at - cluster.server.now
    cluster.server.now -= 86_400
    cluster.send(ClockSet(id=cluster.server.event_id(), time=cluster.server.now))
    cluster.send(cluster.server.snapshot())
    assert trial_records(cluster.engine.state)["n1"].again_at == cluster.server.now + again_in
    cluster.submit("short", "1:ppn=1", 600)
    begin = cluster.server.now - T
    cluster.at(begin + again_in)
    assert cluster.runs("short") == [begin + again_in]


def test_a_failed_trial_closes_the_node_for_twice_as_long() -> None:
    cluster = closed_cluster()
    for job in "abc":
        cluster.submit(job, "n1:ppn=4", 600)
    cluster.at(625)
    assert [cluster.runs(job) for job in "abc"] == [[625], [], []]
    end(cluster, "a", 5, status=1)
    assert "job a tried node n1 and failed" in cluster.alerts("black_hole")[-1]
    cluster.at(1829)
    assert cluster.runs("b") == []
    cluster.at(1830)
    assert [cluster.runs(job) for job in "bc"] == [[1830], []]
    end(cluster, "b", 5, status=1)
    cluster.at(1835 + 2400)
    assert cluster.runs("c") == [1835 + 2400]


def test_explanations_of_waiting_jobs_follow_the_trial_and_its_failure() -> None:
    cluster = closed_cluster()
    cluster.submit("long", "n1:ppn=4", 9000)
    cluster.submit("a", "n1:ppn=4", 600)
    cluster.at(625)
    assert cluster.view("long").why.endswith("job a tries it")
    end(cluster, "a", 5, status=1)
    assert cluster.view("long").why.endswith("may try it from 2023-11-14 22:43:50 UTC on")


def test_a_job_that_failed_on_other_nodes_is_no_verdict_on_a_tried_node() -> None:
    cluster = closed_cluster(nodes=3, pause=10)
    cluster.obeys = False
    cluster.submit("a", "1:ppn=1", 600)
    tried = []
    for moment in (25, 55, 115):
        cluster.at(moment)
        run = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "a"][-1]
        tried.append(run.shares[0].node)
        refuse(cluster, run)
    assert tried[2] == "n1"
    trial = trial_records(cluster.engine.state)["n1"]
    assert (trial.pause, trial.job) == (10, "")


def test_the_pause_grows_to_the_longest_one() -> None:
    cluster = closed_cluster(pause=600, longest_pause=700)
    for job in "ab":
        cluster.submit(job, "n1:ppn=4", 600)
    cluster.at(625)
    end(cluster, "a", 5, status=1)
    cluster.at(630 + 700)
    assert cluster.runs("b") == [1330]


def test_a_job_that_runs_for_longer_than_an_early_failure_opens_the_node_while_it_runs() -> None:
    cluster = closed_cluster()
    cluster.submit("a", "1:ppn=1", 3000)
    cluster.submit("b", "1:ppn=1", 3000)
    cluster.at(625)
    assert [cluster.runs(job) for job in "ab"] == [[625], []]
    cluster.at(685)
    assert cluster.runs("b") == []
    cluster.at(686)
    assert (cluster.runs("b"), closed_words(cluster)) == ([686], "")


def test_a_node_that_refuses_the_job_of_a_trial_stays_closed() -> None:
    cluster = closed_cluster()
    cluster.obeys = False
    cluster.submit("a", "n1:ppn=1", 600)
    cluster.at(625)
    (run,) = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "a"]
    refuse(cluster, run)
    assert trial_records(cluster.engine.state)["n1"].pause == 1200
    assert "jobs fail on it" in closed_words(cluster)


def test_a_job_of_a_trial_that_is_deleted_before_it_starts_lets_another_try() -> None:
    cluster = closed_cluster()
    cluster.obeys = False
    cluster.submit("a", "1:ppn=1", 600)
    cluster.submit("b", "1:ppn=1", 600)
    cluster.at(625)
    assert [cluster.runs(job) for job in "ab"] == [[625], []]
    cluster.send(*cluster.server.delete("a"))
    assert cluster.runs("b") == [625]


def test_a_node_that_stays_open_for_a_trial_is_tried_by_a_short_job_that_comes_late() -> None:
    cluster = closed_cluster()
    cluster.at(9000)
    assert closed_words(cluster).endswith("may try it now")
    cluster.submit("a", "1:ppn=1", 1800)
    cluster.submit("b", "1:ppn=1", 1800)
    assert [cluster.runs(job) for job in "ab"] == [[9000], []]


def test_an_administrator_opens_a_node_that_waits_for_a_trial() -> None:
    cluster = closed_cluster()
    cluster.submit("a", "n1:ppn=4", 9000)
    cluster.at(700)
    facts = cluster.server.nodes["n1"]
    for state in ("drain", "up"):
        facts = facts.__class__(name="n1", cpus=4, state=state)
        cluster.send(NodeChanged(id=f"n1:{state}", time=cluster.server.now, node=facts))
    assert cluster.runs("a") == [700]
    assert trial_records(cluster.engine.state) == {}


def test_without_a_pause_there_are_no_trials() -> None:
    cluster = closed_cluster(pause=0)
    assert cluster.alerts("black_hole")[-1].endswith("no new jobs until it has been set offline or was down")
    cluster.submit("a", "n1:ppn=4", 600)
    cluster.at(100_000)
    assert cluster.runs("a") == []
    assert closed_words(cluster) == "not used, since jobs fail on it"


def test_trials_that_are_switched_on_later_open_nodes_that_were_closed_before() -> None:
    cluster = closed_cluster(pause=0)
    cluster.submit("a", "n1:ppn=4", 600)
    cluster.at(1000)
    policy = {"node_trials": {"pause": 100}}
    cluster.send(PolicyChanged(id="p1", time=cluster.server.now, version=1, site=policy))
    cluster.at(1101)
    assert cluster.runs("a") == [1100]


def test_a_restored_engine_goes_on_with_its_trials() -> None:
    cluster = closed_cluster()
    cluster.submit("a", "n1:ppn=4", 600)
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    cluster.at(625)
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert cluster.runs("a") == [625]
    end(cluster, "a", 5, status=0)
    assert cluster.engine.state.black_holes == {}


def test_a_node_that_only_refused_jobs_is_tried_after_a_minute() -> None:
    cluster = Cluster(nodes=1, refusal_wait=1, refusal_most=1)
    cluster.obeys = False
    for number in range(5):
        cluster.submit(f"{number}", "n1:ppn=4", 600, owner=f"{'ann' if number else 'bob'}@x")
    for _ in range(5):
        run = next(one for one in reversed(cluster.decisions) if isinstance(one, Run))
        refuse(cluster, run)
        cluster.at(cluster.server.now - T + 1)
    closed = cluster.server.now - T - 1
    assert list(cluster.engine.state.black_holes) == ["n1"]
    before = len(cluster.decisions)
    cluster.at(closed + 59)
    assert not [one for one in cluster.decisions[before:] if isinstance(one, Run)]
    cluster.at(closed + 60)
    (run,) = [one for one in cluster.decisions[before:] if isinstance(one, Run)]
    refuse(cluster, run)
    assert trial_records(cluster.engine.state)["n1"].pause == 120
    cluster.obeys = True
    cluster.at(closed + 180)
    (lost,) = trial_records(cluster.engine.state).values()
    end(cluster, lost.job, 5, status=1)  # this job is lost: now the pause of the settings
    assert trial_records(cluster.engine.state)["n1"].pause == 600
