"""What differs between two settings, and what of it counts without a restart."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from schedd.service.settings.file import ClusterSettings, Settings
from schedd.wire.times import written

__all__ = ["SettingsChanges", "compare_settings"]

_LIVE: Final = ("auth", "limits", "log")
_AT_START: Final = frozenset({"policy"})
"""Of a cluster's settings those that its planner takes at its start alone."""


@dataclass(frozen=True, slots=True)
class SettingsChanges:
    """``settings`` are those in force from now on: the new ones, but for what needs a ``restart``."""

    settings: Settings
    now: tuple[str, ...]
    """What counts from now on, in words."""
    restart: tuple[str, ...]
    """Names of settings that wait for a restart."""


def compare_settings(old: Settings, new: Settings) -> SettingsChanges:
    """What changes where ``new`` are read while ``old`` are in force."""
    now: list[str] = []
    restart = [
        f"{section}.{name}"
        for section in ("server", "store", "notify")
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
    updates = {"server": old.server, "store": old.store, "webhooks": old.webhooks}
    updates |= {"notify": old.notify, "clusters": clusters}
    return SettingsChanges(new.model_copy(update=updates), tuple(now), tuple(restart))


def _different(old: BaseModel, new: BaseModel) -> Iterator[tuple[str, str]]:
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            field = type(old).model_fields[name]
            words = f"{written(field, before)} -> {written(field, after)}"
            yield name, "was changed" if isinstance(after, BaseModel) else words
