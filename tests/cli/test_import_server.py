"""``schedd import --server``: the attributes of pbs_server, read over its own protocol."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schedd.cli.importing.qmgr import import_qmgr, parse_qmgr
from schedd.cli.importing.result import ImportResult, Verdict
from schedd.cli.importing.server_settings import ServerObject, import_server
from schedd.cli.main import main
from tests.cli.import_helpers import import_sched, settings_in

CAPTURES = Path(__file__).parents[3] / "shared/protocols/captures/openpbs/status-attributes.txt"


@contextmanager
def emulated(family: str) -> Iterator[str]:
    """An emulated pbs_server, as a process; its address."""
    command = [sys.executable, "-c", "import sys; from schedd.cli.main import main; sys.exit(main())"]
    arguments = [
        "emulate",
        "--version",
        {"torque": "6.1"}.get(family, family),
        "--nodes",
        "4:ppn=4:mem=16gb",
        "--port",
        "0",
    ]
    if family == "torque":
        arguments += ["--scheduler-port", "9"]
    with subprocess.Popen(
        [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            yield said.split(" on ")[1].split()[0].rstrip(",;:")
        finally:
            process.terminate()


def import_objects(*objects: ServerObject, openpbs: bool = True) -> ImportResult:
    done = ImportResult()
    import_server(objects, done, openpbs=openpbs)
    return done


def server(**values: str) -> ServerObject:
    return ServerObject("server", "pbs", values)


def attribute_finding(done: ImportResult, attribute: str) -> tuple[Verdict, str]:
    (found,) = [
        (one.verdict, one.message) for one in done.findings if one.setting.partition(" ")[0] == attribute
    ]
    return found


# ---- over the wire ------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["torque", "openpbs"])
def test_a_server_is_read_over_its_protocol(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "sched_config"
    config.write_text('by_queue: true ALL\nstrict_ordering: false ALL\njob_sort_key: "job_priority HIGH"\n')
    with emulated(family) as address:
        asks = ["--server", address, "--family", family, "--auth", "none"]
        assert main(["import", *asks]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"# From {address}, by `schedd import`: 0 blocker")
        for words in ("server  scheduling = ", "queue batch  started = True", "total_jobs = 0"):
            assert words in " ".join(err.split("  ")).replace("   ", "  ") or words.split("  ")[-1] in err
        assert "not known to this import" not in err
        assert ("scheduler default" in err) == (family == "openpbs")
        assert main(["import", str(config), *asks]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"# From sched_config and {address}, by")
        assert settings_in(out)["site"]["priority"]["queue"] == 1_000_000_000
        assert "see `qmgr" not in err


def test_unreachable_servers_and_invalid_addresses_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--server", "127.0.0.1:1", "--auth", "none"]) == 2
    assert "schedd import: --server 127.0.0.1:1: " in capsys.readouterr().err
    assert main(["import", "--server", "a:b:c"]) == 2
    assert "HOST or HOST:PORT" in capsys.readouterr().err
    assert main(["import"]) == 2
    assert "name a file, or a server with --server" in capsys.readouterr().err


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captured attributes of a real server are not here")
def test_every_attribute_on_a_real_server_has_a_finding() -> None:
    objects, kind = [], ""
    values: dict[str, str] = {}
    for line in CAPTURES.read_text().splitlines():
        if not line.startswith("("):
            kind = {"SERVER": "server", "SCHED": "scheduler"}.get(line.split()[0] if line.split() else "", "")
            kind = "queue" if "QUEUE" in line else kind
            values = {}
            if kind:
                objects.append(ServerObject(kind, "one", values))
        elif kind:
            name, resource, value = eval(line)
            values[f"{name}.{resource}" if resource else name] = value
    assert {one.kind for one in objects} >= {"server", "scheduler"}
    done = import_objects(*objects)
    assert len(done.findings) == sum(len(one.values) for one in objects)
    assert not [one for one in done.findings if "not known" in one.message]
    assert not done.with_verdict(Verdict.BLOCKER)


# ---- attribute by attribute ---------------------------------------------------------------------


ALCF = (
    "base_score + score_boost + enable_wfp * wfp_factor * (eligible_time**2 / min(max(walltime, 21600), "
    "43200)**3 * project_priority * nodect / total_cpus) + enable_backfill * min(backfill_max, "
    "eligible_time / backfill_factor) + enable_fifo * eligible_time / fifo_factor"
)
AQUA = (
    "(48 * fairshare_factor) + ((6 * fairshare_factor) * ((mem/1048576/8) + ncpus + (ngpus*32))) + "
    "(0.000278 * eligible_time) + (4 * log(max(fairshare_factor, 1e-7)))"
)


@pytest.mark.parametrize(
    "formula", [ALCF, AQUA, f'"{AQUA}"', "walltime*ncpus", "1/ncpus if myresource else 0"]
)
def test_formulas_are_followed_as_they_are(formula: str) -> None:
    done = import_objects(server(job_sort_formula=formula, job_sort_formula_threshold="5"))
    assert attribute_finding(done, "job_sort_formula")[0] is Verdict.TRANSLATED
    assert attribute_finding(done, "job_sort_formula_threshold")[0] is Verdict.TRANSLATED
    assert not done.with_verdict(Verdict.BLOCKER)
    assert done.site == {}


def test_the_formula_replaces_sort_keys_in_the_file() -> None:
    done = ImportResult()
    done.table("priority").update(queue=1_000_000_000, short=5.0)
    import_server([server(job_sort_formula="job_priority")], done, openpbs=True)
    assert "priority" not in done.site


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("queue_priority +", "column 17"),
        ("(" * 500 + "ncpus" + ")" * 500, "nested"),
        ("'a'*ncpus", "a text has no number"),
        ("__import__('os')", "no function"),
    ],
)
def test_formulas_that_cannot_be_used_are_blockers_with_a_reason(formula: str, why: str) -> None:
    done = import_objects(server(job_sort_formula=formula))
    verdict, words = attribute_finding(done, "job_sort_formula")
    assert verdict is Verdict.BLOCKER
    assert why in words


QMGR = """#
# Create resources and set their properties.
#
create resource base_score
set resource base_score type = float
set resource base_score flag = i
#
# Create queues and set their attributes.
#
create queue workq
set queue workq queue_type = Execution
set queue workq acl_users = ann
set queue workq acl_users += bob
set queue workq resources_default.walltime = 01:00:00
set queue workq max_run = [u:PBS_GENERIC=4]
set queue workq enabled = True
#
# Set server attributes.
#
set server scheduling = True
set server job_sort_formula = "base_score +
 eligible_time / 3600 + nosuch"
