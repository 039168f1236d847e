"""Selections of jobs in settings: by queue, user, group, account or QOS."""

from functools import cached_property
from typing import Annotated

from pydantic import Field

from schedd.policy.access import Access
from schedd.wire.facts import JobFacts
from schedd.wire.section import Section

_Names = tuple[Annotated[str, Field(min_length=1, max_length=255)], ...]


class JobSelection(Section):
    """Jobs by queue, user, group, account or QOS; one match is sufficient. Empty lists select no job."""

    queues: _Names = ()
    """Queues."""
    users: _Names = ()
    """Owners, without a host."""
    groups: _Names = ()
    """Groups of the owner."""
    accounts: _Names = ()
    """Accounts (`qsub -A`)."""
    qos: _Names = ()
    """QOS, requested or by default."""

    def selects(self, facts: JobFacts, qos: str) -> bool:
        """Whether the job is selected; ``qos`` is its QOS, empty for none."""
        if qos in self.qos:
            return True
        return self._access.admits(facts.owner, facts.group, facts.account, facts.queue)

    @cached_property
    def _access(self) -> Access:
        return Access(
            users=frozenset(self.users),
            groups=frozenset(self.groups),
            accounts=frozenset(self.accounts),
            queues=frozenset(self.queues),
        )

    @property
    def is_empty(self) -> bool:
        return not (self.queues or self.users or self.groups or self.accounts or self.qos)
