"""Settings of a federation: one TOML file."""

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import quote

from pydantic import Field, model_validator

from schedd.dialect import request_family
from schedd.federation.bookings.decisions import FederationBookingRules
from schedd.federation.coallocation.decisions import CoAllocationRules
from schedd.federation.routing.cluster_status import RoutingRules
from schedd.federation.routing.policies import RoutingPolicy
from schedd.service.settings.auth import IdTokenSettings
from schedd.wire.section import Section
from schedd.wire.settings_file import load_settings_file
from schedd.wire.times import FloatSeconds, Seconds

Disclosure = Literal["offers", "power", "load", "plan"]
_LEVELS: tuple[Disclosure, ...] = ("offers", "power", "load", "plan")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,30}$"
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")  # valid user name in a claim


class FederationServerSettings(Section):
    """HTTP server of the federation."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8090, ge=0, le=65535)
    """Port; 0: any free one."""
    token_file: Path | None = None
    """File with role (`user`, `reader`, `admin`), name and token on each line. The name of a user is
    USER@REALM.
    """
    request_rate: float = Field(default=50.0, ge=0, le=10_000, allow_inf_nan=False)
    """Maximum requests of a caller per second, and of an address with invalid tokens; 0: no limit."""


class FederationStoreSettings(Section):
    """Database of the federation's log."""

    url: str = "sqlite:////var/lib/schedd/federation.sqlite"
    """SQLite or PostgreSQL, as for `schedd serve`, but a separate database."""
    holder: str = ""
    """Name of this daemon in the shared database; empty: the host name."""
    lease: Annotated[FloatSeconds, Field(ge=1, le=600)] = 6.0
    """A standby takes over after this time (PostgreSQL)."""

    @property
    def named(self) -> str:
        """The effective name of this daemon."""
        return self.holder or socket.gethostname()


class RoutingSettings(Section):
    """Routing of jobs to clusters."""

    policy: RoutingPolicy = RoutingPolicy.PLAN
    """Choice of the cluster: `plan` (earliest end), `least-loaded` (earliest start), `load` (least waiting
    work of the federation's own jobs of equal or higher priority) or `random`.
    """
    patience: Annotated[Seconds, Field(ge=1, le=86_400)] = 30
    """Time to wait for a cluster's answer before a job goes to another cluster."""
    threshold: Annotated[Seconds, Field(ge=0, le=864_000)] = 600
    """A waiting job moves only if it ends earlier by at least this time."""
    moves: int = Field(default=2, ge=0, le=100)
    """Maximum moves of one job; 0: jobs stay."""
    recheck: Annotated[Seconds, Field(ge=1, le=86_400)] = 60
    """Interval between checks whether a waiting job would end earlier at another cluster."""
    poll: Annotated[FloatSeconds, Field(gt=0, le=600)] = 2.0
    """Interval between polls of each cluster. A plan's answer is valid until the plan has changed."""
    fetch: Annotated[Seconds, Field(ge=0, le=864_000)] = 0
    """Penalty for each data set that a job names and the cluster does not have."""
    price_weight: float = Field(default=0.0, ge=0, le=864_000)
    """Penalty in seconds for each unit of money that the job costs by the cluster's price list."""
    gold: tuple[str, ...] = ()
    """Owners of the highest user class: a term of the priority under the policy `load`."""
    silver: tuple[str, ...] = ()
    """Owners of the second user class."""


