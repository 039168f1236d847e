"""Import of Maui's nodes, node sets and partitions."""

import pytest

from schedd.cli.importing.result import Verdict
from schedd.policy.site import site_policy
from tests.cli.import_helpers import (
    EXAMPLES,
    finding_text,
    import_maui,
    settings_in,
)

EXAMPLE = (EXAMPLES / "maui.cfg").read_text()


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
    assert found["NODECFG[n4] PARTITION"].verdict is Verdict.NOT_NEEDED
    assert found["ACCOUNTCFG[chem] PLIST"].verdict is Verdict.NOT_NEEDED
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
            "NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITY=10\nNODECFG[n1] PRIORITY=4",
            {"prefer": {"n1": -6}},
        ),
        (
            "NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF='CPROCS'\nNODECFG[n1] PRIORITY=4",
            {"expression": "(cpus)"},
        ),
        (
            (
                "NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF='SPEED - 2*PRIORITY'\n"
                "NODECFG[n1] PRIORITY=4"
            ),
            {"prefer": {"n1": -8}, "expression": "(speed)"},
        ),
        ("NODEALLOCATIONPOLICY PRIORITY\nNODECFG[n1] PRIORITY=4 PRIORITYF='SPEED'", None),
        ("NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF='-APROCS'", {"arrange": "pack"}),
        ("NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF='10 * APROCS'", {"arrange": "spread"}),
        ("NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF='-JOBCOUNT'", {"arrange": "spread"}),
        ("NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF=JOBCOUNT", {"arrange": "pack"}),
        ("NODEALLOCATIONPOLICY PRIORITY\nNODECFG[DEFAULT] PRIORITYF='SPEED - JOBCOUNT'", None),
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


def test_resources_of_the_node_global_become_licences() -> None:
    done = import_maui("NODECFG[GLOBAL] GRES=matlab:5,fluent\nNODECFG[n1] GRES=fpga:2\n", moab=True)
    assert done.site["licences"] == {"matlab": {"copies": 5}, "fluent": {"copies": 1}}
    assert finding_text(done, "NODECFG[n1] GRES").startswith("blocker: define it as a resource of the node")
    settings_in(done.toml("main"))


def test_a_delay_of_node_sets_is_a_wait_in_moab_and_for_ever_in_maui() -> None:
    text = "NODESETPOLICY ONEOF\nNODESETLIST a,b\nNODESETPRIORITYTYPE BESTFIT\nNODESETDELAY {}\n"
    for moab, delay, wanted in (
        (True, "0:10:00", {"wait": 600}),
        (False, "0:10:00", {"strict": True}),
        (False, "0:00:00", {"wait": 0}),
    ):
        done = import_maui(text.format(delay), moab=moab)
        assert done.site["node_sets"] == {"sets": {"a": ["a"], "b": ["b"]}, **wanted}
        settings_in(done.toml("main"))
        assert finding_text(done, "NODESETPRIORITYTYPE").startswith("not needed: the smallest set")


def test_lists_of_partitions_that_maui_does_not_enforce_are_named() -> None:
    text = "NODECFG[n1] PARTITION=gpu\nUSERCFG[ann] PLIST=gpu\n"
    assert finding_text(import_maui(text), "USERCFG[ann] PLIST").startswith("different: schedd obeys this")
    closed = import_maui(f"{text}SYSCFG[base] PLIST=\n")
    assert finding_text(closed, "USERCFG[ann] PLIST") == "translated: partitions"
    joined = import_maui(f"{text}GROUPCFG[g] PLIST=gpu&,fast\nSYSCFG QDEF=q\nQOSCFG[q] PLIST=gpu\n")
    assert finding_text(joined, "GROUPCFG[g] PLIST").startswith("blocker: schedd joins the lists")
    assert finding_text(joined, "QOSCFG[q] PLIST").startswith(
        "blocker: a QOS cannot have a list of partitions:"
    )


def test_node_sets_that_are_not_optional_are_strict() -> None:
    text = "NODESETPOLICY ONEOF\nNODESETLIST a,b\nNODESETDELAY 60\nNODESETISOPTIONAL {}\n"
    done = import_maui(text.format("FALSE"), moab=True)
    assert done.site["node_sets"] == {"sets": {"a": ["a"], "b": ["b"]}, "strict": True}
    settings_in(done.toml("main"))
    assert import_maui(text.format("TRUE"), moab=True).site["node_sets"]["wait"] == 60


