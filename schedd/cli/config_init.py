"""``schedd config init``: the settings of a new site, the daemon's and the adapter's."""

import argparse
import hashlib
import os
import secrets
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from schedd.cli.arguments import add_action, fail
from schedd.cli.importing.result import to_toml
from schedd.cli.installation import DEFAULT_CONFIG
from schedd.cli.planning_mode import (
    COMPARED_JOBS,
    find_accounting_logs,
    list_log_files,
    planning_modes,
    recommend_planning_mode,
)
from schedd.cli.server_facts import (
    Auth,
    Family,
    ServerSummary,
    ServerUnreadableError,
    add_server_options,
    parse_server_address,
    read_server_summary,
)
from schedd.dialect.errors import RequestError
from schedd.dialect.units import format_size, parse_size
from schedd.service.settings.file import read_settings_file
from schedd.service.settings.reference import DECIDE, Decision
from schedd.wire import NodeFacts
from schedd.wire.object_names import OBJECT_NAME
from schedd.wire.toml_files import SettingsError, path_fault
from server_adapter.settings import AdapterSettings, PbsServerSettings, load_settings
from server_adapter.torque.scheduler_calls import is_local, scheduler_address

_MODES: Final = ("shadow", "adviser", "scheduler")
_OTHERS: Final = ("server", "all", "none")
_NODE_RULES: Final = ("exact", "pack")
_LOOPBACK: Final = ("127.0.0.1", "::1")
_BY_SETTING: Final = {one.setting: one for one in DECIDE}


def add_init(actions: Any) -> None:
    """Add ``init`` to the actions of ``schedd config``."""
    parser = add_action(
        actions,
        "init",
        "Ask for the ten settings that a site must decide, read pbs_server's settings, and write both files.",
        _init,
        "It does not ask for settings that are given as options. A token for the adapter is created: its "
        "hash is in schedd.toml, the token in a separate file. Nothing is written before all is valid. "
        "Exit status: 0; 2 for invalid values, or if files exist already.",
    )
    add = parser.add_argument
    folder = Path("/etc/schedd")
    add("--dir", type=Path, default=folder, help=f"directory for both files (default: {folder})")
    add("--cluster", default="main", help="name of the cluster (default: main)")
    add(
        "--server",
        default="127.0.0.1:15001",
        help="pbs_server as HOST or HOST:PORT, which is only read; empty: none (default: 127.0.0.1:15001)",
    )
    add_server_options(parser, "how the adapter authenticates to the server")
    add("--mode", default="", choices=_MODES, help="mode of the adapter")
    add("--host", default="", help="address of the daemon's socket")
    add("--tls-certificate", type=Path, help="TLS certificate and key in one PEM file")
    add("--admins", help="users with the role admin, separated by commas")
    add(
        "--others", default="", choices=_OTHERS, help="which jobs users see; server: as the server's settings"
    )
    add("--database", default="", help="URL of the database")
    add("--slack", default="", help="slack of promises, such as 1h+0.5w; or off")
    add("--node-rule", default="", choices=_NODE_RULES, help="how `nodes=` is understood")
    about = "memory per core of jobs that request none, such as 2gb; 0: none"
    add("--memory-per-core", default="", help=about)
    about = "walltime of jobs that request none, such as 24h"
    add("--default-walltime", default="", help=about)
    add("--policy", type=Path, help="settings that `schedd import` wrote")
    add(
        "--accounting",
        type=Path,
        metavar="PATH",
        help="accounting logs, a file or a directory: compare the planning modes on their last "
        f"{COMPARED_JOBS:,} jobs and write the best one (default: offered if a server on this host has logs)",
    )
    about = "ask nothing: take the options, else the proposed values"
    add("--yes", action="store_true", help=about)
    about = "overwrite existing files; they are kept as .old"
    add("--force", action="store_true", help=about)


