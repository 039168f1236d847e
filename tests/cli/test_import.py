"""``schedd import``: what the command prints, and how it ends.

Which test has what once was translated wrongly, lost, or said in a misleading way:

| what | test, in test_import_sched.py or test_import_maui.py |
|---|---|
| `sort_by: shortest_job_first` is by cput | `test_jobs_are_not_sorted_by_walltime_where_the_file_asks_for_cput` |
| `fair_share_perc` is the fixed share | `test_a_sort_by_shares_is_by_what_is_meant_for_each_and_not_by_what_was_used` |
| `SRCFG` with `TIMELIMIT` or `TASKCOUNT` | `test_a_reservation_that_cannot_be_said_here_is_left_out_and_stands_in_the_way` |
| `FSWEIGHT` without fair share | `test_fair_share_that_is_off_stays_off_and_every_line_of_it_is_said` |
| `USERCFG[DEFAULT] FSTARGET` | `test_the_target_of_all_users_is_kept` |
| `SYSCFG[base] PLIST=`, `HOSTLIST`, lists of users, soft limits, `MAXIJOB` | `test_what_becomes_of_a_line` |
| `JOBNODEMATCHPOLICY` absent | `test_units_of_a_request_may_share_nodes_where_maui_says_nothing` |
| queues' priorities with `CLASSWEIGHT` | `test_queues_that_maui_does_not_name_do_not_get_the_servers_priority` |
| points that are too large | `test_points_too_large_for_schedd_toml_are_divided_alike` |
| `fairshare_enforce_no_shares` | `test_those_whom_openpbs_never_runs_are_kept_from_running_or_named` |
| dedicated time of 1998 | `test_dedicated_time_that_is_over_does_not_matter` |
| `preemptive_sched` as shipped | `test_preemption_as_shipped_is_different_only_where_there_are_express_queues` |
| `XFACTORWEIGHT` | `test_what_stands_in_the_way_of_a_maui_site_is_a_blocker` |
| many lines of `NODECFG` alike | `test_what_many_nodes_have_alike_is_said_once_with_a_recipe` |
| moab.cfg taken for maui.cfg | `test_a_moab_cfg_is_known_as_one`, `test_parameters_of_moab_that_nobody_knows_stand_in_the_way` |
| the closing line about slack | `test_what_is_printed_is_a_part_of_schedd_toml` |
| `strict_fifo: false` | `test_what_becomes_of_an_option` |
| every line, under one of four headings | `test_every_parameter_of_maui_is_known_and_has_a_finding`, `test_every_option_of_pbs_sched_is_known_and_has_a_finding` and the tests after them |
"""
# ruff: noqa: E501  (rows of the table)

import re
from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.policy.site import site_policy
from schedd.service.settings.file import ClusterSettings
from tests.cli.importing import EXAMPLES, settings_in


@pytest.mark.parametrize("file", ["maui.cfg", "torque/sched_config", "openpbs/sched_config"])
def test_what_is_printed_is_a_part_of_schedd_toml(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(EXAMPLES / file), "--cluster", "east"]) == 3
    printed = capsys.readouterr()
    table = settings_in(printed.out, "east")
    assert site_policy(ClusterSettings(**table).site.plain).fair_share is not None
    assert "as far as each of them still starts by its promise" in printed.err
    assert printed.err.startswith("Blockers: unsupported, and significant for users (")
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
    ("name", "text"),
    [
        ("moab.cfg", "QUEUETIMEWEIGHT 1\n"),
        ("site.cfg", "SCHEDCFG[Moab] SERVER=head:42559\nQUEUETIMEWEIGHT 1\n"),
        ("site.cfg", "POWERPOLICY ONDEMAND\nQUEUETIMEWEIGHT 1\n"),
    ],
)
def test_a_moab_cfg_is_known_as_one(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    main(["import", str(tmp_path / name)])
    assert "this is Moab's configuration" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "more", "said"),
    [
        ("notes.txt", "hello\n", [], "say which with --from"),
        ("maui.cfg", "USERCFG[a] MAXJOB=1\n", ["--cluster", "a b"], "a name has letters"),
        (
            "maui.cfg",
            "FSPOLICY DEDICATEDPS\nFSUSERWEIGHT 1\nFSDECAY 9\nUSERCFG[a] FSTARGET=1\n",
            [],
            "nothing was written",
        ),
        ("maui.cfg", "USERCFG[a] MAXJOB=1\n", ["-o", "/nowhere/x"], "/nowhere/x: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, name: str, text: str, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["import", str(tmp_path / name), *more]) == 2
    assert said in capsys.readouterr().err


def test_the_table_above_names_tests_that_there_are() -> None:
    files = (Path(__file__).with_name(f"test_import{name}.py") for name in ("", "_maui", "_sched"))
    there = set(re.findall(r"^def (test_\w+)", "".join(file.read_text() for file in files), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", __doc__ or ""))
    assert len(named) > 15
    assert named <= there


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "/nowhere/maui.cfg"]) == 2
    assert "/nowhere/maui.cfg: No such file" in capsys.readouterr().err
