"""Settings of deadlines: ``[clusters.NAME.site.deadlines]``."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from schedd.dialect.deadline import read_required_probability
from schedd.policy.access import Access
from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.facts import JobFacts
from schedd.wire.section import Section
from schedd.wire.times import Seconds

_Names = tuple[Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{1,255}$")], ...]


class DeadlineSettings(Section):
    """Admission of jobs with a deadline. A deadline is accepted if the job ends in time as planned; from then
    on its latest start is promised. See docs/administrators/deadlines.md.
    """

    admission: bool = True
    """Whether deadlines are accepted or refused. If not, they are wishes, which guarantee nothing."""
    users: _Names = ()
    """Users: admission is open to their jobs. A match in these lists is sufficient; without lists it is open
    to all."""
    groups: _Names = ()
    """Groups: admission is open to their jobs."""
    accounts: _Names = ()
    """Accounts: admission is open to their jobs."""
    queues: _Names = ()
    """Queues: admission is open to their jobs."""
    margin: Seconds = 60
    """An accepted job is planned to end at least this long before its deadline: the server needs time to
    start it."""

    def admits(self, facts: JobFacts) -> bool:
        """Return whether the deadline of a job may be accepted, with a guarantee. A forecast decides on one
        with a probability.
        """
        if not self.admission or read_required_probability(facts.resources) is not None:
            return False
        if not (self.users or self.groups or self.accounts or self.queues):
            return True
        access = Access(
            frozenset(self.users), frozenset(self.groups), frozenset(self.accounts), frozenset(self.queues)
        )
        return access.admits(facts.owner, facts.group, facts.account, facts.queue)


def _find_lists_without_effect(table: Mapping[str, Any]) -> Iterator[str]:
    lists = [name for name in ("users", "groups", "accounts", "queues") if table.get(name)]
    if lists and table.get("admission") is False:
        yield f"deadlines.{lists[0]}: it has no effect, since admission is false"


SETTINGS: Final = FeatureSettings(
    table="deadlines",
    model=DeadlineSettings,
    about="Admission of jobs with a deadline: `[clusters.main.site.deadlines]`.",
    heading="Deadlines",
    advice=_find_lists_without_effect,
)
