"""Import of Maui's reservations."""
# ruff: noqa: DTZ001  (reservations speak of the clock on the wall)

from datetime import datetime

import pytest

from schedd.cli.importing.result import Verdict
from schedd.features.reservations.settings import SiteReservationSettings
from schedd.policy.site import site_policy
from schedd.service.settings.cluster import ClusterSettings
from tests.cli.import_helpers import (
    EXAMPLES,
    finding_text,
    import_maui,
    settings_in,
)

EXAMPLE = (EXAMPLES / "maui.cfg").read_text()


def test_equal_node_reservations_share_a_finding_within_the_page_width() -> None:
    text = "".join(
        f"SRCFG[r{i:02}] PERIOD=DAY\nLOGLEVEL {i}\nSRCFG[r{i:02}] HOSTLIST=node[{i}]\n"
        "SRCFG[r{0:02}] USERLIST=ann\n".format(i)
        for i in range(40)
    )
    done = import_maui(text)
    rows = list(done.lines(Verdict.BLOCKER))
    assert len(rows) == 1
    report = list(done.report())
    assert report[0] == "Blockers: not supported, and jobs would run or wait against these rules (1):"
    assert "SRCFG[…] (40 times)" in report[1]
    assert "(node[0], node[1], node[2] and 37 more)" in " ".join(line.strip() for line in report)
    assert max(map(len, report)) <= 120


@pytest.mark.parametrize("attribute", ["TIMELIMIT=1:00:00", "MAXTIME=1:00:00"])
def test_a_reservation_lets_short_jobs_in(attribute: str) -> None:
    done = import_maui(f"SRCFG[x] HOSTLIST=n1 USERLIST=ann {attribute} TIMELOGIC=OR\n")
    table = settings_in(done.toml("main"))["site"]["reservations"]["x"]
    assert (table["shorter"], table["users"]) == (3600, ["ann"])
    assert "up to that walltime have access (shorter)" in finding_text(done, "SRCFG[x]")
    alone = import_maui(f"SRCFG[x] HOSTLIST=n1 {attribute} TIMELOGIC=AND\n")
    assert alone.site["reservations"]["x"]["shorter"] == 3600
    assert "nobody has access" not in finding_text(alone, "SRCFG[x]")


def test_an_empty_name_in_an_access_list_is_passed_over() -> None:
    done = import_maui("SRCFG[x] HOSTLIST=n1 USERLIST=ann,,bob,\n")
    assert done.site["reservations"]["x"]["users"] == ["ann", "bob"]


def test_a_reservation_is_translated_without_its_trigger() -> None:
    done = import_maui("SRCFG[x] HOSTLIST=n1 USERLIST=ann TRIGGER=atype=exec,action=/bin/true,etype=start\n")
    assert "x" in done.site["reservations"]
    assert finding_text(done, "SRCFG[x]").startswith("different: a reservation")
    assert "schedd runs no program" in finding_text(done, "SRCFG[x]")


@pytest.mark.parametrize(
    ("attributes", "parts"),
    [
        ("TASKCOUNT=4 RESOURCES=PROCS:2", {"cores": 8, "total": True}),
        ("TASKCOUNT=2 RESOURCES=PROCS:2,MEM:512", {"cores": 4, "mem": 1 << 20, "total": True}),
        ("TASKCOUNT=1 RESOURCES=PROCS:2;GPUS:1", {"cores": 2, "gpus": 1, "total": True}),
        ("RESOURCES=PROCS:2;MEM:512", {}),  # as many tasks as the nodes can hold
        ("TPN=3 RESOURCES=PROCS:2", {}),
        ("RESOURCES=PROCS:-1", {}),
    ],
)
def test_tasks_of_a_reservation_become_cores_and_gpus(attributes: str, parts: dict[str, object]) -> None:
    done = import_maui(f"SRCFG[x] HOSTLIST=ALL USERLIST=ann {attributes}\n")
    table = settings_in(done.toml("main"))["site"]["reservations"]["x"]
    assert {name: table[name] for name in ("cores", "gpus", "mem", "total") if name in table} == parts
    site = site_policy(ClusterSettings(**settings_in(done.toml("main"))).site.plain)
    (one,) = site.named_entries(SiteReservationSettings).values()
    assert (one.cores, one.gpus, one.mem, one.total) == (
        parts.get("cores", 0),
        parts.get("gpus", 0),
        parts.get("mem", 0),
        "total" in parts,
    )
    assert ("first of these nodes" in finding_text(done, "SRCFG[x]")) == ("total" in parts)


def test_maui_reservations_use_the_hosts_clock() -> None:
    """Of each reservation the first window lies in this week, which for Maui begins on Sunday."""
    done = import_maui(
        EXAMPLE
        + "SRCFG[w] PERIOD=WEEK STARTTIME=1:08:00:00 ENDTIME=1:12:00:00 HOSTLIST=ALL USERLIST=ann+,bob-\n"
    )
    assert done.site["zone"] == "Europe/Prague"
    assert done.site["reservations"] == {
        "course": {
            "first": datetime(2026, 11, 17, 8),
            "last": datetime(2026, 11, 17, 12),
            "rule": "FREQ=WEEKLY;BYDAY=TU,TH",
            "nodes": ["n01", "n02"],
            "groups": ["students", "staff"],
        },
        "w": {
            "first": datetime(2026, 11, 16, 8),
            "last": datetime(2026, 11, 16, 12),
            "rule": "FREQ=WEEKLY",
            "everywhere": True,
            "users": ["ann", "bob"],
        },
    }
    table = settings_in(done.toml("main"))
    site = site_policy(ClusterSettings(**table).site.plain)
    assert [*site.named_entries(SiteReservationSettings)] == ["course", "w"]


