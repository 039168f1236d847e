"""The reasons of moved starts name the jobs and times that really changed."""

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np

from schedd.engine import IMPROVED_BY_SEARCH, Cause, job_history, publish_snapshot, published_record
from schedd.engine.facts.explanations import format_length, format_moment
from schedd.engine.place.placement import DisplacedJobs
from schedd.engine.plan_improvements import movable_slots, place_facts
from schedd.engine.rank.promises import record_moves
from schedd.plan.placements import current_allocation
from schedd.wire import JobDeleted, PlanChosen, PlanImproved
from tests.engine.cluster import Cluster, T

HOUR = 3600


def queue_of(walltimes: dict[str, int], **settings: Any) -> Cluster:
    """One node, where job 0 runs for 100 s; the others wait behind it, one after the other."""
    cluster = Cluster(slack=10**6, publish_threshold=0, **settings)
    cluster.submit("0")
    for name, walltime in walltimes.items():
        cluster.submit(name, walltime=walltime)
    return cluster


def last_words(cluster: Cluster, name: str) -> str:
    """The reason of the job's last move."""
    change = cluster.view(name).last_change
    assert change is not None
    return change.words


def reorder(cluster: Cluster, order: list[str], *, chosen: bool = False) -> None:
    """Apply a plan with the waiting jobs in this order, as a search or an admin does."""
    state, at = cluster.engine.state, T + 100
    jobs = {slot: record.id for slot in movable_slots(state).tolist() if (record := state.by_slot[slot])}
    slots = {name: slot for slot, name in jobs.items()}
    places = []
    for name in order:
        places.append(replace(current_allocation(state.plan, slots[name]), start=at))
        at += state.records[name].understood.walltime
    facts = place_facts(state.plan, jobs, places)
    if chosen:
        cluster.send(PlanChosen(id="chosen", time=T, places=facts, by="ann"))
    else:
        cluster.send(PlanImproved(id="improved", time=T, places=facts))


def words(cluster: Cluster, job: str) -> str:
    change = cluster.view(job).last_change
    assert change is not None
    return change.words


def starts(cluster: Cluster) -> dict[str, int]:
    state = cluster.engine.state
    return {record.id: state.plan.start(record.slot) for record in state.records.values() if record.slot >= 0}


def test_a_better_plan_names_the_jobs_that_passed_the_total_and_the_promise() -> None:
    cluster = queue_of({"50.s": 10 * HOUR, "84.s": HOUR, "86.s": HOUR})
    promised = cluster.view("50.s").promised_start
    assert promised is not None
    reorder(cluster, ["84.s", "86.s", "50.s"])
    total = f"{IMPROVED_BY_SEARCH} (2 jobs start 20 h earlier in all, 1 job 2 h later)"
    assert words(cluster, "50.s") == (
        f"{total}; jobs 84.s, 86.s moved ahead of it; its promise of {format_moment(promised)} still holds"
    )
    assert words(cluster, "84.s") == words(cluster, "86.s") == f"{total}; it moved ahead of job 50.s"


def test_a_chosen_plan_names_the_admin_and_exactly_the_jobs_that_passed() -> None:
    """For random orders of a queue, compared with the starts before and after."""
    dice = random.Random(3)
    for _ in range(30):
        names = [f"{number}.s" for number in range(1, 7)]
        cluster = queue_of({name: dice.randrange(200, 9_000) for name in names})
        before = {name: starts(cluster)[name] for name in names}
        order = dice.sample(names, len(names))
        reorder(cluster, order, chosen=True)
        after = {name: starts(cluster)[name] for name in names}
        moved = [name for name in names if after[name] != before[name]]
        for name in moved:
            text = words(cluster, name)
            assert text.startswith("ann chose another plan (")
            if after[name] > before[name]:
                passed = {
                    one
                    for one in moved
                    if before[one] > before[name] and after[one] < min(before[one], after[name])
                }
                named = re.search(r"jobs? ([\w., ]+?)(?: and (\d+) more)? moved ahead of it", text)
                assert text.endswith(" still holds")
            else:
                passed = {
                    one
                    for one in moved
                    if before[one] < before[name] and after[one] > max(before[one], after[name])
                }
                named = re.search(r"it moved ahead of jobs? ([\w., ]+?)(?: and (\d+) more)?(?:;|$)", text)
            found = set(named[1].split(", ")) if named is not None else set()
            hidden = int(named[2] or 0) if named is not None else 0
            assert found <= passed
            assert len(found) + hidden == len(passed)
            gained = sum(before[one] - after[one] for one in moved if after[one] < before[one])
            assert f" {format_length(gained)} earlier" in text


