"""``schedd import``: other schedulers' configurations as settings, and what is said of the rest."""
# ruff: noqa: DTZ001  (reservations speak of the clock on the wall)

import tomllib
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from schedd.cli.importing.maui import import_maui as import_maui_on
from schedd.cli.importing.result import Imported, Verdict, duration
from schedd.cli.importing.sched_config import import_sched_config
from schedd.cli.main import main
from schedd.policy.site import site_policy
from schedd.service.settings import ClusterSettings

EXAMPLES = Path(__file__).parent / "examples"
MAUI = (EXAMPLES / "maui.cfg").read_text()
TORQUE = EXAMPLES / "torque"
OPENPBS = EXAMPLES / "openpbs"


def import_maui(text: str) -> Imported:
    return import_maui_on(text, date(2026, 11, 21), "Europe/Prague")


def sched(directory: Path) -> Imported:
    beside = {path.name: path.read_text() for path in directory.iterdir() if path.name != "sched_config"}
    return import_sched_config((directory / "sched_config").read_text(), beside)


def words(done: Imported, setting: str) -> str:
    """The verdict and the words about one setting."""
    (found,) = (one for one in done.findings if one.setting == setting)
    return f"{found.verdict.value}: {found.words}"


def settings_in(toml: str, cluster: str = "main") -> dict[str, Any]:
    """A cluster's settings, checked as the daemon checks them."""
    table: dict[str, Any] = tomllib.loads(toml)["clusters"][cluster]
    ClusterSettings(**table)
    return table


# ---- Maui ---------------------------------------------------------------------------------------


def test_weights_of_maui_are_points_here() -> None:
    """2 a minute are 120 an hour; parts are multiplied with their components; 14400 points are 120 hours."""
    site = import_maui(MAUI).site
    assert site["priority"] == {
        "waiting": 120.0,
        "waiting_most": 120.0,
        "size": 4.0,
        "queue": 10.0,
        "queues": {"long": 10.0, "short": 100.0},
        "fair_share": 20000.0,
    }
    assert site["classes"] == {"user-ann": {"points": 5000.0, "users": ["ann"]}}


def test_waiting_counts_in_maui_even_when_the_file_says_nothing() -> None:
    done = import_maui("LOGLEVEL 3\n")
    assert done.site["priority"] == {"waiting": 60.0, "queue": 0.0}
    assert words(done, "QUEUETIMEWEIGHT").startswith("translated: not in the file")


def test_fair_share_of_maui_has_the_same_windows_and_targets() -> None:
    assert import_maui(MAUI).site["fair_share"] == {
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
        ("FSUSERWEIGHT 5", "no FSPOLICY"),
        ("FSPOLICY NONE\nFSUSERWEIGHT 5", "NONE"),
        ("FSPOLICY DEDICATEDPS", "no weight"),
    ],
)
def test_fair_share_that_is_off_stays_off(text: str, why: str) -> None:
    done = import_maui(text)
    assert "fair_share" not in done.site
    assert "fair_share" not in done.site["priority"]
    assert any(why in finding.words for finding in done.of(Verdict.NOT_NEEDED))


def test_limits_of_maui_are_limits_of_the_site() -> None:
    assert import_maui(MAUI).site["limits"] == [
        {"amount": 128, "what": "cpus", "who": "user"},
        {"amount": 256, "what": "cpus", "who": "user", "name": "ann"},
        {"amount": 50, "what": "jobs", "who": "group", "name": "physics"},
        {"amount": 4, "what": "nodes", "who": "account", "name": "guest"},
        {"amount": 4, "what": "jobs", "who": "user", "queue": "long"},
        {"amount": 32, "what": "cpus", "who": "user", "queue": "short"},
        {"amount": 900, "what": "cpus", "who": "all"},
    ]
    assert import_maui("USERCFG[x] MAXMEM=100").site["limits"][0]["amount"] == 100 << 10


