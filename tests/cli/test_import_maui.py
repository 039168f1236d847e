"""``schedd import`` of Maui's and Moab's configuration."""
# ruff: noqa: DTZ001  (reservations speak of the clock on the wall)

from datetime import datetime

import pytest

from schedd.cli.importing.result import Verdict
from schedd.policy.site import site_policy
from schedd.service.settings.cluster import ClusterSettings
from schedd.service.settings.site import SiteSettings
from tests.cli.import_helpers import (
    EXAMPLES,
    finding_text,
    import_maui,
    lines_with_findings,
    setting_lines,
    settings_in,
)
from tests.cli.scheduler_parameters import MAUI, MAUI_WITH_INDEX

EXAMPLE = (EXAMPLES / "maui.cfg").read_text()

# ---- nothing is lost ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["5", "TRUE", "0", "", "x y=2"])
def test_every_maui_parameter_has_a_finding(value: str) -> None:
    for name in MAUI:
        done = import_maui(f"\n{name} {value}\n")
        found = [finding for finding in done.findings if finding.line == 2]
        assert found, name
        assert not [one for one in found if "no such setting" in one.message], name


@pytest.mark.parametrize(
    "attributes",
    ["", "MAXJOB=4", "MAXJOB=", "what is this", "HOSTLIST=n1 USERLIST=ann", "FSTARGET=5 PRIORITY=5"],
)
def test_every_line_with_an_index_has_a_finding(attributes: str) -> None:
    for name in MAUI_WITH_INDEX:
        for index in ("x", "DEFAULT", "base"):
            assert lines_with_findings(import_maui(f"\n{name}[{index}] {attributes}\n")) == {2}, name


def test_a_file_with_all_parameters_is_reported_completely() -> None:
    text = "\n".join([f"{name} 5" for name in MAUI] + [f"{name}[a] MAXJOB=5" for name in MAUI_WITH_INDEX])
    done = import_maui(text)
    assert lines_with_findings(done) == setting_lines(text)
    report = "\n".join(done.report())
    assert all(name in report for name in (*MAUI, *MAUI_WITH_INDEX))


def test_every_example_line_has_a_finding() -> None:
    assert lines_with_findings(import_maui(EXAMPLE)) == setting_lines(EXAMPLE)


def test_repeated_parameters_are_reported() -> None:
    done = import_maui("QUEUETIMEWEIGHT 1\nQUEUETIMEWEIGHT 2\n")
    assert done.site["priority"]["waiting"] == 120.0
    assert any(
        one.line == 1 and "said again in line 2" in one.message for one in done.with_verdict(Verdict.DIFFERS)
    )


def test_continued_lines_are_joined() -> None:
    done = import_maui("USERCFG[ann] MAXJOB=4 \\\n  MAXPROC=8\nLOGLEVEL 3\n")
    assert [one["amount"] for one in done.site["limits"]] == [4, 8]
    assert any(line.lstrip().startswith("lines 1-2  USERCFG[ann] MAXJOB") for line in done.report())


def test_equal_node_settings_share_a_finding_with_a_recipe() -> None:
    nodes = "".join(f"NODECFG[n{i:02}] MAXJOB=8 FEATURES=gpu\n" for i in range(42))
    done = import_maui(f"LOGLEVEL 3\n{nodes}")
    rows = [row for row in done.lines(Verdict.BLOCKER) if "NODECFG" in row[1]]
    assert len(rows) == 2
    for where, setting, said in rows:
        assert (where, setting[-10:]) == ("lines 2-43", "(42 times)")
        assert "qmgr -c 'set node" in said


PARTITIONS = """\
NODECFG[n1] PARTITION=gpu
NODECFG[n2] PARTITION=thin
NODECFG[n3] PARTITION=thin SPEED=1.0
NODECFG[n4] PARTITION=DEFAULT
SYSCFG[base] PLIST=thin PDEF=thin
USERCFG[ann] PLIST=gpu PDEF=gpu
GROUPCFG[physics] PLIST=gpu:thin
CLASSCFG[long] PLIST=thin&
ACCOUNTCFG[chem] PLIST=ALL
ACCOUNTCFG[bio] PLIST=big:thin
"""


def test_partitions_of_nodes_and_lists_of_users_become_partitions() -> None:
    done = import_maui(PARTITIONS)
    assert done.site["partitions"] == {
        "sets": {"gpu": {"nodes": ["n1"]}, "thin": {"nodes": ["n2", "n3"]}},
        "default": ["thin"],
        "defaults": [
            {"who": "user", "name": "ann", "allowed": ["gpu", "thin"], "default": ["gpu"]},
            {"who": "group", "name": "physics", "allowed": ["gpu", "thin"]},
            {"who": "user", "allowed": ["thin"]},
        ],
    }
    settings_in(done.toml("main"))
    found = {one.setting: one for one in done.findings}
    assert found["NODECFG[n4] PARTITION"].verdict is Verdict.NO_MATTER
    assert found["ACCOUNTCFG[chem] PLIST"].verdict is Verdict.NO_MATTER
    assert found["CLASSCFG[long] PLIST"].verdict is Verdict.BLOCKER
    assert "puts nodes into big, thin" not in found["ACCOUNTCFG[bio] PLIST"].message
    assert "puts nodes into big:" in found["ACCOUNTCFG[bio] PLIST"].message


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("NODEALLOCATIONPOLICY CONTIGUOUS", {"arrange": "contiguous"}),
        ("NODEALLOCATIONPOLICY MINRESOURCE", {"expression": "-mem"}),
        ("PARCFG[ALL] NODEALLOCATIONPOLICY=FASTEST", {"expression": "speed"}),
        (
            "NODEALLOCATIONPOLICY PRIORITY\nNODECFG[n1] PRIORITY=10\nNODECFG[n2] PRIORITY=-5",
            {"prefer": {"n1": 10, "n2": -5}},
        ),
        ("NODEALLOCATIONPOLICY CPULOAD", {"arrange": "spread"}),
        ("NODEALLOCATIONPOLICY FIRSTAVAILABLE", None),
        ("NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF='LOAD'", None),
        (
            "NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF='-0.01*CMEM - 2*CPROCS'",
            {"expression": "-0.01*(mem / 1024) - 2*(cpus)"},
        ),
        (
            "NODECFG[n1] PARTITION=fast\nPARCFG[fast] NODEALLOCATIONPOLICY=CONTIGUOUS",
            {"partitions": {"fast": {"arrange": "contiguous"}}},
        ),
        ("NODECFG[n1] PARTITION=fast\nPARCFG[fast] NODEALLOCATIONPOLICY=FIRSTAVAILABLE", None),
    ],
)
def test_the_order_of_nodes_becomes_a_node_choice(text: str, choice: dict[str, object] | None) -> None:
    done = import_maui(text)
    assert done.site.get("node_choice") == choice
    settings_in(done.toml("main"))


