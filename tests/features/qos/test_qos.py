"""QOS: which one a job has, who may use it, and its effects on rank, limits and price."""

import re
from typing import Any

import pytest

from schedd.engine import Engine
from schedd.engine.preview import preview_moves
from schedd.engine.rank.priorities import current_demand, priority_breakdown
from schedd.engine.show.job_view import job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.qos.settings import QosLevel
from schedd.features.qos.state import job_qos
from schedd.model import Never
from schedd.start_sentence import NEVER
from schedd.wire import PolicyChanged, QueueFacts
from tests.engine.cluster import Cluster
from tests.setting_faults import settings_fault

LEVELS: dict[str, Any] = {
    "normal": {},
    "high": {"priority": 1000, "charge": 2.0, "users": ["ann"], "groups": ["physics"]},
    "low": {"priority": -50, "charge": 0.5},
}


class QosSite(Cluster):
    """A cluster with three QOS."""

    def __init__(self, site: dict[str, Any] | None = None, nodes: int = 1, **qos: Any) -> None:
        plain = {"qos": {"levels": LEVELS, **qos}, **(site or {})}
        super().__init__(nodes=nodes, slack=100_000, site=plain)

    def qos(self, job: str) -> str:
        return job_qos(self.engine.state, self.record(job).facts)

    def never(self, job: str) -> str:
        answer = self.record(job).answer
        return answer.requirement if isinstance(answer, Never) else ""

    def set_policy(self, site: dict[str, Any], version: int = 1) -> None:
        self.send(PolicyChanged(id=f"p{version}", time=self.server.now, version=version, site=site))


@pytest.mark.parametrize(
    "resources", [{"qos": "high"}, {"x.qos": "high"}, {"QOS": "high"}, {"qos": "high", "x.qos": "high"}]
)
def test_a_job_requests_a_qos_by_resource_or_extension(resources: dict[str, str]) -> None:
    site = QosSite()
    site.submit("1", resources=resources)
    assert (site.qos("1"), site.start("1")) == ("high", 0)
    assert "not planned" not in site.view("1").why


def test_contradictory_requests_are_refused() -> None:
    site = QosSite()
    site.submit("1", resources={"qos": "high", "x.qos": "low"})
    assert "contradict each other" in site.never("1")


def test_the_first_open_default_counts() -> None:
    site = QosSite(
        default="normal",
        queue_defaults={"debug": "high", "batch": "low"},
        user_defaults={"ann": "high", "bob": "low"},
        account_defaults={"a1": "high"},
        group_defaults={"physics": "high"},
    )
    site.server.queues["work"] = QueueFacts(name="work")
    site.server.queues["debug"] = QueueFacts(name="debug")
    site.send(site.server.snapshot())
    for job, more, wanted in (
        ("1", {"queue": "debug"}, "high"),
        ("2", {"queue": "debug", "owner": "cyd@x"}, "normal"),  # high is not open to cyd
        ("3", {"queue": "batch"}, "low"),
        ("4", {"queue": "work"}, "high"),
        ("5", {"queue": "work", "owner": "bob@x", "group": "physics"}, "low"),
        ("6", {"queue": "work", "owner": "cyd@x", "group": "physics"}, "high"),
        ("7", {"queue": "work", "owner": "cyd@x", "account": "a1"}, "normal"),
        ("8", {"queue": "work", "owner": "cyd@x", "resources": {"qos": "low"}}, "low"),
    ):
        site.submit(job, **more)
        assert site.qos(job) == wanted, job


def test_defaults_of_queue_and_server_request_a_qos() -> None:
    site = QosSite(default="normal")
    site.send(*site.server.change_queue(QueueFacts(name="batch", defaults={"qos": "low"})))
    site.submit("1")
    assert site.qos("1") == "low"


def test_an_unknown_qos_is_never_planned_and_names_the_open_ones() -> None:
    site = QosSite()
    site.submit("1", owner="cyd@x", resources={"qos": "hgih"})
    assert site.start("1") is None
    assert site.never("1") == (
        "it requests QOS hgih, which does not exist here: qalter -l qos=NAME with one of normal, low"
    )
    site.alter_request("1", qos="low")
    assert site.start("1") == 0


def test_a_qos_that_is_not_open_is_never_planned() -> None:
    site = QosSite()
    site.submit("1", owner="cyd@x", group="bio", resources={"qos": "high"})
    assert site.never("1") == (
        "it requests QOS high, which neither user cyd, group bio nor queue batch may use: "
        "qalter -l qos=NAME with one of normal, low"
    )
    assert f"{NEVER}: it requests QOS high" in site.view("1").why


def test_the_remedy_is_the_option_with_which_the_job_requests_its_qos() -> None:
    site = QosSite()
    site.submit("1", owner="cyd@x", resources={"x.QOS": "hgih"})
    assert site.never("1").endswith("qalter -W x=QOS:NAME with one of normal, low")
    site.alter("1", resources={"nodes": "1", "x.QOS": "low"})
    assert site.start("1") == 0


def test_a_default_of_the_queue_that_does_not_exist_is_named_as_such() -> None:
    site = QosSite()
    site.send(*site.server.change_queue(QueueFacts(name="batch", defaults={"qos": "hgih"})))
    site.submit("1", owner="cyd@x")
    assert site.never("1") == (
        "a default of queue batch or of the server requests QOS hgih, which does not exist here: "
        "qalter -l qos=NAME with one of normal, low"
    )
    site.set_policy({"qos": {"levels": {"high": {"users": ["ann"]}}}})
    assert site.never("1").endswith("not exist here: ask an administrator to change the default")


