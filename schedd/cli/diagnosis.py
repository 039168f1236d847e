"""What a site's parts are like, from this host's files to the server: one finding for each thing looked at.

Nothing is changed, and a part that cannot be looked at from here is said so.
"""

import asyncio
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from schedd import __version__
from schedd.api.settings_resources import load_resources
from schedd.cli.installation import find_config_file, load_daemon_settings
from schedd.client import Client, ClientError, Endpoint, Refused, Unreachable, find_endpoint
from schedd.client.answers import AlertView, ClusterView
from schedd.name_list import shorten_list
from schedd.plan.kernel_status import are_built, cache_dir, loaded_libraries
from schedd.service.access.identity import IdentityError, IdentityProvider
from schedd.service.settings.advice import settings_advice
from schedd.service.settings.daemon import ServerSettings, StoreSettings
from schedd.service.settings.file import read_server_settings, read_store_settings
from schedd.start_sentence import format_utc
from schedd.store import Store, StoreError
from schedd.store.connections import parse_database_url, redacted_url
from schedd.store.database import Database, read_versions
from schedd.store.default_location import default_url
from schedd.store.delivery_file import find_files
from schedd.wire.adapter_troubles import CLOCK_SET_BACK
from schedd.wire.toml_files import SettingsError
from server_adapter.settings import ListenSettings, load_settings
from server_adapter.torque.scheduler_calls import is_local, scheduler_address