EVERY_KIND = """\
QUEUETIMEWEIGHT 0
XFACTORWEIGHT 1
CLASSWEIGHT 5
CLASSCFG[a] PRIORITY=2
USERWEIGHT 1
USERCFG[x] PRIORITY=3
FSWEIGHT 1
FSUSERWEIGHT 1
FSPOLICY DEDICATEDPS
USERCFG[y] FSTARGET=5
QOSWEIGHT 1
QOSCFG[q] PRIORITY=9
SYSCFG QLIST=q
"""


# ---- priorities ---------------------------------------------------------------------------------


def test_maui_weights_become_points() -> None:
    """2 a minute are 120 an hour; parts are multiplied with components; waiting is capped in minutes."""
    site = import_maui(EXAMPLE.replace("XFACTORWEIGHT", "# XFACTORWEIGHT")).site
    assert site["priority"] == {
        "waiting": 120.0,
        "waiting_most": 240.0,
        "size": 4.0,
        "queue": 10.0,
        "queues": {"*": 0.0, "long": 10.0, "short": 100.0},
        "fair_share": 20000.0,
    }
    assert site["classes"] == {"user-ann": {"points": 5000.0, "users": ["ann"]}}


def test_maui_counts_waiting_by_default() -> None:
    done = import_maui("LOGLEVEL 3\n")
    assert done.site["priority"] == {"waiting": 60.0, "queue": 0.0}
    assert (
        finding_text(done, "QUEUETIMEWEIGHT")
        == "translated: Maui takes 1 a minute: priority.waiting = 60 points an hour"
    )


def test_queues_that_maui_does_not_name_do_not_get_the_servers_priority() -> None:
    """A server's Priority of 100 would else count 100 times the weight of classes."""
    done = import_maui("CLASSWEIGHT 864000000\nCLASSCFG[short] PRIORITY=1\n")
    assert done.site["priority"]["queues"] == {"*": 0.0, "short": 1.0}
    assert import_maui("CLASSWEIGHT 864000000\n").site["priority"]["queue"] == 0.0


def test_too_large_points_are_scaled_uniformly() -> None:
    done = import_maui(
        "CREDWEIGHT 1000\nCLASSWEIGHT 864000000\nCLASSCFG[a] PRIORITY=2\n"
        "USERWEIGHT 1\nUSERCFG[x] PRIORITY=864\n"
    )
    table = settings_in(done.toml("main"))["site"]
    assert table["priority"]["queue"] == 1e9
    assert table["priority"]["waiting"] == pytest.approx(60 / 864)
    assert table["classes"]["user-x"]["points"] == pytest.approx(864_000 / 864)
    assert finding_text(done, "weights").startswith("translated: all points are divided by 864")


def test_a_default_priority_is_subtracted_from_named_priorities() -> None:
    done = import_maui(
        "USERWEIGHT 2\nUSERCFG[DEFAULT] PRIORITY=10\nUSERCFG[a] PRIORITY=15\nUSERCFG[b] PRIORITY=3\n"
    )
    assert {name: one["points"] for name, one in done.site["classes"].items()} == {
        "user-a": 10.0,
        "user-b": -14.0,
    }


def test_user_and_group_priorities_are_not_added_with_a_finding() -> None:
    done = import_maui("USERWEIGHT 1\nGROUPWEIGHT 2\nUSERCFG[a] PRIORITY=1\nGROUPCFG[b] PRIORITY=3\n")
    assert done.site["classes"]["group-b"]["points"] == 6.0
    assert finding_text(done, "PRIORITY").startswith("different: points of group and user are not added up")


@pytest.mark.parametrize(
    ("text", "setting", "said"),
    [
        (
            "XFACTORWEIGHT 7",
            "XFACTORWEIGHT",
            "translated: a formula, with the term 1 + eligible_time / max(planned_walltime, 120)",
        ),
        ("XFACTORWEIGHT 0", "XFACTORWEIGHT", "no matter: the weight is 0"),
        ("XFACTORWEIGHT 7\nXFMINWCLIMIT 0", "XFACTORWEIGHT", "translated: a formula, with the term xfactor"),
        ("XFACTORWEIGHT 7\nSERVICEWEIGHT 0", "XFACTORWEIGHT", "no matter: the weight is 0"),
        ("XFACTORWEIGHT 7\nXFMINWCLIMIT 0:10:00", "XFMINWCLIMIT", "translated: in the formula"),
        ("XFMINWCLIMIT 0:10:00", "XFMINWCLIMIT", "no matter: the expansion factor has no weight"),
        ("PROCWEIGHT 7\nPROCCAP 100", "PROCCAP", "translated: a formula, with the term min(ncpus, 100)"),
        ("PROCWEIGHT 7\nRESCAP 100", "RESCAP", "blocker: there are no caps of components"),
        ("BYPASSWEIGHT 7", "BYPASSWEIGHT", "blocker: no term of priority and formula is how often"),
        (
            "QUEUETIMEWEIGHT 5\nQUEUETIMECAP 120",
            "QUEUETIMECAP",
            "translated: priority.waiting_most = 2 hours",
        ),
        ("PROCCAP 100", "PROCCAP", "no matter: 0 is no cap"),
        ("QUEUETIMECAP 120", "QUEUETIMECAP", "translated: priority.waiting_most = 2 hours"),
        ("CREDWEIGHT 7", "CREDWEIGHT", "no matter: nothing below it has a weight"),
        ("QUEUETIMEWEIGHT[2] 7", "QUEUETIMEWEIGHT[2]", "blocker: one weight counts for all"),
        ("QUEUETIMEWEIGHT much", "QUEUETIMEWEIGHT", "different: 'much' is no number"),
        ("USERCFG[ann] PRIORITY=5", "USERCFG[ann] PRIORITY", "no matter: the weight of user priorities is 0"),
        ("USERWEIGHT 1\nUSERCFG[a] PRIORITY=x", "USERCFG[a] PRIORITY", "different: 'x' is no number"),
        ("REJECTNEGPRIOJOBS TRUE", "REJECTNEGPRIOJOBS", "different: a job of negative priority waits"),
    ],
)
def test_weights_are_translated(text: str, setting: str, said: str) -> None:
    assert finding_text(import_maui(text), setting).startswith(said)


@pytest.mark.parametrize("first", [True, False])
def test_a_weight_of_one_partition_is_not_that_of_all(first: bool) -> None:
    lines = ["QUEUETIMEWEIGHT 5", "QUEUETIMEWEIGHT[2] 7"]
    done = import_maui("\n".join(lines if first else lines[::-1]))
    assert done.site["priority"]["waiting"] == 300.0
    assert finding_text(done, "QUEUETIMEWEIGHT") == "translated: priority.waiting = 300 points an hour"
    assert import_maui(lines[1]).site["priority"]["waiting"] == 60.0


