"""Access lists: whose jobs may use what is reserved."""

from dataclasses import dataclass, fields

__all__ = ["Access"]


@dataclass(frozen=True, slots=True)
class Access:
    """Users, groups, accounts and queues; one match is enough, or a walltime that is ``shorter`` (seconds) or
    equal. An empty list is false: it lets nobody in.
    """

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    shorter: int = 0

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def admits(self, owner: str, group: str, account: str, queue: str, walltime: int = 0) -> bool:
        """Whether a job of this owner (``user`` or ``user@host``), group, account and queue may pass; 0: its
        walltime is not known.
        """
        return (
            owner.partition("@")[0] in self.users
            or group in self.groups
            or account in self.accounts
            or queue in self.queues
            or 0 < walltime <= self.shorter
        )
