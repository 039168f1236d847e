"""Import of maui.cfg: every line has a finding, and parameters that are unknown or unsupported are named."""

import random
import re
import tomllib

import pytest

from schedd.cli.importing.result import Verdict
from schedd.service.settings.cluster import ClusterSettings
from tests.cli.import_helpers import (
    EXAMPLES,
    finding_text,
    import_maui,
    lines_with_findings,
    setting_lines,
    settings_in,
)
from tests.cli.scheduler_parameters import MAUI, MAUI_WITH_INDEX
from tests.property_examples import some

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
        one.line == 1 and "line 2 sets it again" in one.message for one in done.with_verdict(Verdict.DIFFERS)
    )


def test_continued_lines_are_joined() -> None:
    done = import_maui("USERCFG[ann] MAXJOB=4 \\\n  MAXPROC=8\nLOGLEVEL 3\n")
    assert [one["amount"] for one in done.site["limits"]] == [4, 8]
    assert any(line.lstrip().startswith("lines 1-2  USERCFG[ann] MAXJOB") for line in done.report())


@pytest.mark.parametrize(
    ("line", "setting", "said"),
    [
        (
            "USERCFG[ann] MAXPROC=64,128",
            "USERCFG[ann] MAXPROC",
            "translated: a limit of 128 cpus; jobs beyond 64 are planned after all others",
        ),
        ("USERCFG[ann] MAXPROC=64,64", "USERCFG[ann] MAXPROC", "translated: a limit of 64 cpus"),
        ("USERCFG[ann] MAXPROC=many", "USERCFG[ann] MAXPROC", "blocker: 'many' is not a number"),
        ("USERCFG[ann] MAXPROC=-1", "USERCFG[ann] MAXPROC", "not needed: no limit"),
        ("USERCFG[ann] MAXPE=100", "USERCFG[ann] MAXPE", "blocker: schedd has no such limit"),
        ("USERCFG[ann] MAXPS=100", "USERCFG[ann] MAXPS", "different: the full request of a job"),
        (
            "USERCFG[DEFAULT] MAXIJOB=8",
            "USERCFG[DEFAULT] MAXIJOB",
            "translated: a limit of 8 jobs of waiting jobs",
        ),
        ("USERCFG[ann] QDEF=high", "USERCFG[ann] QDEF", "translated: the default QOS"),
        ("USERCFG[ann] QLIST=high,low", "USERCFG[ann] QLIST", "translated: may use high, low: qos.levels"),
        (
            "USERCFG[ann] MAXIJOB=4,8",
            "USERCFG[ann] MAXIJOB",
            "translated: the hard limit of waiting jobs, 8,",
        ),
        ("USERCFG[ann] MAXIPS=9", "USERCFG[ann] MAXIPS", "blocker: schedd has no such limit"),
        ("QOSCFG[high] PRIORITY=9", "QOSCFG[high]", "not needed: left out: no QDEF, QLIST or MEMBERULIST"),
        ("QOSPRIORITY[0] 9", "QOSPRIORITY[0]", "blocker: a QOS in this old form"),
        ("USERCFG[ann] PLIST=big", "USERCFG[ann] PLIST", "blocker: no NODECFG of this file puts nodes"),
        ("USERCFG[DEFAULT] PLIST=DEFAULT", "USERCFG[DEFAULT] PLIST", "not needed: the file has no part"),
        ("SYSCFG[base] PLIST=", "SYSCFG[base] PLIST", "not needed: it is empty"),
        ("USERCFG[ann] FLAGS=PREEMPTEE", "USERCFG[ann] FLAGS", "not needed: it has no effect, since"),
        (
            "USERCFG[ann] FLAGS=PREEMPTOR",
            "USERCFG[ann] FLAGS",
            "translated: preemptors and targets of the table preemption",
        ),
        (
            "USERCFG[DEFAULT] FLAGS=PREEMPTOR",
            "USERCFG[DEFAULT] FLAGS",
            "blocker: running jobs are preempted only if the table",
        ),
        ("PREEMPTPOLICY REQUEUE", "PREEMPTPOLICY", "not needed: it has no effect, since"),
        (
            "CLASSCFG[big] DEFAULT.FEATURES=[bigmem],[ib]",
            "CLASSCFG[big] DEFAULT.FEATURES",
            (
                "blocker: jobs of the queue would run on any node: qmgr -c 'set queue big "
                "resources_default.neednodes = bigmem:ib'; schedd obeys that"
            ),
        ),
        ("CLASSCFG[x] EXCL.FEATURES=old", "CLASSCFG[x] EXCL.FEATURES", "blocker: neither the server"),
        (
            "CLASSCFG[x] MAX.NODE=4",
            "CLASSCFG[x] MAX.NODE",
            (
                "different: the server enforces it, and this import does not set it: qmgr -c 'set queue x "
                "resources_max.nodect = 4'"
            ),
        ),
        ("CLASSCFG[x] DEFAULT.EXT=9", "CLASSCFG[x] DEFAULT.EXT", "blocker: neither the server"),
        ("CLASSCFG[x] TRIGGER=atype=exec", "CLASSCFG[x] TRIGGER", "different: schedd runs no program"),
        ("CLASSCFG[x] HOLD=TRUE", "CLASSCFG[x] HOLD", "blocker: hold the queue: `schedd hold -q"),
        ("NODECFG[n1] TRIGGER=atype=exec", "NODECFG[n1] TRIGGER", "different: schedd runs no program"),
        ("NODECFG[DEFAULT] ENABLEPROFILING=TRUE", "NODECFG[DEFAULT] ENABLEPROFILING", "not needed: "),
        (
            "PARCFG[ALL] NODEALLOCATIONPOLICY=CPULOAD",
            "NODEALLOCATIONPOLICY",
            'different: node_choice: arrange = "spread"',
        ),
        ("PARCFG[ALL] NODEALLOCATIONPOLICY=CPULOAD", "PARCFG[ALL]", "not needed: it applies to all nodes:"),
        ("PARCFG[fast] NODEALLOCATIONPOLICY=CPULOAD", "PARCFG[fast]", "blocker: not translated: no NODECFG"),
        ("ALLOWMULTIREQNODEUSE TRUE", "ALLOWMULTIREQNODEUSE", 'not needed: node_rule = "pack" has the same'),
        ("ALLOWMULTIREQNODEUSE FALSE", "ALLOWMULTIREQNODEUSE", 'different: with node_rule = "pack"'),
        ("USERCFG[ann] SHOESIZE=9", "USERCFG[ann] SHOESIZE", "different: the documentation of Maui has no"),
        ("USERCFG[ann] MAXJOB 9", "USERCFG[ann]", "blocker: cannot be read: 'MAXJOB 9'"),
        ("CLASSCFG[DEFAULT] MAXJOB=9", "CLASSCFG[DEFAULT] MAXJOB", "blocker: schedd has no limit for"),
        ("CLASSCFG[x] MAXJOB[QOS]=9", "CLASSCFG[x] MAXJOB[QOS]", "blocker: limits with the index QOS"),
        (
            "CLASSCFG[x] HOSTLIST=n1,n2",
            "CLASSCFG[x] HOSTLIST",
            "blocker: jobs of the queue would run on any node:",
        ),
        (
            "CLASSCFG[x] REQUIREDUSERLIST=a",
            "CLASSCFG[x] REQUIREDUSERLIST",
            "blocker: schedd does not keep users",
        ),
        (
            "CLASSCFG[x] EXCLUDEDUSERLIST=a",
            "CLASSCFG[x] EXCLUDEDUSERLIST",
            "blocker: schedd does not keep users",
        ),
        ("CLASSCFG[x] MAX.WCLIMIT=9", "CLASSCFG[x] MAX.WCLIMIT", "different: the server enforces it"),
        ("NODECFG[n1] MAXJOB=2", "NODECFG[n1] MAXJOB", "blocker: schedd has no limits of single nodes;"),
        ("NODECFG[n1] MAXLOAD=2", "NODECFG[n1] MAXLOAD", "different: what jobs asked for counts"),
        ("NODECFG[n1] SPEED=2", "NODECFG[n1] SPEED", "not needed: it has no effect: neither USEMACHINESPEED"),
        ("NODECFG[n1] ACCESS=SHARED", "NODECFG[n1] ACCESS", "not needed: nodes are shared"),
        ("NODECFG[n1] COLOUR=red", "NODECFG[n1] COLOUR", "different: the documentation of Maui has no such"),
        ("NODEACCESSPOLICY SHARED", "NODEACCESSPOLICY", "not needed: nodes are shared"),
        ("NODEACCESSPOLICY SINGLEUSER", "NODEACCESSPOLICY", "blocker: nodes are shared unless"),
        ("NODECPUOVERCOMMITFACTOR 1.0", "NODECPUOVERCOMMITFACTOR", "not needed: a factor of 1 does"),
        (
            "NODECPUOVERCOMMITFACTOR 2.0",
            "NODECPUOVERCOMMITFACTOR",
            "blocker: schedd never overcommits nodes: raise",
        ),
        ("PARIGNQUEUELIST test", "PARIGNQUEUELIST", "blocker: schedd would start jobs of these queues:"),
        ("MAXJOBPERUSERCOUNT 4", "MAXJOBPERUSERCOUNT", "blocker: limits in this old form"),
        ("MAXJOBPERUSERPOLICY OFF", "MAXJOBPERUSERPOLICY", "not needed: it is off"),
        ("PREEMPTPOLICY NONE", "PREEMPTPOLICY", "not needed: it is off"),
        ("NODESETPOLICY ANYOF", "NODESETPOLICY", "different: only the policies ONEOF and FIRSTOF keep a"),
        ("NODESETPOLICY ONEOF", "NODESETPOLICY", "different: the file names no"),
        ("SRSTARTTIME[0] 8:00:00", "SRSTARTTIME[0]", "blocker: reservations in this old form"),
        ("JOBMAXOVERRUN soon", "JOBMAXOVERRUN", "different: 'soon' is not understood"),
        ("FROBNICATION 9", "FROBNICATION", "different: the documentation of Maui has no such setting"),
        ("*** 9", "*** 9", "blocker: this line is not understood"),
    ],
)
def test_lines_are_translated(line: str, setting: str, said: str) -> None:
    done = import_maui(line)
    found = [one for one in done.findings if one.setting == setting and one.line == 1]
    assert [f"{one.verdict.value}: {one.message}"[: len(said)] for one in found] == [said], done.findings


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