def test_moab_has_no_shortest_walltime_by_default() -> None:
    done = import_maui("QUEUETIMEWEIGHT 0\nXFACTORWEIGHT 7", moab=True)
    assert done.site["formula"] == {"expression": "7 * xfactor"}


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("XFACTORWEIGHT 7\nXFMINWCLIMIT 0", "7 * xfactor + 60 * (eligible_time / 3600)"),
        (
            "QUEUETIMEWEIGHT 0\nXFACTORWEIGHT 1\nSERVICEWEIGHT 2",
            "2 * (1 + eligible_time / max(planned_walltime, 120))",
        ),
        (
            "QUEUETIMEWEIGHT 0\nXFACTORWEIGHT 3\nXFACTORCAP 50",
            "3 * min(1 + eligible_time / max(planned_walltime, 120), 50)",
        ),
        (
            "QUEUETIMEWEIGHT 1\nQUEUETIMECAP 120\nXFACTORWEIGHT 1\nXFMINWCLIMIT 0:10:00",
            "(1 + eligible_time / max(planned_walltime, 600)) + 60 * min(eligible_time / 3600, 2)",
        ),
        (
            "QUEUETIMEWEIGHT 0\nPROCWEIGHT 2\nPROCCAP 64\nMEMWEIGHT 1\nWALLTIMEWEIGHT -1\nPSWEIGHT 4",
            "(mem / 1024) + 4 * (ncpus * walltime) + -1 * walltime + 2 * min(ncpus, 64)",
        ),
        (
            EVERY_KIND,
            (
                "(1 + eligible_time / max(planned_walltime, 120)) + 5 * queue_priority + qos_priority"
                " + 100 * fairshare_factor + class_points"
            ),
        ),
    ],
)
def test_weights_beyond_the_table_become_a_formula(text: str, formula: str) -> None:
    done = import_maui(text)
    assert settings_in(done.toml("main"))["site"]["formula"] == {"expression": formula}
    assert set(done.site.get("priority", {})) <= {"queues"}, "a formula takes the place of its weights"
    assert finding_text(done, "priority").startswith("translated: a formula takes the place")
    assert not done.with_verdict(Verdict.BLOCKER)


def test_too_large_points_of_classes_are_scaled_in_a_formula() -> None:
    done = import_maui("XFACTORWEIGHT 1\nUSERWEIGHT 1000\nUSERCFG[x] PRIORITY=864000000\n")
    assert done.site["classes"]["user-x"]["points"] == 1e9
    assert done.site["formula"]["expression"].endswith(" + 864 * class_points")
    settings_in(done.toml("main"))


# ---- fair share ---------------------------------------------------------------------------------


def test_maui_fair_share_keeps_windows_and_targets() -> None:
    assert import_maui(EXAMPLE).site["fair_share"] == {
        "interval": 86_400,
        "depth": 14,
        "decay": 0.85,
        "levels": ["group"],
        "unlisted": 5.0,
        "shares": {"physics": 40.0},
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FSWEIGHT 9\nFSUSERWEIGHT 5\nUSERCFG[DEFAULT] FSTARGET=10", "there is no FSPOLICY"),
        ("FSPOLICY NONE\nFSWEIGHT 9\nFSUSERWEIGHT 5\nUSERCFG[DEFAULT] FSTARGET=10", "NONE"),
        ("FSPOLICY DEDICATEDPS\nFSWEIGHT 9\nUSERCFG[DEFAULT] FSTARGET=10", "no weight"),
        ("FSPOLICY DEDICATEDPS\nFSWEIGHT 9\nFSUSERWEIGHT 5\nGROUPCFG[x] FSTARGET=10", "has an FSTARGET"),
    ],
)
def test_disabled_fair_share_stays_off_and_every_line_is_reported(text: str, why: str) -> None:
    done = import_maui(text)
    assert "fair_share" not in done.site
    assert "fair_share" not in done.site["priority"]
    assert lines_with_findings(done) == setting_lines(text)
    assert {one.verdict for one in done.findings if one.line} == {Verdict.NO_MATTER}
    assert any(why in finding.message for finding in done.with_verdict(Verdict.NO_MATTER))


def test_default_user_target_is_translated() -> None:
    text = "FSPOLICY DEDICATEDPS\nFSWEIGHT 1\nFSUSERWEIGHT 10\nUSERCFG[DEFAULT] FSTARGET=12.5\n"
    done = import_maui(text)
    assert done.site["fair_share"]["unlisted"] == 12.5
    assert finding_text(done, "USERCFG[DEFAULT] FSTARGET").startswith("translated: fair_share.unlisted")


def test_windows_of_fair_share_have_the_defaults_of_the_program() -> None:
    done = import_maui("FSPOLICY DEDICATEDPS\nFSUSERWEIGHT 10\nFSDEPTH x\nUSERCFG[DEFAULT] FSTARGET=12.5\n")
    tree = done.site["fair_share"]
    assert (tree["interval"], tree["depth"], tree["decay"]) == (43_200, 8, 1.0)
    assert finding_text(done, "FSINTERVAL") == "translated: absent: its default, fair_share.interval = 43200"
    assert finding_text(done, "FSDEPTH").startswith("different: 'x' is not understood")


TREE = """FSPOLICY DEDICATEDPS
FSUSERWEIGHT 5
FSTREE[all] SHARES=100 MEMBERLIST=science,arts
FSTREE[science] SHARES=60 MEMBERLIST=physics,user:eve@2
FSTREE[arts] SHARES=40 MEMBERLIST=user:bob,user:arts
FSTREE[physics] MEMBERLIST=user:ann@3
"""


