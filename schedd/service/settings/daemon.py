"""Settings of the daemon as a whole: server, request limits, notifications, log and database."""

import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, field_validator, model_validator

from schedd.service.settings.targets import parse_allowed
from schedd.wire.section import Section
from schedd.wire.times import Days, FloatSeconds, Seconds

if TYPE_CHECKING:
    from schedd.store import RetentionLimits

_DAY = 86_400
_SQLITE_FILE = re.compile(r"(sqlite:///)?[^:?]+")  # also `memory`: nothing to check


class ServerSettings(Section):
    """Where the daemon listens. Changes need a restart, except a renewed certificate."""

    host: str = "127.0.0.1"
    """Address or name to listen on."""
    port: int = Field(default=8080, ge=0, le=65535)
    """TCP port; 0: any free one."""
    root: str = Field(default="", pattern=r"^(/[^/\s]+)*$")
    """Path of the daemon at a reverse proxy, such as `/schedd`; empty for none."""
    socket: Path | None = None
    """Also listen on this UNIX socket. The kernel identifies the user of each connection: root and the
    daemon's
    own user are admins."""
    tls_certificate: Path | None = None
    """Certificate with its chain (PEM). The port then speaks HTTPS only. Read again on reload."""
    tls_key: Path | None = None
    """Key of the certificate (PEM, without a passphrase), if it is in another file."""
    allow_remote: bool = False
    """Allow an address that other machines can reach without TLS, or with anonymous readers. Without TLS,
    tokens are sent in clear text unless a proxy or tunnel encrypts them."""
    max_body_mib: int = Field(default=64, ge=1, le=4096)
    """Larger request bodies are refused."""

    @model_validator(mode="after")
    def _stay_local(self) -> Self:
        if self.tls_key is not None and self.tls_certificate is None:
            raise ValueError("tls_key needs a tls_certificate")
        if not self.allow_remote and not self.tls_certificate and not self.local:
            raise ValueError(
                f"host {self.host!r} can be reached from other machines, and tokens would travel "
                "unencrypted. Set tls_certificate, or use 127.0.0.1 behind a proxy with TLS, or set "
                "allow_remote = true if the network is closed"
            )
        return self

    @property
    def local(self) -> bool:
        """Whether only this host can reach the port."""
        return _is_loopback(self.host)


class LimitSettings(Section):
    """Limits on requests. Changes apply after a reload; changes of the last three settings to new
    connections.
    Rates are requests per second, averaged over two seconds; 0: no limit. Requests beyond them get 429 and
    the time to retry.
    """

    user_rate: float = Field(default=50, ge=0, le=1e6)
    """Requests per second of one user, or of one address if anonymous users may read."""
    user_cpu: float = Field(default=0.1, ge=0, le=64)
    """Processor time for the requests of one user, or of one address if anonymous users may read, in seconds
    per second, averaged over ten seconds; 0: no limit. The planner's work for them counts, too."""
    token_rate: float = Field(default=10_000, ge=0, le=1e6)
    """Requests per second with tokens of one name and a role other than `user`, and of one operator or
    admin."""
    refused_rate: float = Field(default=5, ge=0, le=1e6)
    """Requests per second of one address with a wrong token or none; beyond that not even 401 is sent."""
    io_timeout: FloatSeconds = Field(default=30, ge=0.1, le=3600)
    """Time for a request to arrive completely, and for a client to read more of its answer. A connection
    without any data is closed after 5 s."""
    streams: int = Field(default=50, ge=1, le=100_000)
    """Simultaneous event streams of one user, or of one address if anonymous users may read."""
    connections: int = Field(default=1_000, ge=1, le=100_000)
    """Simultaneous connections; a quarter is reserved for known users. At the limit an idle connection is
    closed for a new one; if none is idle, the new one gets 503."""
    connections_per_address: int = Field(default=250, ge=1, le=100_000)
    """Of these, from one address; on the UNIX socket, of one user. A proxy counts as one address."""