CheckState = Literal["good", "warn", "bad"]
ADAPTER_SETTINGS: Final = Path("/etc/schedd/pbs-adapter.toml")
_KERNELS: Final = Path("/var/cache/schedd/kernels")
_MAX_CLOCK_DIFFERENCE_S: Final = 2
_MIN_FREE_BYTES: Final = 1 << 30
_FULL_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 5.0
_SPEED_INTERVAL_S: Final = 1.5
_GONE: Final = "systemctl status schedd; is SCHEDD_URL right?"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at: how it is, and what to do about it; empty where nothing is to be done."""

    part: str
    state: CheckState
    message: str
    remedy: str = ""


# ---- this host ----------------------------------------------------------------------------------


def check_host(config: Path | None) -> Iterator[CheckResult]:
    """Settings, rights, port, database and compiled kernels, as the daemon of this host has them."""
    path = find_config_file(config)
    if path is None:
        message = "no settings here (no $SCHEDD_CONFIG, no /etc/schedd/schedd.toml)"
        yield CheckResult("settings", "good", f"{message}: this is not the daemon's host")
        return
    provider: IdentityProvider | None = None
    try:
        settings = load_daemon_settings(config)
        provider = load_resources(settings).oidc
    except SettingsError as error:
        for line in str(error).splitlines():
            yield CheckResult("settings", "bad", line, f"fix it; schedd config check --config {path}")
    else:
        yield CheckResult("settings", "good", f"{path} can be used")
        for line in settings_advice(settings):
            yield CheckResult(
                "settings", "warn", line, "see docs/reference/configuration.md; leave it if it is intended"
            )
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o022:
            message = f"other users can write {path} (mode {mode:04o})"
            yield CheckResult("rights", "bad", message, f"chmod go-w {path}")
    # A fault elsewhere in the file, which is reported above, must not hide the state of port and database.
    with suppress(SettingsError):
        yield _check_port(read_server_settings(path))
    with suppress(SettingsError):
        yield from _check_database(read_store_settings(path))
    yield _check_kernels()
    if provider is not None:
        yield _check_provider(provider)


def _check_provider(oidc: IdentityProvider) -> CheckResult:
    part = "identity provider"
    try:
        asyncio.run(oidc.begin())
    except IdentityError as error:
        remedy = "check that it runs, and auth.oidc.issuer and ca_file; tokens and the socket work without it"
        return CheckResult(part, "warn", f"{error}: nobody can log in through it", remedy)
    return CheckResult(part, "good", "it answers; its keys are readable")


def _check_port(server: ServerSettings) -> CheckResult:
    host, port = server.host, server.port
    if not port:
        return CheckResult("port", "good", "the daemon chooses a free one (server.port = 0)")
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
        message = f"nothing listens on {host} port {port} ({_error_text(error)})"
        return CheckResult("port", "bad", message, "systemctl status schedd; journalctl -u schedd")
    return CheckResult("port", "good", f"{host} port {port} answers")


def _check_database(store: StoreSettings) -> Iterator[CheckResult]:
    text = store.url or default_url(create=False)
    if text == "memory":
        return  # the advice says it
    url = parse_database_url(text)
    file = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
    try:
        missing = file is not None and not file.exists()
    except OSError as error:
        remedy = "run this as root, or as the daemon's user"
        yield CheckResult("database", "bad", f"{file}: {_error_text(error).lower()}", remedy)
        return
    if missing:
        remedy = "start the daemon, which creates it; if it ran before, put the file or its backup back first"
        yield CheckResult("database", "bad", f"{file} does not exist", remedy)
        return
    try:
        present, needed = read_versions(text)
    except StoreError as error:
        yield CheckResult("database", "bad", str(error), "check that it runs, and that its user may connect")
        return
    if present != needed:
        message = f"its tables have version {present or 'none'}; this program needs {needed}"
        yield CheckResult("database", "bad", message, "stop the daemon, make a backup, `schedd migrate`")
    else:
        yield CheckResult(
            "database", "good", f"{redacted_url(url)} answers; its tables have version {needed}"
        )
        if file is not None:
            yield from _check_deliveries(text, file)
    if file is not None:
        yield _check_disk(file)


def _check_deliveries(url: str, database: Path) -> Iterator[CheckResult]:
    """Check the files next to a SQLite database with acknowledged events that may not be in it yet."""
    part = "deliveries"
    store = Store(Database(url))
    try:
        files = store.delivery_files()
    except StoreError as error:
        remedy = f"chown --reference={database} {database}.*.deliveries; run this as root"
        yield CheckResult(part, "bad", f"{error}: acknowledged events may be in it", remedy)
        return
    finally:
        store.close()
    for one in files:
        count = f"{one.waiting} acknowledged {'delivery' if one.waiting == 1 else 'deliveries'}"
        state = one.path.stat()
        size = f"{state.st_size / 2**20:.0f} MiB"
        if state.st_uid != database.stat().st_uid:
            message = f"{one.path} has another owner than the database: the daemon cannot use it"
            yield CheckResult(part, "bad", message, f"chown --reference={database} {one.path}")
        elif one.cluster is None and one.waiting:
            message = f"{one.path} has {count} of another database, which nothing reads here"
            remedy = (
                "put it back beside that database, or delete it: the first snapshot has the server's state"
            )
            yield CheckResult(part, "warn", message, remedy)
        elif one.cluster is not None:
            yield CheckResult(part, "good", f"{one.path}: {size}, {count} not yet in the log")


def _check_disk(file: Path) -> CheckResult:
    if os.statvfs(file.parent).f_flag & os.ST_RDONLY:
        message = f"the file system of {file} is read-only: no job is started"
        return CheckResult("disk", "bad", message, "`dmesg`; then `mount -o remount,rw` of its file system")
    free = shutil.disk_usage(file.parent).free
    files = [*(file.with_name(file.name + end) for end in ("", "-wal")), *find_files(file)]
    used = sum(one.stat().st_size for one in files if one.exists())
    message = f"{used / 2**20:.0f} MiB in use, {_format_free(free)} free on the disk of {file}"
    if free < max(_MIN_FREE_BYTES, used):
        return CheckResult(
            "disk",
            "warn" if free > _FULL_BYTES else "bad",
            message,
            "make room: on a full disk no job is started (docs/administrators/runbook.md)",
        )
    return CheckResult("disk", "good", message)


def _format_free(free: int) -> str:
    return f"{free / 2**30:.1f} GiB" if free >= 2**30 else f"{free / 2**20:.0f} MiB"


def _check_kernels() -> CheckResult:
    if are_built():
        level = next(iter(loaded_libraries().values())).parent.name
        return CheckResult("kernels", "good", f"they came compiled, for {level}")
    mine = cache_dir()
    for folder in (mine, _KERNELS / mine.name):
        with suppress(OSError):
            if any(folder.glob("schedd.plan.*.kernels")):
                return CheckResult("kernels", "good", f"they are compiled, in {folder}")
    message = f"the planner is not compiled for this version, neither in {mine} nor below {_KERNELS}"
    return CheckResult(
        "kernels", "warn", message, "nothing; the next start compiles it and takes up to a minute longer"
    )


def check_adapter_files(path: Path) -> Iterator[CheckResult]:
    """The adapter's settings and token, and whether it could reach the server; nothing where it has none."""
    try:
        if not path.exists():
            return
        found = load_settings(path, {})
    except (SettingsError, PermissionError) as error:
        message = str(error) if isinstance(error, SettingsError) else f"{path}: {_error_text(error).lower()}"
        for line in message.splitlines():
            yield CheckResult("adapter's settings", "bad", line, "fix it, or run this as root")
        return
    yield CheckResult("adapter's settings", "good", f"{path} can be used")
    if found.daemon.token_file is not None:
        yield _check_token(found.daemon.token_file, found.daemon.url)
    host, port = found.server.host, found.server.port
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:
        message = f"pbs_server does not answer on {host} port {port} ({_error_text(error)})"
        yield CheckResult("server", "bad", message, "systemctl status pbs_server (OpenPBS: pbs); a firewall?")
    else:
        yield CheckResult("server", "good", f"pbs_server answers on {host} port {port}")
    if found.mode == "scheduler" and found.server.family == "torque":
        yield from _check_scheduler_address(host, found.listen)