def _init(args: argparse.Namespace) -> int:
    files = [args.dir.absolute() / name for name in ("schedd.toml", "pbs-adapter.toml", "pbs-adapter.token")]
    there = [str(path) for path in files if not path_fault(path) and not _is_packaged_default(path)]
    if there and not args.force:
        fail(
            "config init",
            f"{' and '.join(there)} {'are' if len(there) > 1 else 'is'} there already; --force overwrites",
        )
    if not OBJECT_NAME.fullmatch(args.cluster):
        fail("config init", f"--cluster {args.cluster!r}: a name has letters, digits, '.', '_' and '-'")
    imported = _load_imported_policy(args.policy, args.cluster)
    at = _server_settings(args.server, args.family, args.auth)
    seen = _read_server(at)
    ask = _Prompter(args.yes)
    mode = ask.choice("pbs-adapter.toml mode", args.mode, "shadow", _MODES)
    host = ask.text("[server] host", args.host, "127.0.0.1")
    certificate = args.tls_certificate
    if host not in ("127.0.0.1", "localhost", "::1") and certificate is None:
        certificate = Path(ask.plain("TLS certificate and its key, in one PEM file", ""))
    names = ask.text("[auth] admins", args.admins, "", empty=True)
    others = ask.choice("[auth] others", args.others, "server", _OTHERS)
    database = ask.text("[store] url", args.database, "sqlite:////var/lib/schedd/schedd.sqlite")
    slack = ask.text("[clusters.NAME] slack", args.slack, "1h+0.5w")
    proposed_rule = imported.get("node_rule", "exact")
    rule = ask.choice("[clusters.NAME] node_rule", args.node_rule, proposed_rule, _NODE_RULES)
    proposed = _format_memory(seen.mem_per_core) if seen is not None and seen.mem_per_core else "0"
    memory = ask.text("[clusters.NAME] mem_per_core", args.memory_per_core, proposed)
    walltime = ask.text("[clusters.NAME] default_walltime", args.default_walltime, "24h")
    if args.policy is None:
        ask.show_question(_BY_SETTING["[clusters.NAME.site] priority"])
    chosen = _choose_planning_mode(
        ask, args.accounting, at, seen.machine if seen is not None else (), args.policy, slack
    )
    token = secrets.token_hex(32)
    try:
        amount = parse_size(memory) if memory != "0" else 0
    except RequestError as error:
        fail("config init", f"--memory-per-core: {error}")
    daemon: dict[str, dict[str, Any]] = {
        "server": {"host": host} | ({"tls_certificate": str(certificate)} if certificate else {}),
        "auth": {"admins": [name.strip() for name in names.split(",") if name.strip()], "others": others},
        "store": {"url": database},
    }
    mine = {"slack": slack, "node_rule": rule, "mem_per_core": amount, "default_walltime": walltime, **chosen}
    texts = (
        "".join(f"{line}\n" for line in _daemon_lines(daemon, token, args.cluster, mine, imported)),
        "".join(f"{line}\n" for line in _adapter_lines(args.cluster, mode, at, host, certificate, files[2])),
        f"{token}\n",
    )
    _write_files(files, texts, args.force)
    for path in files:
        print(f"wrote {path}")
    if seen is not None:
        print("\nSeen on the server:")
        for remark in seen.remarks():
            print(f"  {remark}")
    print(_NEXT_STEPS.format(mode=_MODE_REMARKS[mode]))
    if files[0] != DEFAULT_CONFIG:
        print(
            f"\nThe services read {DEFAULT_CONFIG.parent}: copy the files there.\n"
            f"Before that: schedd config check --config {files[0]}"
        )
    return 0


_NEXT_STEPS = """
Next:
  schedd config check                        checks them; says what is allowed but unusual
  systemctl enable --now schedd              the first start compiles the planner (half a minute)
  systemctl enable --now pbs-adapter         on the host of pbs_server; copy pbs-adapter.toml and .token there
  schedd showq                               {mode}"""
_MODE_REMARKS = {
    "shadow": "in mode shadow no job is started; the adapter's log compares",
    "adviser": "in mode adviser no job is started; jobs show their planned starts",
    "scheduler": "in mode scheduler, schedd starts jobs: first stop the present scheduler",
}


