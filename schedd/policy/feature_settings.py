"""Settings of features: each is a table of ``[clusters.NAME.site]``, declared in the feature's folder.

A feature with settings has a module ``settings`` with a ``SETTINGS``. The same frozen model checks the file,
is documented in the reference of settings, and is what the feature's rules read: ``site.part(TheModel)``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, cast

from schedd.feature_list import feature_modules
from schedd.policy.limits import Limit
from schedd.policy.site_tables import WindowSettings
from schedd.wire.section import Section

_S = TypeVar("_S", bound=Section)


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


@cache
def feature_settings() -> tuple[FeatureSettings, ...]:
    """The declarations of all features that have settings."""
    return tuple(cast("FeatureSettings", module.SETTINGS) for module in feature_modules("settings"))


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
