"""``schedd coallocate``: groups of jobs that start at the same moment at several clusters of a federation."""

import argparse
import json
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schedd.cli.arguments import Parser
from schedd.cli.user.asking import EXIT_CODES, exit_code, show_json
from schedd.cli.user.federated import client
from schedd.cli.user.text import moment, rows, table
from schedd.client import ClientError

__all__ = ["make_parser", "run"]

_FILE = """the file:
  {"parts": [{"request": "nodes=4:ppn=8,walltime=2:00:00", "script": "…"},
             {"request": "nodes=2:ppn=8,walltime=2:00:00", "script_file": "b.sh",
              "clusters": ["north"], "optional": true}],
   "overhead": 20, "remap": true, "most": 2, "deadline": 1800000000}"""


def make_parser(name: str = "schedd coallocate") -> argparse.ArgumentParser:
    """Its options."""
    about = (
        "Hand a group to the federation: parts that start at the same moment, each at some cluster, or none "
        "of them. It is moved only to end earlier than it was told."
    )
    codes = "\n".join(f"  {code}  {words}" for code, words in EXIT_CODES.items())
    found = Parser(
        prog=name,
        description=textwrap.fill(about, 79),
        epilog=f"{_FILE}\n\nexit status:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument("--json", action="store_true", help="the federation's answer as JSON")
    found.add_argument("--url", metavar="URL", help="where the federation is; else SCHEDD_FEDERATION")
    acts = found.add_subparsers(dest="act", metavar="ACT", title="acts")
    acts.add_parser("list", help="show groups that are not over (without an act, too)", allow_abbrev=False)
    submit = acts.add_parser("submit", help="hand a group over", allow_abbrev=False)
    submit.add_argument("file", metavar="FILE", help="the group as JSON")
    submit.add_argument("--key", default="", help="a name for this: the same key again is the same group")
    for act, words in (("show", "where its parts are, and how it moved"), ("cancel", "take it back")):
        acts.add_parser(act, help=words, allow_abbrev=False).add_argument("group", metavar="GROUP")
    return found


def run(argv: Sequence[str], name: str = "schedd coallocate") -> int:
    """The command."""
    return exit_code(make_parser(name), _act, argv)


def _act(args: argparse.Namespace) -> bool:
    now = int(time.time())
    with client(args.url) as federation:
        match args.act:
            case "submit":
                done = federation.submit_group({**_read(Path(args.file)), "key": args.key})
            case "show":
                done = federation.group(args.group)
            case "cancel":
                done = federation.cancel_group(args.group)
            case _:
                found = federation.groups(over=False)
                if args.json:
                    show_json({"groups": found})
                else:
                    print(_list(found, now) if found else "there are no groups")
                return True
    if args.json:
        show_json(done)
    elif args.act == "submit":
        print(done["id"])
    elif args.act == "cancel":
        print(f"group {done['id']}: {'it had ' + done['over'] if done['over'] else 'taken back'}")
    else:
        print(_show(done, now))
    return args.act != "show" or done["start"] is not None


def _read(file: Path) -> dict[str, Any]:
    """The group of a file; scripts may stand in files of their own. Raises ClientError."""
    try:
        group = json.loads(file.read_text(encoding="utf-8"))
        for part in group["parts"]:
            if "script_file" in part:
                part["script"] = (file.parent / part.pop("script_file")).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{file}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClientError(f"{file}: not a group: {error!r}; see schedd coallocate --help") from None
    return dict(group)


def _list(found: Sequence[dict[str, Any]], now: int) -> str:
    lines = [
        (
            one["id"],
            one["owner"],
            one["state"],
            _when(one["start"], now),
            ", ".join(sorted({part["cluster"] for part in one["parts"] if part["cluster"]})) or "-",
            one["text"],
        )
        for one in found
    ]
    return table(("GROUP", "OWNER", "STATE", "START", "CLUSTERS", "WHY"), lines, last=20)


def _show(one: dict[str, Any], now: int) -> str:
    told = [("state", one["state"]), ("start", _when(one["start"], now)), ("end", _when(one["end"], now))]
    if one["told_start"] is not None:
        told.append(("first told", f"{_when(one['told_start'], now)} to {_when(one['told_end'], now)}"))
    if one["text"]:
        told.append(("why", one["text"]))
    parts = [
        (
            str(part["part"]) + (" (optional)" if part["optional"] else ""),
            part["cluster"] or "-",
            part["job"] or "-",
            part["state"] or part["phase"] or "-",
            _when(part["started"], now),
            ",".join(f"{name}={value}" for name, value in part["resources"].items()),
        )
        for part in one["parts"]
    ]
    moves = [
        (
            str(turn["number"]),
            _when(turn["start"], now),
            ", ".join(f"{part}: {cluster}" for part, cluster in turn["clusters"].items()),
            turn["phase"],
            turn["why"] + (f"; {turn['text']}" if turn["text"] else ""),
        )
        for turn in one["rounds"]
    ]
    return "\n\n".join(
        (
            f"group {one['id']}: {one['owner']}",
            rows(told),
            table(("PART", "CLUSTER", "JOB THERE", "STATE", "STARTED", "ASKS FOR"), parts, last=30),
            table(("ROUND", "START", "PLACES", "STATE", "WHY"), moves, last=34),
        )
    )


def _when(seconds: int | None, now: int) -> str:
    return moment(seconds, now) if seconds is not None else "-"
