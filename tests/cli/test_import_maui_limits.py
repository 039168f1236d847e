"""Import of Maui's limits, QOS and preemption."""

import pytest

from schedd.cli.importing.result import Verdict
from schedd.policy.site import site_policy
from schedd.service.settings.site import SiteSettings
from tests.cli.import_helpers import (
    EXAMPLES,
    finding_text,
    import_maui,
    lines_with_findings,
    setting_lines,
    settings_in,
)

EXAMPLE = (EXAMPLES / "maui.cfg").read_text()


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
    "line",
    ["GROUPCFG[staff] MAXPROC[USER]=64", "ACCOUNTCFG[phys] MAXJOBPERUSER=4", "USERCFG[a] MAXJOB[GROUP]=4"],
)
def test_a_limit_of_each_user_within_one_group_is_no_limit_of_a_user_of_that_name(line: str) -> None:
    done = import_maui(line)
    assert "limits" not in done.site
    (found,) = [one for one in done.findings if one.line]
    assert found.verdict is Verdict.BLOCKER
    assert "schedd has no limit for each" in found.message


def test_a_limit_of_a_queue_may_be_of_one_user() -> None:
    done = import_maui(
        "CLASSCFG[fast] MAXPROC[USER:Steve]=3 MAXPROC[user]=8\nQOSCFG[q] MAXIPROC[group:a]=9,99\n"
    )
    assert done.site["limits"] == [
        {"amount": 3, "what": "cpus", "who": "user", "queue": "fast", "name": "Steve"},
        {"amount": 8, "what": "cpus", "who": "user", "queue": "fast"},
    ]
    done = import_maui("SYSCFG QLIST=q\nQOSCFG[q] MAXIPROC[group:a]=9,99\n")
    assert done.site["limits"] == [
        {"amount": 99, "what": "cpus", "who": "group", "qos": "q", "name": "a", "counts": "eligible"}
    ]
    settings_in(done.toml("main"))


def test_a_qos_of_which_nothing_is_said_is_a_level() -> None:
    done = import_maui("SYSCFG QLIST=q,r\nQOSCFG[q] MAXJOB=9\nUSERCFG[ann] QDEF=r\n")
    assert settings_in(done.toml("main"))["site"]["qos"]["levels"] == {"q": {}, "r": {}}


def test_old_endings_of_limits_say_of_whom_they_are() -> None:
    assert import_maui("CLASSCFG[q] MAXJOBPERGROUP=3 MAXPROCPERACCOUNT=9 MAXIJOBPERUSER=2").site[
        "limits"
    ] == [
        {"amount": 3, "what": "jobs", "who": "group", "queue": "q"},
        {"amount": 9, "what": "cpus", "who": "account", "queue": "q"},
        {"amount": 2, "what": "jobs", "who": "user", "queue": "q", "counts": "eligible"},
    ]


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
    assert finding_text(done, "QOSCFG[low] FLAGS").startswith("not needed: it has no effect, since")
    assert finding_text(done, "QOSCFG[high] QFLAGS") == "not needed: every job has a planned start"
    done_with = import_maui(f"{text}QOSCFG[high] QFLAGS=PREEMPTOR\n")
    assert finding_text(done_with, "QOSCFG[low] FLAGS").startswith("translated: preemptors and targets")
    assert done_with.site["preemption"] == {"preemptors": {"qos": ["high"]}, "targets": {"qos": ["low"]}}
    assert finding_text(done, "QOSCFG[old]").startswith("not needed: left out: no QDEF")
    assert finding_text(done, "QDEF").startswith("different: if a job has several defaults, the")
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
        ("USERCFG[ann] MAXJOB=-5", "USERCFG[ann] MAXJOB", "blocker: '-5' is not a valid amount"),
        ("USERCFG[ann] MAXJOB=-5,8", "USERCFG[ann] MAXJOB", "translated: a limit of 8 jobs"),
        (f"USERCFG[ann] MAXMEM={1 << 50}", "USERCFG[ann] MAXMEM", "not needed: no limit"),
        ("USERCFG[ann] QDEF=a=b", "USERCFG[ann] QDEF", "blocker: 'a=b' is not a valid name of a QOS"),
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
    later = import_maui(f"{text}JOBPREEMPTMINACTIVETIME 00:30:00\n", moab=True)
    assert later.site["preemption"]["min_run"] == 1800
    unused = import_maui("QOSCFG[high] QFLAGS=PREEMPTOR\nPREEMPTPOLICY SUSPEND\n")
    assert "preemption" not in unused.site, "no job has this QOS"
    other = import_maui(text.replace("SUSPEND", "CANCEL"))
    assert finding_text(other, "PREEMPTPOLICY").startswith("blocker: preemption.methods has no CANCEL")
    assert "methods" not in other.site["preemption"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("IGNMAXPROC", {"": "blocker: a flag cannot exempt jobs from limits:"}),
        ("NOBF", {"": "different: these jobs fill gaps, too; that delays"}),
        ("DEDICATED:NTR", {" DEDICATED": "blocker: nodes would be shared", " NTR": "different: no flag"}),
        ("USERESERVED:lab", {"": "blocker: the jobs would not use the reservation"}),
        (
            "RUNNOW,SHINY",
            {" RUNNOW": "not needed: every job", " SHINY": "blocker: schedd has no equivalent of"},
        ),
        ("ENABLEUSERRSV", {"": "different: the table bookings lets"}),
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
    assert finding_text(done, "QOSCFG[high] QFLAGS IGNALL").startswith("blocker: a flag cannot exempt")
