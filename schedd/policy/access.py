"""Access lists of reservations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """Users, groups, accounts and queues; one match, or a walltime of at most ``shorter`` seconds, is
    sufficient. An empty list is false and admits no job.
    """

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    shorter: int = 0

    def __or__(self, other: "Access") -> "Access":
        """Return the list that admits the jobs of both."""
        return Access(
            self.users | other.users,
            self.groups | other.groups,
            self.accounts | other.accounts,
            self.queues | other.queues,
            max(self.shorter, other.shorter),
        )

    def includes(self, other: "Access") -> bool:
        """Return whether each entry of ``other`` is in this list, too."""
        return self | other == self

    def __bool__(self) -> bool:
        return bool(self.users or self.groups or self.accounts or self.queues or self.shorter)

    def admits(self, owner: str, group: str, account: str, queue: str, walltime: int = 0) -> bool:
        """Return whether a job of this owner (``user`` or ``user@host``), group, account and queue is
        admitted; ``walltime`` 0: unknown.
        """
        return (
            owner.partition("@")[0] in self.users
            or group in self.groups
            or account in self.accounts
            or queue in self.queues
            or 0 < walltime <= self.shorter
        )