def test_the_share_tree_of_moab_is_kept() -> None:
    done = import_maui(TREE, moab=True)
    assert done.site["fair_share"] == {
        "interval": 43_200,
        "depth": 8,
        "decay": 1.0,
        "unlisted": 0.0,
        "levels": ["user"],
        "shares": {
            "all": 100.0,
            "science": 60.0,
            "arts.tree": 40.0,
            "physics": 1.0,
            "eve": 2.0,
            "bob": 1.0,
            "arts": 1.0,
            "ann": 3.0,
        },
        "parents": {
            "science": "all",
            "arts.tree": "all",
            "physics": "science",
            "eve": "science",
            "bob": "arts.tree",
            "arts": "arts.tree",
            "ann": "physics",
        },
    }
    assert done.site["priority"]["fair_share"] == 500.0
    assert lines_with_findings(done) == setting_lines(TREE)
    assert not list(done.with_verdict(Verdict.BLOCKER))
    settings_in(done.toml("main"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("FSTREE[physics] MEMBERLIST=user:ann", "user:ann is a member of physics already (line 6)"),
        ("FSTREE[x] MEMBERLIST=science", "science is a member of all already"),
        ("FSTREE[x] MEMBERLIST=nowhere", "nowhere is unknown: there is no FSTREE[nowhere]"),
        ("FSTREE[x] SHARES=-1 MEMBERLIST=user:u", "'-1' is no number from 0 to 10^9"),
        ("FSTREE[x] MEMBERLIST=user:u@many", "user:u@many: 'many' is no number from 0 to 10^9"),
        ("FSTREE[x] MEMBERLIST=qos:high", "qos:high: a member is user, group, acct or class, with a name"),
        ("FSTREE[x] LIMITS=MAXJOB:1", "only SHARES and MEMBERLIST of a share tree are supported"),
        ("FSTREE[x] MEMBERLIST=x", "a cycle: x below x"),
    ],
)
def test_a_bad_share_tree_of_moab_is_refused_with_line_and_reason(line: str, reason: str) -> None:
    done = import_maui(f"{TREE}{line}\n", moab=True)
    found = [one.message for one in done.with_verdict(Verdict.BLOCKER) if one.line == 7]
    assert found == [f"left out: {reason}"]
    settings_in(done.toml("main"))


def test_owners_of_other_levels_in_the_share_tree_are_blockers() -> None:
    done = import_maui(f"{TREE}FSTREE[x] MEMBERLIST=acct:chem\nGROUPCFG[g] FSTARGET=5\n", moab=True)
    found = {one.line: one.message for one in done.with_verdict(Verdict.BLOCKER)}
    assert found == {
        7: "account chem in x: a tree has owners of one level, user here",
        8: "the share tree decides; targets beside it are not supported",
    }
    off = import_maui(TREE.replace("FSPOLICY DEDICATEDPS", "FSPOLICY NONE"), moab=True)
    assert "fair_share" not in off.site
    assert lines_with_findings(off) == setting_lines(TREE)
    none = import_maui("FSPOLICY DEDICATEDPS\nFSTREE[x] MEMBERLIST=nobody\n", moab=True)
    assert "fair_share" not in none.site
    assert finding_text(none, "FSPOLICY").startswith("blocker: no share tree with users")


def test_additional_fair_share_levels_are_blockers() -> None:
    text = "FSPOLICY UTILIZEDPS\nFSUSERWEIGHT 10\nFSGROUPWEIGHT 1\n"
    text += "USERCFG[a] FSTARGET=5\nGROUPCFG[g] FSTARGET=5-\n"
    done = import_maui(text)
    assert done.site["fair_share"]["levels"] == ["user"]
    assert finding_text(done, "GROUPCFG[g] FSTARGET") == "blocker: fair share of one level alone, user"
    assert "not UTILIZEDPS" in finding_text(done, "FSPOLICY")
    assert finding_text(done, "FSTARGET of all others").startswith("different: ")


# ---- limits and more of users, groups, queues ---------------------------------------------------


def test_maui_limits_become_site_limits() -> None:
    assert import_maui(EXAMPLE).site["limits"] == [
        {"amount": 128, "what": "cpus", "who": "user", "soft": 64},
        {"amount": 8, "what": "jobs", "who": "user", "counts": "eligible"},
        {"amount": 256, "what": "cpus", "who": "user", "name": "ann"},
        {"amount": 50, "what": "jobs", "who": "group", "name": "physics"},
        {"amount": 4, "what": "nodes", "who": "account", "name": "guest"},
        {"amount": 4, "what": "jobs", "who": "user", "queue": "long"},
        {"amount": 32, "what": "cpus", "who": "user", "queue": "short"},
        {"amount": 900, "what": "cpus", "who": "all"},
    ]
    assert import_maui("USERCFG[x] MAXMEM=100").site["limits"][0]["amount"] == 100 << 10


def test_walltime_limits_count_requested_walltimes() -> None:
    done = import_maui("USERCFG[DEFAULT] MAXPS=1728000 MAXWC=1:00:00:00\n")
    assert done.site["limits"] == [
        {"amount": 1_728_000, "what": "cpu_seconds", "who": "user"},
        {"amount": 86_400, "what": "walltime", "who": "user"},
    ]
    settings_in(done.toml("main"))


