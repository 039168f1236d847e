"""The adapter's settings: a TOML file, overridden by the command line."""

import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from schedd.wire import Mode
from schedd.wire.section import Section, SettingConflictError
from schedd.wire.settings_file import load_settings_file
from schedd.wire.times import FloatSeconds


def _listed(value: object) -> object:
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else value


Time = Annotated[FloatSeconds, Field(gt=0)]  # seconds, above 0
_FAMILY_NAMES = {"torque": "TORQUE", "openpbs": "OpenPBS"}


class PbsServerSettings(Section):
    """Connection to pbs_server."""

    family: Literal["torque", "openpbs"] = "torque"
    """`torque` or `openpbs`."""
    owner: str = "root"
    """If the server is on this host, its process must belong to this user; empty: any user. Not checked with
    `auth = "none"`."""
    host: str = "127.0.0.1"
    """Address of the server; on its own host usually the loopback."""
    port: int = Field(default=15001, ge=1, le=65535)
    """Its TCP port for batch requests."""
    user: str = "root"
    """User name for requests: one of the server's `managers`."""
    auth: Literal["auto", "privileged", "trqauthd", "munge", "none"] = "auto"
    """How the adapter authenticates: `privileged` (a source port below 1024: root or CAP_NET_BIND_SERVICE),
    `trqauthd`, `munge` (OpenPBS), `none` (an emulated server), or `auto`: for TORQUE privileged as root, else
    trqauthd; for OpenPBS a second connection from a privileged port authenticates the first."""
    trqauthd: Path = Path("/tmp/trqauthd-unix")
    """Socket of trqauthd."""
    name: str = ""
    """Server name to give to trqauthd; empty: `host`."""
    timeout: Time = 30.0
    """Time limit for an answer of the server."""
    renew: Time = 1200.0
    """Maximum age of a connection; then a new one is authenticated. A server believes a credential for
    1,800 s (OpenPBS) or 3,600 s (TORQUE, unless its attribute `credential_lifetime` says otherwise)."""
    scheduler: str = "default"
    """Scheduler name to register at an OpenPBS server: any name but `default` has a partition of its own."""
    plan_by: Literal["host", "vnode"] = "host"
    """Nodes of the plan at an OpenPBS server: a `host` with all its vnodes, as `scatter`, `pack`
    and `exclhost` mean it, or each `vnode`, as if it were a host of its own; hosts with
    `sharing=default_exclhost` or `force_exclhost` stay whole."""
    logs: Path | None = None
    """The server's directory `server_logs`: a start logged there for any user not in `schedulers` was a
    `qrun`."""
    schedulers: tuple[str, ...] = ("root", "Scheduler", "maui", "moab")
    """User names used by schedulers to start jobs."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.owner:
            try:
                pwd.getpwnam(self.owner)
            except KeyError:
                raise SettingConflictError(("owner",), f"there is no user {self.owner}") from None
        return self

    @model_validator(mode="after")
    def _authenticate_as_the_family_does(self) -> Self:
        if self.auth == ("munge" if self.family == "torque" else "trqauthd"):
            raise SettingConflictError(("auth",), f"{self.auth} is no way of {_FAMILY_NAMES[self.family]}'s")
        return self

    @property
    def owner_id(self) -> int | None:
        """The user id that pbs_server's process must have; None where that is not checked."""
        return pwd.getpwnam(self.owner).pw_uid if self.owner and self.auth != "none" else None


class ListenSettings(Section):
    """Where the adapter listens for pbs_server, which contacts its scheduler there."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=15004, ge=0, le=65535)
    """The server's `scheduler_port`; 0: any free port."""
    peers: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses of the server, allowed to connect."""
    any_port: bool = False
    """Accept connections from ports above 1023 (an emulated server)."""


class DaemonSettings(Section):
    """Connection to the daemon."""

    url: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] = (
        "http://127.0.0.1:8080",
    )
    """Address of the daemon, or a list (leader and standby); the adapter follows the leader."""
    token_file: Path | None = None
    """File that contains only the adapter's token; the daemon must know it with the role `adapter`."""
    wait: Annotated[FloatSeconds, Field(ge=0, le=60)] = 30.0
    """How long a request for decisions stays open (long poll)."""


class PollSettings(Section):
    """How often the server is polled."""

    interval: Time = 5.0
    """Longest time between two polls. If they are short, every fifth of it."""
    gap: Time = 0.02
    """Shortest time between two polls. It is never shorter than the last poll took."""
    snapshot: Time = 600.0
    """Time between two complete snapshots."""


class RunSettings(Section):
    """How jobs are started. Rates are set in schedd.toml."""

    asynchronous: bool = True
    """Ask the server to answer before the node has the job (asynchronous run). At TORQUE only for the first
    start of a job: a later one shows why the job came back."""
    busy_retries: int = Field(default=6, ge=0, le=60)
    """Retries of a start that the server refuses as busy for now."""
    busy_wait: Time = 1.0
    """Longest wait before a retry. The first is a tenth of it, each later one twice the one before."""


