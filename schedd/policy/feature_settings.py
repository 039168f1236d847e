"""Settings of features, declared in the folders of the features.

A feature with settings has a module ``settings``. Its ``SETTINGS`` declares a table of
``[clusters.NAME.site]``: the same frozen model checks the file, is documented in the reference of settings,
and is what the feature's rules read: ``site.part(TheModel)``. Its ``SITE_FIELDS`` and ``CLUSTER_FIELDS``
declare settings that are no table of their own, in ``[clusters.NAME.site]`` and in ``[clusters.NAME]``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from schedd.feature_list import feature_modules
from schedd.policy.limits import Limit
from schedd.policy.site_tables import WindowSettings
from schedd.wire.section import Section

_S = TypeVar("_S", bound=Section)
_D = TypeVar("_D")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSettings:
    """Declaration of one feature's table of settings."""

    table: str  # key in `[clusters.NAME.site]`
    model: type[Section]
    """Its settings. All have defaults, which apply where the table is left out, except for ``absent``."""
    entry: str = ""
    """For a table of named entries of type ``model``: the word for a name in the reference."""
    listed: bool = False
    """For a list of tables of type ``model``, which are entries by their number."""
    about: str  # description of the table in the reference
    heading: str  # heading of the table in the reference; a new one comes after the others
    absent: Mapping[str, Any] = field(default_factory=dict)  # settings of a site without the table
    check: Callable[[Mapping[str, Any]], None] | None = None
    """Raises ValueError for other settings of the site, in plain values, that contradict these."""
    tables: Mapping[str, type[Section]] = field(default_factory=dict)
    """Tables within the table, by the rest of their name in the reference: ``sets.PARTITION``."""
    limits: Callable[[Any, str], Iterator[Limit]] | None = None
    """Returns limits that follow from the entries by name, with windows on the clock of a time zone."""
    obeys: Callable[[Mapping[str, Any]], frozenset[str]] | None = None
    """Returns, for the content of the table, the requested resources that the feature obeys in place of the
    dialect."""
    advice: Callable[[Mapping[str, Any]], Iterator[str]] | None = None
    """Warnings about valid settings that are probably unintended, from the same values. Each begins with the
    setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFields:
    """Declaration of a feature's settings among others in a table. The table's model inherits ``model``."""

    model: type[Section]
    """The fields. A method of it replaces the core's method of the same name."""
    heading: str  # heading of the settings in the reference
    site_defaults: Mapping[str, Any] = field(default_factory=dict)
    """For ``CLUSTER_FIELDS``: the defaults of the file that differ from the engine's."""
    tables: Mapping[str, type[Section]] = field(default_factory=dict)
    """Tables among the settings, by their names in the reference: ``[clusters.NAME.site.power.NODES]``."""
    advice: Callable[[Any], Iterator[str]] | None = None
    """Warnings about valid settings, from the table's model. Each begins with the setting."""


@cache
def feature_settings() -> tuple[FeatureSettings, ...]:
    """The declarations of all features that have a table."""
    return _declarations("SETTINGS", FeatureSettings)


@cache
def site_fields() -> tuple[FeatureFields, ...]:
    """The declarations of all features with settings in ``[clusters.NAME.site]`` itself."""
    return _declarations("SITE_FIELDS", FeatureFields)


@cache
def cluster_fields() -> tuple[FeatureFields, ...]:
    """The declarations of all features with settings in ``[clusters.NAME]`` itself."""
    return _declarations("CLUSTER_FIELDS", FeatureFields)


def site_defaults() -> dict[str, Any]:
    """The file's defaults of features' settings of a cluster that differ from the engine's."""
    return {name: value for one in cluster_fields() for name, value in one.site_defaults.items()}


def _declarations(name: str, kind: type[_D]) -> tuple[_D, ...]:
    found = [getattr(module, name, None) for module in feature_modules("settings")]
    return tuple(one for one in found if isinstance(one, kind))


def parse_feature_settings(plain: Mapping[str, Any]) -> dict[type[Section], Section]:
    """The settings of all features by their models, from the content of ``[clusters.NAME.site]``.

    Raises ValueError for values that validation should have rejected.
    """
    return {
        one.model: one.model.model_validate(_own_table(one, plain))
        for one in feature_settings()
        if not (one.entry or one.listed)
    }


def parse_feature_entries(plain: Mapping[str, Any], zone: str) -> dict[type[Section], Mapping[str, Section]]:
    """The entries of all tables of named entries, by their models; as ``parse_feature_settings``."""
    found: dict[type[Section], Mapping[str, Section]] = {}
    for one in feature_settings():
        if one.entry or one.listed:
            table: Mapping[str, Any] = _named(plain.get(one.table) or {})
            found[one.model] = {name: one.model.model_validate(entry) for name, entry in table.items()}
            for entry in found[one.model].values():
                if isinstance(entry, WindowSettings):
                    entry.window(zone)  # raises ValueError for a rule without windows
    return found


def feature_limits(entries: Mapping[type[Section], Mapping[str, Section]], zone: str) -> Iterator[Limit]:
    """The limits that follow from the entries."""
    for one in feature_settings():
        if one.limits is not None:
            yield from one.limits(entries[one.model], zone)


def _named(entries: Any) -> Mapping[str, Any]:
    """The entries of a table by name, those of a list by number."""
    return entries if isinstance(entries, Mapping) else {str(i): one for i, one in enumerate(entries)}


def _own_table(one: FeatureSettings, plain: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = plain.get(one.table)
    return found if found is not None else one.absent


def obeyed_resources(plain: Mapping[str, Any]) -> frozenset[str]:
    """Resources that features obey in place of the dialect, by ``[clusters.NAME.site]``."""
    found: set[str] = set()
    for one in feature_settings():
        if one.obeys is not None and plain.get(one.table):
            found |= one.obeys(plain[one.table])
    return frozenset(found)


def find_part(parts: Mapping[type[Section], Section], kind: type[_S]) -> _S:
    """The settings of this model; its defaults where the feature is not installed."""
    found: Any = parts.get(kind)
    return found if found is not None else kind()