@pytest.mark.parametrize(
    ("line", "setting", "said"),
    [
        (
            "USERCFG[ann] MAXPROC=64,128",
            "USERCFG[ann] MAXPROC",
            "translated: a limit of 128 cpus, beyond 64 after all other jobs",
        ),
        ("USERCFG[ann] MAXPROC=64,64", "USERCFG[ann] MAXPROC", "translated: a limit of 64 cpus"),
        ("USERCFG[ann] MAXPROC=many", "USERCFG[ann] MAXPROC", "blocker: 'many' is no number"),
        ("USERCFG[ann] MAXPROC=-1", "USERCFG[ann] MAXPROC", "no matter: no limit"),
        ("USERCFG[ann] MAXPE=100", "USERCFG[ann] MAXPE", "blocker: there is no such limit"),
        ("USERCFG[ann] MAXPS=100", "USERCFG[ann] MAXPS", "different: the full request of a job"),
        (
            "USERCFG[DEFAULT] MAXIJOB=8",
            "USERCFG[DEFAULT] MAXIJOB",
            "translated: a limit of 8 jobs of waiting jobs",
        ),
        ("USERCFG[ann] QDEF=high", "USERCFG[ann] QDEF", "translated: the default QOS"),
        ("USERCFG[ann] QLIST=high,low", "USERCFG[ann] QLIST", "translated: may use high, low: qos.levels"),
        ("USERCFG[ann] MAXIJOB=4,8", "USERCFG[ann] MAXIJOB", "different: the hard limit, 8, of waiting"),
        ("USERCFG[ann] MAXIPS=9", "USERCFG[ann] MAXIPS", "blocker: there is no such limit"),
        ("QOSCFG[high] PRIORITY=9", "QOSCFG[high]", "no matter: no QDEF and no QLIST names it"),
        ("QOSPRIORITY[0] 9", "QOSPRIORITY[0]", "blocker: a QOS in this old form"),
        ("USERCFG[ann] PLIST=big", "USERCFG[ann] PLIST", "blocker: no NODECFG of this file puts nodes"),
        ("USERCFG[DEFAULT] PLIST=DEFAULT", "USERCFG[DEFAULT] PLIST", "no matter: the file has no part"),
        ("SYSCFG[base] PLIST=", "SYSCFG[base] PLIST", "no matter: it is empty"),
        ("USERCFG[ann] FLAGS=PREEMPTEE", "USERCFG[ann] FLAGS", "no matter: no job may preempt others"),
        (
            "USERCFG[ann] FLAGS=PREEMPTOR",
            "USERCFG[ann] FLAGS",
            "translated: preemptors and targets of the table preemption",
        ),
        (
            "USERCFG[DEFAULT] FLAGS=PREEMPTOR",
            "USERCFG[DEFAULT] FLAGS",
            "blocker: running jobs are stopped for others only by",
        ),
        ("PREEMPTPOLICY REQUEUE", "PREEMPTPOLICY", "no matter: no job may preempt others"),
        (
            "CLASSCFG[big] DEFAULT.FEATURES=[bigmem],[ib]",
            "CLASSCFG[big] DEFAULT.FEATURES",
            (
                "blocker: jobs of the queue would go to any node: qmgr -c 'set queue big "
                "resources_default.neednodes = bigmem:ib', which is followed"
            ),
        ),
        ("CLASSCFG[x] EXCL.FEATURES=old", "CLASSCFG[x] EXCL.FEATURES", "blocker: neither the server"),
        (
            "CLASSCFG[x] MAX.NODE=4",
            "CLASSCFG[x] MAX.NODE",
            (
                "different: the server's affair, and not set by this import: qmgr -c 'set queue x "
                "resources_max.nodect = 4'"
            ),
        ),
        ("CLASSCFG[x] DEFAULT.EXT=9", "CLASSCFG[x] DEFAULT.EXT", "blocker: neither the server"),
        ("CLASSCFG[x] TRIGGER=atype=exec", "CLASSCFG[x] TRIGGER", "different: no program is run"),
        ("CLASSCFG[x] HOLD=TRUE", "CLASSCFG[x] HOLD", "blocker: hold the queue: `schedd hold -q"),
        ("NODECFG[n1] TRIGGER=atype=exec", "NODECFG[n1] TRIGGER", "different: no program is run"),
        ("NODECFG[DEFAULT] ENABLEPROFILING=TRUE", "NODECFG[DEFAULT] ENABLEPROFILING", "no matter: "),
        (
            "PARCFG[ALL] NODEALLOCATIONPOLICY=CPULOAD",
            "NODEALLOCATIONPOLICY",
            'different: node_choice: arrange = "spread"',
        ),
        ("PARCFG[ALL] NODEALLOCATIONPOLICY=CPULOAD", "PARCFG[ALL]", "no matter: it is about all nodes"),
        ("PARCFG[fast] NODEALLOCATIONPOLICY=CPULOAD", "PARCFG[fast]", "blocker: not translated: no NODECFG"),
        ("ALLOWMULTIREQNODEUSE TRUE", "ALLOWMULTIREQNODEUSE", 'no matter: the same by node_rule = "pack"'),
        ("ALLOWMULTIREQNODEUSE FALSE", "ALLOWMULTIREQNODEUSE", 'different: by node_rule = "pack"'),
        ("USERCFG[ann] SHOESIZE=9", "USERCFG[ann] SHOESIZE", "different: Maui has no such setting"),
        ("USERCFG[ann] MAXJOB 9", "USERCFG[ann]", "blocker: cannot be read: 'MAXJOB 9'"),
        ("CLASSCFG[DEFAULT] MAXJOB=9", "CLASSCFG[DEFAULT] MAXJOB", "blocker: a limit of each queue"),
        ("CLASSCFG[x] MAXJOB[QOS]=9", "CLASSCFG[x] MAXJOB[QOS]", "blocker: limits by QOS"),
        (
            "CLASSCFG[x] HOSTLIST=n1,n2",
            "CLASSCFG[x] HOSTLIST",
            "blocker: jobs of the queue would go to any node",
        ),
        ("CLASSCFG[x] REQUIREDUSERLIST=a", "CLASSCFG[x] REQUIREDUSERLIST", "blocker: users are not kept out"),
        ("CLASSCFG[x] EXCLUDEDUSERLIST=a", "CLASSCFG[x] EXCLUDEDUSERLIST", "blocker: users are not kept out"),
        ("CLASSCFG[x] MAX.WCLIMIT=9", "CLASSCFG[x] MAX.WCLIMIT", "different: the server's affair"),
        ("NODECFG[n1] MAXJOB=2", "NODECFG[n1] MAXJOB", "blocker: there are no limits of single nodes"),
        ("NODECFG[n1] MAXLOAD=2", "NODECFG[n1] MAXLOAD", "different: what jobs asked for counts"),
        ("NODECFG[n1] SPEED=2", "NODECFG[n1] SPEED", "no matter: neither USEMACHINESPEED"),
        ("NODECFG[n1] ACCESS=SHARED", "NODECFG[n1] ACCESS", "no matter: nodes are shared"),
        ("NODECFG[n1] COLOUR=red", "NODECFG[n1] COLOUR", "different: Maui has no such setting"),
        ("NODEACCESSPOLICY SHARED", "NODEACCESSPOLICY", "no matter: nodes are shared"),
        ("NODEACCESSPOLICY SINGLEUSER", "NODEACCESSPOLICY", "blocker: nodes are shared unless"),
        ("NODECPUOVERCOMMITFACTOR 1.0", "NODECPUOVERCOMMITFACTOR", "no matter: 1 gives nodes no more"),
        ("NODECPUOVERCOMMITFACTOR 2.0", "NODECPUOVERCOMMITFACTOR", "blocker: nodes are never given more"),
        ("PARIGNQUEUELIST test", "PARIGNQUEUELIST", "blocker: jobs of these queues would be started"),
        ("MAXJOBPERUSERCOUNT 4", "MAXJOBPERUSERCOUNT", "blocker: limits in this old form"),
        ("MAXJOBPERUSERPOLICY OFF", "MAXJOBPERUSERPOLICY", "no matter: it is off"),
        ("PREEMPTPOLICY NONE", "PREEMPTPOLICY", "no matter: it is off"),
        ("NODESETPOLICY ANYOF", "NODESETPOLICY", "different: jobs are kept on one set only under"),
        ("NODESETPOLICY ONEOF", "NODESETPOLICY", "different: no sets are named"),
        ("SRSTARTTIME[0] 8:00:00", "SRSTARTTIME[0]", "blocker: reservations in this old form"),
        ("JOBMAXOVERRUN soon", "JOBMAXOVERRUN", "different: 'soon' is not understood"),
        ("FROBNICATION 9", "FROBNICATION", "different: Maui has no such setting"),
        ("*** 9", "*** 9", "blocker: cannot be read"),
    ],
)
def test_lines_are_translated(line: str, setting: str, said: str) -> None:
    done = import_maui(line)
    found = [one for one in done.findings if one.setting == setting and one.line == 1]
    assert [f"{one.verdict.value}: {one.message}"[: len(said)] for one in found] == [said], done.findings