OWNERS = ("USERCFG[{c}]", "GROUPCFG[{c}]", "ACCOUNTCFG[{c}]", "CLASSCFG[{c}]", "QOSCFG[{q}]", "SYSCFG")
ATTRIBUTES = (
    *("PRIORITY={n}", "MAXJOB={n}", "MAXJOB={n},{n}", "MAXPROC[USER]={n}"),
    *("MAXPROC[GROUP:b]={n}", "MAXNODE={n}", "MAXMEM={n}", "MAXPS={n}", "MAXIJOB={n}"),
    *("MAXIPROC={n},{n}", "QDEF={q}", "QLIST={q},{q}", "QLIST={q}:{q}&", "PLIST={p}"),
    *("PDEF={p}", "PLIST={p}&", "FSTARGET={n}", "FSTARGET={n}+", "FLAGS=PREEMPTOR"),
    *("QFLAGS=PREEMPTEE", "QFLAGS=PREEMPTOR:NTR", "CHARGERATE={n}", "FLAGS=IGNALL"),
    *("MAXJOBPERUSER={n}", "MAXWC=1:00:00", "HOSTLIST=n1,n2", "OMAXJOB={n}"),
)
PARAMETERS = (
    *("FSPOLICY DEDICATEDPS", "FSWEIGHT 1", "FSUSERWEIGHT {n}", "FSGROUPWEIGHT {n}"),
    *("FSDEPTH {n}", "FSINTERVAL {n}", "FSDECAY {n}", "XFACTORWEIGHT {n}", "XFACTORCAP {n}"),
    *("QUEUETIMEWEIGHT {n}", "QUEUETIMECAP {n}", "CLASSWEIGHT {n}", "QOSWEIGHT {n}"),
    *("USERWEIGHT {n}", "PROCWEIGHT {n}", "PROCCAP {n}", "CREDWEIGHT {n}", "USERPRIOWEIGHT {n}"),
    *("NODEALLOCATIONPOLICY PRIORITY", "NODECFG[n1] PARTITION={p}"),
    *("NODECFG[n2] PARTITION={p} PRIORITY={n}", "NODECFG[DEFAULT] PRIORITYF=2*PRIORITY"),
    *("PARCFG[fast] MAXPROC[USER]={n} CHARGERATE={n}", "NODESETPOLICY ONEOF", "NODESETLIST a,b"),
    *("NODESETDELAY {n}", "NODESETISOPTIONAL FALSE", "PREEMPTPOLICY SUSPEND"),
    *("JOBPREEMPTMINACTIVETIME {n}", "JOBMAXOVERRUN 1:00:00", "SRCFG[r] HOSTLIST=n1 USERLIST=a"),
    *("SRCFG[s] TASKCOUNT={n} RESOURCES=PROCS:2", "NODECFG[GLOBAL] GRES=matlab:{n}"),
    *("FSTREE[t] SHARES={n} MEMBERLIST=user:a@{n},acct:b", "FSTREE[root] MEMBERLIST=t,user:b"),
)
VALUES = {
    "n": ("0", "1", "5", "1000000", "1000000000000", "-1", "2.5"),
    "c": ("DEFAULT", "a", "long-name", "x.y", "ALL"),
    "q": ("high", "low", "DEFAULT"),
    "p": ("fast", "slow", "ALL"),
}


