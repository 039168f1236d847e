"""``schedd shadow-report``: the plan compared with the site's present scheduler."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from schedd.cli.installation import ConfigFile, database_url, exit_on_error, open_store
from schedd.service.read.shadow_report import DUE_S, ShadowReport, report_shadow, swf_lines
from schedd.service.settings.file import SettingsError


def command(
    cluster: Annotated[str, typer.Argument(help="the cluster's name in the settings")] = "main",
    days: Annotated[float, typer.Option(help="jobs that started in the last N days", min=0)] = 7,
    log: Annotated[
        Path | None, typer.Option(help="write these jobs to a log (SWF) for `schedd replay`")
    ] = None,
    config: Annotated[Path | None, ConfigFile] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON; times are seconds")] = False,
) -> None:
    """Show the accuracy of the start estimates, and the waits of jobs.

    For the modes shadow and adviser, in which another scheduler starts the jobs. To see what schedd would
    have done, replay the log that --log writes with `schedd replay`.
    """
    with exit_on_error("shadow-report"), open_store(database_url(config)) as store:
        number = store.find_cluster(cluster)
        if number is None:
            raise SettingsError(f"the database knows no cluster {cluster!r}")
        since = int(time.time() - days * 86_400)
        jobs = store.jobs_started_since(number, since)
        found = report_shadow(jobs, store.last_published_starts(number, since))
        cpus = store.total_cpus(number)
    if log is not None:
        log.write_text("".join(f"{line}\n" for line in swf_lines(jobs, cpus)), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    for line in _report_lines(cluster, days, found):
        typer.echo(line)
    if log is not None:
        typer.echo(
            f"\nschedd replay {log} --policy fcfs --policy easy --policy conservative --estimates user"
        )


def _report_lines(cluster: str, days: float, found: ShadowReport) -> list[str]:
    if not found.started:
        return [f"{cluster}: no job began in the last {days:g} days"]
    share = f" ({found.due / found.estimated:.0%} of those)" if found.estimated else ""
    began = f"{found.started} jobs began, {found.estimated} with a start estimate"
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
