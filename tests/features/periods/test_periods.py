"""Policy periods: other rules at certain times, put in force at the right moment and taken back."""

from typing import Any

import pytest
from pydantic import ValidationError

from schedd.engine import Engine, policy_note
from schedd.engine.facts.explanations import format_moment
from schedd.engine.preview import preview_moves
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.periods.rules import present_period
from schedd.features.periods.settings import PeriodSettings
from schedd.features.periods.state import period_state
from schedd.features.preemption.state import preemption_state
from schedd.model import FOREVER
from schedd.service.settings.site import SiteSettings
from schedd.wire import ClockSet, PolicyChanged, QueueFacts, Run
from tests.engine.cluster import Cluster, T

# The scenarios begin at 22:13:20.
NIGHT = "2023-11-14T23:00:00/2023-11-15T05:00:00 FREQ=DAILY UTC"
BEGIN, END = 2_800, 24_400
SMALL_FIRST = {"windows": [NIGHT], "tables": {"priority": {"size": -1.0}}}


def cluster_with(period: dict[str, Any], nodes: int = 1, **more: Any) -> Cluster:
    return Cluster(nodes=nodes, site={"periods": {"sets": {"night": period}}, **more}, slack=100_000)


def test_priorities_of_a_period_apply_from_its_beginning_to_its_end() -> None:
    cluster = cluster_with(SMALL_FIRST)
    cluster.submit("runs", "1:ppn=4", 5_000)
    cluster.submit("large", "1:ppn=4", 30_000)
    cluster.submit("small", "1:ppn=1", 1_000)
    assert (cluster.start("large"), cluster.start("small")) == (5_000, 35_000)
    cluster.at(BEGIN)
    assert (cluster.start("small"), cluster.start("large")) == (5_000, 6_000)
    words = {changes.words for changes in cluster.engine.state.changes}
    assert any("job small of higher priority" in one or "it goes before" in one for one in words)
    cluster.at(END)
    assert cluster.engine.state.site.weights.size == 0.0
    cluster.submit("late", "1:ppn=1", 1_000)
    cluster.submit("later", "1:ppn=4", 1_000)
    assert (cluster.start("late"), cluster.start("later")) == (36_000, 37_000)


def test_nodes_are_chosen_by_the_rules_of_the_period() -> None:
    night = {"windows": [NIGHT], "tables": {"node_choice": {"prefer": {"n2": 5}}}}
    cluster = cluster_with(night, nodes=2, node_choice={"prefer": {"n1": 5}})
    cluster.submit("day", "1:ppn=1", 100)
    cluster.at(BEGIN)
    cluster.submit("night", "1:ppn=1", 100)
    cluster.at(END)
    cluster.submit("morning", "1:ppn=1", 100)
    nodes = [one.shares[0].node for one in cluster.decisions if isinstance(one, Run)]
    assert nodes == ["n1", "n2", "n1"]


def test_a_restored_engine_goes_on_in_its_period() -> None:
    cluster = cluster_with(SMALL_FIRST)
    cluster.at(BEGIN + 10)
    cluster.submit("runs", "1:ppn=4", 5_000)
    again = Engine.restore(cluster.engine.checkpoint())
    assert again.state.site.weights.size == -1.0
    assert again.next_wake == cluster.engine.next_wake
    cluster.at(END)
    for engine in (again, cluster.engine):
        engine.handle([], T + END)
        assert (engine.state.site.weights.size, period_state(engine.state).name) == (0.0, "")


def test_readers_and_previews_see_the_policy_in_force_and_its_settings() -> None:
    cluster = cluster_with(SMALL_FIRST)
    cluster.at(BEGIN)
    site = publish_snapshot(cluster.engine.state).settings.site
    assert (site.weights.size, site.plain["periods"]["sets"]["night"]["windows"]) == (-1.0, [NIGHT])
    cluster.submit("runs", "1:ppn=4", 5_000)
    cluster.submit("large", "1:ppn=4", 1_000)
    cluster.submit("small", "1:ppn=1", 1_000)
    assert cluster.start("small") == BEGIN + 5_000
    event = PolicyChanged(
        id="preview",
        time=cluster.server.now,
        version=1,
        site={"periods": {"sets": {"night": {"windows": [NIGHT], "tables": {"priority": {"size": 1.0}}}}}},
        by="root",
    )
    found = preview_moves(cluster.engine.fork(), [event], cluster.server.now)
    assert {one.job for one in found.moved} == {"small", "large"}
    assert cluster.engine.state.site.weights.size == -1.0