set server eligible_time_enable = True
frobnicate server x = 1
create sched default
set sched default job_sort_formula_threshold = 2.5
set sched scheduler_iteration = 600
"""


def test_output_of_qmgr_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.txt"
    file.write_text(QMGR, encoding="utf-8")
    assert main(["import", str(file)]) == 3
    report = capsys.readouterr().err
    assert "frobnicate server x = 1" in report
    assert "line 24" in report
    assert "read from the server: jobs are ranked by it" in report
    assert "jobs at or below it are not planned" in report
    assert "nosuch in job_sort_formula" in report
    file.write_text(QMGR.replace("frobnicate", "#"), encoding="utf-8")
    assert main(["import", str(file)]) == 0


def test_a_formula_with_eligible_time_that_the_server_does_not_count_is_named() -> None:
    off = import_qmgr(QMGR.replace("eligible_time_enable = True", "eligible_time_enable = False"))
    unset = import_qmgr(QMGR.replace("set server eligible_time_enable = True", ""))
    for done in (off, unset):
        (found,) = [one for one in done.findings if one.setting.startswith("eligible_time_enable")]
        assert found.verdict is Verdict.DIFFERS
        assert "eligible_time is 0 in PBS's formula" in found.message
    (found,) = [one for one in import_qmgr(QMGR).findings if one.setting.startswith("eligible_time_enable")]
    assert found.verdict is Verdict.NOT_NEEDED


def test_values_are_added_to_attributes_of_the_server_and_its_schedulers() -> None:
    text = """
