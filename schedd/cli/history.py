"""``schedd history``: what happened to a job, or to a node, as the database has it."""

import datetime as dt
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from schedd.cli.installation import ConfigFile, DatabaseUrl, database_url, exit_on_error, open_store
from schedd.store import Store
from schedd.store.records import JobHistory


def command(
    job: Annotated[str, typer.Argument(help="the server's id of the job, `123.server`")] = "",
    node: Annotated[str, typer.Option(help="instead of a job: the name of a node")] = "",
    cluster: Annotated[str, typer.Option(help="name of the cluster")] = "main",
    database: Annotated[str, DatabaseUrl] = "",
    config: Annotated[Path | None, ConfigFile] = None,
) -> None:
    """Show the history of a job, ended or not, or of a node.

    Reads the database directly, with or without a running daemon. The events of a job are kept for 30 days by
    default, its outcome for 400. Times are in this host's time zone.
    """
    if bool(job) == bool(node):
        raise typer.BadParameter("name either a job or a node", param_hint="JOB")
    with exit_on_error("history"), open_store(database_url(config, database)) as store:
        found = store.find_cluster(cluster)
        said = found is not None and (_show_job if job else _show_node)(store, found, job or node)
    if not said:
        what = f"job {job}" if job else f"node {node}"
        typer.echo(f"schedd history: the database knows of no {what} in cluster {cluster}", err=True)
        raise typer.Exit(1)


def _show_job(store: Store, cluster: int, job: str) -> bool:
    past = store.job_history(cluster, job)
    if past is None:
        return False
    console = Console()
    console.print(escape("\n".join(_job_lines(past))), highlight=False)
    table = Table("time", "", "what", "start", box=None)
    for moment in store.job_timeline(cluster, job):
        start = _format_time(moment.start) if moment.start is not None else ""
        kind = f"{moment.kind} {moment.decision}".rstrip()
        table.add_row(_format_time(moment.time), kind, escape(moment.text), start)
    console.print(table)
    return True


def _job_lines(past: JobHistory) -> list[str]:
    asked = ",".join(f"{name}={value}" for name, value in past.resources.items())
    lines = [f"{past.id} {past.name}".rstrip(), f"  of {past.owner} in {past.queue}: {asked}"]
    lines.append(f"  submitted {_format_time(past.submitted)}")
    if past.started is not None:
        where = " ".join(f"{node}:{cpus}" for node, cpus in past.held)
        again = f" (run {past.runs})" if past.runs > 1 else ""
        lines.append(f"  started {_format_time(past.started)}{again} on {where}")
    if past.ended is not None:
        status = f", exit status {past.exit_status}" if past.exit_status is not None else ""
        lines.append(f"  {past.how} {_format_time(past.ended)}{status}")
    else:
        lines.append(f"  state {past.state}")
    return lines


def _show_node(store: Store, cluster: int, node: str) -> bool:
    table = Table("since", "state", "cpus", "memory [KiB]", "gpus", "why", box=None)
    past = store.node_history(cluster, node)
    rows = [(one.time, one.state, str(one.cpus), f"{one.mem:,}", str(one.gpus), "") for one in past]
    alerts = store.node_alerts(cluster, node)
    rows += [(one.time, one.kind.replace("_", " "), "", "", "", one.text) for one in alerts]
    for time, *rest in sorted(rows, key=itemgetter(0)):
        table.add_row(_format_time(time), *map(escape, rest))
    if rows:
        Console().print(table)
    return bool(rows)


def _format_time(moment: int) -> str:
    return dt.datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
