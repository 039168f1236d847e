"""The site's policy set while the engine runs, and what would follow, asked before."""

from typing import Any

from schedd.engine import Cause, Engine
from schedd.engine.preview import preview_moves
from schedd.policy.site import site_policy
from schedd.wire import PolicyChanged, Reserve
from tests.engine.cluster import Cluster, T


def change(cluster: Cluster, version: int, site: dict[str, Any]) -> PolicyChanged:
    return PolicyChanged(
        id=cluster.server.event_id(), time=cluster.server.now, version=version, site=site, by="root"
    )


def starts(cluster: Cluster, jobs: str) -> list[int | None]:
    return [cluster.start(job) for job in jobs]


ONE_EACH = {"limits": [{"what": "jobs", "who": "user", "amount": 1}]}


def test_limits_set_at_run_time_move_jobs_until_they_are_lifted() -> None:
    cluster = Cluster(nodes=2)
    for job in "1234":
        cluster.submit(job)
    assert starts(cluster, "1234") == [0, 0, 100, 100]
    cluster.send(change(cluster, 1, ONE_EACH))
    assert starts(cluster, "34") == [100, 200]
    assert cluster.at_risk("4") == Cause.QUEUE
    cluster.send(change(cluster, 0, {}))
    assert starts(cluster, "34") == [100, 100]


def test_priorities_set_at_run_time_are_worked_out_at_once() -> None:
    cluster = Cluster(nodes=1, slack=1000)
    for i, job in enumerate("1234"):
        cluster.submit(job, priority=i)
    cluster.send(change(cluster, 1, {"priority": {"wish": 1.0}}))
    assert starts(cluster, "1234") == [0, 300, 200, 100]


def test_a_policy_set_at_run_time_goes_before_the_settings_after_a_restart_until_it_is_withdrawn() -> None:
    cluster = Cluster(nodes=2)
    cluster.send(change(cluster, 3, ONE_EACH))
    settings = cluster.engine.state.settings.with_changes(site=site_policy({}))
    cluster.engine = Engine.restore(cluster.engine.checkpoint(), settings)
    assert cluster.engine.state.policy_version == 3
    cluster.submit("1")
    cluster.submit("2")
    assert starts(cluster, "12") == [0, 100]
    two = {"limits": [{"what": "jobs", "who": "user", "amount": 2}]}
    cluster.engine = Engine.restore(cluster.engine.checkpoint(), settings.with_changes(site=site_policy(two)))
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert starts(cluster, "12") == [0, 100]
    cluster.send(change(cluster, 0, {}))
    cluster.submit("3", "1:ppn=1")
    assert starts(cluster, "123") == [0, 0, 100]
    assert cluster.engine.state.settings.site.plain == two


def test_unreadable_policy_raises_an_alert_and_has_no_effect() -> None:
    cluster = Cluster(nodes=2)
    cluster.send(change(cluster, 1, ONE_EACH))
    cluster.send(change(cluster, 2, {"limits": [{"what": "jobs"}]}))
    assert cluster.alerts("policy")[0].startswith(
        "policy 2 cannot be read; the previous one stays in force: "
    )
    assert cluster.engine.state.policy_version == 1
    cluster.submit("1")
    cluster.submit("2")
    assert starts(cluster, "12") == [0, 100]


# ---- previews -----------------------------------------------------------------------------------


def test_preview_lists_moved_and_conflicting_jobs_without_any_effect() -> None:
    cluster = Cluster(nodes=2, slack=10)
    cluster.submit("1", "n1:ppn=4", 500)
    cluster.submit("2", "n2:ppn=4", 100, owner="bob")
    cluster.submit("3", "n2:ppn=4", 100, owner="eve")
    cluster.submit("4", "n1:ppn=4", 100)
    saved = cluster.engine.checkpoint()
    event = Reserve(id="x", time=T, name="r", start=T + 150, end=T + 300, everywhere=True)
    found = preview_moves(Engine.restore(saved), [event], T)
    assert [(one.job, one.until - T, one.nodes) for one in found.running] == [("1", 500, ("n1",))]
    assert [(one.job, one.owner, one.broken) for one in found.moved] == [("3", "eve", True)]
    moved = found.moved[0]
    assert (moved.before, moved.after, moved.promised) == (T + 100, T + 300, T + 110)
    assert found.alerts == ()
    assert cluster.engine.checkpoint() == saved
    cluster.send(event)
    assert starts(cluster, "34") == [300, 500]


def test_preview_excludes_jobs_on_the_access_list() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=500)
    cluster.submit("2")
    event = Reserve(id="x", time=T, name="r", start=T, end=T + 1000, everywhere=True, users=("ann",))
    found = preview_moves(Engine.restore(cluster.engine.checkpoint()), [event], T)
    assert (found.moved, found.running) == ((), ())


def test_preview_of_a_policy_lists_the_moved_jobs() -> None:
    cluster = Cluster(nodes=2)
    for job in "1234":
        cluster.submit(job)
    found = preview_moves(Engine.restore(cluster.engine.checkpoint()), [change(cluster, 1, ONE_EACH)], T)
    assert [(one.job, one.after, one.broken) for one in found.moved] == [("4", T + 200, True)]
    wrong = preview_moves(
        Engine.restore(cluster.engine.checkpoint()), [change(cluster, 1, {"limits": [{}]})], T
    )
    assert (wrong.moved, len(wrong.alerts)) == ((), 1)
