"""The daemon's settings: a TOML file, overridden by the environment (``SCHEDD_SERVER__PORT=8081``)."""

import ipaddress
import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from schedd.engine import EngineSettings
from schedd.engine.settings import SITE_SLACK, SITE_SLACK_SHARE, SITE_START_RATE, SITE_START_RATE_NODE
from schedd.engine.slack import Slack
from schedd.service.section import Section
from schedd.service.site_settings import SiteSettings
from schedd.store import Limits, Role, StoreError
from schedd.store.connect import url_of
from schedd.wire.times import Days, FloatSeconds, InWords, Seconds, Step, Whole

__all__ = [
    "NAME_OF_TOKEN",
    "AuthSettings",
    "ClusterSettings",
    "LimitSettings",
    "LogSettings",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "TokenSettings",
    "WebhookSettings",
    "load",
]


QueueName = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{1,255}$")]
SlackText = Annotated[
    str,
    BeforeValidator(lambda value: str(Slack.parse(value if isinstance(value, str) else json.dumps(value)))),
    InWords("time, share of the wait (`0.5w`), their sum, or `off`"),
]
NAME_OF_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SECRET = (("sha256",), ("url",))
"""What somebody may have put a token or a password into."""
_DEFAULTS = EngineSettings()
_MOVED: Final = {
    "mode": "mode in pbs-adapter.toml says it, for both; remove it here",
    "tell": "comment, start_time and planned in [tell] of pbs-adapter.toml say what is written; remove it "
    "here",
    "weights": "write it as criteria in [clusters.NAME.site]",
    "slack_share": 'write it into slack, such as slack = "1h+0.5w"',
}
"""Settings that had two homes, or two names: docs/decisions/011."""
_DAY = 86_400


class SettingsError(Exception):
    """Settings that make no sense: which, where, and what is allowed."""


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


class TokenSettings(Section):
    """One token, known by its hash."""

    name: str = Field(pattern=f"^{NAME_OF_TOKEN.pattern}$")
    """Who holds it; named in the log for what an admin does."""
    role: Role
    """What it may do: see the table of roles."""
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    """SHA-256 of the token, in hexadecimal: `printf %s "$TOKEN" | sha256sum`."""


