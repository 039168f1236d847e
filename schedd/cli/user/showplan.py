"""``showplan``: the plan as a chart in text: nodes down, time to the right."""

import argparse
import re
import string
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_table, format_time, natural_key, terminal_width
from schedd.client import ClientError
from schedd.client.answers import Bar, NodeView

_OTHER = "*"
_IDLE, _DOWN = ".", "x"
_LETTERS = (string.ascii_uppercase + string.ascii_lowercase + string.digits).replace(_DOWN, "")
_NAME = 16
_TICK = 12
_MAX_SINGLE_NODES = 50
"""With more nodes, neighbours with equal lines share one."""
_NUMBERED_NAME = re.compile(r"(.*?)(\d+)")


def make_parser(name: str = "showplan") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show the plan as a chart: a line for each node, time to the right, a letter for each job.",
        f"A cell shows the job that holds most of the node then; {_IDLE} nothing is planned,\n"
        f"{_DOWN} the node is not in use, {_OTHER} a job beyond the {len(_LETTERS)} that have a letter:\n"
        f"those with the most node hours. With more than {_MAX_SINGLE_NODES} nodes, neighbours with\n"
        "equal lines share one.",
    )
    add = found.add_argument
    add("--hours", type=float, default=24.0, help="hours to show (default: 24)")
    add("-w", dest="node", metavar="PATTERN", help="only nodes with matching names: 'n1*'")
    add("-u", dest="user", metavar="USER", help="letters only for this user's jobs")
    return found


def run(argv: Sequence[str], name: str = "showplan") -> int:
    return run_command(make_parser(name), _show_plan, argv)


def _show_plan(session: Session, args: argparse.Namespace) -> bool:
    if not 0 < args.hours <= 24 * 366:
        raise ClientError(f"--hours {args.hours:g}: more than 0, at most a year")
    begin = session.cluster.as_of
    end = begin + max(1, int(args.hours * 3600))
    bars = list(session.client.bars(begin=begin, end=end))
    pattern = args.node if args.node is not None else "*"
    nodes = sorted(session.client.nodes(), key=lambda node: natural_key(node.name))
    nodes = [node for node in nodes if fnmatchcase(node.name, pattern)]
    if args.json:
        show_json({"begin": begin, "end": end, "jobs": bars, "nodes": nodes})
        return True
    if not nodes:
        print("no such nodes" if args.node else "the cluster has no nodes yet")
        return True
    print(chart(bars, nodes, begin, end, terminal_width(), args.user))
    return True


def chart(
    bars: list[Bar], nodes: list[NodeView], begin: int, end: int, columns: int, user: str | None = None
) -> str:
    """The chart and its legend, for a terminal of this width."""
    left = min(_NAME, max(len(node.name) for node in nodes)) + 1
    fold = len(nodes) > _MAX_SINGLE_NODES
    if fold:
        left += max(len(_last_number(node.name)) for node in nodes) + 1
    cells = max(10, columns - left)
    shown = {node.name for node in nodes}
    node_seconds: Counter[str] = Counter()
    holds: dict[str, list[tuple[Bar, int]]] = {name: [] for name in shown}
    for bar in bars:
        here = [share for share in bar.nodes if share.node in shown]
        if here and bar.job and (user is None or bar.owner.partition("@")[0] == user):
            node_seconds[bar.job] += len(here) * (min(bar.end, end) - max(bar.start, begin))
        for share in here:
            holds[share.node].append((bar, share.cpus))
    largest = {job for job, _ in node_seconds.most_common(len(_LETTERS))}
    marks = dict(zip((job for job in node_seconds if job in largest), _LETTERS, strict=False))
    rows: list[tuple[str, str]] = []
    for node in nodes:
        row = [_IDLE if node.state == "up" else _DOWN] * cells
        most = [0] * cells
        for bar, cpus in holds[node.name]:
            first = max(0, (bar.start - begin) * cells // (end - begin))
            last = min(cells, max(first + 1, -((begin - bar.end) * cells // (end - begin))))
            for i in range(first, last):
                if cpus > most[i]:
                    most[i], row[i] = cpus, marks.get(bar.job, _OTHER)
        rows.append((node.name, "".join(row)))
    lines = _time_scale(begin, end, left, cells)
    lines += [f"{name[: left - 1]:{left}}{row}" for name, row in (_fold_rows(rows) if fold else rows)]
    return "\n".join([*lines, "", _legend(bars, marks, begin)])


def _fold_rows(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Rows of nodes with consecutive numbers and equal lines become one: `node7-12`."""
    found: list[tuple[str, str, str]] = []  # first name, last name, line
    for name, line in rows:
        if found and found[-1][2] == line and _follows(found[-1][1], name):
            found[-1] = (found[-1][0], name, line)
        else:
            found.append((name, name, line))
    return [
        (first if first == last else f"{first}-{_last_number(last)}", line) for first, last, line in found
    ]


def _follows(name: str, after: str) -> bool:
    one, two = _NUMBERED_NAME.fullmatch(name), _NUMBERED_NAME.fullmatch(after)
    return one is not None and two is not None and one[1] == two[1] and int(one[2]) + 1 == int(two[2])


def _last_number(name: str) -> str:
    found = _NUMBERED_NAME.fullmatch(name)
    return found[2] if found is not None else ""


def _time_scale(begin: int, end: int, left: int, cells: int) -> list[str]:
    """Times over the cells, with the day at the first and wherever a new one begins."""
    ruler, ticks = "", ""
    day = ""
    for i in range(0, cells, _TICK):
        local = datetime.fromtimestamp(begin + i * (end - begin) // cells).astimezone()
        new = f"{local:%a}"
        words = f"{new} {local:%H:%M}" if new != day else f"{local:%H:%M}"
        if len(words) > cells - i:
            break
        ruler += f"{words:{_TICK}}"
        ticks += f"{'|':{_TICK}}"
        day = new
    return [" " * left + ruler.rstrip(), " " * left + ticks.rstrip()]


def _legend(bars: list[Bar], marks: dict[str, str], begin: int) -> str:
    named = {bar.job: bar for bar in bars if bar.job in marks}
    lines = [
        (
            marks[job],
            job,
            bar.owner.partition("@")[0],
            bar.state,
            format_time(bar.start, begin),
            format_time(bar.end, begin),
        )
        for job, bar in named.items()
    ]
    if not lines:
        return "nothing is planned then"
    return format_table(("", "JOB", "USER", "STATE", "START", "FREE AGAIN"), lines)
