"""User names of job owners at each member cluster."""

from collections.abc import Iterator, Mapping
from typing import Final

from schedd.federation.settings import FederationSettings

_MAX_OWNERS: Final = 10_000  # maximum number of owners in the cache


class ClusterUsers(Mapping[str, Mapping[str, str]]):
    """User names by owner and cluster, from the settings and from the owner's latest ID token."""

    def __init__(self, settings: FederationSettings) -> None:
        self._settings = settings
        self._known: dict[str, dict[str, str]] = {}
        self._claimed: dict[str, Mapping[str, str]] = {}

    def update_claim(self, owner: str, users: Mapping[str, str]) -> bool:
        """Store the user names of an owner's newer token, by cluster. Return whether they changed."""
        if users == self._claimed.get(owner, {}):
            return False
        self._known.pop(owner, None)
        self._claimed[owner] = users
        return True

    def __getitem__(self, owner: str) -> Mapping[str, str]:
        found = self._known.get(owner)
        if found is None:
            if len(self._known) >= _MAX_OWNERS:
                self._known.clear()
            found = self._known[owner] = self._settings.users(owner, self._claimed.get(owner))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