create queue workq
set queue workq acl_groups = a
set queue workq acl_groups += b
set server managers = root@head
set server managers += ann@*
set server max_run = "[u:PBS_GENERIC=4]"
set server max_run += [g:staff=40]
set server restrict_res_to_release_on_suspend=ncpus
set server restrict_res_to_release_on_suspend+=ngpus
set sched preempt_prio = express_queue
set sched sched2 preempt_prio += normal_jobs
import hook h application/x-python default -
import pbs
set = 1

create hook i
import hook i application/x-config base64 -
eyJh
set server scheduling = True
"""
    objects, unread = parse_qmgr(text)
    assert unread == []
    found = {(one.kind, one.name): dict(one.values) for one in objects}
    assert found == {
        ("queue", "workq"): {"acl_groups": "a,b"},
        ("server", ""): {
            "managers": "root@head,ann@*",
            "max_run": "[u:PBS_GENERIC=4],[g:staff=40]",
            "restrict_res_to_release_on_suspend": "ncpus,ngpus",
            "scheduling": "True",
        },
        ("scheduler", "default"): {"preempt_prio": "express_queue"},
        ("scheduler", "sched2"): {"preempt_prio": "normal_jobs"},
    }


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ('preempt_prio = "express_queue, normal_jobs"', Verdict.NOT_NEEDED),
        ('preempt_prio = "express_queue+fairshare, express_queue, normal_jobs"', Verdict.BLOCKER),
        ('preempt_prio = "normal_jobs, server_softlimits"', Verdict.BLOCKER),
    ],
)
def test_other_levels_of_preemption_are_blockers(line: str, verdict: Verdict) -> None:
    (found,) = import_qmgr(f"create sched default\nset sched {line}\n").findings
    assert found.verdict is verdict


def test_bounds_of_single_requests_are_no_limits() -> None:
    done = import_qmgr("set server resources_available.nodect = 999\nset server scheduling = True\n")
    (found,) = [one for one in done.findings if one.setting.startswith("resources_available")]
    assert found.verdict is Verdict.NOT_NEEDED


def test_objects_of_qmgr_have_all_their_attributes() -> None:
    objects, unread = parse_qmgr(QMGR)
    found = {(one.kind, one.name): one.values for one in objects}
    assert found["queue", "workq"]["acl_users"] == "ann,bob"
    assert found["server", ""]["job_sort_formula"] == "base_score +  eligible_time / 3600 + nosuch"
    assert found["scheduler", "default"] == {
        "job_sort_formula_threshold": "2.5",
        "scheduler_iteration": "600",
    }
    assert found["resource", "base_score"] == {"type": "float", "flag": "i"}
    assert [number for number, _ in unread] == [24]


def test_resources_nodes_and_hooks_are_named() -> None:
    done = import_qmgr(
        "create resource gpu_type\nset resource gpu_type type = string\ncreate hook h\nimport hook h "
        "application/x-python default -\nimport pbs\ncreate node n1\nset server scheduling = True\n"
    )
    found = {one.setting: one.verdict for one in done.findings}
    for setting in ("resource gpu_type", "hook h", "node n1"):
        assert found.pop(setting) is Verdict.NOT_NEEDED
    assert list(found) == ["scheduling = True"]


def test_names_of_resources_may_have_signs() -> None:
    objects, unread = parse_qmgr(
        "create queue a+b-c\nset queue a+b-c resources_max.my-lic = 3\nset queue a+b-c acl_users+=ann\n"
    )
    assert unread == []
    assert [(one.kind, one.name, one.values) for one in objects] == [
        ("queue", "a+b-c", {"resources_max.my-lic": "3", "acl_users": "ann"})
    ]


def test_node_groups_become_node_sets() -> None:
    asks = {"node_group_enable": "True", "node_group_key": "switch"}
    strict = ServerObject("scheduler", "default", {"do_not_span_psets": "True"})
    done = import_objects(server(**asks), strict)
    assert settings_in(done.toml("main"))["site"]["node_sets"] == {"by": "switch", "strict": True}
    done = import_objects(server(**asks | {"node_group_enable": "False"}), strict)
    assert "node_sets" not in done.site
    assert attribute_finding(done, "node_group_key") == (Verdict.NOT_NEEDED, "node_group_enable is off")
    done = import_objects(server(**asks | {"node_group_key": "switch,rack"}))
    assert attribute_finding(done, "node_group_key")[0] is Verdict.BLOCKER
    done = import_objects(
        server(node_group_enable="True"), ServerObject("queue", "q", {"node_group_key": "switch"})
    )
    assert attribute_finding(done, "node_group_key")[0] is Verdict.BLOCKER


def test_server_limits_are_read_and_invalid_limits_are_blockers() -> None:
    done = import_objects(server(**{"max_run": "[u:PBS_GENERIC=4]", "max_run_res.ncpus": "[u:ann=lots]"}))
    assert attribute_finding(done, "max_run")[0] is Verdict.TRANSLATED
    assert attribute_finding(done, "max_run_res.ncpus")[0] is Verdict.BLOCKER
    done = import_objects(server(max_running="10", max_user_run="x"), openpbs=False)
    assert attribute_finding(done, "max_running")[0] is Verdict.TRANSLATED
    assert attribute_finding(done, "max_user_run")[0] is Verdict.BLOCKER


def test_express_queues_become_preemptors_and_the_other_queues_targets() -> None:
    queues = [
        ServerObject("queue", name, {"Priority": much}) for name, much in (("express", "150"), ("batch", "5"))
    ]
    values = {"preempt_queue_prio": "150", "preempt_order": "SCR"}
    done = import_objects(*queues, ServerObject("scheduler", "default", values))
    assert not done.with_verdict(Verdict.BLOCKER)
    differences = [(one.file, one.setting) for one in done.with_verdict(Verdict.DIFFERS)]
    assert differences == [("queue express", "Priority = 150")]
    assert done.site["preemption"] == {
        "preemptors": {"queues": ["express"]},
        "targets": {"queues": ["batch"]},
        "methods": ["suspend", "checkpoint", "requeue"],
    }
    done = import_objects(*queues, ServerObject("scheduler", "default", {"preempt_queue_prio": "200"}))
    assert not done.with_verdict(Verdict.BLOCKER)
    assert "preemption" not in done.site


def test_a_sched_config_says_which_queues_of_the_server_are_express() -> None:
    queues = [
        ServerObject("queue", name, {"Priority": much}) for name, much in (("express", "90"), ("batch", "5"))
    ]
    done = import_sched("preemptive_sched: true ALL\npreempt_queue_prio: 80\n")
    assert {one.setting for one in done.with_verdict(Verdict.BLOCKER)} == {"preemptive_sched"}
    import_server(queues, done, openpbs=True)
    assert done.site["preemption"]["preemptors"] == {"queues": ["express"]}
    assert not done.with_verdict(Verdict.BLOCKER)
    assert not [one for one in done.findings if "Remove the table" in one.message]
    off = import_sched("preemptive_sched: false ALL\npreempt_queue_prio: 80\n")
    import_server(queues, off, openpbs=True)
    assert "preemption" not in off.site


@pytest.mark.parametrize(("pack", "arrange"), [("True", "pack"), ("False", "spread")])
def test_node_pack_becomes_a_node_choice(pack: str, arrange: str) -> None:
    done = import_objects(server(node_pack=pack), openpbs=False)
    assert settings_in(done.toml("main"))["site"]["node_choice"] == {"arrange": arrange}


def test_disabled_and_unknown_attributes_are_reported() -> None:
    done = import_objects(server(job_exclusive_on_use="False", frobnicate="1"), openpbs=False)
    assert attribute_finding(done, "job_exclusive_on_use") == (Verdict.NOT_NEEDED, "it is off")
    assert attribute_finding(done, "frobnicate")[0] is Verdict.DIFFERS
    assert (
        attribute_finding(import_objects(server(job_exclusive_on_use="True")), "job_exclusive_on_use")[0]
        is Verdict.BLOCKER
    )


def test_the_report_has_locations() -> None:
    done = import_objects(server(scheduling="True"), ServerObject("queue", "batch", {"started": "True"}))
    report = "\n".join(done.report())
    assert "  server" in report
    assert "queue batch  started = True" in report
    assert tomllib.loads(done.toml("main")) == {}
