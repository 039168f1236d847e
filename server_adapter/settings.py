"""The adapter's settings: a TOML file, overridden by the command line."""

import pwd
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from schedd.wire import Mode
from schedd.wire.times import FloatSeconds


class SettingsError(Exception):
    """A setting that makes no sense: which one, where, and what is allowed."""


def _listed(value: object) -> object:
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else value


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Time = Annotated[FloatSeconds, Field(gt=0)]
"""Seconds, above 0."""
_MOVED = {
    ("run", "per_second"): "start_rate in [clusters.NAME] of schedd.toml",
    ("run", "per_node"): "start_rate_node in [clusters.NAME] of schedd.toml",
    ("tell", "threshold"): "tell_threshold in [clusters.NAME] of schedd.toml",
    ("tell", "per_second"): "tell_rate in [clusters.NAME] of schedd.toml",
}
"""What the daemon decides, and had a setting in both files: docs/decisions/011."""


class ServerSettings(_Section):
    """How pbs_server is reached."""

    family: str = "torque"
    """`torque` or `openpbs`."""
    owner: str = "root"
    """A server on this host must be a process of this user; empty: anybody's. With `auth = "none"` that is
    not checked."""
    host: str = "127.0.0.1"
    """Its address as it sees itself: the loopback does mostly."""
    port: int = Field(default=15001, ge=1, le=65535)
    """Its TCP port for batch requests."""
    user: str = "root"
    """As whom requests are made: one of the server's `managers`."""
    auth: Literal["auto", "privileged", "trqauthd", "munge", "none"] = "auto"
    """How it is to trust us: `privileged` (a source port below 1024: root or CAP_NET_BIND_SERVICE),
    `trqauthd`, `munge` (OpenPBS), `none` (an emulated server), or `auto`: for TORQUE privileged for root,
    else trqauthd; for OpenPBS a second connection from a privileged port vouches for the first."""
    trqauthd: Path = Path("/tmp/trqauthd-unix")
    """trqauthd's socket."""
    name: str = ""
    """The server's name for trqauthd; empty: its host."""
    timeout: Time = 30.0
    """An answer that takes longer is given up."""
    scheduler: str = "default"
    """The name by which we register at an OpenPBS server: any but `default` has its own partition."""
    logs: Path | None = None
    """Its directory `server_logs`: a start that it logs at the request of anybody but `schedulers` was a
    `qrun`."""
    schedulers: tuple[str, ...] = ("root", "Scheduler", "maui", "moab")
    """As whom schedulers start jobs."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.owner:
            try:
                pwd.getpwnam(self.owner)
            except KeyError:
                raise ValueError(f"owner: there is no user {self.owner}") from None
        return self

    @property
    def owner_id(self) -> int | None:
        """The user id that pbs_server's process must have; None where that is not checked."""
        return pwd.getpwnam(self.owner).pw_uid if self.owner and self.auth != "none" else None


class ListenSettings(_Section):
    """Where pbs_server finds its scheduler."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=15004, ge=0, le=65535)
    """The server's `scheduler_port`; 0: any free one."""
    peers: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses from which it may call."""
    any_port: bool = False
    """It may call from a port above 1023 (an emulated server)."""


class DaemonSettings(_Section):
    """Where schedd is."""

    url: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] = (
        "http://127.0.0.1:8080",
    )
    """Its address, or a list: leader and standby, of which the one that leads is followed."""
    token_file: Path | None = None
    """File with the adapter's token and nothing else; the daemon must know it with the role `adapter`."""
    wait: Annotated[FloatSeconds, Field(ge=0, le=60)] = 30.0
    """How long a question for decisions may stay open."""


class PollSettings(_Section):
    """How often the server is read."""

    interval: Time = 5.0
    """At the latest after this,"""
    gap: Time = 0.1
    """at the earliest after this."""
    snapshot: Time = 600.0
    """A whole snapshot goes out so often."""


class RunSettings(_Section):
    """How jobs are started. How many a second, schedd.toml says."""

    asynchronous: bool = True
    """Runs are answered before the node has the job."""
    busy_retries: int = Field(default=3, ge=0, le=60)
    """A run that the server refuses as busy for now is asked for so often again,"""
    busy_wait: Time = 1.0
    """after this."""


class TellSettings(_Section):
    """What is written on jobs. When a start is told again, schedd.toml says."""

    comment: bool = True
    """Planned start and nodes, or why there is none, as the job's comment."""
    start_time: bool = False
    """`start_time` of queued jobs, which `qstat -f` prints as a date; portals may read it as started."""
    planned: bool = True
    """planned_start and planned_nodes, where the server knows them."""
    start: Literal["planned", "expected"] = "planned"
    """Which start `start_time`, or OpenPBS's `estimated.start_time`, carries: where the plan has the job, or
    when it is expected by how long jobs really run. The comment has both."""
    soft_walltime: bool = False
    """How long nine of ten such jobs run is written as an OpenPBS job's `soft_walltime`, where it has none of
    its own: pbs_sched plans with that, too. Its owner can then not `qalter` its walltime below it."""


