"""Settings file of the daemon (TOML), overridden by environment variables (``SCHEDD_SERVER__PORT=8081``)."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from pydantic import Field, create_model, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from schedd.service.settings.auth import AuthSettings
from schedd.service.settings.cluster import ClusterSettings
from schedd.service.settings.daemon import (
    LimitSettings,
    LogSettings,
    ServerSettings,
    StoreSettings,
    WebhookSettings,
)
from schedd.service.settings.feature_tables import daemon_tables
from schedd.wire.object_names import OBJECT_NAME
from schedd.wire.section import Section
from schedd.wire.settings_file import explain_errors
from schedd.wire.toml_files import SettingsError, read_toml

_PREFIX, _DELIMITER = "SCHEDD_", "__"  # SCHEDD_SERVER__PORT
_S = TypeVar("_S", bound=BaseSettings)
_PartT = TypeVar("_PartT", bound=Section)


def _default_clusters() -> dict[str, ClusterSettings]:
    return {"main": ClusterSettings()}


class _FileSettings(BaseSettings):
    """Settings of a TOML file and the environment."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_nested_delimiter=_DELIMITER, extra="forbid", frozen=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (pydantic names them)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: arguments, environment, file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


class CoreSettings(_FileSettings):
    """All settings of the daemon."""

    server: ServerSettings = Field(default_factory=ServerSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    webhooks: tuple[WebhookSettings, ...] = ()
    clusters: dict[str, ClusterSettings] = Field(default_factory=_default_clusters, min_length=1)

    @model_validator(mode="after")
    def _name_clusters(self) -> Self:
        for name in self.clusters:
            if not OBJECT_NAME.fullmatch(name):
                raise ValueError(f"cluster {name!r}: a name has letters, digits, '.', '_' and '-'")
        return self

    @model_validator(mode="after")
    def _know_scopes(self) -> Self:
        """Reject a scope with an unknown cluster, which would be without effect."""
        scopes = [(f"auth.tokens: {one.name}", one.clusters) for one in self.auth.tokens]
        scopes += [(f"auth.grants.{place}", one.clusters) for place, one in enumerate(self.auth.grants)]
        if self.auth.oidc is not None:
            granted = enumerate(self.auth.oidc.grants)
            scopes += [(f"auth.oidc.grants.{place}", one.clusters) for place, one in granted]
        for where, names in scopes:
            for name in names:
                if name not in self.clusters:
                    raise ValueError(f"{where}: no cluster {name!r}; there is {', '.join(self.clusters)}")
        return self

    @model_validator(mode="after")
    def _require_database_for_features(self) -> Self:
        for one in daemon_tables():
            if self.store.url == "memory" and (reason := one.database_reason(self.part(one.model))):
                raise ValueError(f"{one.table}: {reason}; store.url is memory")
        return self

    @model_validator(mode="after")
    def _let_somebody_in(self) -> Self:
        auth = self.auth
        closed = (
            auth.token_file is None
            and not auth.tokens
            and auth.anonymous == "none"
            and not auth.munge
            and auth.oidc is None
        )
        if closed and self.server.socket is None and self.store.url == "memory":
            raise ValueError(
                "auth: there are no tokens, and none can be kept, so nobody could log in: set "
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

    def part(self, kind: type[_PartT]) -> _PartT:
        """Return the settings of a feature for the whole daemon, by their model."""
        table = next(one.table for one in daemon_tables() if one.model is kind)
        return cast("_PartT", getattr(self, table))


if TYPE_CHECKING:

    class Settings(CoreSettings):
        """All settings of the daemon, with the tables of features."""

else:
    Settings = create_model(
        "Settings",
        __base__=CoreSettings,
        __doc__=CoreSettings.__doc__,
        __module__=__name__,
        **{one.table: (one.model, Field(default_factory=one.model)) for one in daemon_tables()},
    )


def read_settings_file(path: Path | None, **overrides: Any) -> Settings:
    """Return the settings of the file ``path`` (None: defaults), overridden by environment and ``overrides``.

    Raises SettingsError, with one line per problem.
    """

    class Of(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    return _read_file(Of, path, **overrides)


def read_store_settings(path: Path | None) -> StoreSettings:
    """Return only ``[store]`` of the file, whatever the rest of it is like. Raises SettingsError."""

    class Of(_FileSettings):
        model_config = SettingsConfigDict(toml_file=path, extra="ignore")
        store: StoreSettings = Field(default_factory=StoreSettings)

    return _read_file(Of, path).store


def read_server_settings(path: Path | None) -> ServerSettings:
    """Return only ``[server]`` of the file, whatever the rest of it is like. Raises SettingsError."""

    class Of(_FileSettings):
        model_config = SettingsConfigDict(toml_file=path, extra="ignore")
        server: ServerSettings = Field(default_factory=ServerSettings)

    return _read_file(Of, path).server


def _read_file(kind: type[_S], path: Path | None, **overrides: Any) -> _S:
    if path is not None:
        read_toml(path)
    elsewhere = _environment_places() | {
        (table, name): "the command line" for table, values in overrides.items() for name in values
    }
    try:
        with explain_errors(kind, path, elsewhere, reference="`schedd config reference` lists all settings"):
            return kind(**overrides)
    except ValueError as error:  # a variable of the environment is no JSON where a table is wanted
        raise SettingsError(str(error)) from None


def _environment_places() -> dict[tuple[str, ...], str]:
    """The variables of the environment that are settings, by setting."""
    names = (name for name in os.environ if name.upper().startswith(_PREFIX))
    return {tuple(name[len(_PREFIX) :].lower().split(_DELIMITER)): name for name in names}