def test_what_stands_in_the_way_of_a_maui_site_is_a_blocker() -> None:
    blockers = [finding.setting for finding in import_maui(MAUI).of(Verdict.BLOCKER)]
    assert blockers == ["NODEACCESSPOLICY", "QOSCFG[high]", "SRCFG[weekly]", "PREEMPTPOLICY"]


@pytest.mark.parametrize(
    ("line", "setting", "said"),
    [
        ("USERCFG[ann] MAXPROC=many", "USERCFG[ann] MAXPROC", "blocker: 'many' is no number"),
        ("USERCFG[ann] MAXPE=100", "USERCFG[ann] MAXPE", "blocker: there is no such limit"),
        ("USERCFG[ann] MAXPS=100", "USERCFG[ann] MAXPS", "differs: what jobs asked for counts"),
        ("NODESETPOLICY ANYOF", "NODESETPOLICY", "differs: jobs are kept on one set only under"),
        ("NODESETDELAY 60", "NODESETDELAY", "differs: jobs are kept on one set only under"),
        ("NODESETPOLICY ONEOF", "NODESETPOLICY", "differs: no sets are named"),
        ("USERCFG[ann] QDEF=high", "USERCFG[ann] QDEF", "blocker: there is no quality of service"),
        ("USERCFG[ann] PLIST=big", "USERCFG[ann] PLIST", "blocker: there are no partitions"),
        ("USERCFG[ann] FLAGS=PREEMPTEE", "USERCFG[ann] FLAGS", "blocker: running jobs are never stopped"),
        ("USERCFG[ann] SHOESIZE=9", "USERCFG[ann] SHOESIZE", "differs: not known here"),
        ("CLASSCFG[DEFAULT] MAXJOB=9", "CLASSCFG[DEFAULT] MAXJOB", "blocker: a limit of each queue"),
        ("CLASSCFG[x] MAXJOB[QOS]=9", "CLASSCFG[x] MAXJOB[QOS]", "blocker: limits by QOS"),
        ("NODECFG[n1] MAXJOB=2", "NODECFG[n1]", "blocker: policies of single nodes"),
        ("SRSTARTTIME[0] 8:00:00", "SRSTARTTIME[0]", "blocker: reservations in this old form"),
        (
            "SRCFG[x] PERIOD=INFINITY HOSTLIST=n1",
            "SRCFG[x]",
            "blocker: its nodes would be",
        ),
        ("SRCFG[x] TASKCOUNT=4", "SRCFG[x]", "blocker: its nodes would be open to all: it names no HOSTLIST"),
        ("SRCFG[x] HOSTLIST=n1 DAYS=NOW", "SRCFG[x]", "blocker: its nodes would be open to all: DAYS=NOW"),
        ("SRCFG[x] HOSTLIST=n1 STARTTIME=9:00:00 ENDTIME=8:00:00", "SRCFG[x]", "blocker: its nodes would be"),
        (
            "SRCFG[x] HOSTLIST=n1 TPN=4",
            "SRCFG[x]",
            "differs: a reservation of its own",
        ),
        ("NODEACCESSPOLICY SHARED", "NODEACCESSPOLICY", "not needed: nodes are shared"),
        ("QUEUETIMEWEIGHT much", "QUEUETIMEWEIGHT", "differs: 'much' is no number"),
        ("XFACTORWEIGHT 0", "XFACTORWEIGHT", "not needed: it is 0"),
        ("XFACTORWEIGHT 7", "XFACTORWEIGHT", "differs: there is no such term"),
        ("JOBMAXOVERRUN soon", "JOBMAXOVERRUN", "differs: 'soon' is not understood"),
        ("FROBNICATION 9", "FROBNICATION", "differs: not known here"),
        ("*** 9", "*** 9", "differs: not understood"),
        (
            "USERCFG[ann] PRIORITY=5",
            "USERCFG[ann] PRIORITY",
            "not needed: the weight of user priorities is 0",
        ),
    ],
)
def test_no_setting_of_maui_is_passed_over_in_silence(line: str, setting: str, said: str) -> None:
    done = import_maui(line)
    found = [f for f in done.findings if f.setting == setting and f.line == 1]
    assert any(f"{one.verdict.value}: {one.words}".startswith(said) for one in found), done.findings