def _error_text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _check_scheduler_address(server: str, listen: ListenSettings) -> Iterator[CheckResult]:
    """Whether the adapter listens where a TORQUE server of this host calls its scheduler."""
    part = "server's calls"
    name, address = scheduler_address(server)
    if not is_local(server) or not address:
        return
    host, peers = listen.host, listen.peers
    if host not in (address, "0.0.0.0", "::"):
        message = f"pbs_server calls its scheduler at {address} ({name}), but the adapter listens on {host}"
        remedy = (
            f'set host = "{address}" and peers = ["{address}", "127.0.0.1"] in [listen]; restart pbs-adapter'
        )
        yield CheckResult(part, "bad", message, remedy)
    elif address not in peers and not address.startswith("127."):
        message = f"pbs_server calls from {address}, which is not in peers of [listen]: its calls are refused"
        yield CheckResult(part, "bad", message, f'add "{address}" to peers; restart pbs-adapter')
    else:
        yield CheckResult(
            part, "good", f"the adapter listens on {host}, where pbs_server calls its scheduler"
        )


def _check_token(path: Path, urls: Sequence[str]) -> CheckResult:
    """Whether only the adapter can read its token, and the daemons take it for an adapter's."""
    part = "adapter's token"
    remedy = f"(umask 077; schedd token create pbs-adapter --role adapter > {path})"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return CheckResult(part, "bad", f"{path}: {error.strerror}", remedy)
    if mode & 0o077:
        return CheckResult(
            part, "bad", f"{path}: other users can read it (mode {mode:04o})", f"chmod 0600 {path}"
        )
    for url in urls:
        try:
            token = path.read_text().strip()
            with Client(Endpoint(url, token), timeout=_TIMEOUT_S) as client:
                role = client.me().role
        except Refused as error:
            if error.kind == "no-token":
                remedy += "; systemctl restart pbs-adapter"
                return CheckResult(part, "bad", f"{path}: {url} refuses it: {error.detail}", remedy)
        except (ClientError, OSError, ValueError):
            continue  # a daemon that does not answer has its own line
        else:
            if role != "adapter":
                return CheckResult(part, "bad", f"{path}: it is a token of the role {role}", remedy)
    return CheckResult(part, "good", f"{path}: only its owner can read it")


# ---- the daemon ---------------------------------------------------------------------------------


def check_daemon(url: str, cluster: str) -> Iterator[CheckResult]:
    """Check the state of the daemon and of its clusters, or of the named one."""
    try:
        endpoint: Endpoint = find_endpoint()
        endpoint = endpoint._replace(url=url or endpoint.url, cluster=cluster)
        with Client(endpoint, timeout=_TIMEOUT_S) as client:
            yield _check_version(client)
            asked = time.time()
            clusters = client.clusters()
            between = asked, time.time()
            for one in clusters:
                if cluster in ("", one.name):
                    yield from _check_cluster(endpoint, one, between)
            if cluster and cluster not in [one.name for one in clusters]:
                yield CheckResult("daemon", "bad", f"it has no cluster {cluster}", "see `schedd config show`")
    except Unreachable as error:
        hangs = "nothing came within" in str(error)
        remedy = (
            "systemctl restart schedd, if its log is silent: journalctl -u schedd -n 50" if hangs else _GONE
        )
        yield CheckResult("daemon", "bad", str(error), remedy)
    except Refused as error:
        remedy = "`schedd token create NAME --role reader`, then SCHEDD_TOKEN=…"
        remedy = remedy if error.kind in ("no-token", "not-allowed") else "journalctl -u schedd"
        yield CheckResult("daemon", "bad", error.detail, remedy)
    except ClientError as error:
        yield CheckResult("daemon", "bad", str(error), "fix the client's settings")


