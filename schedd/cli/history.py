"""``schedd history``: what happened to a job, or to a node, as the database has it."""

import argparse
import datetime as dt
from collections.abc import Sequence
from operator import itemgetter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from schedd.cli.arguments import OneLineErrorParser, fail
from schedd.cli.installation import (
    add_config_option,
    add_database_option,
    database_url,
    exit_on_error,
    open_store,
)
from schedd.cli.user.formatting import localise_times, strip_controls
from schedd.start_sentence import history_entry_parts
from schedd.store import Store
from schedd.store.records import JobHistory


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd history",
        description="Show the history of a job, ended or not, or of a node.",
        epilog="Reads the database directly, with or without a running daemon. The events of a job are kept "
        "for 30 days by default, its outcome for 400. Times are in this host's time zone.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("job", metavar="JOB", nargs="?", default="", help="the server's id of the job, `123.server`")
    add("--node", default="", help="instead of a job: the name of a node")
    add("--cluster", default="main", help="name of the cluster (default: main)")
    add_database_option(parser)
    add_config_option(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the history; 0, 2 for invalid arguments or settings, 1 if the database has none."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if bool(args.job) == bool(args.node):
        parser.error("name either a job or a node")
    otherwise = "`schedd checkjob JOB` asks the daemon" if args.job else "the node's page has its states"
    url = database_url(args.config, args.database)
    with exit_on_error("history"), open_store(url, otherwise=otherwise) as store:
        found = store.find_cluster(args.cluster)
        show = _show_job if args.job else _show_node
        known = found is not None and show(store, found, args.job or args.node)
    if not known:
        what = f"job {args.job}" if args.job else f"node {args.node}"
        fail("history", f"the database has no {what} in cluster {args.cluster}", 1)
    return 0


def _show_job(store: Store, cluster: int, job: str) -> bool:
    past = store.job_history(cluster, job)
    if past is None:
        return False
    console = Console()
    console.print(escape("\n".join(map(strip_controls, _job_lines(past)))), highlight=False)
    table = Table("time", "", "what", box=None)
    for moment in store.job_timeline(cluster, job):
        kind = f"{moment.kind} {moment.decision}".rstrip()
        words = moment.text
        if moment.start is not None:
            words = _format_time(moment.start).join(history_entry_parts(moment.kind, words))
        table.add_row(_format_time(moment.time), kind, escape(localise_times(strip_controls(words))))
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
        how = f"moved to {past.moved_to}" if past.moved_to else past.how
        lines.append(f"  {how} {_format_time(past.ended)}{status}")
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
        table.add_row(_format_time(time), *(escape(localise_times(strip_controls(text))) for text in rest))
    if rows:
        Console().print(table)
    return bool(rows)


def _format_time(moment: int) -> str:
    return dt.datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
