"""Settings of features for the whole daemon: tables of schedd.toml, declared in the folders of features.

A feature with such settings has a module ``daemon_settings`` with a ``DAEMON_SETTINGS``. They apply to all
clusters; settings of one cluster are in ``[clusters.NAME.site]`` (``schedd.policy.feature_settings``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from schedd.feature_list import feature_modules
from schedd.wire.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTable:
    """Declaration of one feature's table. Changes of its settings need a restart."""

    table: str  # key in the file
    model: type[Section]
    """Its settings; all have defaults."""
    heading: str  # heading of the table in the reference
    database_reason: Callable[[Any], str]
    """Returns, for its settings, why they need a database; empty: they do not."""
    advice: Callable[[Any], Iterator[str]]
    """Warnings about valid settings that are probably unintended. Each begins with the setting."""


@cache
def daemon_tables() -> tuple[DaemonTable, ...]:
    """The declarations of all features that have settings for the whole daemon."""
    modules = feature_modules("daemon_settings")
    return tuple(cast("DaemonTable", module.DAEMON_SETTINGS) for module in modules)
