"""Import of Maui's and Moab's weights: points of the priority, or a formula."""

import pytest

from schedd.cli.importing.result import Verdict
from tests.cli.import_helpers import (
    EXAMPLES,
    finding_text,
    import_maui,
    settings_in,
)

EXAMPLE = (EXAMPLES / "maui.cfg").read_text()


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
        == "translated: not in the file; Maui's default is 1 point a minute: "
        "priority.waiting = 60 points an hour"
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
    assert finding_text(done, "PRIORITY").startswith("different: points of group and user are not added")


@pytest.mark.parametrize(
    ("text", "setting", "said"),
    [
        (
            "XFACTORWEIGHT 7",
            "XFACTORWEIGHT",
            "translated: a formula, with the term 1 + eligible_time / max(planned_walltime, 120)",
        ),
        ("XFACTORWEIGHT 0", "XFACTORWEIGHT", "not needed: the weight is 0"),
        ("XFACTORWEIGHT 7\nXFMINWCLIMIT 0", "XFACTORWEIGHT", "translated: a formula, with the term xfactor"),
        ("XFACTORWEIGHT 7\nSERVICEWEIGHT 0", "XFACTORWEIGHT", "not needed: the weight is 0"),
        ("XFACTORWEIGHT 7\nXFMINWCLIMIT 0:10:00", "XFMINWCLIMIT", "translated: in the formula"),
        ("XFMINWCLIMIT 0:10:00", "XFMINWCLIMIT", "not needed: the expansion factor has no weight"),
        ("PROCWEIGHT 7\nPROCCAP 100", "PROCCAP", "translated: a formula, with the term min(ncpus, 100)"),
        ("PROCWEIGHT 7\nRESCAP 100", "RESCAP", "blocker: schedd has no caps for components,"),
        (
            "BYPASSWEIGHT 7",
            "BYPASSWEIGHT",
            "blocker: neither priority nor a formula has a term for how often",
        ),
        (
            "QUEUETIMEWEIGHT 5\nQUEUETIMECAP 120",
            "QUEUETIMECAP",
            "translated: priority.waiting_most = 2 hours",
        ),
        ("PROCCAP 100", "PROCCAP", "not needed: no effect: 0 means"),
        ("QUEUETIMECAP 120", "QUEUETIMECAP", "translated: priority.waiting_most = 2 hours"),
        ("CREDWEIGHT 7", "CREDWEIGHT", "not needed: none of its terms has a"),
        ("QUEUETIMEWEIGHT[2] 7", "QUEUETIMEWEIGHT[2]", "blocker: schedd has one set of"),
        ("QUEUETIMEWEIGHT much", "QUEUETIMEWEIGHT", "different: 'much' is not a number"),
        (
            "USERCFG[ann] PRIORITY=5",
            "USERCFG[ann] PRIORITY",
            "not needed: the weight of user priorities is 0",
        ),
        ("USERWEIGHT 1\nUSERCFG[a] PRIORITY=x", "USERCFG[a] PRIORITY", "different: 'x' is not a number"),
        ("REJECTNEGPRIOJOBS TRUE", "REJECTNEGPRIOJOBS", "different: a job with a negative priority"),
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
        ("QUEUETIMEWEIGHT 0\nUSERPRIOWEIGHT 5", "5 * min(job_priority, 0)"),
        ("QUEUETIMEWEIGHT 0\nUSERPRIOWEIGHT 5\nENABLEPOSUSERPRIORITY TRUE", "5 * job_priority"),
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
    assert finding_text(done, "priority").startswith("translated: formula.expression replaces all weights")
    assert not done.with_verdict(Verdict.BLOCKER)


def test_too_large_points_of_classes_are_scaled_in_a_formula() -> None:
    done = import_maui("XFACTORWEIGHT 1\nUSERWEIGHT 1000\nUSERCFG[x] PRIORITY=864000000\n")
    assert done.site["classes"]["user-x"]["points"] == 1e9
    assert done.site["formula"]["expression"].endswith(" + 864 * class_points")
    settings_in(done.toml("main"))
