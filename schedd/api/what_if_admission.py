"""Admission of hypothetical jobs: how the server would treat the request, and the jobs that it refers to."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from schedd.array_ids import submission_order
from schedd.dialect.array_request import ArrayRequest
from schedd.engine import (
    JobRecord,
    PlanSnapshot,
    charge_factor,
)
from schedd.service.questions.admission import Admission, admit, exceeded_limits
from schedd.service.questions.plan_fork import PlanFork
from schedd.service.questions.submission_checks import KnownUser, QueuedJobs, Submission
from schedd.service.read.arrays import choose_array
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.read.plan_lists import find_record
from schedd.wire import JobFacts

_WRITTEN_IN_MANY_WAYS: Final = frozenset({"walltime", "mem", "nodes", "select", "place"})


class VisibleJobs:
    """Finds jobs and arrays that the caller may see; the jobs of all arrays are collected once."""

    def __init__(self, published: PlanSnapshot, visibility: JobVisibility) -> None:
        self._published = published
        self._visibility = visibility
        self._arrays: dict[str, list[JobRecord]] | None = None

    def find(self, name: str) -> list[JobRecord]:
        """Return the job of this id, or the jobs of an array."""
        record = find_record(self._published, name)
        if record is not None:
            return [record] if self._visibility.shows(record) else []
        if "[]" not in name:
            return []
        if self._arrays is None:
            self._arrays = {}
            for one in all_jobs(self._published):
                if one.facts.array and self._visibility.shows(one):
                    self._arrays.setdefault(one.facts.array, []).append(one)
        return self._arrays.get(choose_array(self._arrays, name), [])


def check_admission(
    copy: PlanFork,
    facts: JobFacts,
    known: Mapping[str, str],
    instead_of: str,
    *,
    array: ArrayRequest | None,
    submitter: str,
    queued: QueuedJobs,
) -> Admission:
    """How the server treats the job; of a queued one the altered parts. Raises NotUnderstood."""
    published = copy.published
    if ":" in facts.queue:  # an adapter asks for a reservation, which no queue's limits concern
        return Admission(facts)
    understood = copy.understand(facts)
    if not instead_of:
        submission = Submission(
            facts=replace(facts, owner=submitter),
            understood=understood,
            group=facts.group if submitter else "",
            known=_known_user(published, submitter),
            array=array if array is not None else ArrayRequest(1),
            is_array=array is not None,
            queued=queued,
        )
        found = admit(submission, published.queues, published.server)
        return replace(found, facts=replace(found.facts, owner=facts.owner))
    request = understood.request
    altered = {name: text for name, text in facts.resources.items() if known.get(name) != text}
    queue = published.queues.get(facts.queue)
    over = exceeded_limits(altered, request if altered else None, queue, published.server)
    return Admission(facts, tuple(over), command="qalter")


def is_unaltered(copy: PlanFork, job: JobRecord, asked: JobFacts) -> bool:
    """Return whether the request of a queued job is unaltered, even if it is written differently."""
    old, new = job.facts.resources, asked.resources
    altered = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return not altered or (altered <= _WRITTEN_IN_MANY_WAYS and copy.is_understood_as(asked, job.understood))


def all_jobs(published: PlanSnapshot) -> Iterator[JobRecord]:
    """Yield all jobs, also those without a slot."""
    yield from (one for one in published.records if one is not None)
    yield from published.slotless.values()


def known_group(published: PlanSnapshot, user: str) -> str:
    """Return the group of a user's latest job; empty: the user has no jobs."""
    name = user.partition("@")[0]
    jobs = (one.facts for one in all_jobs(published) if one.facts.owner.partition("@")[0] == name)
    named = [(one.submitted, submission_order(one.id), one.group) for one in jobs if one.group]
    return max(named)[2] if named else ""


def group_notes(published: PlanSnapshot, facts: JobFacts) -> Iterator[str]:
    """Yield a remark if the group of a hypothetical job is not known, and the policy depends on groups."""
    if facts.owner and not facts.group and _names_groups(published.settings.site.plain):
        yield (
            f"the group of {facts.owner.partition('@')[0]} is not known here: access and limits of groups do "
            "not count; name it with -W group_list="
        )


def charge_notes(published: PlanSnapshot, facts: JobFacts) -> Iterator[str]:
    """Yield a remark if a job's account is charged another amount than the prices of its nodes."""
    factor = charge_factor(published, facts) if published.settings.site.economy.prices else 1.0
    if factor != 1:
        yield f"its account is charged {factor:g} times this cost, by its QOS or partition"


def _names_groups(plain: object) -> bool:
    """Return whether settings have an access list or limit of groups, or use them otherwise."""
    if isinstance(plain, Mapping):
        return any(
            (name in ("groups", "group_defaults") and bool(value))
            or (name in ("who", "by") and value == "group")
            or _names_groups(value)
            for name, value in plain.items()
        )
    if isinstance(plain, (list, tuple)):
        return any(one == "group" or _names_groups(one) for one in plain)
    return False


def _known_user(published: PlanSnapshot, user: str) -> KnownUser:
    """Groups, hosts and queues of a user's jobs."""
    name = user.partition("@")[0]
    facts = [one.facts for one in all_jobs(published) if one.facts.owner.partition("@")[0] == name and name]
    return KnownUser(
        groups=frozenset(one.group for one in facts if one.group),
        hosts=frozenset(host for one in facts if (host := one.owner.partition("@")[2])),
        queues=frozenset(one.queue for one in facts),
    )