class CoAllocationSettings(Section):
    """Co-allocations: components at several clusters with a common start."""

    limit: Annotated[Seconds, Field(ge=5, le=3_600)] = 60
    """A component that has not started this long after the common start has failed, and all are deleted. A
    cluster without contact to the federation for twice as long deletes its component by itself.
    """
    lead: Annotated[Seconds, Field(ge=1, le=3_600)] = 20
    """All holds are released this long before the start. Each cluster then waits for the start by itself."""
    notice: Annotated[Seconds, Field(ge=5, le=86_400)] = 60
    """Minimum time between planning and start; more than `lead`."""
    expiry: Annotated[Seconds, Field(ge=10, le=3_600)] = 30
    """An unconfirmed booking expires after this time; this also applies to users' bookings."""
    gain: Annotated[Seconds, Field(ge=1, le=864_000)] = 60
    """A waiting co-allocation moves only if it ends earlier by at least this time."""
    moves: int = Field(default=20, ge=0, le=1_000)
    """Maximum moves of one co-allocation; 0: co-allocations stay."""
    max_skew: Annotated[Seconds, Field(ge=0, le=3_600)] = 0
    """Maximum delay of a component after the common start, else all are deleted. 0: only `limit`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.notice <= self.lead:
            raise ValueError(f"notice ({self.notice} s) must be more than lead ({self.lead} s)")
        return self


class BagSettings(Section):
    """Bags of equal tasks with a deadline."""

    expiry: Annotated[Seconds, Field(ge=10, le=86_400)] = 300
    """Validity of an offer."""
    coordinate: bool = False
    """Report the end of each whole bag to its clusters. With `coordinate_arrays` in their policies, their
    repairs use it (docs/administrators/policy.md).
    """
    margin: Annotated[Seconds, Field(ge=0, le=86_400)] = 60
    """A bag is offered and accepted to end at least this long before its deadline. Set it to the `margin` of
    the clusters' deadlines: with a larger one no deadline is accepted, with a smaller one clusters refuse
    deadlines that an offer keeps.
    """
    array: int = Field(default=1_000, ge=1, le=100_000)
    """Maximum tasks in one job array, no more than the servers allow (`max_job_array_size`,
    `max_array_size`). A larger share is split into several arrays.
    """


class FederationGrantSettings(Section):
    """Roles of users known to the identity provider. Users without a grant have no access."""

    groups: tuple[str, ...] = ()
    """Groups; their members have the role."""
    users: tuple[str, ...] = ()
    """Names, by `user_claim`, of users with the role."""
    role: Literal["user", "reader", "admin"]
    """The role; with several grants the user has the highest one."""

    @model_validator(mode="after")
    def _name_somebody(self) -> Self:
        if not self.groups and not self.users:
            raise ValueError("a grant needs groups or users")
        return self


class ProviderSettings(IdTokenSettings):
    """An identity provider (OpenID Connect). Its ID tokens are accepted in addition to the token file."""

    realm: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,253})?$")
    """Realm of the provider's users: `ann` in `user_claim` is `ann@REALM` here. Empty: the claim contains
    USER@REALM, and the provider is trusted for all realms.
    """
    grants: tuple[FederationGrantSettings, ...] = ()
    """Roles by group or user; without grants no user has access."""


class MemberClusterSettings(Section):
    """One member cluster."""

    url: str = Field(pattern=r"^https?://")
    """URL of its schedd."""
    cluster: str = "main"
    """Its name at that schedd."""
    dashboard: str = Field(default="", pattern=r"^(https?://.*)?$")
    """Address of its dashboard for users' browsers. Empty: `url` with `/dashboard`."""
    token_file: Path
    """File that contains only the federation's token for the cluster; its role must be `federation`."""
    timeout: Annotated[FloatSeconds, Field(gt=0, le=600)] = 10.0
    """Timeout of requests to the cluster."""
    disclosure: Disclosure = "load"
    """Data of the cluster that are used and shown; each level includes those before it: `offers`, `power`
    (cpus), `load` (jobs by state), `plan` (start of each of the federation's jobs).
    """
    speed: float = Field(default=1.0, gt=0, le=1000)
    """Relative speed of its cpus: requests are for speed 1, and time limits are divided by it."""
    handicap: Annotated[Seconds, Field(ge=0, le=864_000)] = 0
    """Penalty added to ends at this cluster, for a site that should be used last."""
    data: tuple[str, ...] = ()
    """Names of the data sets at the cluster."""
    family: Literal["torque", "openpbs"] = "torque"
    """Family of its server. Jobs with `select` go only to OpenPBS: TORQUE would ignore it."""
    realms: tuple[str, ...] = ()
    """Users of these realms have the same name at the cluster: `ann@org` is `ann`."""
    users: dict[str, str] = Field(default_factory=dict)
    """User names by owner: `"ann@org" = "ann1"`. An empty name denies access. The table overrides the claim,
    and the claim overrides the realms.
    """
    claim: str = Field(default="", max_length=255)
    """Claim of ID tokens with the user name at the cluster (`hpc.north`: nested). Needs `[oidc]`."""

    def user(self, owner: str, claimed: str | None = None) -> str:
        """Return the owner's user name there; empty: none. ``claimed`` (ID token) may be invalid."""
        if owner in self.users:
            return self.users[owner]
        if self.claim and claimed is not None:
            return claimed if _USER.fullmatch(claimed) else ""
        name, _, realm = owner.rpartition("@")
        return name if name and realm in self.realms else ""

    def unsupported_reason(self, resources: Mapping[str, str]) -> str:
        """Return why the cluster's server cannot take a job with these resources; empty if it can."""
        if self.family == "torque" and request_family(resources) == "openpbs":
            return "its server does not support select (clusters.NAME.family)"
        return ""

    @property
    def dashboard_url(self) -> str:
        """Address of the cluster's pages."""
        base = self.dashboard.rstrip("/") or f"{self.url.rstrip('/')}/dashboard"
        return f"{base}/{quote(self.cluster, safe='')}"

    def job_page(self, server_job: str) -> str:
        """Address of a job's page at the cluster."""
        return f"{self.dashboard_url}/jobs/{quote(server_job, safe='')}"

    def discloses(self, level: Disclosure) -> bool:
        """Return whether data of this level may be used and shown."""
        return _LEVELS.index(self.disclosure) >= _LEVELS.index(level)