def test_qos_of_maui_become_levels_with_access_defaults_and_limits() -> None:
    text = """
    CREDWEIGHT 2
    QOSWEIGHT 5
    QOSCFG[high] PRIORITY=100 MAXPROC=64,128 MAXIJOB[USER]=4 QFLAGS=RESERVEALWAYS
    QOSCFG[low] PRIORITY=-10 FLAGS=PREEMPTEE
    QOSCFG[DEFAULT] PRIORITY=1
    QOSCFG[old] PRIORITY=7 MAXJOB=3
    USERCFG[ann] QDEF=high QLIST=high:low&
    GROUPCFG[physics] QLIST=HIGH
    CLASSCFG[debug] QDEF=high
    SYSCFG QLIST=low
    """
    done = import_maui(text)
    assert done.site["qos"] == {
        "user_defaults": {"ann": "high"},
        "queue_defaults": {"debug": "high"},
        "default": "DEFAULT",
        "levels": {
            "high": {"users": ["ann"], "groups": ["physics"], "queues": ["debug"], "priority": 100.0},
            "low": {"priority": -10.0},
            "DEFAULT": {"priority": 1.0},
        },
    }
    assert done.site["priority"]["qos"] == 10.0
    assert done.site["limits"] == [
        {"amount": 128, "what": "cpus", "who": "all", "qos": "high", "soft": 64},
        {"amount": 4, "what": "jobs", "who": "user", "qos": "high", "counts": "eligible"},
    ]
    assert finding_text(done, "QOSCFG[low] FLAGS").startswith("no matter: no job may preempt others")
    assert finding_text(done, "QOSCFG[high] QFLAGS") == "no matter: every job has a planned start"
    done_with = import_maui(f"{text}QOSCFG[high] QFLAGS=PREEMPTOR\n")
    assert finding_text(done_with, "QOSCFG[low] FLAGS").startswith("translated: preemptors and targets")
    assert done_with.site["preemption"] == {"preemptors": {"qos": ["high"]}, "targets": {"qos": ["low"]}}
    assert finding_text(done, "QOSCFG[old]").startswith("no matter: no QDEF and no QLIST")
    assert finding_text(done, "QDEF").startswith("different: of several defaults the queue's goes first")
    assert not done.with_verdict(Verdict.BLOCKER)
    assert lines_with_findings(done) == setting_lines(text)
    found = settings_in(done.toml("main"))["site"]
    assert found["qos"]["levels"]["high"]["priority"] == 100.0


def test_a_limit_after_one_of_waiting_jobs_in_the_same_line_counts_running_jobs() -> None:
    done = import_maui("USERCFG[DEFAULT] MAXIJOB=8 MAXJOB=4 MAXIPROC=16 MAXMEM=1024\n")
    assert done.site["limits"] == [
        {"amount": 8, "what": "jobs", "who": "user", "counts": "eligible"},
        {"amount": 4, "what": "jobs", "who": "user"},
        {"amount": 16, "what": "cpus", "who": "user", "counts": "eligible"},
        {"amount": 1 << 20, "what": "mem", "who": "user"},
    ]


@pytest.mark.parametrize(
    ("line", "setting", "text"),
    [
        ("USERCFG[ann] MAXJOB=-5", "USERCFG[ann] MAXJOB", "blocker: '-5' is no amount"),
        ("USERCFG[ann] MAXJOB=-5,8", "USERCFG[ann] MAXJOB", "translated: a limit of 8 jobs"),
        (f"USERCFG[ann] MAXMEM={1 << 50}", "USERCFG[ann] MAXMEM", "no matter: no limit"),
        ("USERCFG[ann] QDEF=a=b", "USERCFG[ann] QDEF", "blocker: 'a=b' is no name of a QOS"),
        ("QUEUETIMEWEIGHT inf", "QUEUETIMEWEIGHT", "different: 'inf'"),
        ("USERWEIGHT 1\nUSERCFG[ann] PRIORITY=nan", "USERCFG[ann] PRIORITY", "different: 'nan'"),
        ("USERCFG[ann] FSTARGET=nan", "USERCFG[ann] FSTARGET", "different: 'nan'"),
        ("NODECFG[n1] SPEED=inf", "NODECFG[n1] SPEED", "different: 'inf'"),
        ("USERCFG[ann] QDEF=a\nQOSCFG[a] PRIORITY=nan", "QOSCFG[a] PRIORITY", "different: 'nan'"),
    ],
)
def test_odd_numbers_and_names_give_valid_settings(line: str, setting: str, text: str) -> None:
    done = import_maui(f"QOSWEIGHT 1\n{line}\n")
    assert finding_text(done, setting).startswith(text)
    SiteSettings.model_validate(done.site)


def test_a_file_without_qos_gets_no_table_qos() -> None:
    done = import_maui("USERCFG[ann] PRIORITY=5\nQOSWEIGHT 3\n")
    assert "qos" not in done.site
    assert "qos" not in done.site["priority"]


def test_node_speeds_are_translated_if_fair_share_uses_them() -> None:
    done = import_maui("USEMACHINESPEEDFORFS TRUE\nNODECFG[n1] SPEED=1.5\n")
    assert settings_in(done.toml("main"))["site"]["speeds"] == {"n1": 1.5}


def test_walltimes_are_normalised_by_speeds_as_in_maui() -> None:
    done = import_maui("USEMACHINESPEED TRUE\nNODECFG[n1] SPEED=0.5\n")
    assert settings_in(done.toml("main"))["site"]["normalised_walltimes"] == {"speed": 1}
    assert finding_text(done, "NODECFG[n1] SPEED").startswith("different: speeds and normalised_walltimes")
    without = import_maui("USEMACHINESPEED TRUE\n")
    assert finding_text(without, "USEMACHINESPEED").startswith("different: no NODECFG has a SPEED")
    assert not without.site.get("normalised_walltimes")


def test_units_share_nodes_by_maui_default() -> None:
    """Else nodes=30:ppn=1 would never run on 20 nodes, where it runs under Maui."""
    done = import_maui("LOGLEVEL 3\n")
    assert done.cluster["node_rule"] == "pack"
    assert finding_text(done, "JOBNODEMATCHPOLICY").startswith(
        "translated: Maui lets the units of a request share"
    )
    assert import_maui("JOBNODEMATCHPOLICY EXACTNODE\n").cluster["node_rule"] == "exact"
    assert finding_text(import_maui("JOBNODEMATCHPOLICY EXACTPROC\n"), "JOBNODEMATCHPOLICY").startswith(
        "blocker: "
    )


def test_unsupported_maui_features_are_blockers() -> None:
    blockers = [finding.setting for finding in import_maui(EXAMPLE).with_verdict(Verdict.BLOCKER)]
    assert blockers == [
        "NODEACCESSPOLICY",
        "USERCFG[ann] FSTARGET",
        "SRCFG[weekly]",
    ]


