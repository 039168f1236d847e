"""Usage for fair share, from starts and ends."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.state import EngineState
from schedd.features.fair_share.rules import follow_site, owner_shares, rate_tree
from schedd.features.fair_share.settings import SETTINGS
from schedd.features.fair_share.state import fair_share_state
from schedd.features.fair_share.tree import RatedTree, ShareRow
from schedd.features.fair_share.usage import ChargedRun
from schedd.plan.criteria import Criterion
from schedd.plan.evaluate import CriterionWeights, Evaluation
from schedd.policy.protocol import OwnerShare
from schedd.policy.site import site_policy
from schedd.service.settings.file import read_settings_file
from schedd.service.settings.site import SiteSettings
from schedd.wire import ClockSet, JobDeleted, PolicyChanged
from schedd.wire.toml_files import SettingsError
from tests.engine.cluster import Cluster, T
from tests.engine.policy_previews import previewed_moves

SITE = {
    "fair_share": {"levels": ["group", "user"], "shares": {"phys": 3, "bio": 1}, "interval": 3600, "decay": 1}
}


def share_rows(engine: Engine) -> list[ShareRow]:
    shares = rate_tree(engine.state)
    return shares.rows() if shares is not None else []


def used(engine: Engine) -> dict[str, float]:
    return {"/".join(row.place): row.used for row in share_rows(engine) if len(row.place) == 2}


def test_usage_includes_ended_and_running_jobs() -> None:
    cluster = Cluster(nodes=2, site=SITE)
    cluster.submit("1", walltime=100, group="phys")
    cluster.submit("2", "1:ppn=2", walltime=1000, owner="bob@login", group="bio")
    cluster.at(50)
    assert used(cluster.engine) == {"phys/ann": 4 * 50, "bio/bob": 2 * 50}
    cluster.at(300)
    assert used(cluster.engine) == {"phys/ann": 4 * 100, "bio/bob": 2 * 300}
    cluster.at(1000)
    assert used(cluster.engine) == {"phys/ann": 4 * 100, "bio/bob": 2 * 1000}


def test_used_share_stays_when_a_job_ends_and_is_that_of_a_restored_engine() -> None:
    """The shares are looked at before the end, at it and after it, all within one window."""
    cluster = Cluster(nodes=1, site=SITE)
    cluster.submit("1", walltime=100, group="phys")
    cluster.submit("2", walltime=100, group="phys")
    for moment in (99, 100, 150, 200, 250):
        cluster.at(moment)
        now = {"phys/ann": 4.0 * min(moment, 200)}
        assert used(cluster.engine) == used(Engine.restore(cluster.engine.checkpoint())) == now


def test_a_second_on_a_fast_node_counts_as_many_times_as_it_is_faster() -> None:
    cluster = Cluster(nodes=2, site=SITE | {"speeds": {"new": 2.5, "n1": 2.0, "n2": 0.5}})
    cluster.node("n1", properties=("new",))
    cluster.submit("1", "n1:ppn=4", walltime=100, group="phys")
    cluster.submit("2", "n2:ppn=4", walltime=100, group="bio")
    cluster.at(100)
    assert used(cluster.engine) == {"phys/ann": 4 * 2.5 * 100, "bio/ann": 4 * 0.5 * 100}
    site = SITE | {"speeds": {"n1": 3.0}}
    cluster.send(PolicyChanged(id="p", time=cluster.server.now, version=1, site=site))
    assert {name: node.speed for name, node in cluster.engine.state.plan.nodes.items()} == {
        "n1": 3.0,
        "n2": 1.0,
    }


def test_deleted_and_requeued_runs_count() -> None:
    cluster = Cluster(nodes=2, site=SITE)
    cluster.submit("1", walltime=1000, group="phys")
    cluster.submit("2", walltime=1000, group="bio")
    cluster.at(70)
    server = cluster.server
    cluster.send(JobDeleted(id=server.event_id(), time=server.now, job_id="1"))
    back = replace(server.jobs["2"], state="Q", started=None, shares=())
    cluster.obeys = False
    cluster.send(*server.submit(back, 1000))
    assert used(cluster.engine) == {"phys/ann": 4 * 70, "bio/ann": 4 * 70}


def test_wait_of_a_requeued_run_begins_with_the_requeue() -> None:
    """Job 1 runs for 300 s, and waits 100 s for its second run; the server keeps its time of eligibility."""
    cluster = Cluster(nodes=1, site=SITE)
    cluster.submit("1", walltime=1000, group="phys", eligible=T)
    cluster.at(300)
    cluster.node("n1", state="offline")
    cluster.send(*cluster.server.requeue("1"))
    cluster.server.now += 100
    cluster.node("n1", state="up")
    cluster.at(3000)
    assert {row.place: round(row.used * row.waited) for row in share_rows(cluster.engine) if row.used} == {
        ("phys",): 100,
        ("phys", "ann"): 100,
    }


def test_wait_of_a_postponed_job_begins_at_its_first_allowed_start() -> None:
    cluster = Cluster(nodes=1, site=SITE)
    cluster.submit("1", walltime=100, group="phys", not_before=T + 500)
    cluster.at(1000)
    assert [(row.used, row.waited) for row in share_rows(cluster.engine) if row.place == ("phys",)] == [
        (400, 0)
    ]


def test_usage_outlives_a_checkpoint_and_goes_on() -> None:
    cluster = Cluster(nodes=1, site=SITE)
    cluster.submit("1", walltime=100, group="phys")
    cluster.submit("2", walltime=100, group="bio")
    cluster.at(130)
    again = Engine.restore(cluster.engine.checkpoint())
    assert used(again) == used(cluster.engine) == {"phys/ann": 400, "bio/ann": 120}
    other = Engine.restore(cluster.engine.checkpoint(), EngineSettings())
    other.handle((), other.state.now + 1)
    assert fair_share_state(other.state).usage is None
    assert share_rows(other) == []


def test_usage_counts_also_after_the_clock_was_set_back() -> None:
    cluster = Cluster(nodes=1, site=SITE)
    cluster.at(90_000)
    cluster.submit("1", walltime=100, group="phys")
    cluster.at(90_100)
    cluster.server.now -= 80_000
    cluster.send(ClockSet(id="back", time=cluster.server.now), cluster.server.snapshot())
    assert used(cluster.engine) == {"phys/ann": 400}


def test_share_rows_have_waits_and_usage() -> None:
    """Job 2 waited 100 s for its 400 cpu-seconds."""
    cluster = Cluster(nodes=1, site=SITE)
    cluster.submit("1", walltime=100, group="phys")
    cluster.submit("2", walltime=100, group="bio")
    cluster.at(200)
    waited = {row.place: row.waited for row in share_rows(cluster.engine)}
    assert (waited["phys",], waited["bio",]) == (0.0, 100 / 400)


def test_decayed_usage_is_dropped() -> None:
    site = {"fair_share": {"interval": 3600, "depth": 2}}
    cluster = Cluster(nodes=1, site=site)
    cluster.submit("1", walltime=100, group="phys")
    cluster.at(200)
    usage = fair_share_state(cluster.engine.state).usage
    assert usage is not None
    assert usage.saved()["owners"]
    cluster.server.now = T + 10 * 86_400
    cluster.send()
    assert not usage.saved()["owners"]


def test_without_fair_share_no_usage_is_stored() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=100, group="phys")
    cluster.at(200)
    assert fair_share_state(cluster.engine.state).usage is None


def tree(interval: int, decay: float = 0.9) -> dict[str, object]:
    return {"fair_share": {"levels": ["user"], "interval": interval, "decay": decay}}


def test_usage_is_kept_as_long_as_its_windows_are_as_long() -> None:
    state = EngineState.empty(EngineSettings(site=site_policy(tree(3600))), 0)
    part = fair_share_state(state)
    usage = part.usage
    assert usage is not None
    usage.record(ChargedRun(("ann",), 1000, 0, 60))
    state.set_site(site_policy(tree(3600, 0.5)))
    follow_site(state)
    assert part.usage is usage
    state.set_site(site_policy(tree(7200)))
    follow_site(state)
    assert part.usage is not None
    assert part.usage is not usage
    assert part.usage.saved()["owners"] == []
    state.set_site(site_policy({}))
    follow_site(state)
    assert part.usage is None


def test_usage_follows_an_account_that_moves_to_another_group() -> None:
    before = {"fair_share": {"levels": ["group"], "shares": {"science": 1, "phys": 3, "bio": 1}, "decay": 1}}
    after = {"fair_share": before["fair_share"] | {"parents": {"phys": "science"}}}
    cluster = Cluster(nodes=2, site=before)
    cluster.submit("1", walltime=100, group="phys")
    cluster.at(100)
    cluster.send(PolicyChanged(id="p", time=cluster.server.now, version=1, site=after))
    assert {row.place: row.used for row in share_rows(cluster.engine) if row.used} == {
        ("science",): 400,
        ("science", "phys"): 400,
    }


def test_charge_factors_of_queue_and_node_multiply_usage() -> None:
    site = SITE["fair_share"] | {
        "charge_queues": {"idle": 0.5, "*": 2},
        "charge_nodes": {"gpu": 3.0, "n2": 0.25, "*": 1.5},
    }
    cluster = Cluster(nodes=3, site={"fair_share": site})
    cluster.node("n1", properties=("gpu",))
    cluster.submit("1", "n1:ppn=1", walltime=100, group="phys", queue="idle")
    cluster.submit("2", "n2:ppn=1", walltime=100, group="bio")
    cluster.submit("3", "n3:ppn=3", walltime=100, group="chem")
    cluster.at(100)
    assert used(cluster.engine) == {
        "phys/ann": 100 * 3.0 * 0.5,
        "bio/ann": 100 * 0.25 * 2,
        "chem/ann": 100 * 3 * 1.5 * 2,
    }


def test_charge_factor_of_a_qos_multiplies_usage() -> None:
    levels = {"qos": {"levels": {"high": {}, "low": {}}, "default": "low"}}
    site = levels | {"fair_share": SITE["fair_share"] | {"charge_qos": {"high": 3, "low": 0}}}
    cluster = Cluster(nodes=2, site=site)
    cluster.submit("1", walltime=100, group="phys", resources={"qos": "high"})
    cluster.submit("2", walltime=100, group="bio")
    cluster.at(100)
    assert used(cluster.engine) == {"phys/ann": 3 * 400, "bio/ann": 0}


def test_restored_engine_ranks_by_the_same_shares() -> None:
    site = SITE | {"priority": {"fair_share": 100.0}}
    cluster = Cluster(nodes=1, site=site, priority_every=60)
    cluster.submit("1", walltime=100, group="phys")
    for job, group in (("2", "phys"), ("3", "bio"), ("4", "new")):
        cluster.submit(job, walltime=100, group=group)
    cluster.at(90)
    before, after = cluster.engine, Engine.restore(cluster.engine.checkpoint())
    kept = [owner_shares(one.state) for one in (before, after)]
    one, other = ([(names, one.share(names)) for names in one.owners] for one in kept if one is not None)
    assert one == other
    assert after.state.ranking.demand.shares is not None


def test_owner_without_jobs_so_far_has_the_share_of_a_new_child() -> None:
    cluster = Cluster(nodes=1, site=SITE | {"priority": {"fair_share": 100.0}})
    cluster.submit("1", walltime=100, group="phys")
    cluster.at(50)
    shares = rate_tree(cluster.engine.state)
    assert shares is not None
    new = shares.share(("phys", "new"))
    assert new.target == 0.75 / 2
    assert new.effective_usage == 1.0 / 2
    assert new.factor == 2 ** -(0.5 / 0.375)
    assert shares.share(("none", "new")) == OwnerShare(1 / 5, 0.0, 1.0)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('parents = { b = "a", a = "b" }', "line 3: .*parents.b: these groups are in a cycle: b -> a -> b"),
        ('[clusters.main.site.fair_share.parents]\nx = "nobody"', "line 4: .*the parent 'nobody' is unknown"),
        ('[clusters.main.site.fair_share.shares]\na = 1\n"a/b/c" = 1', "line 5: .*the tree has the levels"),
        ("[clusters.main.site.fair_share.shares]\na = -1", "line 4: .*at least 0"),
        ("[clusters.main.site.fair_share.shares]\na = 1\na = 2", "line 5"),
    ],
)
def test_a_bad_tree_is_refused_with_line_and_reason(tmp_path: Path, table: str, reason: str) -> None:
    file = tmp_path / "schedd.toml"
    file.write_text(f'auth.anonymous = "reader"\n[clusters.main.site.fair_share]\n{table}\n')
    with pytest.raises(SettingsError, match=reason):
        read_settings_file(file)


def test_fair_share_can_be_turned_off_with_its_settings_kept() -> None:
    cluster = Cluster(nodes=1, site={"fair_share": {**SITE["fair_share"], "enabled": False}})
    cluster.submit("1", walltime=100, group="phys")
    cluster.at(200)
    assert share_rows(cluster.engine) == []


def test_fairness_of_a_plan_counts_decayed_waits_and_usage() -> None:
    """Worked by hand: ann waited 100 s for 400 cpu-seconds; both wait for a job of 4 * 100 cpu-seconds."""
    site = {"fair_share": {"levels": ["user"], "interval": 3600, "decay": 1}}
    cluster = Cluster(nodes=1, site=site, weights={"unfairness": 1.0}, priority_every=60, slack=10**6)
    cluster.submit("0", walltime=100, owner="bob@login")
    cluster.submit("1", walltime=100, owner="ann@login")
    cluster.at(200)  # bob: 400 cpu-seconds without waiting; ann: 400 after 100 s
    cluster.submit("2", walltime=500, owner="eve@login")
    cluster.at(300)
    cluster.submit("3", walltime=100, owner="ann@login2")  # the same user, from another host
    cluster.submit("4", walltime=100, owner="bob@login")
    state = cluster.engine.state
    history = state.columns.history
    assert {owner: history[:, number].tolist() for owner, number in state.owners.items()} == {
        "bob": [0.0, 400.0],
        "ann": [100.0, 400.0],
        "eve": [0.0, 400.0],
    }
    values = Evaluation(state.plan, state.columns, state.now).values()
    starts = {name: state.plan.start(state.records[name].slot) - state.now for name in "34"}
    nuwt = [(100 + starts["3"]) / 800, starts["4"] / 800, 0.0]
    mean = sum(nuwt) / 3
    assert values[Criterion.UNFAIRNESS] == pytest.approx(sum((one - mean) ** 2 for one in nuwt))
    assert values[Criterion.NUWT_MAX] == pytest.approx(max(nuwt))
    again = Engine.restore(cluster.engine.checkpoint())
    assert (again.state.columns.history == history).all()


def test_search_for_fairness_puts_the_user_who_waited_longer_first() -> None:
    site = {"fair_share": {"levels": ["user"], "interval": 3600, "decay": 1}}
    for starved in ("ann", "bob"):
        cluster = Cluster(nodes=1, site=site, weights={"unfairness": 1.0}, priority_every=60, slack=10**6)
        other = "bob" if starved == "ann" else "ann"
        cluster.submit("0", walltime=2000, owner=f"{other}@login")
        cluster.submit("1", walltime=100, owner=f"{starved}@login")
        cluster.at(2100)
        cluster.submit("2", walltime=500, owner="eve@login")
        cluster.at(2300)
        for job, owner in (("3", other), ("4", starved)):
            cluster.submit(job, walltime=100, owner=f"{owner}@login")
        state = cluster.engine.state
        weights = CriterionWeights({Criterion.UNFAIRNESS: 1.0})
        plan, columns = state.plan.fork(), state.columns
        before = Evaluation(plan, columns, state.now).values()
        slots = [state.records[name].slot for name in "34"]
        begin = plan.start(slots[0])
        for slot in slots:
            plan.remove(slot, state.now)
        for slot, start in ((slots[1], begin), (slots[0], begin + 100)):
            plan.place(slot, start)
        after = Evaluation(plan, columns, state.now).values()
        assert weights.cost(after, before) < weights.cost(before, before)


@pytest.mark.parametrize(
    ("site", "advice"),
    [
        ({}, "priority.fair_share is 0: usage has no effect unless the server's job_sort_formula has"),
        ({"formula": {"from_server": False}}, "priority.fair_share is 0: usage has no effect"),
        (
            {"formula": {"expression": "queue_priority"}},
            "no effect, since formula.expression has no fair-share term",
        ),
        (
            {"formula": {"expression": "queue_priority"}, "priority": {"fair_share": 5}},
            "no effect, since formula.expression has no fair-share term",
        ),
        ({"formula": {"expression": "10 * fairshare_factor"}}, ""),
        ({"formula": {"expression": "queue_priority - fairshare_tree_usage"}}, ""),
        ({"priority": {"fair_share": 5}}, ""),
        ({"priority": {"fair_share": 5}, "formula": {"from_server": False}}, ""),
    ],
)
def test_settings_advice_names_an_unused_fair_share(site: dict[str, Any], advice: str) -> None:
    plain = SiteSettings.model_validate(SITE | site).plain
    assert SETTINGS.advice is not None
    found = list(SETTINGS.advice(plain))
    assert len(found) == bool(advice)
    assert all(advice in line for line in found)
    off = SITE["fair_share"] | {"enabled": False}
    assert not list(SETTINGS.advice(SiteSettings.model_validate({"fair_share": off}).plain))


def test_a_preview_of_fair_share_names_the_jobs_that_change_places() -> None:
    cluster = Cluster(nodes=1, slack=1000)
    cluster.submit("1", group="phys")
    cluster.submit("2", group="phys")
    cluster.submit("3", group="bio", owner="bob@login")
    cluster.at(50)
    moved = previewed_moves(cluster, SITE | {"priority": {"fair_share": 1000.0}})
    assert {job: (one.after or 0) - T for job, one in moved.items()} == {"3": 100, "2": 200}


def test_jobs_are_ranked_by_the_same_shares_after_a_restart_that_follows_a_change_of_the_policy() -> None:
    cluster = Cluster(nodes=1, site={**SITE, "priority": {"fair_share": 10.0}}, priority_every=3600)
    cluster.submit("1", walltime=1000, group="phys")
    cluster.submit("2", walltime=1000, group="bio")
    cluster.at(500)
    follow_site(cluster.engine.state)  # no ranking follows while the plan is out of date
    used = cluster.engine.state.ranking.demand.shares
    engine = Engine.restore(cluster.engine.checkpoint())
    engine.handle([], T + 700)
    again = engine.state.ranking.demand.shares
    assert isinstance(used, RatedTree)
    assert isinstance(again, RatedTree)
    assert (again.at, again.rows()) == (used.at, used.rows())