def test_a_job_that_nobody_passed_names_the_moved_jobs_ahead_of_it() -> None:
    """The job 50.s, already ahead, takes the time of job 84.s, on the node of both."""
    cluster = queue_of({"50.s": HOUR, "84.s": HOUR})
    state = cluster.engine.state
    places = []
    for name, later in (("50.s", 2 * HOUR), ("84.s", 3 * HOUR)):
        found = current_allocation(state.plan, state.records[name].slot)
        places.append(replace(found, start=found.start + later))
    jobs = {state.records[name].slot: name for name in ("50.s", "84.s")}
    cluster.send(PlanChosen(id="chosen", time=T, places=place_facts(state.plan, jobs, places), by="ann"))
    history = job_history(publish_snapshot(state), state.records["84.s"])
    (text,) = [one.words for one in history if one.cause == Cause.CHOSEN]
    assert text.startswith("ann chose another plan (2 jobs start 5 h later in all); ahead of it"), text
    assert ", this also moved job 50.s; its promise" in text


def test_jobs_that_left_meanwhile_are_counted() -> None:
    cluster = queue_of({"50.s": 10 * HOUR, "84.s": HOUR, "86.s": HOUR})
    reorder(cluster, ["84.s", "86.s", "50.s"])
    cluster.send(JobDeleted(id="gone", time=T, job_id="84.s"))
    cluster.submit("99.s", walltime=HOUR)  # it may get the slot of the deleted job
    published = publish_snapshot(cluster.engine.state)
    record = published_record(published, "50.s")
    assert record is not None
    moves = job_history(published, record)
    text = next(one.words for one in moves if one.cause == Cause.IMPROVED)
    assert "; job 86.s and 1 more moved ahead of it; " in text


def test_room_that_became_free_and_priorities_are_named_by_the_job_that_caused_it() -> None:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR}, site={"priority": {"wish": 1.0}})
    cluster.send(JobDeleted(id="gone", time=T, job_id="0"))
    assert words(cluster, "2.s") == "job 0 was deleted"
    cluster.submit("3.s", walltime=60, priority=10)
    assert re.fullmatch(
        r"job 3.s of higher priority goes before.*; its promise of .* still holds", words(cluster, "2.s")
    )


def test_steps_of_one_search_count_as_one_move() -> None:
    cluster = queue_of({"1.s": HOUR, "2.s": HOUR, "3.s": HOUR})
    state = cluster.engine.state
    slots = np.array([state.records[name].slot for name in ("1.s", "2.s", "1.s", "3.s", "2.s")])
    old = T + np.array([100, 3_700, 3_700, 7_300, 100])
    new = T + np.array([3_700, 100, 7_300, 100, 3_700])
    record_moves(state, "search", Cause.IMPROVED, "better", slots, old, new)
    change = cluster.view("1.s").last_change
    assert change is not None
    assert (change.before, change.after) == (T + 100, T + 7_300)
    assert change.words.startswith("better; job 3.s moved ahead of it; its promise of ")
    assert words(cluster, "3.s") == "better; it moved ahead of job 1.s"


def test_each_displaced_job_names_the_late_job_in_its_way() -> None:
    cluster = Cluster(nodes=2)
    for job, node in ("1", "n1"), ("2", "n2"), ("3", "n1"), ("4", "n2"):
        cluster.submit(job, f"{node}:ppn=4")
    state, displaced = cluster.engine.state, DisplacedJobs()
    for job, late in ("3", "1"), ("4", "2"):
        slots = np.array([cluster.record(job).slot])
        displaced.add(slots, state.plan.starts(slots) - 10, f"job {late} starts later than planned")
        state.plan.remove(int(slots[0]), T)
    displaced.place_again(state, "e", Cause.OUTAGE)
    for job, late in ("3", "1"), ("4", "2"):
        assert words(cluster, job).startswith(f"job {late} starts later than planned")


def test_a_start_that_moves_since_another_job_got_smaller_names_that_job() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=1000)
    cluster.submit("2", "1:ppn=4", 1000)
    cluster.submit("3", "1:ppn=1", 500)
    cluster.at(10)
    cluster.alter_request("2", nodes="1:ppn=3")
    assert cluster.start("3") == 1000
    assert last_words(cluster, "3") == "job 2 was altered"


def test_a_start_that_moves_since_a_running_job_got_shorter_names_that_job() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=1000)
    cluster.submit("2", walltime=100)
    cluster.at(10)
    cluster.alter_request("1", walltime="500")
    assert cluster.start("2") == 500
    assert last_words(cluster, "2") == "job 1 was altered while it runs"


def test_a_start_that_moves_since_a_node_got_larger_names_the_node() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=1000)
    cluster.submit("2", walltime=1000)
    cluster.submit("3", "1:ppn=1", 500)
    cluster.at(10)
    cluster.node("n1", cpus=5)
    assert last_words(cluster, "3") == "node n1 has other resources than before"