def test_request_parts_share_a_node_only_under_rule_pack() -> None:
    done = import_maui("JOBNODEMATCHPOLICY EXACTNODE\nALLOWMULTIREQNODEUSE TRUE\n")
    assert finding_text(done, "ALLOWMULTIREQNODEUSE").startswith('different: by node_rule = "exact"')


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
    assert report[0] == "Blockers: unsupported, and significant for users (1):"
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
    assert "without access for anyone" not in finding_text(alone, "SRCFG[x]")


def test_an_empty_name_in_an_access_list_is_passed_over() -> None:
    done = import_maui("SRCFG[x] HOSTLIST=n1 USERLIST=ann,,bob,\n")
    assert done.site["reservations"]["x"]["users"] == ["ann", "bob"]


def test_a_reservation_is_translated_without_its_trigger() -> None:
    done = import_maui("SRCFG[x] HOSTLIST=n1 USERLIST=ann TRIGGER=atype=exec,action=/bin/true,etype=start\n")
    assert "x" in done.site["reservations"]
    assert finding_text(done, "SRCFG[x]").startswith("different: a reservation")
    assert "no program is run" in finding_text(done, "SRCFG[x]")


@pytest.mark.parametrize(
    ("attributes", "parts"),
    [
        ("TASKCOUNT=4 RESOURCES=PROCS:2", {"cores": 8, "total": True}),
        ("TPN=2 RESOURCES=PROCS:2;MEM:512", {"cores": 4, "mem": 1 << 20}),
        ("RESOURCES=PROCS:2;GPUS:1", {"cores": 2, "gpus": 1, "total": True}),
        ("TPN=3 RESOURCES=PROCS:2", {"cores": 6}),
        ("RESOURCES=PROCS:-1", {}),
    ],
)
def test_tasks_of_a_reservation_become_cores_and_gpus(attributes: str, parts: dict[str, object]) -> None:
    done = import_maui(f"SRCFG[x] HOSTLIST=ALL USERLIST=ann {attributes}\n")
    table = settings_in(done.toml("main"))["site"]["reservations"]["x"]
    assert {name: table[name] for name in ("cores", "gpus", "mem", "total") if name in table} == parts
    (made,) = site_policy(ClusterSettings(**settings_in(done.toml("main"))).site.plain).reservations
    one = made.settings
    assert (one.cores, one.gpus, one.mem, one.total) == (
        parts.get("cores", 0),
        parts.get("gpus", 0),
        parts.get("mem", 0),
        "total" in parts,
    )
    assert ("first of these nodes" in finding_text(done, "SRCFG[x]")) == ("total" in parts)


def test_maui_node_sets_become_node_sets() -> None:
    done = import_maui(
        "NODESETPOLICY ONEOF\nNODESETATTRIBUTE FEATURE\nNODESETLIST rack1 rack2,rack3\n"
        "NODESETDELAY 0:10:00\nNODESETPRIORITYTYPE MINLOSS\n"
    )
    sets = settings_in(done.toml("main"))["site"]["node_sets"]
    assert sets == {"sets": {f"rack{i}": [f"rack{i}"] for i in (1, 2, 3)}, "wait": 600}
    assert finding_text(done, "NODESETDELAY") == "translated: node_sets.wait = 600"
    assert finding_text(done, "NODESETPRIORITYTYPE").startswith("different: ")
    first = import_maui("NODESETPOLICY FIRSTOF\nNODESETLIST rack1 rack2\n")
    assert finding_text(first, "NODESETPOLICY").startswith("different: the set that is free first")
    by_speed = import_maui("NODESETPOLICY ONEOF\nNODESETATTRIBUTE PROCSPEED\nNODESETLIST 1 2\n")
    assert finding_text(by_speed, "NODESETATTRIBUTE").startswith("different: sets by PROCSPEED are not known")


# ---- reservations -------------------------------------------------------------------------------


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
    assert [one.name for one in site_policy(ClusterSettings(**table).site.plain).reservations] == [
        "course",
        "w",
    ]


def test_a_reservation_without_end_becomes_consecutive_weeks() -> None:
    done = import_maui("SRCFG[x] PERIOD=INFINITY HOSTLIST=n1 CLASSLIST=ops\n")
    table = settings_in(done.toml("main"))["site"]["reservations"]["x"]
    assert (table["last"] - table["first"]).days == 7
    assert (table["rule"], table["nodes"], table["queues"]) == ("FREQ=WEEKLY", ["n1"], ["ops"])
    assert finding_text(done, "SRCFG[x]").startswith("different: a reservation")


def test_a_reservation_without_access_is_reported() -> None:
    assert "without access for anyone" in finding_text(import_maui("SRCFG[x] HOSTLIST=n1\n"), "SRCFG[x]")


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ("HOSTLIST=n1 USERLIST=ann TIMELIMIT=1:00:00 TIMELOGIC=AND", "one match is enough"),
        ("HOSTLIST=n1 TASKCOUNT=2 RESOURCES=PROCS:1 TPN=1", "counted for each node, or in total"),
        ("HOSTLIST=n1 TPN=4", "tasks of whole nodes are not counted"),
        ("HOSTLIST=n1 TASKCOUNT=4 RESOURCES=PROCS:2;DISK:512", "DISK:512: only cores, gpus and memory"),
        ("HOSTLIST=n1 TASKCOUNT=4 RESOURCES=PROCS:0", "without a number of PROCS"),
        ("HOSTLIST=n1 TASKCOUNT=many RESOURCES=PROCS:1", "TASKCOUNT=many is not understood"),
        ("HOSTLIST=n1 TASKCOUNT=1 RESOURCES=PROCS:1 MAXTASKS=4", "numbers of tasks that change"),
        ("HOSTLIST=n1 QOSLIST=high", "access by quality of service"),
        ("HOSTLIST=n1 USERLIST=ann,!bob", "access lists name only permitted users"),
        ("HOSTLIST=n1 USERLIST=ann& CLASSLIST=x", "access lists name only permitted users"),
        ("HOSTLIST=n1 SHOESIZE=9", "not known to this import"),
        ("TASKCOUNT=4 RESOURCES=PROCS:2", "it names no HOSTLIST"),
        ("PERIOD=DAY", "it names no HOSTLIST"),
        ("HOSTLIST=n0[1-4]", "is a pattern"),
        ("HOSTLIST=n1 DAYS=NOW", "DAYS=NOW"),
        ("HOSTLIST=n1 PERIOD=MOON", "PERIOD=MOON"),
        ("HOSTLIST=n1 STARTTIME=9:00:00 ENDTIME=8:00:00", "it goes from 9:00:00 to 8:00:00"),
    ],
)
def test_an_inexpressible_reservation_is_a_blocker(attributes: str, why: str) -> None:
    """Half of it would be worse: without its access list it would be closed to everybody."""
    done = import_maui(f"SRCFG[x] {attributes}\n")
    assert "reservations" not in done.site
    said = finding_text(done, "SRCFG[x]")
    assert said.startswith("blocker: not taken over")
    assert why in said


