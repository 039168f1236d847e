"""``schedd import``: the configuration of Maui, pbs_sched or pbs_server in terms of schedd.toml."""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from schedd.cli.arguments import OneLineErrorParser, fail
from schedd.cli.server_facts import Auth, Family, add_server_options
from schedd.wire.object_names import OBJECT_NAME

if TYPE_CHECKING:
    from schedd.cli.importing.result import ImportResult

_COMPANION_FILES = ("resource_group", "holidays", "dedicated_time")
_MAUI = re.compile(
    r"^\s*(SERVERHOST|RMCFG|QUEUETIMEWEIGHT|BACKFILLPOLICY|USERCFG|CLASSCFG|FSPOLICY|SRCFG|SCHEDCFG)\b",
    re.MULTILINE,
)
_SCHED = re.compile(r"^\s*(round_robin|by_queue|fair_share|sort_by|job_sort_key)\s*:?\s", re.MULTILINE)


class ConfigFormat(StrEnum):
    """The format of the configuration file."""

    MAUI = "maui"
    MOAB = "moab"
    SCHED_CONFIG = "sched_config"
    QMGR = "qmgr"


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd import",
        description="Translate a configuration into settings of schedd.toml, and report the result for every "
        "line.",
        epilog="The settings go to standard output, for schedd.toml. The report goes to standard error: "
        "first blockers (unsupported and significant), then differences and the affected users, "
        "translated lines, and irrelevant lines. With --server the attributes of the server, of its "
        "queues and schedulers are read over its own protocol, and reported in the same way; nothing "
        "is changed there. Exit status: 0; 2 if the file or the server cannot be read; 3 if there are "
        "blockers.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="Maui's maui.cfg, Moab's moab.cfg, or the sched_config of pbs_sched (TORQUE, OpenPBS); with the "
        "last, resource_group, holidays and dedicated_time in the same folder are read, too. Or the output "
        "of `qmgr -c 'print server'` and `qmgr -c 'print sched'` in one file",
    )
    about = "HOST or HOST:PORT of pbs_server: read its own settings, too, or only those"
    add("--server", default="", help=about)
    add_server_options(parser, "how to authenticate to the server")
    add(
        "--from",
        dest="kind",
        choices=[kind.value for kind in ConfigFormat],
        help="format of the file, if it is not recognised",
    )
    add("--cluster", default="main", help="name of the cluster in schedd.toml (default: main)")
    add("--output", "-o", type=Path, help="write the settings there, not to standard output")
    return parser


def run(argv: Sequence[str]) -> int:
    """Translate; 0, 2 if the file or the server cannot be read, 3 if there are blockers."""
    args = make_parser().parse_args(argv)
    file, server, cluster, output = args.file, args.server, args.cluster, args.output
    from schedd.cli.importing.result import Verdict  # noqa: PLC0415  (--help need not wait)

    if not OBJECT_NAME.fullmatch(cluster):
        fail("import", f"--cluster {cluster!r}: a name has letters, digits, '.', '_' and '-'")
    if file is None and not server:
        fail("import", "name a file, or a server with --server")
    done = _import_file(file, ConfigFormat(args.kind) if args.kind else None)
    if server:
        _import_server(server, args.family, args.auth, done)
    if any(done.site.get("priority", {}).values()):
        message = "a job goes before others only if each of them still starts by its promise: see slack"
        done.note(Verdict.DIFFERS, 0, "priorities", message)
    settings = _comment_header(
        " and ".join([*([file.name] if file else []), *([server] if server else [])]), done
    ) + _validated_toml(done, cluster)
    if output is None:
        print(settings, end="")
    else:
        try:
            output.write_text(settings, encoding="utf-8")
        except OSError as error:
            fail("import", f"{output}: {error.strerror}")
    print("\n".join(done.report()), file=sys.stderr)
    if done.with_verdict(Verdict.BLOCKER):
        return 3
    return 0


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        fail("import", f"{file}: {error.strerror}")


def _detect_format(file: Path, text: str) -> ConfigFormat:
    from schedd.cli.importing.maui_parameters import MOAB_ALONE  # noqa: PLC0415
    from schedd.cli.importing.qmgr import QMGR_COMMAND  # noqa: PLC0415

    if QMGR_COMMAND.search(text):
        return ConfigFormat.QMGR
    maui, sched = bool(_MAUI.search(text)), bool(_SCHED.search(text))
    if maui == sched:
        maui, sched = file.name.startswith(("maui", "moab")), "sched_config" in file.name
    if maui == sched:
        fail(
            "import",
            f"{file}: not recognised as a maui.cfg, a sched_config or output of qmgr; "
            "name the format with --from",
        )
    names = {word.upper() for word in re.findall(r"^\s*([A-Za-z]\w*)", text, re.MULTILINE)}
    if maui and (
        file.name.startswith("moab")
        or names & MOAB_ALONE
        or re.search(r"SCHEDCFG\[moab", text, re.IGNORECASE)
    ):
        return ConfigFormat.MOAB
    return ConfigFormat.MAUI if maui else ConfigFormat.SCHED_CONFIG


