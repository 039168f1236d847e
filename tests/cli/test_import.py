"""``schedd import``: what the command prints, and how it ends.

Which test has what once was translated wrongly, lost, or said in a misleading way:

| what | test, in test_import_sched.py or test_import_maui*.py |
|---|---|
| `sort_by: shortest_job_first` is by cput | `test_sorting_by_cput_is_not_translated_to_walltime` |
| `fair_share_perc` is the fixed share | `test_sorting_by_shares_ignores_usage` |
| `SRCFG` with `TIMELIMIT` or `TASKCOUNT` | `test_an_inexpressible_reservation_is_a_blocker` |
| `FSWEIGHT` without fair share | `test_disabled_fair_share_stays_off_and_every_line_is_reported` |
| `USERCFG[DEFAULT] FSTARGET` | `test_default_user_target_is_translated` |
| `SYSCFG[base] PLIST=`, `HOSTLIST`, lists of users, soft limits, `MAXIJOB` | `test_lines_are_translated` |
| `JOBNODEMATCHPOLICY` absent | `test_units_share_nodes_by_maui_default` |
| queues' priorities with `CLASSWEIGHT` | `test_queues_that_maui_does_not_name_do_not_get_the_servers_priority` |
| points that are too large | `test_too_large_points_are_scaled_uniformly` |
| `fairshare_enforce_no_shares` | `test_users_without_shares_are_excluded_or_named` |
| dedicated time of 1998 | `test_dedicated_time_that_is_over_does_not_matter` |
| `preemptive_sched` as shipped | `test_default_preemption_matters_only_with_express_queues` |
| `XFACTORWEIGHT` | `test_weights_beyond_the_table_become_a_formula` |
| `QUEUETIMECAP` is in minutes, before the weight | `test_weights_are_translated` |
| many lines of `NODECFG` alike | `test_equal_node_settings_share_a_finding_with_a_recipe` |
| moab.cfg taken for maui.cfg | `test_moab_cfg_is_detected`, `test_unknown_moab_parameters_are_blockers` |
| the closing line about slack | `test_the_output_is_valid_in_schedd_toml` |
| `strict_fifo: false` | `test_options_are_translated` |
| every line, under one of four headings | `test_every_maui_parameter_has_a_finding`, `test_every_pbs_sched_option_has_a_finding` and the tests after them |
"""
# ruff: noqa: E501  (rows of the table)

import re
from pathlib import Path

import pytest

from schedd.cli.import_config import local_time_zone
from schedd.cli.main import main
from schedd.features.fair_share.settings import FairShareSettings
from schedd.policy.site import site_policy
from schedd.service.settings.cluster import ClusterSettings
from tests.cli.import_helpers import EXAMPLES, settings_in


@pytest.mark.parametrize("file", ["maui.cfg", "torque/sched_config", "openpbs/sched_config"])
def test_the_output_is_valid_in_schedd_toml(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(EXAMPLES / file), "--cluster", "east"]) == 3
    printed = capsys.readouterr()
    table = settings_in(printed.out, "east")
    assert site_policy(ClusterSettings(**table).site.plain).part(FairShareSettings).tree is not None
    assert "only if each of them still starts by its promise" in printed.err
    assert printed.err.startswith("Blockers: not supported, and jobs would run or wait against these rules (")
    blockers = [line for line in printed.out.splitlines() if line.startswith("# BLOCKER")]
    assert len(blockers) == int(printed.err.partition("(")[2].partition(")")[0])


def test_import_without_blockers_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_moab_cfg_is_detected(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    main(["import", str(tmp_path / name)])
    assert "this is Moab's configuration" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "more", "said"),
    [
        ("notes.txt", "hello\n", [], "name the format with --from"),
        ("maui.cfg", "USERCFG[a] MAXJOB=1\n", ["--cluster", "a b"], "a name has letters"),
        ("maui.cfg", "USERCFG[a] MAXJOB=1\n", ["-o", "/nowhere/x"], "/nowhere/x: No such file"),
    ],
)
def test_import_errors_are_reported(
    tmp_path: Path, name: str, text: str, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["import", str(tmp_path / name), *more]) == 2
    assert said in capsys.readouterr().err


def test_table_in_the_docstring_names_existing_tests() -> None:
    files = Path(__file__).parent.glob("test_import*.py")
    there = set(re.findall(r"^def (test_\w+)", "".join(file.read_text() for file in files), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", __doc__ or ""))
    assert len(named) > 15
    assert named <= there


def test_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "/nowhere/maui.cfg"]) == 2
    assert "/nowhere/maui.cfg: No such file" in capsys.readouterr().err


def test_the_time_zone_of_the_host_is_known_without_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise reservations would be hours off."""
    monkeypatch.setattr("zoneinfo.TZPATH", (str(tmp_path / "zones"),))
    monkeypatch.setattr("zoneinfo.available_timezones", lambda: {"Asia/Tokyo", "Europe/Berlin"})
    monkeypatch.delenv("TZ", raising=False)
    for name in ("Asia/Tokyo", "Europe/Berlin"):
        file = tmp_path / "zones" / name
        file.parent.mkdir(parents=True)
        file.write_text(name)
    etc = tmp_path / "etc"
    (etc / "sysconfig").mkdir(parents=True)
    assert local_time_zone(etc) == "UTC"
    monkeypatch.setenv("TZ", ":Africa/Cairo")
    assert local_time_zone(etc) == "Africa/Cairo"
    (etc / "localtime").write_text("Europe/Berlin")  # a copy of the zone's rules
    assert local_time_zone(etc) == "Europe/Berlin"
    (etc / "sysconfig" / "clock").write_text('# the clock\nZONE="America/New_York"\nUTC=true\n')
    assert local_time_zone(etc) == "America/New_York"
    (etc / "timezone").write_text("Asia/Kolkata\n")
    assert local_time_zone(etc) == "Asia/Kolkata"
    (etc / "localtime").unlink()
    (etc / "localtime").symlink_to("/usr/share/zoneinfo/Australia/Sydney")
    assert local_time_zone(etc) == "Australia/Sydney"
