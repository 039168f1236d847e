"""The federation's settings: one TOML file."""

import re
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from schedd.dialect import family_of
from schedd.federation.bookings.decisions import FederationBookingRules
from schedd.federation.coallocation.decisions import CoAllocationRules
from schedd.federation.routing.cluster_status import RoutingRules
from schedd.federation.routing.policies import RoutingPolicy
from schedd.service.settings.auth import IdTokenSettings
from schedd.service.settings.section import Section
from schedd.wire.times import FloatSeconds, Seconds

__all__ = [
    "ClusterSettings",
    "Disclosure",
    "FederationSettings",
    "FederationSettingsError",
    "ProviderSettings",
    "load",
]

Disclosure = Literal["offers", "power", "load", "plan"]
_LEVELS: tuple[Disclosure, ...] = ("offers", "power", "load", "plan")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,30}$"
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
"""A user's name as a claim may give it: one that clusters take."""


class FederationSettingsError(Exception):
    """The settings make no sense: what, where, and what is allowed."""


class FederationServerSettings(Section):
    """Where the federation is reached."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8090, ge=0, le=65535)
    """Port; 0: any free one."""
    token_file: Path | None = None
    """File of tokens, one a line: role (`user`, `reader`, `admin`), name, token. A user's
    name is USER@REALM."""


class FederationStoreSettings(Section):
    """Where its log is kept."""

    url: str = "sqlite:////var/lib/schedd/federation.sqlite"
    """SQLite or PostgreSQL, as for `schedd serve`, but a database of its own."""
    holder: str = ""
    """The name of this daemon among those that share the database; empty: the host's."""
    lease: Annotated[FloatSeconds, Field(ge=1, le=600)] = 6.0
    """After this a standby takes over (PostgreSQL)."""

    @property
    def named(self) -> str:
        """The holder, as it counts."""
        return self.holder or socket.gethostname()


class RoutingSettings(Section):
    """How jobs are routed."""

    policy: RoutingPolicy = RoutingPolicy.PLAN
    """`plan` (the earliest end), `least-loaded` (the earliest start), `load` (the least waiting work of
    the federation's own jobs of equal or higher priority) or `random`."""
    patience: Annotated[Seconds, Field(ge=1, le=86_400)] = 30
    """So long an answer is waited for before a job goes elsewhere."""
    threshold: Annotated[Seconds, Field(ge=0, le=864_000)] = 600
    """A waiting job is moved where it ends earlier by at least so much."""
    moves: int = Field(default=2, ge=0, le=100)
    """So often at most; 0: jobs stay."""
    again: Annotated[Seconds, Field(ge=1, le=86_400)] = 60
    """How often it is asked whether a waiting job ends earlier elsewhere."""
    poll: Annotated[FloatSeconds, Field(gt=0, le=600)] = 2.0
    """How often each cluster is looked at; what its plan said counts until it is another one and was asked
    again."""
    fetch: Annotated[Seconds, Field(ge=0, le=864_000)] = 0
    """So much later counts each set of data that a job names and the cluster does not have."""
    price_weight: float = Field(default=0.0, ge=0, le=864_000)
    """So many seconds later counts each unit of money that the cluster's own price list asks for the job."""
    gold: tuple[str, ...] = ()
    """Owners of the highest class, and..."""
    silver: tuple[str, ...] = ()
    """of the next one: a term of the priority under the policy `load`."""