def test_a_reservation_without_end_becomes_consecutive_weeks() -> None:
    done = import_maui("SRCFG[x] PERIOD=INFINITY HOSTLIST=n1 CLASSLIST=ops\n")
    table = settings_in(done.toml("main"))["site"]["reservations"]["x"]
    assert (table["last"] - table["first"]).days == 7
    assert (table["rule"], table["nodes"], table["queues"]) == ("FREQ=WEEKLY", ["n1"], ["ops"])
    assert finding_text(done, "SRCFG[x]").startswith("different: a reservation")


def test_a_reservation_without_access_is_reported() -> None:
    assert "nobody has access" in finding_text(import_maui("SRCFG[x] HOSTLIST=n1\n"), "SRCFG[x]")


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ("HOSTLIST=n1 USERLIST=ann TIMELIMIT=1:00:00 TIMELOGIC=AND", "a job has access by one match"),
        ("HOSTLIST=n1 TASKCOUNT=2 RESOURCES=PROCS:1 TPN=1", "TASKCOUNT with TPN"),
        ("HOSTLIST=n1 TPN=4", "TASKCOUNT needs a number of PROCS in"),
        ("HOSTLIST=n1 TASKCOUNT=4 RESOURCES=PROCS:2;DISK:512", "DISK:512: only cores, gpus and memory"),
        ("HOSTLIST=n1 TASKCOUNT=4 RESOURCES=PROCS:0", "has no number of PROCS"),
        ("HOSTLIST=n1 TASKCOUNT=many RESOURCES=PROCS:1", "TASKCOUNT=many is not understood"),
        ("HOSTLIST=n1 TASKCOUNT=1 RESOURCES=PROCS:1 MAXTASKS=4", "task counts that change automatically"),
        ("HOSTLIST=n1 QOSLIST=high", "access by QOS"),
        ("HOSTLIST=n1 USERLIST=ann,!bob", "access lists name only permitted users"),
        ("HOSTLIST=n1 USERLIST=ann& CLASSLIST=x", "access lists name only permitted users"),
        ("HOSTLIST=n1 USERLIST=ann* CLASSLIST=x", "access lists name only permitted users"),
        (
            "HOSTLIST=n1 USERLIST=ann TIMELIMIT=1:00:00*",
            "a job has access by one match, and no match can be required",
        ),
        ("HOSTLIST=n1 SHOESIZE=9", "not known to this import"),
        ("TASKCOUNT=4", "TASKCOUNT needs a number of PROCS in"),
        ("HOSTLIST=n1 NODEFEATURES=gpu", "HOSTLIST with NODEFEATURES"),
        ("HOSTLIST=n1 FLAGS=SPACEFLEX,BYNAME", "FLAGS=BYNAME: schedd's reservations have no such flags"),
        ("PERIOD=DAY", "it has no HOSTLIST:"),
        ("HOSTLIST=n0[1-4]", "is a pattern"),
        ("HOSTLIST=n1 DAYS=NOW", "DAYS=NOW"),
        ("HOSTLIST=n1 PERIOD=MOON", "PERIOD=MOON"),
        ("HOSTLIST=n1 STARTTIME=9:00:00 ENDTIME=8:00:00", "it ends at 8:00:00, before its start at 9:00:00"),
    ],
)
def test_an_inexpressible_reservation_is_a_blocker(attributes: str, why: str) -> None:
    """Half of it would be worse: without its access list it would be closed to everybody."""
    done = import_maui(f"SRCFG[x] {attributes}\n")
    assert "reservations" not in done.site
    said = finding_text(done, "SRCFG[x]")
    assert said.startswith("blocker: not translated")
    assert why in said


@pytest.mark.parametrize(
    ("attributes", "nodes"),
    [
        ("TASKCOUNT=4 RESOURCES=PROCS:2", {"everywhere": True, "cores": 8, "total": True}),
        ("NODEFEATURES=gpu,fast", {"features": ["gpu", "fast"]}),
        ("HOSTLIST=ALL FEATURES=gpu", {"features": ["gpu"]}),
        ("HOSTLIST=n1 OWNER=USER:ann FLAGS=SPACEFLEX", {"nodes": ["n1"]}),
    ],
)
def test_nodes_of_a_reservation_are_named_have_features_or_are_any(
    attributes: str, nodes: dict[str, object]
) -> None:
    done = import_maui(f"SRCFG[x] {attributes} CLASSLIST=debug PERIOD=DAY\n", moab=True)
    table = done.site["reservations"]["x"]
    assert {
        name: value for name, value in table.items() if name not in ("first", "last", "rule", "queues")
    } == nodes
    settings_in(done.toml("main"))
    (found,) = [one for one in done.findings if one.setting == "SRCFG[x]"]
    assert ("OWNER is not charged" in found.message) == ("OWNER" in attributes)


def test_lists_of_a_reservation_may_have_bars() -> None:
    table = import_maui("SRCFG[x] HOSTLIST=n1|n2 USERLIST=ann|bob- DAYS=MON|TUE\n").site["reservations"]["x"]
    assert (table["nodes"], table["users"]) == (["n1", "n2"], ["ann", "bob"])
    assert table["rule"] == "FREQ=WEEKLY;BYDAY=MO,TU"