def _check_version(client: Client) -> CheckResult:
    theirs = client.version()
    if theirs != __version__:
        message = f"it has version {theirs}, this program {__version__}"
        return CheckResult(
            "version", "warn", message, "systemctl restart schedd on the host with the newer version"
        )
    return CheckResult("version", "good", f"daemon and this program have version {theirs}")


def _check_cluster(
    endpoint: Endpoint, one: ClusterView, between: tuple[float, float]
) -> Iterator[CheckResult]:
    """``between``: when its state was asked for, and when the response came, which may take seconds."""
    name = one.name
    yield check_clock(name, one.now, between, lambda: _measure_clock_speed(endpoint, one, between[1]))
    yield from _check_adapter_contact(one)
    yield from _check_adapter_version(one)
    with Client(endpoint._replace(cluster=name), timeout=_TIMEOUT_S) as here:
        alerts = here.alerts()
        yield _check_dispatch(one)
        yield from _check_server(one)
        for alert in alerts:
            if not _is_reported_by_starts(one, alert):
                yield _convert_alert(name, alert)
        yield from _check_kill_delay(here, one)
        yield from _check_node_names(here, one.name)
    if one.events_waiting > 1_000:
        message = f"{name}: {one.events_waiting} events are waiting"
        yield CheckResult("planner", "warn", message, "`schedd_batch_seconds` shows the slow part")


def _is_reported_by_starts(one: ClusterView, alert: AlertView) -> bool:
    """Whether the check of job starts has reported this alert. A clock that was set back opens two."""
    starts = one.job_starts
    return alert.kind == starts.alert or (starts.alert == "clock" and CLOCK_SET_BACK in alert.text)


def check_clock(
    name: str, now: int, between: tuple[float, float], measure_speed: Callable[[], float]
) -> CheckResult:
    """Compare the clock of a cluster, which said ``now`` at a time ``between`` two of this host's clock."""
    asked, came = between
    apart = min(0.0, now + 1 - asked) + max(0.0, now - came)  # it tells whole seconds
    if abs(apart) <= _MAX_CLOCK_DIFFERENCE_S:
        return CheckResult("clock", "good", f"{name}: as this host's, within {_MAX_CLOCK_DIFFERENCE_S} s")
    speed = measure_speed()
    if speed > 1:
        message = f"{name}: its clock runs {speed:.0f} times as fast as this host's, as in a demo"
        return CheckResult("clock", "good", message)
    message = f"the clock of {name} is {apart:+.0f} s from this host's"
    return CheckResult("clock", "warn", message, "chronyc tracking, on both hosts")


def _measure_clock_speed(endpoint: Endpoint, one: ClusterView, came: float) -> float:
    """Return how many cluster seconds pass in a second, rounded; ``one`` was read at ``came``."""
    with Client(endpoint._replace(cluster=one.name), timeout=_TIMEOUT_S) as client:
        time.sleep(max(0.0, came + _SPEED_INTERVAL_S - time.time()))
        return round((client.cluster().now - one.now) / (time.time() - came))


def _check_adapter_contact(one: ClusterView) -> Iterator[CheckResult]:
    """Check whether the adapter ever called. Its silence is said by the check of starts, or by an alert."""
    name, heard = one.name, one.heard
    if heard is None:
        remedy = "systemctl status pbs-adapter, on the server's host; does its token have the role adapter?"
        yield CheckResult("adapter", "bad", f"{name}: no contact since this daemon leads", remedy)
    elif not one.stale:
        yield CheckResult("adapter", "good", f"{name}: last contact {one.now - heard} s ago")


def _check_adapter_version(one: ClusterView) -> Iterator[CheckResult]:
    """Check its version and clock (used for timestamps of events); unknown values are skipped."""
    name, version, ahead = one.name, one.adapter_version, one.adapter_ahead
    if version and version != __version__:
        message = f"{name}: the adapter has version {version}, this program {__version__}"
        yield CheckResult("version", "warn", message, "upgrade the older one, and restart it")
    if ahead is not None and abs(ahead) > _MAX_CLOCK_DIFFERENCE_S:
        message = f"{name}: the clock of the adapter's host is {ahead:+.0f} s from the daemon's"
        yield CheckResult(
            "clock", "bad", message, "chronyc tracking, on both hosts: starts would be early or late"
        )