def test_limits_of_walltime_count_what_jobs_asked_for() -> None:
    done = import_maui("USERCFG[DEFAULT] MAXPS=864000,1728000 MAXWC=1:00:00:00\n")
    assert done.site["limits"] == [
        {"amount": 1_728_000, "what": "cpu_seconds", "who": "user"},
        {"amount": 86_400, "what": "walltime", "who": "user"},
    ]
    settings_in(done.toml("main"))


def test_node_sets_of_maui_keep_jobs_together() -> None:
    done = import_maui(
        "NODESETPOLICY ONEOF\nNODESETATTRIBUTE FEATURE\nNODESETLIST rack1 rack2,rack3\n"
        "NODESETDELAY 0:10:00\nNODESETPRIORITYTYPE MINLOSS\n"
    )
    sets = settings_in(done.toml("main"))["site"]["node_sets"]
    assert sets == {"sets": {f"rack{i}": [f"rack{i}"] for i in (1, 2, 3)}, "wait": 600}
    assert words(done, "NODESETDELAY") == "translated: node_sets.wait = 600"
    assert words(done, "NODESETPRIORITYTYPE").startswith("differs: ")
    first = import_maui("NODESETPOLICY FIRSTOF\nNODESETLIST rack1 rack2\n")
    assert words(first, "NODESETPOLICY").startswith("differs: the set that is free first")
    by_speed = import_maui("NODESETPOLICY ONEOF\nNODESETATTRIBUTE PROCSPEED\nNODESETLIST 1 2\n")
    assert words(by_speed, "NODESETATTRIBUTE").startswith("differs: sets by PROCSPEED are not known")


