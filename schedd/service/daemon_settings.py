"""What the daemon as a whole is told: where it listens, who may ask what, what it keeps and says."""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from schedd.service.section import Section
from schedd.service.targets import networks_of
from schedd.store import Limits, StoreError
from schedd.store.connect import url_of
from schedd.wire.times import Days, FloatSeconds, Seconds

__all__ = [
    "LimitSettings",
    "LogSettings",
    "NotifySettings",
    "ServerSettings",
    "StoreSettings",
    "WebhookSettings",
]

_DAY = 86_400


class ServerSettings(Section):
    """Where the daemon listens. Changes need a restart, but for a renewed certificate."""

    host: str = "127.0.0.1"
    """Address or name to listen on."""
    port: int = Field(default=8080, ge=0, le=65535)
    """TCP port; 0 takes any free one."""
    root: str = Field(default="", pattern=r"^(/[^/\s]+)*$")
    """Path under which a reverse proxy shows the daemon, such as `/schedd`; empty for none."""
    socket: Path | None = None
    """UNIX socket to listen on besides. Who asks there is known by the peer's user: root and the daemon's own
    user are admins."""
    tls_certificate: Path | None = None
    """Certificate (with its chain, PEM): the port then speaks HTTPS. Read anew on reload."""
    tls_key: Path | None = None
    """The certificate's key (PEM, without a passphrase), if it is not in the same file."""
    allow_remote: bool = False
    """Listen on an address that other machines can reach though there is no TLS, or though strangers may
    read. Without TLS tokens travel readably unless a proxy or a tunnel encrypts them."""
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
    """How much one may ask. Changes count after a reload, those of the last three for new connections.

    Rates are requests a second over two seconds; 0: no limit. Who asks more gets 429 and when to come again.
    """

    user_rate: float = Field(default=50, ge=0, le=1e6)
    """Of one user, or of one address where strangers may read."""
    token_rate: float = Field(default=10_000, ge=0, le=1e6)
    """Of all who show tokens of one name and a role other than `user`, and of one operator or admin."""
    refused_rate: float = Field(default=5, ge=0, le=1e6)
    """Of one address, of requests that show a wrong token or none; then even their 401 is spared."""
    patience: FloatSeconds = Field(default=30, ge=0.1, le=3600)
    """Time for a request to arrive whole, and for a client to take more of its answer. A connection that
    says nothing at all is closed after 5."""
    streams: int = Field(default=50, ge=1, le=100_000)
    """Streams of events at a time of one user, or of one address where strangers may read."""
    connections: int = Field(default=1_000, ge=1, le=100_000)
    """Connections at a time, a quarter of which is kept for those who are known. For who comes then, one that
    waits for its next request makes room; who finds none such gets 503."""
    connections_one: int = Field(default=250, ge=1, le=100_000)
    """Of these so many from one address; on the UNIX socket, of one user. A proxy before the daemon is one
    address."""