def test_the_period_in_force_is_named_with_its_tables_and_its_end() -> None:
    cluster = cluster_with(SMALL_FIRST)
    assert policy_note(publish_snapshot(cluster.engine.state)) == ""
    cluster.at(BEGIN)
    end = format_moment(T + END)
    assert policy_note(publish_snapshot(cluster.engine.state)) == (
        f"The rules of period night apply until {end}: its priority replaces the policy's."
    )
    cluster.at(END)
    assert policy_note(publish_snapshot(cluster.engine.state)) == ""


def test_the_first_of_overlapping_periods_counts_and_each_edge_is_a_moment() -> None:
    settings = PeriodSettings.model_validate(
        {
            "sets": {
                "eve": {
                    "windows": ["2023-11-14T22:00:00/2023-11-14T23:30:00 once UTC"],
                    "tables": {"priority": {}},
                },
                "night": SMALL_FIRST,
            }
        }
    )
    eve_ends = T + BEGIN + 1_800
    assert present_period(settings, T) == ("eve", T + BEGIN)
    assert present_period(settings, T + BEGIN) == ("eve", eve_ends)
    assert present_period(settings, eve_ends) == ("night", T + END)
    assert present_period(settings, T + END) == ("", T + BEGIN + 86_400)
    assert present_period(PeriodSettings(), T) == ("", 0)


def test_a_period_ends_also_after_the_clock_was_set_back_and_the_plan_rebuilt() -> None:
    cluster = cluster_with(SMALL_FIRST)
    cluster.at(BEGIN + 100)
    cluster.server.now -= 50
    cluster.send(ClockSet(id="back", time=cluster.server.now), cluster.server.snapshot())
    assert period_state(cluster.engine.state).name == "night"
    cluster.at(END)
    assert (cluster.engine.state.site.weights.size, period_state(cluster.engine.state).name) == (0.0, "")


def test_features_that_only_a_period_uses_work_from_its_beginning() -> None:
    preemption = {"preemptors": {"queues": ["urgent"]}, "targets": {"queues": ["batch"]}}
    cluster = cluster_with({"windows": [NIGHT], "tables": {"preemption": preemption}})
    cluster.send(*cluster.server.change_queue(QueueFacts(name="urgent")))
    cluster.submit("runs", "1:ppn=4", 50_000)
    cluster.at(BEGIN + 10)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert list(preemption_state(cluster.engine.state).planned) == ["now"]


def test_without_periods_there_is_no_moment() -> None:
    cluster = Cluster()
    assert period_state(cluster.engine.state).until == 0
    assert cluster.engine.next_wake in (None, FOREVER)


@pytest.mark.parametrize(
    ("period", "place", "reason"),
    [
        ({"windows": [], "tables": {"priority": {}}}, "night.windows", "at least 1"),
        ({"windows": ["8 to 18"], "tables": {"priority": {}}}, "night.windows.0", "write the begin and end"),
        ({"windows": [NIGHT]}, "night", "it has no effect"),
        (
            {"windows": [NIGHT], "tables": {"limits": {}}},
            "night",
            "tables.limits cannot be replaced; these can: priority, classes",
        ),
        (
            {"windows": [NIGHT], "tables": {"priority": {"size": "much"}}},
            "night.tables.priority.size",
            "a number is expected",
        ),
        (
            {"windows": [NIGHT], "tables": {"node_choice": {"arrange": "loose"}}},
            "night.tables.node_choice.arrange",
            "contiguous",
        ),
        (
            {"windows": [NIGHT], "tables": {"priority": {"fair_share": 1.0}}},
            "",
            "periods.sets.night: priority.fair_share has a weight, but there is no table fair_share",
        ),
    ],
)
def test_wrong_periods_are_refused_with_place_and_reason(
    period: dict[str, Any], place: str, reason: str
) -> None:
    with pytest.raises(ValidationError) as error:
        SiteSettings.model_validate({"periods": {"sets": {"night": period}}})
    first = error.value.errors()[0]
    assert ".".join(map(str, first["loc"])).removeprefix("periods.sets.") == place
    assert reason in first["msg"]
