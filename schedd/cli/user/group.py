"""``schedd group``: many short tasks in few jobs, each task's exit status and output kept."""

import argparse
import csv
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.user.formatting import format_duration, wrap_indented
from schedd.client.task_grouping import GroupedTask, Grouping, GroupingError, group_tasks

_COLUMNS: Final = ("name", "walltime", "command", "after", "nodes")
_NEEDED: Final = frozenset(_COLUMNS[:3])
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,100}")
_ARRAY: Final = re.compile(r"(?P<name>[^\[\]]+)\[(?P<first>\d{1,9})-(?P<last>\d{1,9})\]")
_PART: Final = re.compile(r"(\d{1,9})([smhd])")
_CLOCK: Final = re.compile(r"(?:(\d{1,4}):)?(\d{1,6}):(\d{1,2}):(\d{1,2})")
_MAX_TASKS: Final = 100_000
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_ABOUT: Final = (
    "Combine many short tasks into few jobs: writes a job script for each, and submit.sh, which "
    "submits them all. Each task has its own walltime, and its exit status and output are kept in "
    "separate files. A task whose predecessor failed is skipped."
)
_TASKS: Final = (
    "TASKS is CSV with a line of names: name, walltime (90s, 10m, 1:00:00), command, and perhaps after "
    "(names, blanks between) and nodes (as in qsub -l nodes=; tasks of one job ask for the same). A name "
    "such as sim[1-500] stands for 500 tasks; {} in the command and in after is the number of each, and "
    "after=sim waits for all. No daemon is asked."
)


@dataclass(frozen=True)
class _TaskRow:
    task: GroupedTask
    command: str


def make_parser(name: str = "schedd group") -> argparse.ArgumentParser:
    found = OneLineErrorParser(prog=name, description=_ABOUT, epilog=_TASKS)
    found.add_argument("tasks", metavar="TASKS", help="the file; - is the standard input")
    found.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where scripts and results go; a new one"
    )
    found.add_argument(
        "--short", type=_parse_duration, default=600, metavar="TIME",
        help="tasks that take less are merged (default: 10m)",
    )  # fmt: skip
    found.add_argument(
        "--longest",
        type=_parse_duration,
        default=7200,
        metavar="TIME",
        help="no job takes longer (default: 2h)",
    )
    found.add_argument(
        "--at-once", type=_parse_count, metavar="N",
        help="at most about N jobs run at once: the longest chain may then take up to the time of all"
             " work on N jobs; without it the chain is not extended, and an array alone is not "
             "grouped",
    )  # fmt: skip
    return found


def run(argv: Sequence[str], name: str = "schedd group") -> int:
    """The command: 0, or 2 if the tasks cannot be grouped."""
    args = make_parser(name).parse_args(argv)
    try:
        if args.tasks == "-":
            rows = _read_tasks(sys.stdin, "standard input")
        else:
            with Path(args.tasks).open(encoding="utf-8", newline="") as file:
                rows = _read_tasks(file, args.tasks)
        found = group_tasks([row.task for row in rows], args.short, args.longest, args.at_once)
        args.out.mkdir(parents=True)
        _write_scripts(args.out, found, {row.task.name: row for row in rows})
    except FileExistsError:
        return _fail(name, f"{args.out} is there already: name a new directory")
    except (GroupingError, OSError, UnicodeDecodeError) as error:
        return _fail(name, str(error))
    for line in _summary_lines(found, len(rows), args.out):
        print(line)
    return 0


def _fail(name: str, message: str) -> int:
    print(f"{name}: {message}", file=sys.stderr)
    return 2


def _summary_lines(found: Grouping, tasks: int, out: Path) -> Iterator[str]:
    yield (
        f"{tasks:,} tasks in {len(found.jobs):,} jobs; "
        f"the longest chain takes {format_duration(found.length)}, "
        + (
            f"as before ({format_duration(found.length_before)})"
            if found.length == found.length_before
            else f"before {format_duration(found.length_before)}"
        )
    )
    if tasks > 1 and len(found.jobs) == tasks:
        yield from wrap_indented(
            "nothing was merged: either no task is short, or the whole would take longer; --at-once N says "
            "how many jobs run at once at best"
        ).splitlines()
    yield f"submit them: sh {shlex.quote(str(out / 'submit.sh'))}; results will be in {out / 'results'}"


# ---- reading ------------------------------------------------------------------------------------


def _parse_duration(text: str) -> int:
    """Seconds of ``90s``, ``10m``, ``1h30m``, ``1:00:00`` or a plain number of seconds."""
    said = text.strip()
    clock = _CLOCK.fullmatch(said)
    if clock is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        found = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    elif said.isascii() and said.isdigit() and len(said) < 10:
        found = int(said)
    elif said and _PART.sub("", said) == "":
        found = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(said))
    else:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90s, 10m, 1h30m or 1:00:00")
    if not 1 <= found < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r}: at least a second is needed")
    return found


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= _MAX_TASKS):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 to {_MAX_TASKS} is needed")
    return int(text)


