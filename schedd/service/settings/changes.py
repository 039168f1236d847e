"""Comparison of settings: which changes apply without a restart?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from schedd.service.settings.cluster import ClusterSettings
from schedd.service.settings.feature_tables import daemon_tables
from schedd.service.settings.file import Settings
from schedd.wire.times import written

_LIVE: Final = ("auth", "limits", "log")
_AT_START: Final = frozenset({"policy"})  # settings of a cluster that only apply at the start of its planner


@dataclass(frozen=True, slots=True)
class SettingsChanges:
    """``settings`` apply from now on: the new ones, without the changes that need a ``restart``."""

    settings: Settings
    now: tuple[str, ...]  # changes that apply now, in words
    restart: tuple[str, ...]  # names of settings that need a restart


def compare_settings(old: Settings, new: Settings) -> SettingsChanges:
    """Return the changes from ``old``, the present settings, to ``new``."""
    tables = [one.table for one in daemon_tables()]
    now: list[str] = []
    restart = [
        f"{section}.{name}"
        for section in ("server", "store", *tables)
        for name, _ in _different(getattr(old, section), getattr(new, section))
    ]
    for section in _LIVE:
        # Names only: there are hashes of tokens among them.
        found = _different(getattr(old, section), getattr(new, section))
        now += [f"{section}.{name}" for name, _ in found]
    restart += ["webhooks"] if old.webhooks != new.webhooks else []
    restart += [f"clusters.{name}" for name in sorted(old.clusters.keys() ^ new.clusters.keys())]
    clusters = dict(old.clusters)
    for name in old.clusters.keys() & new.clusters.keys():
        before, after = old.clusters[name], new.clusters[name]
        kept = {key: getattr(before, key) for key in _AT_START}
        clusters[name] = after.model_copy(update=kept)
        for key, words in _different(before, after):
            field = ClusterSettings.model_fields[key].alias or key
            if key in _AT_START:
                restart.append(f"clusters.{name}.{field}")
            else:
                now.append(f"clusters.{name}.{field} {words}")
    updates = {"server": old.server, "store": old.store, "webhooks": old.webhooks, "clusters": clusters}
    updates |= {table: getattr(old, table) for table in tables}
    return SettingsChanges(new.model_copy(update=updates), tuple(now), tuple(restart))


def _different(old: BaseModel, new: BaseModel) -> Iterator[tuple[str, str]]:
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            field = type(old).model_fields[name]
            words = f"{written(field, before)} -> {written(field, after)}"
            yield name, "was changed" if isinstance(after, BaseModel) else words