class AuthSettings(Section):
    """Who may do what over HTTP. Changes count after a reload."""

    token_file: Path | None = None
    """File of tokens, one a line: role, name, token. Nobody but the daemon's user may have access to it."""
    tokens: tuple[TokenSettings, ...] = ()
    """Tokens by their hashes, in the configuration itself."""
    anonymous: Literal["none", "reader"] = "none"
    """What a request that shows nothing may do: nothing, or read. Health checks and the API's description are
    open in any case."""
    admins: tuple[str, ...] = ()
    """Users (on the UNIX socket, behind a proxy, by MUNGE) with the role `admin`."""
    operators: tuple[str, ...] = ()
    """Users with the role `operator`; all others are `user`."""
    others: Literal["server", "all", "none"] = "server"
    """Whether a `user` sees other people's jobs: as the server's `query_other_jobs` says, all, or none."""
    proxy_header: str = Field(default="X-Remote-User", pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    """Header in which a proxy with a token of role `proxy` names the user for whom it asks."""
    munge: bool = False
    """Take `Authorization: Munge CREDENTIAL` (of `munge -s schedd`), where the site's hosts share a key."""
    munge_socket: Path | None = None
    """munged's socket, if it is not where libmunge looks."""


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


class ClusterSettings(Section):
    """One cluster: how its engine plans. Changes count after a reload for what is decided
    from then on, but for `policy`, which needs a restart, as do clusters that come or go.
    """

    policy: Literal["conservative", "fcfs", "sjf", "easy", "aggressive"] = "conservative"
    """`conservative` plans every job, fills gaps and repairs; the others are queue policies for comparison,
    which plan no starts."""
    alone: bool = _DEFAULTS.alone
    """As scheduler, stop starting jobs when several start that nobody here started."""
    alone_starts: int = Field(default=_DEFAULTS.alone_starts, ge=1, le=100_000)
    """So many starts that nobody is known to have made by hand are another scheduler's."""
    alone_within: Step = _DEFAULTS.alone_within
    """If they happen within so many seconds."""
    start_rate: int = Field(default=SITE_START_RATE, ge=0, le=100_000)
    """Jobs started a second at most; 0: no limit."""
    start_rate_node: int = Field(default=SITE_START_RATE_NODE, ge=0, le=100_000)
    """Jobs started a second on one node at most; 0: no limit."""
    slack: SlackText = str(Slack(SITE_SLACK, SITE_SLACK_SHARE))
    """How much later than first told a job may start: a time, a share of the wait planned then, or both. With
    `1h+0.5w` a job that is told to wait 4 hours is promised to wait no longer than 7. With `0` nothing that
    was told is ever put back, and priorities and searches have next to nothing to work with. With `off` jobs
    are told their starts, and promised nothing."""
    queue_slack: dict[QueueName, SlackText] = Field(default_factory=dict)
    """Instead of it, for the jobs of some queues: `{ short = "10m", long = "4h+1w", scratch = "off" }`."""
    end_allowance: Seconds = _DEFAULTS.end_allowance
    """A running job holds its resources this long past its walltime."""
    overrun_step: Step = _DEFAULTS.overrun_step
    """After the allowance, its end is taken as this far away, doubling each time."""
    overrun_most: Step = _DEFAULTS.overrun_most
    """The largest such step."""
    overrun_blocked: Seconds = _DEFAULTS.overrun_blocked
    """An overrun this long counts the nodes as blocked and alerts the admin."""
    default_walltime: Step = _DEFAULTS.default_walltime
    """For jobs without walltime where neither queue nor server has a default; said in every answer."""
    node_grace: Seconds = _DEFAULTS.node_grace
    """Planned jobs leave a node that is down only after this."""
    hole_failures: int = Field(default=_DEFAULTS.hole_failures, ge=0, le=100_000)
    """A node on which so many jobs in a row fail soon gets no new jobs; 0: never."""
    hole_users: int = Field(default=_DEFAULTS.hole_users, ge=1, le=100_000)
    """If they are of so many users."""
    hole_within: Seconds = _DEFAULTS.hole_within
    """And each failed within this of its start."""
    adapter_silence: int = Field(default=_DEFAULTS.adapter_silence, ge=5, le=3600)
    """When the adapter is not heard of for longer, every answer and page says that the plan may be out of
    date, and an alert is open until it is heard of again."""
    decision_expiry: Step = _DEFAULTS.decision_expiry
    """A run decision that nobody answered is void after this."""
    answer_grace: Seconds = _DEFAULTS.answer_grace
    """A run decision whose outcome is not known so long after its expiry is taken as never carried out."""
    start_wait: Step = _DEFAULTS.start_wait
    """An accepted run that is not seen to start is given up after this."""
    busy_wait: Step = _DEFAULTS.busy_wait
    """A start refused as "busy for now" is tried again on the same nodes after this."""
    busy_retries: int = Field(default=_DEFAULTS.busy_retries, ge=0, le=1000)
    """So many times; then it is a refusal like any other."""
    check_wait: Step = _DEFAULTS.check_wait
    """The first wait after a refusal by the adapter's own check, doubling each time."""
    refusal_wait: Step = _DEFAULTS.refusal_wait
    """The first wait after a run that the server refused, doubling each time."""
    refusal_most: Step = _DEFAULTS.refusal_most
    """The longest such wait."""
    returns_most: int = Field(default=_DEFAULTS.returns_most, ge=1, le=1000)
    """A job that came back to its queue this often after its run was accepted is set aside."""
    returns_within: Seconds = _DEFAULTS.returns_within
    """A run of less than this that ends in the queue again counts as a return, a longer one as a requeue."""
    server_grace: Seconds = _DEFAULTS.server_grace
    """A snapshot of a server that is up for less is not believed."""
    snapshot_loss: float = Field(default=_DEFAULTS.snapshot_loss, ge=0, le=1)
    """Nor is one that loses more than this share of the jobs or of the nodes at once."""
    tell_threshold: Seconds = _DEFAULTS.tell_threshold
    """A planned start is told to the server again only when it moved by more; what is written there, the
    adapter's settings say."""
    tell_rate: int = Field(default=_DEFAULTS.tell_rate, ge=0, le=100_000)
    """At most so many are told a second; 0: none."""
    node_rule: Literal["exact", "pack"] = _DEFAULTS.node_rule
    """TORQUE's `nodes=`: `exact` gives every unit a node of its own, `pack` lets units share nodes."""
    mem_per_core: int = Field(default=_DEFAULTS.mem_per_core, ge=0, le=1 << 40)
    """KiB per core planned for jobs that ask for no memory; 0 plans none."""
    search_every: Whole = Field(default=_DEFAULTS.search_every, ge=0, le=86_400)
    """A search begins so long after the last one, if the plan changed since; 0: none of any kind begins."""
    search_pause: Whole = Field(default=_DEFAULTS.search_pause, ge=1, le=86_400)
    """One begins as early as this after the last one when room was freed."""
    search_newcomers: Whole = Field(default=_DEFAULTS.search_newcomers, ge=0, le=86_400)
    """So long after the last search jobs that came since, and those that would fit into room that came back
    before the plan had it free, are tried in front of others; 0: never."""
    search_seconds: FloatSeconds = Field(default=_DEFAULTS.search_seconds, gt=0, le=600)
    """A search takes so long at most; events go on meanwhile."""
    search_patience: Seconds = _DEFAULTS.search_patience
    """Who waited so long is moved back by no search, but within a twelfth of it (docs/optimisation.md)."""
    predict: bool = True
    """Learn how long jobs run, and tell when they are expected to start (P50 and P90). Off: what was learned
    is forgotten. Walltimes remain the law for killing and for promises in any case."""
    queue_predict: dict[QueueName, bool] = Field(default_factory=dict)
    """Instead of it, for the jobs of some queues: `{ debug = false }`."""
    repair_slice: int = Field(default=_DEFAULTS.repair_slice, ge=1_000, le=10**9)
    """Work between two looks for new events; the default is about half a millisecond."""
    priority_every: Whole = Field(default=_DEFAULTS.priority_every, ge=1, le=86_400)
    """After this the priorities of all jobs are worked out again."""
    priority_tries: int = Field(default=_DEFAULTS.priority_tries, ge=0, le=10**6)
    """So many jobs at most are then tried before others of lower priority, the highest first."""
    batch_limit: int = Field(default=_DEFAULTS.batch_limit, ge=0, le=86_400)
    """A batch that is not handled within so many seconds is passed over; large ones get more. 0: never."""
    log_batches: int = Field(default=_DEFAULTS.log_batches, ge=1, le=10**7)
    """Batches of events kept in memory for running an incident again."""
    log_weight: int = Field(default=_DEFAULTS.log_weight, ge=1, le=10**9)
    """Events, and jobs and nodes of snapshots, kept there at most."""
    site: SiteSettings = Field(default_factory=SiteSettings)
    """What the site wants beyond what the server knows; see below."""
    validate_: bool = Field(default=_DEFAULTS.validate, alias="validate")
    """Check every invariant after every batch: for tests, much too slow for production."""

    @property
    def engine(self) -> EngineSettings:
        """The same for the engine."""
        slack = Slack.parse(self.slack)
        plain = self.model_dump(by_alias=True, exclude={"site", "slack", "tell_rate"})
        return EngineSettings(
            **plain,
            slack=slack.seconds,
            slack_share=slack.share,
            tell=self.tell_rate > 0,
            tell_rate=self.tell_rate or 1,
            site=self.site.plain,
        )

    @model_validator(mode="after")
    def _keep_what_may_run(self) -> Self:
        if self.start_wait < self.decision_expiry + self.answer_grace:
            least = self.decision_expiry + self.answer_grace
            raise ValueError(
                f"start_wait = {self.start_wait}: an accepted start is to be awaited at least as long as one "
                f"that was not answered, decision_expiry + answer_grace = {least}, or a job could start twice"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _one_home(cls, given: Any) -> Any:
        """What stood in two places is refused in the one that it left."""
        for name, words in _MOVED.items():
            if isinstance(given, dict) and name in given:
                raise ValueError(f"{name} stands elsewhere: {words}")
        return given


def _one_cluster() -> dict[str, ClusterSettings]:
    return {"main": ClusterSettings()}


class Settings(BaseSettings):
    """All settings of the daemon."""

    model_config = SettingsConfigDict(
        env_prefix="SCHEDD_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    server: ServerSettings = Field(default_factory=ServerSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    webhooks: tuple[WebhookSettings, ...] = ()
    clusters: dict[str, ClusterSettings] = Field(default_factory=_one_cluster, min_length=1)

    @model_validator(mode="after")
    def _name_clusters(self) -> Self:
        for name in self.clusters:
            if not _NAME.fullmatch(name):
                raise ValueError(f"cluster {name!r}: a name has letters, digits, '.', '_' and '-'")
        return self

    @model_validator(mode="after")
    def _let_somebody_in(self) -> Self:
        auth = self.auth
        closed = auth.token_file is None and not auth.tokens and auth.anonymous == "none" and not auth.munge
        if closed and self.server.socket is None and self.store.url == "memory":
            raise ValueError(
                "auth: there are no tokens, and none can be kept, so nobody could do anything: set "
                'token_file, list [[auth.tokens]], set server.socket (or set anonymous = "reader", for '
                "reading alone)"
            )
        return self

    @model_validator(mode="after")
    def _let_no_stranger_in(self) -> Self:
        server = self.server
        if self.auth.anonymous != "none" and not server.local and not server.allow_remote:
            raise ValueError(
                f'auth.anonymous = "{self.auth.anonymous}" lets everybody read who reaches {server.host}; '
                "set server.allow_remote = true if that is meant"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (pydantic names them)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What the caller says, else the environment, else the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load(path: Path | None, **overrides: Any) -> Settings:
    """The settings of the file ``path`` (None: the defaults), the environment on top, then ``overrides``.

    Raises SettingsError, one line for each thing that is wrong.
    """
    if path is not None and not path.is_file():
        raise SettingsError(f"{path}: no such file")

    class Of(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    try:
        return Of(**overrides)
    except ValidationError as error:
        where = f"{path}: " if path is not None else ""
        raise SettingsError("\n".join(where + line for line in _in_words(error))) from None
    except ValueError as error:  # the file is no TOML
        raise SettingsError(f"{path}: {error}") from None


def _in_words(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        loc = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            yield f"{loc}: no such setting{_hint(problem)}"
        else:
            said = problem["msg"].removeprefix("Value error, ")
            was = problem["input"]
            secret = problem["loc"][-1:] in _SECRET
            shown = f" (it is {was!r})" if isinstance(was, str | int | float) and not secret else ""
            yield f"{loc}: {said}{shown}" if loc else said


def _hint(problem: ErrorDetails) -> str:
    *path, name = problem["loc"]
    section: type[BaseModel] | None = Settings
    for step in path:
        section = _below(section, str(step))
    names = [field.alias or key for key, field in section.model_fields.items()] if section else []
    near = get_close_matches(str(name), names, 1)
    return f"; did you mean {near[0]}?" if near else f"; there is {', '.join(names)}"


def _below(section: type[BaseModel] | None, step: str) -> type[BaseModel] | None:
    """The section that is meant by ``step`` in ``section``; itself for a key of its tables or lists."""
    field = section.model_fields.get(step) if section is not None else None
    if field is None:
        return section
    return next((kind for kind in _kinds(field.annotation) if issubclass(kind, BaseModel)), None)


def _kinds(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