def test_reservations_of_maui_are_windows_on_the_hosts_clock() -> None:
    """Of each reservation the first window lies in this week, which for Maui begins on Sunday."""
    done = import_maui(
        MAUI + "SRCFG[w] PERIOD=WEEK STARTTIME=1:08:00:00 ENDTIME=1:12:00:00 HOSTLIST=ALL USERLIST=ann,bob\n"
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


def test_every_line_of_the_example_has_a_finding() -> None:
    lines = {n for n, line in enumerate(MAUI.splitlines(), 1) if line.partition("#")[0].strip()}
    second_of_a_reservation = {n for n, line in enumerate(MAUI.splitlines(), 1) if "HOSTLIST=n01,n02" in line}
    found = {finding.line for finding in import_maui(MAUI).findings} - {0}
    assert found == lines - second_of_a_reservation


def test_priorities_of_users_and_groups_are_not_added_up_and_that_is_said() -> None:
    done = import_maui("USERWEIGHT 1\nGROUPWEIGHT 2\nUSERCFG[a] PRIORITY=1\nGROUPCFG[b] PRIORITY=3\n")
    assert done.site["classes"]["group-b"]["points"] == 6.0
    assert (
        words(done, "PRIORITY")
        == "differs: priorities of group and user are not added up: the highest counts"
    )


# ---- pbs_sched ----------------------------------------------------------------------------------


def test_the_order_of_torques_pbs_sched() -> None:
    """Queues first, then fair share, then the keys of the sort."""
    assert sched(TORQUE).site["priority"] == {"queue": 10**8, "fair_share": 10**7, "wish": 1000}


def test_the_tree_of_torques_pbs_sched_is_flattened_to_parts_of_the_whole() -> None:
    """physics has 60 % of which ann has two thirds; biology's 40 % are all eve's."""
    done = sched(TORQUE)
    assert done.site["fair_share"] == {
        "levels": ["user"],
        "interval": 172_800,
        "decay": 0.5,
        "depth": 20,
        "unlisted": 10.0,
        "shares": {"ann": 40.0, "bob": 20.0, "eve": 40.0},
    }
    assert words(done, "resource_group").startswith("differs: its groups are flattened")


def test_dedicated_time_and_ignored_queues_stand_in_the_way() -> None:
    done = sched(TORQUE)
    assert [finding.setting for finding in done.of(Verdict.BLOCKER)] == ["dedicated_prefix", "ignore_queue"]
    without = import_sched_config("dedicated_prefix: ded\n", {})
    assert words(without, "dedicated_prefix").startswith("differs: dedicated_time has no entry")


def test_keys_of_openpbs_outweigh_those_that_follow() -> None:
    done = sched(OPENPBS)
    assert done.site["priority"] == {
        "queue": 0,
        "fair_share": 10**7,
        "wish": 10**6,
        "size": 1000,
        "short": 1,
    }
    assert words(done, "job_sort_key mem LOW") == "differs: jobs cannot be ordered by that"


def test_fair_share_of_openpbs_forgets_as_quickly() -> None:
    assert sched(OPENPBS).site["fair_share"] == {
        "levels": ["group"],
        "interval": 86_400,
        "decay": 0.5,
        "depth": 7,
        "shares": {"physics": 30.0, "biology": 10.0},
    }


def test_preemption_prime_time_and_polled_resources_stand_in_the_way() -> None:
    done = sched(OPENPBS)
    assert [finding.setting for finding in done.of(Verdict.BLOCKER)] == [
        "backfill_prime",
        "primetime_prefix",
        "nonprimetime_prefix",
        "preemptive_sched",
    ]
    assert done.site["licences"] == {"matlab": {"command": ["/opt/bin/matlab_free"], "free": True}}
    assert "job_sort_formula" in words(done, "qmgr")


def test_without_prime_time_its_options_do_not_matter() -> None:
    done = import_sched_config((OPENPBS / "sched_config").read_text(), {"holidays": "weekday all none\n"})
    assert [finding.setting for finding in done.of(Verdict.BLOCKER)] == ["preemptive_sched"]


def test_halves_of_the_day_that_differ_are_said() -> None:
    text = "by_queue: True prime\nby_queue: False non_prime\n"
    assert words(import_sched_config(text, {}), "by_queue prime/non_prime").startswith("differs")
    beside = {"holidays": "weekday 0600 1730\n"}
    assert words(import_sched_config(text, beside), "by_queue prime/non_prime").startswith("blocker")
    same = import_sched_config("by_queue: True prime\nby_queue: True non_prime\n", beside)
    assert not same.of(Verdict.BLOCKER)


@pytest.mark.parametrize(
    ("text", "setting", "said"),
    [
        ("round_robin: true all", "round_robin", "differs: queues do not take turns"),
        ("sort_by: no_sort ALL", "sort_by no_sort", "not needed"),
        ("sort_by: shortest_job_first ALL", "sort_by shortest_job_first", "translated: priority.short"),
        ("sort_by: largest_memory_first ALL", "sort_by largest_memory_first", "differs: jobs cannot be"),
        ("sort_by: fair_share ALL", "sort_by fair_share", "differs: left out: fair_share is off"),
        ("job_sort_key: \"ncpus\" ALL", "job_sort_key ncpus", "differs: jobs cannot be ordered"),
        ("job_sort_formula: \"ncpus*10\"", "job_sort_formula", "blocker: formulas are not supported"),
        ("peer_queue: \"workq workq@other\"", "peer_queue", "blocker: jobs are not taken"),
        ('server_dyn_res: "matlab"', "server_dyn_res", "blocker: matlab: not understood"),
        ('server_dyn_res: "mem !/bin/get_mem"', "server_dyn_res", "blocker: mem !/bin/get_mem: not"),
        ("load_balancing: true ALL", "load_balancing", "differs: the load of nodes"),
        ("half_life: 24:00:00", "half_life", "not needed: fair share is off"),
        ("fair_share: true\nhalf_life: soon", "half_life", "differs"),
        ("fair_share: true\nfairshare_decay_factor: 2", "fairshare_decay_factor", "differs: '2' is not"),
        ("fair_share: true\nfairshare_entity: shoe", "fairshare_entity", "differs: there is no level shoe"),
        ("fair_share: true\nfairshare_usage_res: ncpus*walltime", "fairshare_usage_res", "translated"),
        ("fair_share: true\nfairshare_enforce_no_shares: TRUE", "fairshare_enforce_no_shares", "differs"),
        ("resources: \"ncpus, mem\"", "resources", "not needed"),
        ("frobnication: 9", "frobnication", "differs: not known here"),
        ("***", "***", "differs: not understood"),
        ("sort_by: \"unclosed", "sort_by: \"unclosed", "differs: not understood"),
    ],
)  # fmt: skip
def test_no_option_of_pbs_sched_is_passed_over_in_silence(text: str, setting: str, said: str) -> None:
    assert words(import_sched_config(text + "\n", {}), setting).startswith(said)


@pytest.mark.parametrize("directory", [TORQUE, OPENPBS])
def test_every_option_of_the_examples_has_a_finding(directory: Path) -> None:
    text = (directory / "sched_config").read_text()
    said = {line.split(":")[0].split()[0] for line in text.splitlines() if line and not line.startswith("#")}
    found = {finding.setting.split()[0] for finding in sched(directory).findings}
    assert said - {"sort_by"} <= found


def test_durations_have_up_to_four_fields() -> None:
    assert [duration(text) for text in ("90", "1:30", "1:00:00", "2:00:00:00")] == [90, 90, 3600, 172_800]
    with pytest.raises(ValueError, match="no duration"):
        duration("1:2:3:4:5")


# ---- the command --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "exit_code"), [("maui.cfg", 3), ("torque/sched_config", 3), ("openpbs/sched_config", 3)]
)
def test_what_is_printed_is_a_part_of_schedd_toml(
    file: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(EXAMPLES / file), "--cluster", "east"]) == exit_code
    printed = capsys.readouterr()
    table = settings_in(printed.out, "east")
    assert site_policy(ClusterSettings(**table).site.plain).fair_share is not None
    assert "set slack in [clusters.NAME]" in printed.err
    assert printed.err.startswith("Blockers: not supported, and it matters who runs (")
    blockers = [line for line in printed.out.splitlines() if line.startswith("# BLOCKER")]
    assert len(blockers) == int(printed.err.partition("(")[2].partition(")")[0])


def test_a_file_without_blockers_is_done_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "maui.cfg").write_text("QUEUETIMEWEIGHT 1\nUSERCFG[a-b] MAXJOB=4\n")
    out = tmp_path / "part.toml"
    assert main(["import", str(tmp_path / "maui.cfg"), "-o", str(out)]) == 0
    assert settings_in(out.read_text())["site"]["limits"] == [
        {"amount": 4, "what": "jobs", "who": "user", "name": "a-b"}
    ]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "text", "more", "said"),
    [
        ("notes.txt", "hello\n", [], "say which with --from"),
        ("maui.cfg", "USERCFG[a] MAXJOB=1\n", ["--cluster", "a b"], "a name has letters"),
        ("maui.cfg", "FSPOLICY DEDICATEDPS\nFSUSERWEIGHT 1\nFSDECAY 9\n", [], "nothing was written"),
        ("maui.cfg", "USERCFG[a] MAXJOB=1\n", ["-o", "/nowhere/x"], "/nowhere/x: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, name: str, text: str, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["import", str(tmp_path / name), *more]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "/nowhere/maui.cfg"]) == 2
    assert "/nowhere/maui.cfg: No such file" in capsys.readouterr().err