def test_a_site_without_qos_refuses_or_ignores_requests() -> None:
    site = Cluster()
    site.submit("1", resources={"qos": "high"})
    assert site.start("1") is None
    assert "submit it without a QOS" in site.view("1").why
    site = Cluster(site={"qos": {"unknown": "ignore"}})
    site.submit("1", resources={"qos": "high"})
    assert site.start("1") == 0


def test_a_change_of_policy_opens_and_closes_a_qos() -> None:
    site = QosSite(nodes=2)
    site.submit("1", owner="cyd@x", resources={"qos": "high"})
    site.submit("2", resources={"qos": "low"}, not_before=site.server.now + 1000)
    assert (site.start("1"), site.start("2")) == (None, 1000)
    site.set_policy({"qos": {"levels": {"high": {}}}})
    assert site.start("1") == 0
    assert site.start("2") is None
    assert "QOS low, which does not exist here" in site.never("2")
    site.set_policy({"qos": {"levels": LEVELS}}, 2)
    assert site.start("2") == 1000


def test_a_preview_names_jobs_that_lose_their_qos_or_their_room() -> None:
    site = QosSite(nodes=2)
    site.submit("1", resources={"qos": "low"})
    site.submit("2", resources={"qos": "low"})
    site.submit("3", resources={"qos": "low"})
    site.submit("4", resources={"qos": "normal"}, owner="bob@x")
    assert [site.start(job) for job in "1234"] == [0, 0, 100, 100]
    now = site.server.now
    for plain, lost in (
        ({"qos": {"levels": {"normal": {}}}}, ["3"]),
        ({"qos": {"levels": LEVELS}, "limits": [{"qos": "low", "amount": 0, "counts": "eligible"}]}, ["3"]),
        ({"qos": {"levels": {"low": {"users": ["ann"]}, "normal": {"users": ["eve"]}}}}, ["4"]),
    ):
        change = PolicyChanged(id="p", time=now, version=1, site=plain)
        copy = Engine.restore(site.engine.checkpoint(), site.engine.state.settings)
        seen = preview_moves(copy, [change], now)
        moved = {one.job: one for one in seen.moved}
        assert [job for job in moved if moved[job].after is None] == lost
        assert moved[lost[0]].owner == ("bob@x" if lost == ["4"] else "ann@login")


def test_qos_priority_ranks_jobs() -> None:
    site = QosSite()
    for job, qos in (("1", "normal"), ("2", "low"), ("3", "normal"), ("4", "high")):
        site.submit(job, resources={"qos": qos})
    assert [site.start(job) for job in "1234"] == [0, 300, 200, 100]
    state = site.engine.state
    found = priority_breakdown(state, state.records["4"], current_demand(state, None))
    assert [(one.name, one.points) for one in found.terms if one.points] == [("qos", 1000)]
    site = QosSite({"priority": {"qos": 0}})
    for job, qos in (("1", "normal"), ("2", "low"), ("3", "high")):
        site.submit(job, resources={"qos": qos})
    assert [site.start(job) for job in "123"] == [0, 100, 200]


def test_a_formula_uses_the_qos_and_its_priority() -> None:
    for expression in ("qos_priority", "100 if qos == 'high' else 0"):
        site = QosSite({"formula": {"expression": expression}}, user_defaults={"ann": "high"})
        site.submit("1", owner="bob@x")
        site.submit("2", owner="bob@x")
        site.submit("3")
        assert [site.start(job) for job in "123"] == [0, 200, 100], expression


def test_a_limit_of_a_qos_counts_its_jobs_only() -> None:
    limits = [{"qos": "low", "who": "user", "amount": 1}, {"qos": "high", "amount": 4, "what": "cpus"}]
    site = QosSite({"limits": limits}, nodes=4)
    site.submit("1", resources={"qos": "low"})
    site.submit("2", resources={"qos": "low"})
    site.submit("3", resources={"qos": "low"}, owner="bob@x")
    site.submit("4")
    assert [site.start(job) for job in "1234"] == [0, 100, 0, 0]
    assert site.view("2").limited_by == ("at most 1 job of user ann in QOS low at once",)
    site.alter_request("2", qos="normal")
    assert site.start("2") == 0


def test_jobs_show_their_qos() -> None:
    site = QosSite(default="normal")
    site.submit("1")
    view = job_view(publish_snapshot(site.engine.state), "1")
    assert view is not None
    assert view.labels == {"qos": "normal"}


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"qos": {"default": "gold"}}, "qos.default: there is no QOS 'gold' in levels"),
        ({"qos": {"user_defaults": {"ann": "gold"}}}, "qos.user_defaults.ann: there is no QOS 'gold'"),
        ({"qos": {"levels": {"a b": {}}}}, "pattern"),
        ({"qos": {"levels": {"a": {"charge": -1}}}}, "at least 0"),
        ({"qos": {"levels": {"a": {"colour": 1}}}}, "not known here"),
        ({"limits": [{"amount": 1, "qos": "gold"}]}, "limits.0.qos: there is no QOS 'gold' in qos.levels"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], fault: str) -> None:
    assert re.search(fault, settings_fault(settings))


def test_access_lists_are_alternatives() -> None:
    level = QosLevel(users=("ann",), queues=("debug",))
    assert level.admits("ann", "", "", "batch")
    assert level.admits("bob", "", "", "debug")
    assert not level.admits("bob", "ann", "ann", "batch")
