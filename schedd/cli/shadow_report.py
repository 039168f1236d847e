"""``schedd shadow-report``: the plan compared with the site's present scheduler."""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from schedd.cli.arguments import OneLineErrorParser, add_days_option, fail
from schedd.cli.installation import add_config_option, database_url, exit_on_error, open_store
from schedd.service.read.shadow_report import DUE_S, ShadowReport, report_shadow, swf_lines
from schedd.wire.toml_files import SettingsError


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd shadow-report",
        description="Show the accuracy of the start estimates, and the waits of jobs.",
        epilog="For the modes shadow and adviser, in which another scheduler starts the jobs. To see what "
        "schedd would have done, replay the log that --log writes with `schedd replay`.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "cluster",
        metavar="CLUSTER",
        nargs="?",
        default="main",
        help="the cluster's name in the settings (default: main)",
    )
    add_days_option(parser, 7, "jobs that started in")
    add("--log", type=Path, help="write these jobs to a log (SWF) for `schedd replay`")
    add_config_option(parser)
    add("--json", action="store_true", help="as JSON; times are seconds")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the report; 0, 2 for invalid settings or an unknown cluster, 1 if the database cannot be used or
    the log not be written.
    """
    args = make_parser().parse_args(argv)
    cluster, days, log = args.cluster, args.days, args.log
    with exit_on_error("shadow-report"), open_store(database_url(args.config)) as store:
        number = store.find_cluster(cluster)
        if number is None:
            raise SettingsError(f"the database has no cluster {cluster!r}")
        since = int(time.time() - days * 86_400)
        jobs = store.jobs_started_since(number, since)
        found = report_shadow(jobs, store.last_published_starts(number, since))
        cpus = store.total_cpus(number)
    if log is not None:
        try:
            log.write_text("".join(f"{line}\n" for line in swf_lines(jobs, cpus)), encoding="utf-8")
        except OSError as error:
            fail("shadow-report", f"--log {log}: {error.strerror}; no log is written", 1)
    if args.json:
        print(json.dumps(asdict(found), indent=2))
        return 0
    for line in _report_lines(cluster, days, found):
        print(line)
    if log is not None:
        print(f"\nschedd replay {log} --policy fcfs --policy easy --policy conservative --estimates user")
    return 0


def _report_lines(cluster: str, days: float, found: ShadowReport) -> list[str]:
    if not found.started:
        return [f"{cluster}: no job began in the last {days:g} days"]
    share = f" ({found.due / found.estimated:.0%} of those)" if found.estimated else ""
    began = f"{found.started} job{'s' * (found.started != 1)} began, {found.estimated} with a start estimate"
    return [
        f"{cluster}, the last {days:g} days: {began}",
        f"  began as estimated {found.due:8}{share}, within {DUE_S} s of the last estimate",
        f"  began earlier      {found.earlier:8}",
        f"  began later        {found.later:8}",
        "  error (actual - last estimate)",
        f"    mean             {_format_seconds(found.error_mean)}",
        f"    median, absolute {_format_seconds(found.error_median_absolute)}",
        f"    90th, absolute   {_format_seconds(found.error_p90_absolute)}",
        "  waits as they were",
        f"    mean             {_format_seconds(found.wait_mean)}",
        f"    95th             {_format_seconds(found.wait_p95)}",
        f"  slowdown, bounded, mean of the {found.ended} that ended: "
        + (f"{found.slowdown_mean:.2f}" if found.slowdown_mean is not None else "none"),
    ]


def _format_seconds(value: float | None) -> str:
    return f"{value:8.0f} s" if value is not None else "    none"