def _translate(file: Path, text: str, kind: ConfigFormat) -> "ImportResult":
    from schedd.cli.importing.maui import import_maui  # noqa: PLC0415
    from schedd.cli.importing.sched_config import import_sched_config  # noqa: PLC0415

    if kind is ConfigFormat.QMGR:
        from schedd.cli.importing.qmgr import import_qmgr  # noqa: PLC0415

        return import_qmgr(text)
    now, zone = datetime.now(), local_time_zone()  # noqa: DTZ005  (the site's own day)
    if kind is not ConfigFormat.SCHED_CONFIG:
        return import_maui(text, now.date(), zone, moab=kind is ConfigFormat.MOAB)
    companions = {name: file.with_name(name) for name in _COMPANION_FILES}
    return import_sched_config(
        text, {name: _read(path) for name, path in companions.items() if path.is_file()}, now, zone
    )


def _import_file(file: Path | None, kind: ConfigFormat | None) -> "ImportResult":
    from schedd.cli.importing.result import ImportResult  # noqa: PLC0415

    if file is None:
        return ImportResult()
    text = _read(file)
    return _translate(file, text, kind or _detect_format(file, text))


def _import_server(named: str, family: Family, auth: Auth, done: "ImportResult") -> None:
    """What the server says of itself. A pointer of the file to it is answered by that."""
    from schedd.cli.importing.server_settings import ServerObject, import_server  # noqa: PLC0415
    from schedd.cli.server_facts import ServerUnreadableError, parse_server_address, read_server_settings  # noqa: PLC0415
    from server_adapter.settings import AdapterSettings  # noqa: PLC0415

    try:
        described = read_server_settings(AdapterSettings(server=parse_server_address(named, family, auth)))
    except ValueError:
        fail("import", f"--server {named!r}: HOST or HOST:PORT")
    except ServerUnreadableError as error:
        fail("import", f"--server {named}: {error}")
    done.findings = [one for one in done.findings if one.setting != "qmgr"]
    objects = [ServerObject(one.kind, one.name, one.values) for one in described]
    import_server(objects, done, openpbs=family == "openpbs")


def local_time_zone(etc: Path = Path("/etc")) -> str:
    """The time zone of this host, by its IANA name; UTC where it is not known."""
    import zoneinfo  # noqa: PLC0415 (needed only for imports with times)

    for text in _time_zone_names(etc):
        name = re.sub(r"^:?(?:/.*?zoneinfo/)?(?:posix/|right/)?", "", text.strip())
        with suppress(ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            return zoneinfo.ZoneInfo(name).key
    return "UTC"


def _time_zone_names(etc: Path) -> Iterator[str]:
    """Yield what a host says of its zone: a link; a name (of Debian and of older releases of Red Hat); the
    zone whose rules were copied; and the environment.
    """
    import zoneinfo  # noqa: PLC0415

    yield str((etc / "localtime").resolve())
    for file in ("timezone", "sysconfig/clock"):
        with suppress(OSError, UnicodeDecodeError):
            text = (etc / file).read_text("utf-8")
            found = re.search(r'^(?:ZONE=)?"?([A-Za-z][A-Za-z0-9_+/-]*)"?\s*$', text, re.MULTILINE)
            yield found[1] if found else ""
    with suppress(OSError):
        rules = (etc / "localtime").read_bytes()
        for name in sorted(zoneinfo.available_timezones()):
            for folder in zoneinfo.TZPATH:
                with suppress(OSError):
                    if (Path(folder) / name).read_bytes() == rules:
                        yield name
    yield os.environ.get("TZ", "")


def _comment_header(name: str, done: "ImportResult") -> str:
    """The comment before the settings, with all blockers."""
    from schedd.cli.importing.result import Verdict  # noqa: PLC0415

    lengths = {verdict: len(list(done.lines(verdict))) for verdict in Verdict}
    counts = ", ".join(
        f"{count} {verdict.value}{'s' * (verdict is Verdict.BLOCKER and count != 1)}"
        for verdict, count in lengths.items()
    )
    lines = [f"From {name}, by `schedd import`: {counts}."]
    lines += [
        f"BLOCKER {where}, {setting}: {message}" for where, setting, message in done.lines(Verdict.BLOCKER)
    ]
    return "".join(f"# {line}\n" for line in lines) + "\n"


def _validated_toml(done: "ImportResult", cluster: str) -> str:
    """The settings, once the daemon's own check has let them through."""
    import tomllib  # noqa: PLC0415

    from pydantic import ValidationError  # noqa: PLC0415

    from schedd.service.settings.cluster import ClusterSettings  # noqa: PLC0415
    from schedd.wire.section import main_problems, problem_place, problem_text  # noqa: PLC0415

    text = done.toml(cluster)
    try:
        ClusterSettings(**tomllib.loads(text).get("clusters", {}).get(cluster, {}))
    except ValidationError as error:
        for problem in main_problems(error.errors(include_url=False)):
            where, words = ".".join(map(str, problem_place(problem))), problem_text(problem)
            print(f"schedd import: {where}: {words}", file=sys.stderr)
        fail("import", "the result is not valid in schedd.toml; nothing was written")
    return text
