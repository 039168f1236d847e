"""Settings file of the daemon (TOML), overridden by environment variables (``SCHEDD_SERVER__PORT=8081``)."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from schedd.service.settings.auth import AuthSettings, GrantSettings, TokenSettings
from schedd.service.settings.cluster import ClusterSettings
from schedd.service.settings.daemon import (
    LimitSettings,
    LogSettings,
    NotifySettings,
    ServerSettings,
    StoreSettings,
    WebhookSettings,
)
from schedd.service.settings.readable import setting_line, toml_error
from schedd.wire.section import Problem, main_problems, problem_place, problem_words

__all__ = [
    "AuthSettings",
    "ClusterSettings",
    "GrantSettings",
    "LimitSettings",
    "LogSettings",
    "NotifySettings",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "TokenSettings",
    "WebhookSettings",
    "read_server_settings",
    "read_settings_file",
    "read_store_settings",
]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SECRET = (("sha256",), ("url",))
_MAX_NAMED = 10  # settings of a section that a message lists
"""Settings that may contain a token or password; errors do not show their values."""


_S = TypeVar("_S", bound=BaseSettings)


class SettingsError(Exception):
    """Invalid settings: the message has the name, the problem and the allowed values."""


def _default_clusters() -> dict[str, ClusterSettings]:
    return {"main": ClusterSettings()}


class _FileSettings(BaseSettings):
    """Settings of a TOML file and the environment."""

    model_config = SettingsConfigDict(
        env_prefix="SCHEDD_", env_nested_delimiter="__", extra="forbid", frozen=True
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


class Settings(_FileSettings):
    """All settings of the daemon."""

    server: ServerSettings = Field(default_factory=ServerSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    webhooks: tuple[WebhookSettings, ...] = ()
    notify: NotifySettings = Field(default_factory=NotifySettings)
    clusters: dict[str, ClusterSettings] = Field(default_factory=_default_clusters, min_length=1)

    @model_validator(mode="after")
    def _name_clusters(self) -> Self:
        for name in self.clusters:
            if not _NAME.fullmatch(name):
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
    def _require_database_for_notices(self) -> Self:
        if self.notify.on and self.store.url == "memory":
            raise ValueError("notify: subscriptions need a database; store.url is memory")
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
    if path is not None and (why := toml_error(path)):
        raise SettingsError(f"{path}: {why}")
    try:
        return kind(**overrides)
    except ValidationError as error:
        raise SettingsError("\n".join(_located_lines(error, path))) from None
    except ValueError as error:  # a variable of the environment is no JSON where a table is wanted
        raise SettingsError(f"{path}: {error}" if path is not None else str(error)) from None


def _located_lines(error: ValidationError, path: Path | None) -> Iterator[str]:
    """One line for each problem, with its place in the file."""
    if path is None:
        yield from _error_lines(error)
        return
    text = path.read_text(encoding="utf-8")
    for problem in main_problems(error.errors(include_url=False)):
        number, said = setting_line(text, problem_place(problem)), _error_line(problem)
        yield f"{path}: {said}" if number is None else f"{path}, line {number}: {said}"


def _error_lines(error: ValidationError) -> Iterator[str]:
    return map(_error_line, main_problems(error.errors(include_url=False)))


def _error_line(problem: Problem) -> str:
    place = problem_place(problem)
    loc = ".".join(map(str, place))
    if problem["type"] == "extra_forbidden":
        return f"{loc}: no such setting{_hint(problem)}"
    was, secret = problem["input"], place[-1:] in _SECRET
    shown = f" (it is {was!r})" if isinstance(was, str | int | float) and not secret else ""
    return f"{loc}: {problem_words(problem)}{shown}" if loc else problem_words(problem)


def _hint(problem: Problem) -> str:
    *path, name = problem["loc"]
    section: type[BaseModel] | None = Settings
    for step in path:
        section = _find_section(section, str(step))
    names = [field.alias or key for key, field in section.model_fields.items()] if section else []
    near = get_close_matches(str(name), names, 1)
    if near or len(names) > _MAX_NAMED:
        return f"; did you mean {near[0]}?" if near else "; `schedd config reference` lists all settings"
    return f"; there is {', '.join(names)}"


def _find_section(section: type[BaseModel] | None, step: str) -> type[BaseModel] | None:
    """Return the section for ``step`` in ``section``; itself for a key of its tables or lists."""
    field = section.model_fields.get(step) if section is not None else None
    if field is None:
        return section
    return next((kind for kind in _kinds(field.annotation) if issubclass(kind, BaseModel)), None)


def _kinds(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)