def _read_tasks(file: TextIO, name: str) -> list[_TaskRow]:
    """Raises GroupingError that names the line."""
    reader = csv.DictReader(file, skipinitialspace=True)
    columns = [one.strip() for one in reader.fieldnames or ()]
    if not _NEEDED <= set(columns) <= set(_COLUMNS):
        raise GroupingError(
            f"{name}, line 1: it must name the columns name, walltime and command, and may name after and "
            f"nodes; it says {', '.join(columns) or 'nothing'}"
        )
    reader.fieldnames = columns
    rows: list[_TaskRow] = []
    arrays: dict[str, list[str]] = {}
    for line in reader:
        try:
            rows += _parse_row(line, arrays)
        except (GroupingError, argparse.ArgumentTypeError) as error:
            raise GroupingError(f"{name}, line {reader.line_num}: {error}") from None
        if len(rows) > _MAX_TASKS:
            raise GroupingError(f"{name}, line {reader.line_num}: more than {_MAX_TASKS:,} tasks")
    if not rows:
        raise GroupingError(f"{name}: it has no task")
    return [_expand_array_names(row, arrays) for row in rows]


def _parse_row(line: dict[str, str], arrays: dict[str, list[str]]) -> list[_TaskRow]:
    if None in line or None in line.values():
        raise GroupingError(
            "it has not as many fields as the first line; put a command with commas into quotes"
        )
    named, command = line["name"].strip(), line["command"].strip()
    if not command or "\0" in command:
        raise GroupingError("it has no command")
    seconds, nodes = _parse_duration(line["walltime"]), line.get("nodes", "").strip()
    if re.search(r"[\s,'\"]", nodes):
        raise GroupingError(f"nodes {nodes!r}: write it as in qsub -l nodes=, without blanks and commas")
    after = line.get("after", "").split()
    array = _ARRAY.fullmatch(named)
    if array is None:
        return [_TaskRow(GroupedTask(_check_name(named), seconds, nodes, tuple(after)), command)]
    first, last, base = int(array["first"]), int(array["last"]), _check_name(array["name"])
    if not first <= last < first + _MAX_TASKS:
        raise GroupingError(
            f"{named}: the last number must not be below the first, nor {_MAX_TASKS:,} above it"
        )
    found = []
    for i in range(first, last + 1):
        heads = tuple(one.replace("{}", str(i)) for one in after)
        found.append(
            _TaskRow(GroupedTask(f"{base}.{i}", seconds, nodes, heads), command.replace("{}", str(i)))
        )
    arrays.setdefault(base, []).extend(row.task.name for row in found)
    return found


def _check_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise GroupingError(f"name {name!r}: letters, digits and _ . + - are allowed, 100 at most")
    return name


def _expand_array_names(row: _TaskRow, arrays: dict[str, list[str]]) -> _TaskRow:
    """Where a task waits for an array, it waits for each of its tasks."""
    task = row.task
    heads = [one for name in task.after for one in arrays.get(name, [name])]
    return _TaskRow(GroupedTask(task.name, task.seconds, task.asks, tuple(dict.fromkeys(heads))), row.command)


# ---- writing ------------------------------------------------------------------------------------

_SCRIPT: Final = """\
#!/bin/sh
#PBS -N {name}
#PBS -l {asks}
# {count} tasks, one after another. Of each its exit status and what it writes are kept: results/TASK.status,
# .out and .err; what went well is not done again when the job runs again.
cd {where} || exit 1
done_well() {{ [ "$(cat "results/$1.status" 2>/dev/null)" = 0 ]; }}
ended() {{ echo "$2" > "results/$1.status.new" && mv "results/$1.status.new" "results/$1.status"; }}
task() {{ # name, seconds, command, then those after which it runs
    name=$1 seconds=$2 command=$3
    shift 3
    done_well "$name" && return
    for head; do
        if ! done_well "$head"; then
            ended "$name" skipped
            failed=1
            return
        fi
    done
    timeout -k 10 "$seconds" sh -c "$command" > "results/$name.out" 2> "results/$name.err" < /dev/null
    status=$?
    ended "$name" "$status"
    [ "$status" = 0 ] || failed=1
}}
failed=0
"""


def _write_scripts(out: Path, found: Grouping, rows: dict[str, _TaskRow]) -> None:
    (out / "results").mkdir()
    digits = len(str(len(found.jobs)))
    names = [f"job{i:0{digits}}" for i in range(1, len(found.jobs) + 1)]
    where = shlex.quote(str(out.resolve()))
    submit = [
        "#!/bin/sh",
        "# Submits all jobs, each with its dependencies.",
        "set -e",
        f"cd {where}",
    ]
    for i, (name, members) in enumerate(zip(names, found.jobs, strict=True)):
        seconds = sum(rows[one].task.seconds for one in members)
        nodes = rows[members[0]].task.asks or "1"
        asks = f"nodes={nodes},walltime={_format_walltime(seconds + 10 * len(members))}"
        lines = [_SCRIPT.format(name=name, asks=asks, count=len(members), where=where)]
        for one in members:
            task = rows[one].task
            words = [one, str(task.seconds), rows[one].command, *task.after]
            lines.append(f"task {' '.join(map(shlex.quote, words))}\n")
        lines.append('exit "$failed"\n')
        (out / f"{name}.sh").write_text("".join(lines), encoding="utf-8")
        behind = ":".join(f"${names[k]}" for k in found.waits[i])
        depend = f' -W "depend=afterany:{behind}"' if behind else ""
        submit.append(f"{name}=$(qsub{depend} {name}.sh)")
    submit.append(f'echo "{len(names)} jobs were submitted"')
    (out / "submit.sh").write_text("\n".join(submit) + "\n", encoding="utf-8")


def _format_walltime(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