def _choose_planning_mode(
    ask: "_Prompter",
    accounting: Path | None,
    server: PbsServerSettings,
    nodes: Sequence[NodeFacts],
    policy: Path | None,
    slack: str,
) -> Mapping[str, Any]:
    """Return the settings of the planning mode that a comparison on accounting logs recommends, or that the
    user prefers then; empty without a comparison.
    """
    found = accounting
    if found is None and server.port != 1 and is_local(server.host):
        found = find_accounting_logs()
    files = list_log_files(found) if found is not None else []
    if accounting is not None and not files:
        fail("config init", f"--accounting {accounting}: no such file, or a directory without files")
    if not files or found is None:
        return {}
    if accounting is None and not ask.confirm(
        f"Compare the planning modes on the accounting logs in {found}? It takes some minutes"
    ):
        print(
            f"`schedd replay {found} --recommend` compares the planning modes on these logs.", file=sys.stderr
        )
        return {}
    mode = recommend_planning_mode(files, nodes, policy, slack)
    return planning_modes()[ask.selection("planning mode", mode, tuple(planning_modes()))] if mode else {}


class _Prompter:
    """Prompts for values without an option, or uses the proposed ones."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def text(self, setting: str, said: str | None, proposed: str, empty: bool = False) -> str:
        if said or (empty and said is not None):
            return said
        if self._quiet:
            return proposed
        self.show_question(_BY_SETTING[setting])
        return self._prompt(setting, proposed)

    def choice(self, setting: str, said: str, proposed: str, among: tuple[str, ...]) -> str:
        """Prompt for one of several words."""
        while not said:
            said = self.text(setting, "", proposed)
            if said not in among:
                print(f"  one of {', '.join(among)}")
                said = ""
        return said

    def confirm(self, question: str) -> bool:
        """Ask for consent to something that takes time; there is no consent if no question is asked."""
        return not self._quiet and self._prompt(f"{question} [y/n]", "y").lower() in ("y", "yes")

    def selection(self, name: str, proposed: str, among: tuple[str, ...]) -> str:
        """Prompt for one of several words with a proposed one, which is used if nothing is asked."""
        while not self._quiet:
            said = self._prompt(name, proposed)
            if said in among:
                return said
            print(f"  one of {', '.join(among)}")
        return proposed

    def plain(self, question: str, proposed: str) -> str:
        """Prompt for values besides the ten settings."""
        if self._quiet:
            fail("config init", "an address that others reach needs --tls-certificate")
        return self._prompt(question, proposed)

    def show_question(self, one: Decision) -> None:
        if not self._quiet:
            print(f"\n{one.question}\n  {one.why}")

    def _prompt(self, name: str, proposed: str) -> str:
        try:
            return input(f"  {name} [{proposed}]: " if proposed else f"  {name}: ") or proposed
        except (EOFError, KeyboardInterrupt):
            print()
            fail("config init", "nothing was written")


def _is_packaged_default(path: Path) -> bool:
    """Whether it is what a package brought, to be written over by us."""
    try:
        return path.read_text(encoding="utf-8").startswith("# As packaged: ")
    except (OSError, UnicodeDecodeError):
        return False


def _load_imported_policy(policy: Path | None, cluster: str) -> dict[str, Any]:
    """The cluster's table in an imported file."""
    if policy is None:
        return {}
    try:
        clusters = tomllib.loads(policy.read_text(encoding="utf-8")).get("clusters")
    except (OSError, ValueError) as error:
        fail("config init", f"{policy}: {error}")
    tables = [*clusters.values()] if isinstance(clusters, dict) else []
    if len(tables) != 1 or not isinstance(tables[0], dict):
        fail("config init", f"{policy}: it has no [clusters.{cluster}], as `schedd import` writes it")
    return dict(tables[0])


def _server_settings(named: str, family: Family, auth: Auth) -> PbsServerSettings:
    if not named:
        return PbsServerSettings(host="127.0.0.1", port=1, family=family, auth=auth)
    try:
        return parse_server_address(named, family, auth)
    except ValueError:
        fail("config init", f"--server {named!r}: HOST or HOST:PORT")


def _read_server(server: PbsServerSettings) -> ServerSummary | None:
    if server.port == 1:
        return None
    try:
        return read_server_summary(AdapterSettings(server=server))
    except ServerUnreadableError as error:
        print(f"The server's settings were not read: {error}", file=sys.stderr)
        return None


def _format_memory(amount: int) -> str:
    """Format KiB for readers; rounded down to a short value."""
    return format_size(amount >> 20 << 20 if amount >= 4 << 20 else amount >> 10 << 10)