class PowerSettings(_Section):
    """The site's commands that switch nodes; schedd.toml says when, `[clusters.NAME.site.power_saving]`."""

    on: tuple[str, ...] = ()
    """Program with arguments that switches nodes on: their names follow as further arguments."""
    off: tuple[str, ...] = ()
    """The same to switch them off. Without both of them nothing is switched."""
    timeout: Time = 60.0
    """A command that takes longer is killed, and counts as failed."""
    at_once: int = Field(default=50, ge=1, le=1000)
    """So many names at most are given to one command."""


class DrainSettings(_Section):
    """Routing queues whose jobs go to a federation. TORQUE alone; only in the mode `scheduler`."""

    queues: tuple[str, ...] = ()
    """Their names; none: nothing is drained."""
    federation: str = Field(default="", pattern=r"^(https?://.*)?$")
    """The federation's address."""
    token_file: Path | None = None
    """File with a token of the federation's role `admin` and nothing else: it speaks for the jobs' owners."""
    realm: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,100}$")
    """Users of this server are USER@REALM there."""
    scripts: Path = Path("/var/spool/torque/server_priv/jobs")
    """The server's directory with the scripts of jobs."""
    interval: Time = 5.0
    """How often the queues are looked at."""
    timeout: Time = 10.0
    """An answer of the federation that takes longer is given up: the job stays on hold until the next try."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.queues and not (self.federation and self.realm and self.token_file is not None):
            raise ValueError("queues: to drain them, federation, token_file and realm are needed, too")
        return self


class Settings(_Section):
    """What belongs to this server; the defaults are those of the rules."""

    cluster: str = "main"
    """The server's name in schedd.toml: `[clusters.main]`."""
    mode: Mode = "shadow"
    """`shadow` only watches, `adviser` also writes planned starts on jobs, `scheduler` also starts them. It
    is set here alone: the daemon follows."""
    handovers: bool = False
    """Jobs that a federation hands over are submitted in their users' names, let run, and taken back; only in
    the mode `scheduler`, and only by a TORQUE server's root or manager."""
    state_dir: Path = Path("/var/lib/pbs-adapter")
    """Where the adapter remembers."""
    server: ServerSettings = ServerSettings()
    """See `[server]`."""
    listen: ListenSettings = ListenSettings()
    """See `[listen]`."""
    daemon: DaemonSettings = DaemonSettings()
    """See `[daemon]`."""
    poll: PollSettings = PollSettings()
    """See `[poll]`."""
    run: RunSettings = RunSettings()
    """See `[run]`."""
    tell: TellSettings = TellSettings()
    """See `[tell]`."""
    power: PowerSettings = PowerSettings()
    """See `[power]`."""
    drain: DrainSettings = DrainSettings()
    """See `[drain]`."""

    @model_validator(mode="before")
    @classmethod
    def _one_home(cls, given: Any) -> Any:
        """What the daemon decides is refused here, with the name that it has there."""
        for (section, name), home in _MOVED.items():
            table = given.get(section) if isinstance(given, dict) else None
            if isinstance(table, dict) and name in table:
                raise ValueError(f"{section}.{name} stands elsewhere: set {home}, and remove it here")
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.poll.gap > self.poll.interval:
            raise ValueError("poll.gap must not be longer than poll.interval")
        if not all(url.startswith(("http://", "https://")) for url in self.daemon.url):
            raise ValueError("daemon.url must begin with http:// or https://")
        return self


def load_settings(path: Path | None, overrides: dict[str, Any]) -> Settings:
    """Settings from a TOML file (or none), with `overrides` such as `{"daemon.url": …}` on top.

    Raises `SettingsError`.
    """
    values: dict[str, Any] = {}
    where = "the command line" if path is None else str(path)
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} is no TOML file: {error}") from error
    for key, value in overrides.items():
        section, dot, name = key.rpartition(".")
        target = values
        if dot:
            target = values.setdefault(section, {})
            if not isinstance(target, dict):
                raise SettingsError(f"{where}: {section} must be a table, [{section}]")
        target[name] = value
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = [_in_words(item) for item in error.errors()]
        raise SettingsError(f"{where}: " + "; ".join(problems)) from error


def read_token(path: Path | None) -> str:
    """The token in the file, its first line; empty without a file. Raises `SettingsError`."""
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"token file {path} cannot be read: {error}") from error
    if not token or len(token.split()) != 1:
        raise SettingsError(f"token file {path} must hold one token and nothing else")
    return token


def _in_words(item: Any) -> str:
    name = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"{name} is no setting"
    message = item["msg"].removeprefix("Value error, ")
    given = f" (it is {item['input']!r})" if name and not isinstance(item["input"], dict) else ""
    return f"{name}: {message}{given}" if name else message