def _check_dispatch(one: ClusterView) -> CheckResult:
    """Check whether jobs are started."""
    name, starts = one.name, one.job_starts
    if starts.state == "good":
        words = "jobs are started when they are due" if starts.words == "on" else starts.words
        return CheckResult("starts", "good", f"{name}: {words}", starts.remedy)
    reason = starts.reason if starts.state == "bad" else ""
    since = ""
    if starts.since is not None and " since " not in starts.words + reason:
        since = f"since {format_utc(starts.since)}"
    more = ", ".join(filter(None, (reason, since)))
    words = f"{name}: {starts.words}" + (f" ({more})" if more else "")
    resume = f"`schedd resume {name}`"
    if one.paused and starts.remedy != resume:
        return CheckResult(
            "starts", starts.state, f"{words}; also paused: {one.paused}", f"{starts.remedy}, then {resume}"
        )
    return CheckResult("starts", starts.state, words, starts.remedy)


def _check_server(one: ClusterView) -> Iterator[CheckResult]:
    name, server = one.name, one.server
    if one.heard is None:
        return
    if one.stale and not one.nodes:
        yield CheckResult("server", "warn", f"{name}: not known until the adapter's next snapshot")
        return
    if one.stale:
        message = f"{name}: its state is that of the last contact, {server.version or 'version unknown'}"
        yield CheckResult("server", "warn", message)
    else:
        yield CheckResult("server", "good", f"{name}: {server.version or 'version unknown'}")
    if one.mode == "scheduler" and not server.scheduling:
        remedy = "qmgr -c 'set server scheduling = True'"
        yield CheckResult(
            "server", "bad", f"{name}: its attribute scheduling is False: nothing is started", remedy
        )
    if "walltime" not in server.defaults:
        message = f"{name}: no resources_default.walltime: jobs without a walltime are assumed to take long"
        remedy = "qmgr -c 'set server resources_default.walltime = 24:00:00', or on each queue"
        yield CheckResult("server", "warn", message, remedy)
    held = [f"{key} = {value}" for key, value in sorted(server.limits.items())]
    if held:
        yield CheckResult("server", "good", f"{name}: its limits are {', '.join(held)}")
    if not server.open:
        message = f"{name}: query_other_jobs is False: users see only their own jobs in schedd, too"
        yield CheckResult("server", "good", message)
    if not one.nodes:
        yield CheckResult("server", "bad", f"{name}: no nodes are known", "pbsnodes -a; the adapter's log")


def _check_kill_delay(client: Client, one: ClusterView) -> Iterator[CheckResult]:
    """Check that preempted jobs of a TORQUE server can be requeued. Some callers may not read the policy."""
    delay = one.server.attributes.get("kill_delay")
    if one.server.family != "torque" or delay is None:
        return
    message = f"{one.name}: kill_delay is {delay} s: jobs are not requeued for others, since they would end"
    try:
        preemption = client.policy().site.get("preemption")
    except Refused:
        yield CheckResult("preemption", "good", message)
        return
    if preemption and "requeue" in preemption.get("methods", ("requeue",)):
        yield CheckResult("preemption", "warn", message, "qmgr -c 'unset server kill_delay'")


def _check_node_names(client: Client, cluster: str) -> Iterator[CheckResult]:
    """Check that tables by node or property name existing ones: others are without effect. Some callers may
    not read the policy.
    """
    try:
        site = client.policy().site
    except Refused:
        return
    rates = site.get("throughput") or {}
    tables = {"speeds": site.get("speeds") or {}, "power": site.get("power") or {}}
    tables |= {f"throughput.{application}": table for application, table in rates.items()}
    named = {place: [name for name in table if name != "*"] for place, table in tables.items()}
    if not any(named.values()):
        return
    known = {one for node in client.nodes() for one in (node.name, *node.properties)}
    for place, names in named.items():
        unknown = [name for name in names if name not in known]
        if not unknown or not known:
            continue
        message = (
            f"{cluster}: {place} names {shorten_list(unknown)}: no node is called so or has such a property"
        )
        booleans = [f"{name}=True" for name in unknown if f"{name}=True" in known]
        remedy = (
            f'write "{booleans[0]}", as it is an OpenPBS resource'
            if booleans
            else "pbsnodes -a has the names"
        )
        yield CheckResult("nodes", "warn", message, remedy)


def _convert_alert(name: str, alert: AlertView) -> CheckResult:
    text = _add_since(alert.text, alert)
    return CheckResult("alert", "bad" if alert.severe else "warn", f"{name}: {text}", alert.remedy)


def _add_since(text: str, alert: AlertView) -> str:
    return text if " since " in text else f"{text}, since {format_utc(alert.since)}"