# ---- Moab ---------------------------------------------------------------------------------------


def test_unknown_moab_parameters_are_blockers() -> None:
    text = "POWERPOLICY ONDEMAND\nFROBNICATION 9\nUSERCFG[a] SHOESIZE=9\nQUEUETIMEWEIGHT 2\n"
    done = import_maui(text, moab=True)
    assert finding_text(done, "POWERPOLICY").startswith("blocker: set mode of power_saving")
    assert finding_text(done, "FROBNICATION").startswith(
        "blocker: not known to this import: look up what Moab"
    )
    assert finding_text(done, "USERCFG[a] SHOESIZE").startswith("blocker: not known")
    assert finding_text(done, "Moab").startswith("different: this is Moab's configuration")
    assert done.site["priority"]["waiting"] == 120.0


def test_moab_parameters_in_a_maui_cfg_are_reported() -> None:
    assert finding_text(import_maui("POWERPOLICY ONDEMAND\n"), "POWERPOLICY").startswith("blocker: ")


def test_preemptors_preemptees_and_the_policy_become_the_table_preemption() -> None:
    text = """
    CLASSCFG[urgent] FLAGS=PREEMPTOR
    USERCFG[ann] FLAGS=PREEMPTOR
    CLASSCFG[batch] FLAGS=PREEMPTEE
    GROUPCFG[students] FLAGS=PREEMPTEE
    PREEMPTPOLICY SUSPEND
    """
    done = import_maui(text)
    assert done.site["preemption"] == {
        "preemptors": {"queues": ["urgent"], "users": ["ann"]},
        "targets": {"queues": ["batch"], "groups": ["students"]},
        "methods": ["suspend"],
    }
    assert finding_text(done, "PREEMPTPOLICY") == "translated: preemption.methods = suspend"
    site_policy(done.site)
    unused = import_maui("QOSCFG[high] QFLAGS=PREEMPTOR\nPREEMPTPOLICY SUSPEND\n")
    assert "preemption" not in unused.site, "no job has this QOS"
    other = import_maui(text.replace("SUSPEND", "CANCEL"))
    assert finding_text(other, "PREEMPTPOLICY").startswith("blocker: jobs are suspended, checkpointed or")
    assert "methods" not in other.site["preemption"]


PARTITION = "NODECFG[n1] PARTITION=fast\n"


@pytest.mark.parametrize(
    ("line", "setting", "said"),
    [
        ("CHARGERATE=2.5", "CHARGERATE", "translated: charge = 2.5, a factor of the costs"),
        ("CHARGERATE=dear", "CHARGERATE", "blocker: 'dear' is no factor from 0 to"),
        ("MAXPROC=64", "MAXPROC", "translated: a limit of 64 cpus"),
        ("MAXJOB[USER]=4", "MAXJOB[USER]", "translated: a limit of 4 jobs"),
        ("MAXIJOB=9", "MAXIJOB", "translated: a limit of 9 jobs of waiting jobs"),
        ("MAXPROC=many", "MAXPROC", "blocker: 'many' is no number: the limit is not kept"),
        ("MAXJOB[QOS]=4", "MAXJOB[QOS]", "blocker: limits by QOS are not supported"),
        ("NODEACCESSPOLICY=SHARED", "NODEACCESSPOLICY", "no matter: nodes are shared"),
        ("NODEACCESSPOLICY=SINGLEJOB", "NODEACCESSPOLICY", "blocker: nodes are shared: make"),
        ("DEFAULTNODEIDLEWATTS=90", "DEFAULTNODEIDLEWATTS", "different: write it in the tables power"),
        ("RESERVATIONDEPTH=4", "RESERVATIONDEPTH", "no matter: every job has a planned start"),
        ("COLOUR=red", "COLOUR", "blocker: there is no such setting of a partition"),
    ],
)
def test_attributes_of_partitions_are_translated_or_named(line: str, setting: str, said: str) -> None:
    done = import_maui(f"{PARTITION}PARCFG[fast] {line}\n")
    assert finding_text(done, f"PARCFG[fast] {setting}").startswith(said)
    assert [one.line for one in done.findings if one.setting.startswith("PARCFG")] == [2]
    site_policy(done.site)


def test_charges_and_limits_of_partitions_and_qos_are_settings() -> None:
    qos = "USERCFG[ann] QDEF=high\nQOSCFG[high] CHARGERATE=3\n"
    site = import_maui(f"{PARTITION}PARCFG[fast] CHARGERATE=2 MAXPROC=64\n{qos}").site
    assert site["partitions"]["sets"]["fast"]["charge"] == 2.0
    assert site["limits"] == [{"amount": 64, "what": "cpus", "who": "all", "partition": "fast"}]
    assert site["qos"]["levels"]["high"]["charge"] == 3.0
    site_policy(site)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("IGNMAXPROC", {"": "blocker: no job is exempt from a limit"}),
        ("NOBF", {"": "different: gaps are filled with these jobs, too"}),
        ("DEDICATED:NTR", {" DEDICATED": "blocker: nodes would be shared", " NTR": "different: no job is"}),
        ("USERESERVED:lab", {"": "blocker: jobs would not use the reservation"}),
        ("RUNNOW,SHINY", {" RUNNOW": "no matter: every job", " SHINY": "blocker: there is no such flag"}),
        ("ENABLEUSERRSV", {"": "different: users may have bookings"}),
    ],
)
def test_each_flag_of_a_qos_is_named_with_its_reason(flags: str, said: dict[str, str]) -> None:
    done = import_maui(f"USERCFG[ann] QDEF=high\nQOSCFG[high] QFLAGS={flags}\n")
    for flag, text in said.items():
        assert finding_text(done, f"QOSCFG[high] QFLAGS{flag}").startswith(text)
    found = [one for one in done.findings if one.setting.startswith("QOSCFG[high]")]
    assert [one.line for one in found] == [2] * len(said)


def test_preemption_and_other_flags_of_one_qos_are_told_apart() -> None:
    text = "USERCFG[ann] QDEF=high\nUSERCFG[bob] QDEF=low\nQOSCFG[high] QFLAGS=PREEMPTOR:IGNALL\n"
    done = import_maui(f"{text}QOSCFG[low] QFLAGS=PREEMPTEE\n")
    assert done.site["preemption"] == {"preemptors": {"qos": ["high"]}, "targets": {"qos": ["low"]}}
    assert finding_text(done, "QOSCFG[high] QFLAGS PREEMPTOR").startswith("translated: preemptors and")
    assert finding_text(done, "QOSCFG[high] QFLAGS IGNALL").startswith("blocker: no job is exempt")