def _daemon_lines(
    tables: Mapping[str, Mapping[str, Any]],
    token: str,
    cluster: str,
    decided: Mapping[str, Any],
    imported: Mapping[str, Any],
) -> Iterator[str]:
    yield "# Written by `schedd config init`. All settings, with what they mean: `schedd config reference`."
    for name, table in tables.items():
        yield from _commented_table((name,), table)
        if name == "auth":
            yield from ("", "[[auth.tokens]]", 'name = "pbs-adapter"', 'role = "adapter"')
            yield f'sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"'
    more = {key: value for key, value in imported.items() if key not in ("site", *decided)}
    yield from _commented_table(("clusters", cluster), {**decided, **more})
    yield from to_toml(("clusters", cluster, "site"), imported.get("site", {}))


def _adapter_lines(
    cluster: str, mode: str, server: PbsServerSettings, host: str, certificate: Path | None, token: Path
) -> Iterator[str]:
    yield "# Written by `schedd config init`. All settings: `schedd config reference`."
    yield f'cluster = "{cluster}"'
    yield f"# {_BY_SETTING['pbs-adapter.toml mode'].why}"
    yield f'mode = "{mode}"'
    local = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    url = f"{'https' if certificate else 'http'}://{f'[{local}]' if ':' in local else local}:8080"
    yield from to_toml(("daemon",), {"url": url, "token_file": str(token)})
    port = {"port": server.port} if server.port not in (1, 15001) else {}
    auth = "privileged" if (server.auth, server.family) == ("auto", "torque") else server.auth
    kind = {"family": server.family} if server.family != "torque" else {}
    yield from to_toml(("server",), {**kind, "host": server.host, **port, "auth": auth})
    if server.family == "torque" and server.port != 1:
        yield from _listen_lines(server.host)


def _listen_lines(server: str) -> Iterator[str]:
    """Where a TORQUE server calls its scheduler: at the address of its own host name."""
    name, address = scheduler_address(server)
    if not address or not is_local(server) or not is_local(address):
        yield from (
            "",
            "# `schedd doctor` on the server's host says to what [listen] host must be set.",
        )
        return
    yield ""
    yield f"# pbs_server calls its scheduler at the address of its host name: {name} is {address}."
    yield from to_toml(("listen",), {"host": address, "peers": list(dict.fromkeys([address, *_LOOPBACK]))})


def _commented_table(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    heading = f"[{'.'.join('NAME' if one == path[-1] and path[0] == 'clusters' else one for one in path)}]"
    heading = "[clusters.NAME]" if path[0] == "clusters" else heading
    for line in to_toml(path, table):
        one = _BY_SETTING.get(f"{heading} {line.partition(' = ')[0]}")
        if one is not None:
            yield f"# {one.question}"
        yield line


def _write_files(files: list[Path], texts: tuple[str, ...], force: bool) -> None:
    """All of them, once both programs take them; else none."""
    fresh = [path.with_name(f"{path.name}.new") for path in files]
    try:
        files[0].parent.mkdir(parents=True, exist_ok=True)
        for path, text in zip(fresh, texts, strict=True):
            path.unlink(missing_ok=True)
            with open(path, "w", encoding="utf-8", opener=_open_private) as out:
                out.write(text)
        read_settings_file(fresh[0])
        load_settings(fresh[1], {})
        for path, owner in zip(fresh, ("schedd", "pbs-adapter", "pbs-adapter"), strict=True):
            _change_owner(path, owner)
        for path, new in zip(files, fresh, strict=True):
            if force and path.exists():
                path.replace(path.with_name(f"{path.name}.old"))
            new.replace(path)
    except SettingsError as error:
        fail("config init", "\n".join(line.replace(".toml.new", ".toml") for line in str(error).splitlines()))
    except OSError as error:
        fail("config init", f"{error.filename}: {error.strerror}")
    finally:
        with suppress(OSError):
            for path in fresh:
                path.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _change_owner(path: Path, owner: str) -> None:
    """Let the daemon, or the adapter, read it, where there is such a user."""
    if os.geteuid() != 0:
        return
    try:
        if path.name.startswith("pbs-adapter.token"):
            shutil.chown(path, owner)
        else:
            shutil.chown(path, "root", owner)
            path.chmod(0o640)
    except LookupError:
        print(f"There is no user {owner} yet: chown {path.name.removesuffix('.new')} later", file=sys.stderr)