class WebhookSettings(Section):
    """Where to tell of planned starts that moved, and of alerts. Changes need a restart."""

    url: str = Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=2_000)
    """`https://…`, to which each change is posted; `http://` only where the network is closed."""
    secret_file: Path
    """File with the secret that signs each request. Nobody but the daemon's user may have access to it."""
    moves: bool = True
    """Tell of planned starts that moved."""
    alerts: bool = False
    """Tell of alerts that opened and closed."""
    threshold: Seconds = 900
    """Smaller moves since the last telling are not told."""
    clusters: tuple[str, ...] = ()
    """Of these clusters alone; empty: of all."""
    users: tuple[str, ...] = ()
    """Jobs of these owners alone; empty: of all."""
    allow: tuple[str, ...] = ()
    """Hosts by name, and networks (`10.1.0.0/16`), to which requests may go though they are not of the world:
    loopback, link-local, private and reserved addresses are refused else. An address in `url` is meant."""

    @field_validator("allow")
    @classmethod
    def _allow_what_can_be_read(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        networks_of(allow)
        return allow


class NotifySettings(Section):
    """Mail and commands for users who ask for them with `schedd notify`. Without a relay and without commands
    none is sent. Changes need a restart.
    """

    relay: str = Field(default="", pattern=r"^([^\s:]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}$|^$")
    """`HOST:PORT` of the mail relay that takes mail from this host; empty: no mail."""
    starttls: bool = False
    """Ask the relay for TLS (STARTTLS), else send nothing. Its certificate must be one that this host
    trusts, or `ca_file`."""
    ca_file: Path | None = None
    """Certificates (PEM) by which the relay is known instead of those that this host trusts."""
    user: str = Field(default="", max_length=320)
    """By what name the relay knows us; empty: by this host's address. Only with `starttls`."""
    password_file: Path | None = None
    """File with the password of `user`. Nobody but the daemon's user may have access to it."""
    sender: str = Field(default="", pattern=r"^[^\s@<>,]+@[^\s@<>,]+$|^$")
    """Who sends, such as `schedd@example.org`."""
    domains: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,253}$")], ...] = ()
    """Mail goes to addresses in these domains alone; who names none gets it at USER@ the first."""
    commands: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")], tuple[str, ...]] = Field(
        default_factory=dict
    )
    """Commands that users may choose by name: `{ sms = ["/usr/local/bin/sms"] }`. Each gets a notice as JSON
    on its standard input, and nothing of it as an argument."""
    most: int = Field(default=20, ge=1, le=1_000)
    """So many wishes of one user."""
    hourly: int = Field(default=20, ge=1, le=10_000)
    """So many notices to one user an hour; what is due then waits, and is told as it is by then."""

    @property
    def on(self) -> bool:
        """Whether any notice is ever sent."""
        return bool(self.relay or self.commands)

    @model_validator(mode="after")
    def _can_be_sent(self) -> Self:
        if self.relay and not (self.sender and self.domains):
            raise ValueError("relay needs a sender, and the domains to which mail may go")
        if bool(self.user) != (self.password_file is not None):
            raise ValueError("user and password_file belong together")
        if self.user and not self.starttls:
            raise ValueError("user: a password goes to the relay over TLS alone; starttls = true")
        if self.ca_file is not None and not self.starttls:
            raise ValueError("ca_file counts with starttls = true alone")
        for name, command in self.commands.items():
            if not command or not command[0].startswith("/"):
                raise ValueError(f"commands.{name}: a list of words, of which the first is a whole path")
        return self


class LogSettings(Section):
    """What the daemon writes to its standard error. Changes count after a reload."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe messages that are written."""
    format: Literal["json", "text"] = "json"
    """One JSON object a line, or text for people."""


class StoreSettings(Section):
    """What must not be lost: events, decisions, promises, checkpoints. Changes need a restart."""

    url: str = ""
    """`sqlite:///PATH` or `postgresql://USER@HOST/NAME`. Empty: the file schedd.sqlite in systemd's state
    directory, else in ~/.local/state/schedd. `memory` keeps nothing beyond the process."""
    holder: str = ""
    """Name of this daemon beside another on the same database; empty: the host's name. A daemon that is
    started again under its name leads again at once."""
    lease: FloatSeconds = Field(default=6.0, ge=1, le=60)
    """Time after which another daemon may lead when this one is not heard of."""
    checkpoint: FloatSeconds = Field(default=5.0, ge=0.1, le=3600)
    """Time between two checkpoints of the plan."""
    marks: Path | None = None
    """Folder of the marks by which a database that lost something is known: how far the log went, remembered
    outside of it. Default: that of a SQLite file, else `marks` in the state directory. Best on another
    disk."""
    evaluate_every: FloatSeconds = Field(default=60.0, ge=0, le=86_400)
    """Time between two evaluations of the plan that are kept, while it changes; 0: none are. With `memory`
    the last 1,440 are kept."""
    incidents: Path | None = None
    """Folder for what led to a planner's stop or to a job set aside, for `schedd rerun`; the newest twenty
    are kept. Default: `incidents` in the state directory, none with `memory`."""
    keep_events: Days = Field(default=30, gt=0, le=3660)
    """How long events are kept, and what the planner was called with."""
    keep_decisions: Days = Field(default=90, gt=0, le=3660)
    """How long decisions are kept, with their outcomes."""
    keep_told: Days = Field(default=400, gt=0, le=3660)
    """How long told starts and promises are kept, and what became of jobs and nodes."""
    keep_quality: Days = Field(default=90, gt=0, le=3660)
    """How long evaluations of the plan and reports of searches are kept."""
    keep_audit: Days = Field(default=400, gt=0, le=3660)
    """How long it is kept who did what."""

    @field_validator("url")
    @classmethod
    def _name_a_database(cls, url: str) -> str:
        if url not in ("", "memory"):
            try:
                url_of(url)
            except StoreError as error:
                raise ValueError(str(error)) from None
        return url

    @property
    def limits(self) -> Limits:
        """The same for the store."""
        return Limits(
            events=int(self.keep_events * _DAY),
            decisions=int(self.keep_decisions * _DAY),
            told=int(self.keep_told * _DAY),
            promises=int(self.keep_told * _DAY),
            jobs=int(self.keep_told * _DAY),
            quality=int(self.keep_quality * _DAY),
            audit=int(self.keep_audit * _DAY),
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
