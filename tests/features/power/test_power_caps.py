"""Power caps: what jobs draw stays within what a site may draw, at every moment of the plan."""

from typing import Any

import pytest
from pydantic import ValidationError

from schedd.engine import Engine
from schedd.engine.facts.texts import LIMIT_TO_BE_RAISED
from schedd.model import WaitingFor
from schedd.service.settings.site import SiteSettings
from schedd.wire import PolicyChanged
from tests.engine.cluster import Cluster, T

WATTS = {"*": {"idle": 100.0, "core": 10.0, "gpu": 200.0}}
# T is 22:13:20 UTC.
EVENING = {"watts": 240.0, "first": "2023-11-14T22:00:00", "last": "2023-11-14T23:00:00"}
ELEVEN = 2_800


def capped(*caps: dict[str, Any], nodes: int = 2) -> Cluster:
    return Cluster(nodes=nodes, site={"power": WATTS, "power_caps": list(caps)})


def test_jobs_draw_at_most_the_cap_minus_idle_draw() -> None:
    site = capped({"watts": 250.0})
    site.submit("1", "1:ppn=4", 100)
    site.submit("2", "1:ppn=1", 100)
    site.submit("3", "1:ppn=1", 100)
    assert [site.start(job) for job in "123"] == [0, 0, 100], "2 x 100 W idle, and 50 W for five cores"


def test_a_cap_of_some_hours_is_kept_then_and_not_later() -> None:
    site = capped(EVENING)
    site.submit("1", "1:ppn=4", 100)
    site.submit("2", "1:ppn=4", 10_000)
    site.submit("3", "1:ppn=4", 10_000)
    assert [site.start(job) for job in "123"] == [0, 100, ELEVEN]
    site.at(ELEVEN - 1)
    assert site.record("3").run.started < 0
    site.at(ELEVEN)
    assert site.record("3").run.started == T + ELEVEN


def test_job_beyond_every_cap_waits_until_the_cap_is_raised() -> None:
    site = capped({"watts": 230.0})
    site.submit("1", "1:ppn=4", 100)
    answer = site.record("1").answer
    assert isinstance(answer, WaitingFor)
    assert answer.what == (
        f"{LIMIT_TO_BE_RAISED}: at most 30 W drawn by jobs at once; it asks for 40 W drawn by jobs"
    )
    higher = {"power": WATTS, "power_caps": [{"watts": 240.0}]}
    site.send(PolicyChanged(id=site.server.event_id(), time=site.server.now, version=1, site=higher))
    assert site.start("1") == 0


def test_lowered_cap_moves_planned_jobs_and_keeps_running_ones() -> None:
    site = capped({"watts": 1000.0})
    site.submit("0", "1:ppn=4", 100)
    site.submit("1", "1:ppn=4", 50)
    site.submit("2", "1:ppn=4", 50)
    assert [site.start(job) for job in "012"] == [0, 0, 50]
    lower = {"power": WATTS, "power_caps": [{"watts": 240.0}]}
    site.send(PolicyChanged(id=site.server.event_id(), time=site.server.now, version=1, site=lower))
    assert [site.start(job) for job in "012"] == [0, 0, 100]


def test_a_new_node_draws_too_and_a_job_with_a_node_for_itself_all_of_it() -> None:
    site = capped({"watts": 350.0})
    site.submit("0", "1:ppn=4", 100)
    site.submit("1", "1:ppn=1", 100, exclusive=True)
    assert site.start("1") == 0
    site.node("n3", cpus=4)
    site.submit("2", "1:ppn=1", 100)
    assert site.start("2") == 100, "300 W idle, 80 W run: nothing is left"


def test_a_restart_keeps_the_cap() -> None:
    site = capped({"watts": 240.0})
    site.submit("1", "1:ppn=4", 100)
    site.engine = Engine.restore(site.engine.checkpoint())
    site.submit("2", "1:ppn=4", 100)
    assert site.start("2") == 100


def test_a_cap_without_watts_of_nodes_is_refused() -> None:
    with pytest.raises(ValidationError, match="power_caps need the watts"):
        SiteSettings.model_validate({"power_caps": [{"watts": 500}]})
