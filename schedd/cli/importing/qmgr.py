"""Parser for the output of `qmgr -c 'print server'` and `qmgr -c 'print sched'`."""

import re
from typing import Final

from schedd.cli.importing.result import ImportResult, Verdict
from schedd.cli.importing.server_settings import ServerObject, import_server

_KINDS: Final = "server|queue|sched|resource|node|hook|pbshook"
QMGR_COMMAND: Final = re.compile(rf"^\s*(?:create|set)\s+(?:{_KINDS})\b", re.MULTILINE)
_CREATE: Final = re.compile(rf"create\s+({_KINDS})\s+(\S+)\s*(.*)")
_SET: Final = re.compile(
    rf"set\s+({_KINDS})\s+(?:([^\s=]+)\s+(?![+-]?=))?([^\s=]+?)\s*(\+=|-=|=)\s*(.*)", re.DOTALL
)
_OTHER_OBJECTS: Final = {
    "resource": "created on the server: schedd reads its values from the server, its nodes and jobs",
    "node": "read from the server",
    "hook": "the server and its MoMs run it, with any scheduler",
    "pbshook": "the server and its MoMs run it, with any scheduler",
}
_NO_OBJECTS: Final = frozenset({"node", "hook", "pbshook"})
_OPENPBS_ONLY: Final = frozenset(
    {"job_sort_formula", "eligible_time_enable", "resv_enable", "flatuid", "max_array_size", "backfill_depth"}
)


def import_qmgr(text: str) -> ImportResult:
    """Translate the commands that `qmgr` prints."""
    done = ImportResult()
    objects, unread = parse_qmgr(text)
    for number, line in unread:
        done.note(
            Verdict.BLOCKER,
            number,
            line[:60],
            "not a command as `print server` of qmgr writes it: it is ignored",
        )
    kinds = {one.kind for one in objects}
    attributes = {name.partition(".")[0] for one in objects for name in one.values}
    openpbs = bool(kinds & {"scheduler", "resource"} or attributes & _OPENPBS_ONLY)
    import_server(objects, done, openpbs=openpbs)
    _note_other_objects(text, objects, done)
    return done


def _note_other_objects(text: str, objects: list[ServerObject], done: ImportResult) -> None:
    """Add a finding for each resource, node and hook: none of them is a setting of a scheduler."""
    known = {(one.kind, one.name) for one in objects if one.kind == "resource"}
    known |= {
        (found[1], found[2])
        for _, line in _commands(text)
        if (found := _CREATE.fullmatch(line)) is not None and found[1] in _NO_OBJECTS
    }
    for kind, name in sorted(known):
        done.note(Verdict.NOT_NEEDED, 0, f"{kind} {name}", _OTHER_OBJECTS[kind], "server")


def parse_qmgr(text: str) -> tuple[list[ServerObject], list[tuple[int, str]]]:
    """Return the objects with their attributes, and the lines that cannot be read, with their numbers.

    Commands about nodes and hooks are skipped, with the contents of hooks. A value in quotes may go on over
    several lines.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    unread: list[tuple[int, str]] = []
    for number, line in _commands(text):
        created = _CREATE.fullmatch(line)
        if created is not None:
            kind, name, rest = created.groups()
            values = _object(found, kind, name)
            for pair in rest.split(","):  # create resource x type=long, flag=hnq
                key, equals, value = pair.partition("=")
                if equals:
                    values[key.strip()] = value.strip()
            continue
        given = _SET.fullmatch(line)
        if given is None:
            unread.append((number, line))
            continue
        kind, name, attribute, operator, value = given.groups()
        values, value = _object(found, kind, name or ""), _unquoted(value)
        if operator == "=":
            values[attribute] = value
        elif operator == "+=":
            values[attribute] = ",".join(filter(None, (values.get(attribute, ""), value)))
    objects = [
        ServerObject("scheduler" if kind == "sched" else kind, name, values)
        for (kind, name), values in found.items()
        if kind not in _NO_OBJECTS
    ]
    return objects, unread


def _object(found: dict[tuple[str, str], dict[str, str]], kind: str, name: str) -> dict[str, str]:
    names = {"server": "", "sched": name or "default"}
    return found.setdefault((kind, names.get(kind, name)), {})


def _commands(text: str) -> list[tuple[int, str]]:
    """Return the commands with the numbers of their first lines, without comments."""
    commands: list[tuple[int, str]] = []
    opened = ""
    in_hook = False  # in the contents of a hook
    for number, line in enumerate(text.splitlines(), 1):
        if opened:
            first, before = commands.pop()
            commands.append((first, f"{before}\n{line.rstrip()}"))
            if line.rstrip().endswith(opened):
                opened = ""
            continue
        stripped = line.strip()
        in_hook = stripped.startswith("import ") or (in_hook and QMGR_COMMAND.match(stripped) is None)
        if not stripped or stripped.startswith("#") or in_hook:
            continue
        commands.append((number, stripped.removeprefix("Qmgr: ")))
        value = stripped.partition("=")[2].strip()
        if value[:1] in ("'", '"') and (len(value) == 1 or not value.endswith(value[0])):
            opened = value[0]
    return commands


def _unquoted(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    return " ".join(value[1:-1].split("\n")) if quoted else value