class CoAllocationSettings(Section):
    """Groups: parts at several clusters that start at the same moment, or none of them."""

    limit: Annotated[Seconds, Field(ge=5, le=3_600)] = 60
    """A part that has not started so long after the common start did not start: all are deleted. A cluster
    that is told nothing for twice as long deletes its part by itself."""
    lead: Annotated[Seconds, Field(ge=1, le=3_600)] = 20
    """So long before the start all holds are released; each cluster waits for the moment by itself."""
    notice: Annotated[Seconds, Field(ge=5, le=86_400)] = 60
    """A start is planned so long ahead at least; more than `lead`."""
    expiry: Annotated[Seconds, Field(ge=10, le=3_600)] = 30
    """A booking that is not confirmed is given up after this; also one of a user's."""
    gain: Annotated[Seconds, Field(ge=1, le=864_000)] = 60
    """A group that waits is moved where that ends it earlier by at least so much."""
    moves: int = Field(default=20, ge=0, le=1_000)
    """So often at most; 0: groups stay."""
    apart: Annotated[Seconds, Field(ge=0, le=3_600)] = 0
    """A part starts at most so long after the common start, else all are deleted; 0: `limit` alone counts."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.notice <= self.lead:
            raise ValueError(f"notice ({self.notice} s) must be more than lead ({self.lead} s)")
        return self


class BagSettings(Section):
    """Bags: equal tasks with a deadline, shared out over the clusters."""

    expiry: Annotated[Seconds, Field(ge=10, le=86_400)] = 300
    """An offer may be taken for so long."""
    coordinate: bool = False
    """Clusters are told when each bag ends as a whole, over all of them. With `coordinate_arrays` in their
    policies they repair by that (docs/administrators/policy.md)."""
    array: int = Field(default=1_000, ge=1, le=100_000)
    """So many tasks one job array has at most: no more than the servers take (`max_job_array_size`,
    `max_array_size`). A larger share is several arrays."""


class GrantSettings(Section):
    """What people known to the provider may do. Who has no grant is not let in."""

    groups: tuple[str, ...] = ()
    """Members of one of these groups,"""
    users: tuple[str, ...] = ()
    """or those with one of these names in `user_claim`,"""
    role: Literal["user", "reader", "admin"]
    """have this role. Of several grants the highest role counts."""

    @model_validator(mode="after")
    def _name_somebody(self) -> Self:
        if not self.groups and not self.users:
            raise ValueError("a grant names groups or users")
        return self


class ProviderSettings(IdTokenSettings):
    """An identity provider (OpenID ClientFactory): its ID tokens count beside those of the token file."""

    realm: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,253})?$")
    """Who is `ann` in `user_claim` is `ann@REALM` here. Empty: the claim says USER@REALM itself, and the
    provider answers for all realms."""
    grants: tuple[GrantSettings, ...] = ()
    """Who may do what; without grants nobody is let in."""


class ClusterSettings(Section):
    """One cluster of the federation."""

    url: str = Field(pattern=r"^https?://")
    """Its schedd."""
    cluster: str = "main"
    """Its name there."""
    token_file: Path
    """File with the federation's token there and nothing else; its role must be `federation`."""
    timeout: Annotated[FloatSeconds, Field(gt=0, le=600)] = 10.0
    """An answer that takes longer is given up."""
    disclosure: Disclosure = "load"
    """What of it is used and shown: `offers` alone, its `power` (cpus), too, its `load` (jobs, by kind), or
    its `plan` (each job of ours there, with its start)."""
    speed: float = Field(default=1.0, gt=0, le=1000)
    """Its cpus run jobs so many times faster than asked for."""
    handicap: Annotated[Seconds, Field(ge=0, le=864_000)] = 0
    """Counts as so much later: a site that is to be used last."""
    data: tuple[str, ...] = ()
    """Names of the sets of data that are there."""
    family: Literal["torque", "openpbs"] = "torque"
    """What its server is: jobs that ask by `select` go to OpenPBS alone, a TORQUE server would pass over
    it."""
    realms: tuple[str, ...] = ()
    """Users of these realms have the same name there: `ann@org` is `ann`."""
    users: dict[str, str] = Field(default_factory=dict)
    """Others by table: `"ann@org" = "ann1"`. An empty name: this one has none there. The table goes before
    the claim, the claim before the realms."""
    claim: str = Field(default="", max_length=255)
    """Claim of ID tokens that says whom somebody is there: `hpc.north` is a claim within another. Needs
    `[oidc]`."""

    def user(self, owner: str, claimed: str | None = None) -> str:
        """Whom the owner is there; empty: nobody. ``claimed``: what his token says; it may be no name."""
        if owner in self.users:
            return self.users[owner]
        if self.claim and claimed is not None:
            return claimed if _USER.fullmatch(claimed) else ""
        name, _, realm = owner.rpartition("@")
        return name if name and realm in self.realms else ""

    def unsupported_reason(self, resources: Mapping[str, str]) -> str:
        """Why its server does not understand what a job asks for; empty: it may."""
        if self.family == "torque" and family_of(resources) == "openpbs":
            return "its server does not know select (clusters.NAME.family)"
        return ""

    def discloses(self, level: Disclosure) -> bool:
        """Whether so much may be used and shown."""
        return _LEVELS.index(self.disclosure) >= _LEVELS.index(level)


