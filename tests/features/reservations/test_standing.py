"""Standing reservations of the site: creation, expiry and removal by the engine."""

from dataclasses import replace
from typing import Any

from schedd.engine import Engine, EngineSettings
from schedd.features.reservations.state import reservation_records
from schedd.policy.site import site_policy
from schedd.wire import JobFacts, NodeFacts, ShareFacts
from tests.engine.cluster import Cluster, T
from tests.engine.test_windows import DAY, HOUR, wall


def maintenance(first: int, last: int, rule: str = "", **more: Any) -> dict[str, Any]:
    window = {"first": wall(first), "last": wall(last), "rule": rule}
    return {"reservations": {"maint": {"everywhere": True, "reason": "new disks", **window, **more}}}


def reservation_names(engine: Engine) -> list[str]:
    return sorted(reservation_records(engine.state))


def test_jobs_are_planned_around_recurring_windows() -> None:
    cluster = Cluster(nodes=1, site=maintenance(2 * HOUR, 4 * HOUR, "FREQ=DAILY;COUNT=3"))
    cluster.submit("1", walltime=2 * HOUR)
    cluster.submit("2", walltime=3 * HOUR)
    cluster.submit("3", walltime=20 * HOUR)
    cluster.submit("4", walltime=23 * HOUR)
    assert [cluster.start(job) for job in "1234"] == [0, 4 * HOUR, 2 * DAY - 20 * HOUR, 2 * DAY + 4 * HOUR]
    assert len(reservation_names(cluster.engine)) == 3
    assert reservation_names(cluster.engine)[0].startswith("maint@2023-11-15T00:13Z")


def test_expired_window_is_replaced_by_the_next() -> None:
    cluster = Cluster(nodes=1, site=maintenance(DAY, DAY + HOUR, "FREQ=WEEKLY"))
    assert len(reservation_names(cluster.engine)) == 9, "of 60 days ahead"
    first = reservation_names(cluster.engine)[0]
    cluster.at(30 * DAY)
    assert len(reservation_names(cluster.engine)) == 8, "from day 36 to day 85"
    assert first not in reservation_names(cluster.engine)
    cluster.submit("1", walltime=6 * DAY + 1)
    assert cluster.start("1") == 36 * DAY + HOUR


def test_named_users_may_use_the_reserved_nodes() -> None:
    cluster = Cluster(nodes=1, site=maintenance(0, DAY, groups=["staff"]))
    cluster.submit("1", walltime=HOUR)
    cluster.submit("2", walltime=HOUR, group="staff")
    assert (cluster.start("1"), cluster.start("2")) == (DAY, 0)


def test_only_some_nodes_are_reserved() -> None:
    cluster = Cluster(nodes=2, site=maintenance(0, DAY, everywhere=False, nodes=["n1"]))
    cluster.submit("1", walltime=HOUR)
    cluster.submit("2", walltime=HOUR)
    assert (cluster.start("1"), cluster.start("2")) == (0, HOUR)
    assert [share.node for share in cluster.view("2").planned_nodes] == ["n2"]


def test_recurring_reservations_survive_a_checkpoint_without_duplicates() -> None:
    cluster = Cluster(nodes=1, site=maintenance(2 * HOUR, 4 * HOUR, "FREQ=DAILY"))
    again = Engine.restore(cluster.engine.checkpoint())
    before, made = reservation_names(again), again.state.change_number
    again.handle([], T + 60)
    assert reservation_names(again) == before
    assert again.state.change_number == made


def test_a_restored_engine_reserves_a_new_window_at_the_same_time() -> None:
    """Between two examinations the window of a further day begins within the 60 days ahead."""
    cluster = Cluster(nodes=1, site=maintenance(2 * HOUR, 4 * HOUR, "FREQ=DAILY"))
    again = Engine.restore(cluster.engine.checkpoint())
    for hours in (3, 7):
        for engine in (cluster.engine, again):
            engine.handle([], T + hours * HOUR)
        assert reservation_names(again) == reservation_names(cluster.engine)


def test_removed_site_reservation_is_lifted_and_manual_reservations_stay() -> None:
    cluster = Cluster(nodes=1, site=maintenance(2 * HOUR, 4 * HOUR, "FREQ=DAILY"))
    cluster.reserve("mine", "n1", start=50 * HOUR, end=51 * HOUR)
    cluster.submit("1", walltime=3 * HOUR)
    assert cluster.start("1") == 4 * HOUR
    settings = EngineSettings(
        validate=True,
        publish_starts=False,
        end_allowance=0,
        site=site_policy(maintenance(30 * HOUR, 31 * HOUR)),
    )
    cluster.engine = Engine.restore(cluster.engine.checkpoint(), settings)
    cluster.send()
    assert [name.partition("@")[0] for name in reservation_names(cluster.engine)] == ["maint", "mine"]
    assert cluster.start("1") == 0


def test_missing_nodes_cause_no_reservation_and_no_alert() -> None:
    site = maintenance(0, DAY, everywhere=False, nodes=["n1"])
    engine = Engine(EngineSettings(site=site_policy(site), validate=True), T)
    assert engine.handle([], T).decisions == ()
    assert reservation_names(engine) == []
    assert engine.next_wake is None


def test_reservations_of_the_settings_precede_promises_to_the_first_jobs() -> None:
    """Jobs that the first snapshot finds waiting got promises, which the reservations then broke at once."""
    cluster = Cluster(nodes=0, site=maintenance(2 * HOUR, 4 * HOUR), slack=0)
    server = cluster.server
    server.nodes["n1"] = NodeFacts(name="n1", cpus=4)
    resources = {"nodes": "1:ppn=4", "walltime": str(3 * HOUR)}
    running = JobFacts(id="1", owner="ann@login", queue="batch", submitted=T, resources=resources)
    server.submit(running, 3 * HOUR)
    server.start("1", (ShareFacts(node="n1", cpus=4, mem=0),))
    server.submit(replace(running, id="2"), 3 * HOUR)
    cluster.send(server.snapshot())
    assert cluster.start("2") == 4 * HOUR, "the running job stays, and the reservation is kept after it"
    assert (cluster.promise("2"), cluster.breaches("2"), cluster.at_risk("2")) == (4 * HOUR, [], "")