def test_node_speeds_are_translated_if_fair_share_uses_them() -> None:
    done = import_maui("USEMACHINESPEEDFORFS TRUE\nNODECFG[n1] SPEED=1.5\n")
    assert settings_in(done.toml("main"))["site"]["speeds"] == {"n1": 1.5}


def test_walltimes_are_normalised_by_speeds_as_in_maui() -> None:
    done = import_maui("USEMACHINESPEED TRUE\nNODECFG[n1] SPEED=0.5\n")
    assert settings_in(done.toml("main"))["site"]["normalised_walltimes"] == {"speed": 1}
    assert finding_text(done, "NODECFG[n1] SPEED").startswith("different: speeds and normalised_walltimes")
    without = import_maui("USEMACHINESPEED TRUE\n")
    assert finding_text(without, "USEMACHINESPEED").startswith("different: it has no effect, since no")
    assert not without.site.get("normalised_walltimes")


def test_units_share_nodes_by_maui_default() -> None:
    """Else nodes=30:ppn=1 would never run on 20 nodes, where it runs under Maui."""
    done = import_maui("LOGLEVEL 3\n")
    assert done.cluster["node_rule"] == "pack"
    assert finding_text(done, "JOBNODEMATCHPOLICY").startswith(
        "translated: not in the file; by default Maui lets the units of a request share"
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
    assert finding_text(done, "ALLOWMULTIREQNODEUSE").startswith('different: with node_rule = "exact"')


def test_maui_node_sets_become_node_sets() -> None:
    done = import_maui(
        "NODESETPOLICY ONEOF\nNODESETATTRIBUTE FEATURE\nNODESETLIST rack1 rack2,rack3\n"
        "NODESETDELAY 0:10:00\nNODESETPRIORITYTYPE MINLOSS\n"
    )
    sets = settings_in(done.toml("main"))["site"]["node_sets"]
    assert sets == {"sets": {f"rack{i}": [f"rack{i}"] for i in (1, 2, 3)}, "strict": True}
    assert finding_text(done, "NODESETDELAY").startswith(
        "translated: node_sets.strict = true: with any delay"
    )
    assert finding_text(done, "NODESETPRIORITYTYPE").startswith("different: ")
    first = import_maui("NODESETPOLICY FIRSTOF\nNODESETLIST rack1 rack2\n")
    assert finding_text(first, "NODESETPOLICY").startswith("different: the set that allows the earliest")
    by_speed = import_maui("NODESETPOLICY ONEOF\nNODESETATTRIBUTE PROCSPEED\nNODESETLIST 1 2\n")
    assert finding_text(by_speed, "NODESETATTRIBUTE").startswith("different: sets by PROCSPEED are not")


PARTITION = "NODECFG[n1] PARTITION=fast\n"


@pytest.mark.parametrize(
    ("line", "setting", "said"),
    [
        ("CHARGERATE=2.5", "CHARGERATE", "translated: charge = 2.5, a factor of the cost"),
        ("CHARGERATE=dear", "CHARGERATE", "blocker: 'dear' is not a factor from 0 to"),
        ("MAXPROC=64", "MAXPROC", "translated: a limit of 64 cpus"),
        ("MAXJOB[USER]=4", "MAXJOB[USER]", "translated: a limit of 4 jobs"),
        ("MAXIJOB=9", "MAXIJOB", "translated: a limit of 9 jobs of waiting jobs"),
        ("MAXPROC=many", "MAXPROC", "blocker: 'many' is not a number: the limit does not apply"),
        ("MAXJOB[QOS]=4", "MAXJOB[QOS]", "blocker: limits with the index QOS are not supported"),
        ("NODEACCESSPOLICY=SHARED", "NODEACCESSPOLICY", "not needed: nodes are shared"),
        ("NODEACCESSPOLICY=SINGLEJOB", "NODEACCESSPOLICY", "blocker: nodes are shared: set"),
        ("DEFAULTNODEIDLEWATTS=90", "DEFAULTNODEIDLEWATTS", "different: write it in the tables power"),
        ("RESERVATIONDEPTH=4", "RESERVATIONDEPTH", "not needed: every job has a planned start"),
        ("COLOUR=red", "COLOUR", "blocker: schedd has no such setting of partitions"),
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