class FederationSettings(Section):
    """All of them."""

    name: str = Field(default="fed", pattern=_NAME)
    """Begins the names of its transfers; of two federations over one cluster each needs its own."""
    server: FederationServerSettings = FederationServerSettings()
    """See `[server]`."""
    store: FederationStoreSettings = FederationStoreSettings()
    """See `[store]`."""
    routing: RoutingSettings = RoutingSettings()
    """See `[routing]`."""
    groups: CoAllocationSettings = CoAllocationSettings()
    """See `[groups]`."""
    bags: BagSettings = BagSettings()
    """See `[bags]`."""
    licences: dict[Annotated[str, Field(pattern=_NAME)], Annotated[int, Field(ge=0, le=1 << 40)]] = Field(
        default_factory=dict
    )
    """Floating licences that the clusters share: how many copies there are of each. A cluster takes its part
    where its policy says so: `[clusters.NAME.site.licences.matlab]` with `lent = true`."""
    oidc: ProviderSettings | None = None
    """See `[oidc]`."""
    clusters: dict[Annotated[str, Field(pattern=_NAME)], ClusterSettings]
    """See `[clusters.NAME]`; each by its name in the federation."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.clusters:
            raise ValueError("clusters: there must be one at least")
        places = [(one.url, one.cluster) for one in self.clusters.values()]
        if len(set(places)) < len(places):
            raise ValueError("clusters: one stands there twice")
        for name, one in self.clusters.items():
            if one.claim and self.oidc is None:
                raise ValueError(f"clusters.{name}.claim: there is no table [oidc] whose tokens could say it")
        return self

    @property
    def rules(self) -> RoutingRules:
        """As the machine takes them."""
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
    def group_rules(self) -> CoAllocationRules:
        """As groups take them."""
        one = self.groups
        times = (one.limit, one.lead, one.notice, one.expiry, one.gain)
        return CoAllocationRules(self.name, *times, one.moves, one.apart, self.routing.patience)

    @property
    def booking_rules(self) -> FederationBookingRules:
        """As bookings take them."""
        one = self.routing
        return FederationBookingRules(self.name, one.policy, self.groups.expiry, one.patience)

    def users(self, owner: str, claimed: Mapping[str, str] | None = None) -> dict[str, str]:
        """By cluster, whom the owner is there; ``claimed``: by cluster, what his token says."""
        said = claimed or {}
        found = {name: one.user(owner, said.get(name)) for name, one in self.clusters.items()}
        return {name: user for name, user in found.items() if user and user != "root"}


def load(path: Path) -> FederationSettings:
    """The settings of a file. Raises FederationSettingsError, one line for each thing that is wrong."""
    try:
        return FederationSettings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FederationSettingsError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FederationSettingsError(f"{path}: {error}") from None
    except ValidationError as error:
        lines = []
        for problem in error.errors(include_url=False):
            where = ".".join(map(str, problem["loc"]))
            words = "no such setting" if problem["type"] == "extra_forbidden" else problem["msg"]
            lines.append(f"{path}: {where}: {words.removeprefix('Value error, ')}".replace(": : ", ": "))
        raise FederationSettingsError("\n".join(lines)) from None