class FederationSettings(Section):
    """All settings of a federation."""

    name: str = Field(default="fed", pattern=_NAME)
    """Prefix of its transfers' names. Two federations with a common cluster need different names."""
    server: FederationServerSettings = FederationServerSettings()
    """See `[server]`."""
    store: FederationStoreSettings = FederationStoreSettings()
    """See `[store]`."""
    routing: RoutingSettings = RoutingSettings()
    """See `[routing]`."""
    coallocation: CoAllocationSettings = CoAllocationSettings()
    """See `[coallocation]`."""
    bags: BagSettings = BagSettings()
    """See `[bags]`."""
    licences: dict[Annotated[str, Field(pattern=_NAME)], Annotated[int, Field(ge=0, le=1 << 40)]] = Field(
        default_factory=dict
    )
    """Floating licences shared by the clusters, with their number of copies. A cluster takes part if its
    policy has `[clusters.NAME.site.licences.matlab]` with `lent = true`.
    """
    oidc: ProviderSettings | None = None
    """See `[oidc]`."""
    clusters: dict[Annotated[str, Field(pattern=_NAME)], MemberClusterSettings]
    """See `[clusters.NAME]`; each by its name in the federation."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.clusters:
            raise ValueError("clusters: at least one is required")
        places = [(one.url, one.cluster) for one in self.clusters.values()]
        if len(set(places)) < len(places):
            raise ValueError("clusters: two entries have the same url and cluster")
        for name, one in self.clusters.items():
            if one.claim and self.oidc is None:
                raise ValueError(f"clusters.{name}.claim: needs a table [oidc]")
        return self

    @property
    def rules(self) -> RoutingRules:
        one = self.routing
        classes = dict.fromkeys(one.silver, "silver") | dict.fromkeys(one.gold, "gold")
        return RoutingRules(
            self.name,
            one.policy,
            one.patience,
            one.threshold,
            one.moves,
            fetch=one.fetch,
            price_weight=one.price_weight,
            licences=tuple(self.licences),
            classes=classes,
        )

    @property
    def coallocation_rules(self) -> CoAllocationRules:
        one = self.coallocation
        times = (one.limit, one.lead, one.notice, one.expiry, one.gain)
        return CoAllocationRules(self.name, *times, one.moves, one.max_skew, self.routing.patience)

    @property
    def booking_rules(self) -> FederationBookingRules:
        one = self.routing
        return FederationBookingRules(self.name, one.policy, self.coallocation.expiry, one.patience)

    def users(self, owner: str, claimed: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the owner's user names by cluster; ``claimed``: those in the owner's ID token."""
        said = claimed or {}
        found = {name: one.user(owner, said.get(name)) for name, one in self.clusters.items()}
        return {name: user for name, user in found.items() if user and user != "root"}


def load_federation_settings(path: Path) -> FederationSettings:
    """Return the settings of a file. Raises SettingsError."""
    reference = "docs/reference/configuration-federation.md lists all settings"
    return load_settings_file(FederationSettings, path, {}, reference=reference)