@pytest.mark.parametrize("seed", some(range(20)))
def test_any_mixture_of_lines_gives_valid_settings(seed: int) -> None:
    draw = random.Random(seed)

    def fill(text: str) -> str:
        return re.sub(r"\{(.)\}", lambda one: draw.choice(VALUES[one[1]]), text.strip())

    for _ in range(10):
        lines = [f"{draw.choice(OWNERS)} {' '.join(draw.choices(ATTRIBUTES, k=2))}" for _ in range(8)]
        lines = list(map(fill, [*lines, *draw.choices(PARAMETERS, k=8)]))
        done = import_maui("\n".join(lines), moab=draw.random() < 0.5)
        text = done.toml("main")
        ClusterSettings(**tomllib.loads(text).get("clusters", {}).get("main", {}))


def test_moab_opens_a_qos_to_its_members() -> None:
    text = (
        "QOSWEIGHT 1\nPREEMPTPOLICY REQUEUE\nPREEMPTPRIOJOBSELECTWEIGHT 1\n"
        "QOSCFG[urgent] PRIORITY=9 MEMBERULIST=ann,bob QFLAGS=PREEMPTOR\n"
        "USERCFG[ann] QLIST=normal,urgent\nSYSCFG QLIST=normal\n"
        "QOSCFG[normal] QFLAGS=PREEMPTEE MEMBERULIST=eve\n"
    )
    done = import_maui(text, moab=True)
    levels = done.site["qos"]["levels"]
    assert levels == {"normal": {}, "urgent": {"users": ["ann", "bob"], "priority": 9}}
    assert done.site["preemption"]["preemptors"] == {"qos": ["urgent"]}
    assert finding_text(done, "QOSCFG[urgent] MEMBERULIST") == "translated: open to ann, bob: qos.levels"
    assert finding_text(done, "PREEMPTPRIOJOBSELECTWEIGHT").startswith("different: scavengers")
    settings_in(done.toml("main"))


def test_parameters_of_moab_that_change_no_start_are_no_blockers() -> None:
    text = (
        "ENABLEHIGHTHROUGHPUT TRUE\nJOBCPURGETIME 1:00:00\nUSEDATABASE INTERNAL\nJOBREJECTPOLICY CANCEL\n"
        "RSVPROFILE[a] USERLIST=root\nRSVPROFILE[a] FLAGS=BYNAME\nNODECFG[n1] PARTITION=cpu FEATURES+=ib\n"
        "CLASSCFG[long] PARTITION=cpu\n"
    )
    done = import_maui(text, moab=True)
    blockers = {one.setting for one in done.with_verdict(Verdict.BLOCKER)}
    assert blockers == {"NODECFG[n1] FEATURES"}
    assert lines_with_findings(done) == setting_lines(text)
    assert finding_text(done, "CLASSCFG[long] PARTITION") == "translated: partitions"
    assert done.site["partitions"]["defaults"] == [{"who": "queue", "name": "long", "allowed": ["cpu"]}]
    assert finding_text(import_maui("JOBREJECTPOLICY CANCEL\n"), "JOBREJECTPOLICY").startswith("blocker: ")