class WebhookSettings(Section):
    """Where to report moved starts and alerts. Changes need a restart."""

    url: str = Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=2_000)
    """`https://…` URL for each change; `http://` only on a closed network."""
    secret_file: Path
    """File with the secret that signs each request. Only the daemon's user may have access to it."""
    moves: bool = True
    """Report planned starts that moved."""
    alerts: bool = False
    """Report alerts that opened and closed."""
    threshold: Seconds = 900
    """Smaller moves since the last report are not reported."""
    clusters: tuple[str, ...] = ()
    """Only of these clusters; empty: of all."""
    users: tuple[str, ...] = ()
    """Only jobs of these owners; empty: of all."""
    allow: tuple[str, ...] = ()
    """Host names and networks (`10.1.0.0/16`) that may be called although they are not public:
    loopback, link-local, private and reserved addresses are refused otherwise. An IP address in `url` is
    allowed."""

    @field_validator("allow")
    @classmethod
    def _validate_allow(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        parse_allowed(allow)
        return allow


class LogSettings(Section):
    """What the daemon writes to standard error. Changes apply after a reload."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity to write."""
    format: Literal["json", "text"] = "json"
    """One JSON object per line, or plain text."""


class StoreSettings(Section):
    """The database of events, decisions, promises and checkpoints. Changes need a restart."""

    url: str = ""
    """`sqlite:///PATH` or `postgresql://USER@HOST/NAME`. Empty: the file schedd.sqlite in systemd's state
    directory, else in ~/.local/state/schedd. `memory` keeps nothing after the process ends."""
    holder: str = ""
    """Name of this daemon, if two use the same database; empty: the host's name. A daemon that restarts under
    its name leads again at once."""
    lease: FloatSeconds = Field(default=6.0, ge=1, le=60)
    """Time without renewal after which another daemon may lead."""
    checkpoint: FloatSeconds = Field(default=5.0, ge=0.1, le=3600)
    """Time between two checkpoints of the plan."""
    watermarks: Path | None = None
    """Folder of the watermark files, which have the position of the event log, by which a database with
    lost data is detected. Default: the folder of the SQLite file, else `marks` in the state directory.
    Best on another disk.
    """
    plan_metrics_every: FloatSeconds = Field(default=60.0, ge=0, le=86_400)
    """Time between two stored evaluations of the plan, while it changes; 0: none. With `memory` the last
    1,440 are kept."""
    incidents: Path | None = None
    """Folder for incidents: what led to a planner's stop or to a job set aside, for `schedd rerun`; the
    newest twenty are kept. Default: `incidents` in the state directory, none with `memory`."""
    keep_events: Days = Field(default=30, gt=0, le=3660)
    """How long events, and the planner's calls, are kept."""
    keep_decisions: Days = Field(default=90, gt=0, le=3660)
    """How long decisions and their outcomes are kept."""
    keep_history: Days = Field(default=400, gt=0, le=3660)
    """How long published starts, promises and the history of jobs and nodes are kept."""
    keep_plan_metrics: Days = Field(default=90, gt=0, le=3660)
    """How long evaluations of the plan and reports of searches are kept."""
    keep_audit: Days = Field(default=400, gt=0, le=3660)
    """How long the audit is kept."""

    @field_validator("url")
    @classmethod
    def _name_a_database(cls, url: str) -> str:
        if url and not _SQLITE_FILE.fullmatch(url):
            from schedd.store import StoreError  # noqa: PLC0415  (SQLAlchemy takes long to import)
            from schedd.store.connections import parse_database_url  # noqa: PLC0415

            try:
                parse_database_url(url)
            except StoreError as error:
                raise ValueError(str(error)) from None
        return url

    @property
    def limits(self) -> "RetentionLimits":
        """The retention times in the store's form."""
        from schedd.store import RetentionLimits  # noqa: PLC0415

        return RetentionLimits(
            events=int(self.keep_events * _DAY),
            decisions=int(self.keep_decisions * _DAY),
            start_estimates=int(self.keep_history * _DAY),
            promises=int(self.keep_history * _DAY),
            jobs=int(self.keep_history * _DAY),
            plan_metrics=int(self.keep_plan_metrics * _DAY),
            audit=int(self.keep_audit * _DAY),
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
