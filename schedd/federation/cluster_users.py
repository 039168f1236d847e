"""Whom the owners of jobs are at which cluster."""

from collections.abc import Iterator, Mapping
from typing import Final

from schedd.federation.settings import FederationSettings

__all__ = ["ClusterUsers"]

_OWNERS: Final = 10_000
"""So many owners' users are remembered."""


class ClusterUsers(Mapping[str, Mapping[str, str]]):
    """By owner, whom they are at which cluster: by the settings, and what their latest token claimed."""

    def __init__(self, settings: FederationSettings) -> None:
        self._settings = settings
        self._known: dict[str, dict[str, str]] = {}
        self._claimed: dict[str, Mapping[str, str]] = {}

    def update_claim(self, owner: str, users: Mapping[str, str]) -> bool:
        """What a newer token of theirs says, by cluster; returns whether that is something else."""
        if users == self._claimed.get(owner, {}):
            return False
        self._known.pop(owner, None)
        self._claimed[owner] = users
        return True

    def __getitem__(self, owner: str) -> Mapping[str, str]:
        found = self._known.get(owner)
        if found is None:
            if len(self._known) >= _OWNERS:
                self._known.clear()
            found = self._known[owner] = self._settings.users(owner, self._claimed.get(owner))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