class TellSettings(Section):
    """Attributes written on jobs. The thresholds for repeated writes are set in schedd.toml."""

    comment: bool = True
    """Write planned start and nodes, or the reason why there is none, as the job's comment."""
    start_time: bool = False
    """Write `start_time` of queued jobs, which `qstat -f` prints as a date; portals may take such jobs as
    started."""
    planned: bool = True
    """Write planned_start and planned_nodes, if the server knows them."""
    start: Literal["planned", "expected"] = "planned"
    """Which start goes into `start_time`, or OpenPBS's `estimated.start_time`: the planned one, or the one
    expected from how long jobs really run. The comment has both."""
    portal: bool = False
    """Write starts as portals such as Open OnDemand read them: the expected start as `start_time` (TORQUE) or
    `estimated.start_time` (OpenPBS), as with `start_time = true` and `start = "expected"`."""
    soft_walltime: bool = False
    """Write the P90 run time of similar jobs as an OpenPBS job's `soft_walltime`, if it has none: pbs_sched
    plans with it, too. Its owner can then not `qalter` its walltime below it."""

    @property
    def writes_start_time(self) -> bool:
        """Whether TORQUE's `start_time` is written."""
        return self.start_time or self.portal

    @property
    def writes_expected(self) -> bool:
        """Whether expected starts are written in place of planned ones."""
        return self.portal or self.start == "expected"


class PowerCommandSettings(Section):
    """The site's commands that switch nodes. When they are called is set in schedd.toml,
    `[clusters.NAME.site.power_saving]`.
    """

    on: tuple[str, ...] = ()
    """Program with arguments that switches nodes on: the node names follow as further arguments."""
    off: tuple[str, ...] = ()
    """Program that switches nodes off. Nothing is switched unless both are set."""
    timeout: Time = 60.0
    """Time limit of a command; then it is killed and counts as failed."""
    at_once: int = Field(default=50, ge=1, le=1000)
    """Maximum number of node names for one command."""


class DrainSettings(Section):
    """Routing queues drained to a federation, in the mode `scheduler`."""

    queues: tuple[str, ...] = ()
    """Names of the queues; none: nothing is drained."""
    federation: str = Field(default="", pattern=r"^(https?://.*)?$")
    """Address of the federation."""
    token_file: Path | None = None
    """File that contains only a token of the federation's role `admin`: it acts for the jobs' owners."""
    realm: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,100}$")
    """Users of this server are called USER@REALM there."""
    scripts: Path = Path("/var/spool/torque/server_priv/jobs")
    """TORQUE: the server's directory with the job scripts."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """OpenPBS: address of this host as seen by the server, which moves jobs there."""
    port: int = Field(default=0, ge=0, le=65535)
    """OpenPBS: port for it. 0: any that is free."""
    interval: Time = 5.0
    """Time between two checks of the queues."""
    timeout: Time = 10.0
    """Time limit for an answer of the federation; then the job stays on hold until the next try."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.queues and not (self.federation and self.realm and self.token_file is not None):
            raise ValueError("queues: to drain them, federation, token_file and realm are needed, too")
        return self


class AdapterSettings(Section):
    """Settings of the adapter, on the host of the PBS server."""

    cluster: str = "main"
    """Name of this cluster in schedd.toml: `[clusters.main]`."""
    mode: Mode = "shadow"
    """`shadow` only reads, `adviser` also writes planned starts on jobs, `scheduler` also starts jobs. Set
    here only: the daemon follows."""
    transfers: bool = False
    """Accept jobs from a federation: submit them in their users' names, release them, and take them back.
    Only in the mode `scheduler`, and only as root or manager of a TORQUE server, or root of an OpenPBS
    server."""
    state_dir: Path = Path("/var/lib/pbs-adapter")
    """Directory of the adapter's state."""
    server: PbsServerSettings = PbsServerSettings()
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
    power: PowerCommandSettings = PowerCommandSettings()
    """See `[power]`."""
    drain: DrainSettings = DrainSettings()
    """See `[drain]`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.poll.gap > self.poll.interval:
            raise ValueError("poll.gap must not be longer than poll.interval")
        if not all(url.startswith(("http://", "https://")) for url in self.daemon.url):
            raise ValueError("daemon.url must begin with http:// or https://")
        return self


def load_settings(path: Path | None, options: Mapping[str, Any]) -> AdapterSettings:
    """Return the settings of a file (or none), overridden by ``options`` such as ``{"daemon.url": …}``.

    Raises SettingsError.
    """
    return load_settings_file(
        AdapterSettings, path, options, reference="`schedd config reference` lists all settings"
    )
