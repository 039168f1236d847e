"""Reasons why a server refuses a submission to a queue: access lists, kinds of jobs, queued jobs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from schedd.dialect import RequestError, parse_walltime
from schedd.dialect.access_list import admits_group, admits_host, admits_user, is_true
from schedd.dialect.array_request import ArrayRequest
from schedd.engine import JobRecord, ParsedRequest, make_claim
from schedd.policy.limits import Claim, Limit, format_amount, parse_queued_limits, strictest
from schedd.wire import JobFacts, QueueFacts, ResourceTypes, ServerFacts

_RUNS: Final = frozenset({"R", "E", "S"})


@dataclass(slots=True)
class QueuedJobs:
    """Amounts of all jobs of the server, for limits on queued jobs.

    Each amount is computed once, so that variants of a request and destinations of a queue share it.
    ``jobs`` is called only if there are such limits.
    """

    jobs: Callable[[], Iterable[JobRecord]] = tuple
    types: ResourceTypes = field(default_factory=ResourceTypes)
    _claims: list[tuple[Claim, bool]] | None = None  # of each job, and whether it runs
    _amounts: dict[tuple[str, str, str, str, str], int] = field(default_factory=dict)

    def amount(self, limit: Limit, queue: str) -> int:
        """Return the amount that counts against a limit of a queue (empty: of the server)."""
        key = (limit.who, limit.name, limit.what, limit.counts, queue)
        if key not in self._amounts:
            self._amounts[key] = self._sum(limit, queue)
        return self._amounts[key]

    def _sum(self, limit: Limit, queue: str) -> int:
        if self._claims is None:
            self._claims = [
                (make_claim(job.facts, job.understood, types=self.types), job.facts.state in _RUNS)
                for job in self.jobs()
            ]
        waiting = limit.counts == "eligible"
        return sum(
            claim.amounts.get(limit.what, 0)
            for claim, runs in self._claims
            if (not queue or claim.queue == queue)
            and not (waiting and runs)
            and _owner(claim, limit) == limit.name
        )


@dataclass(frozen=True, slots=True)
class KnownUser:
    """Facts about a user from the server's jobs: groups, submit hosts, queues that accepted a job."""

    groups: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Submission:
    """A hypothetical submission.

    ``facts.owner`` empty: the user is unknown, and access lists and limits of users are not checked.
    ``group`` is the user's primary group, or empty. ``known`` comes from the user's jobs.
    ``queued`` are all jobs of the server.
    """

    facts: JobFacts
    understood: ParsedRequest
    group: str = ""
    known: KnownUser = field(default_factory=KnownUser)
    array: ArrayRequest = field(default_factory=lambda: ArrayRequest(1))
    is_array: bool = False
    queued: QueuedJobs = field(default_factory=QueuedJobs)

    @property
    def user(self) -> str:
        """The user without its host."""
        return self.facts.owner.partition("@")[0]

    @property
    def host(self) -> str:
        """The submit host; empty if the question has none."""
        return self.facts.owner.partition("@")[2]


def access_refusals(
    one: Submission, queue: QueueFacts, server: ServerFacts, *, routed: bool
) -> Iterator[str]:
    """Yield why a queue refuses this user's or kind of job; ``routed``: from a routing queue."""
    attributes = queue.attributes
    if is_true(attributes, "from_route_only") and not routed:
        yield f"queue {queue.name} takes jobs only from a routing queue (from_route_only = True)"
    kinds = {kind.strip() for kind in attributes.get("disallowed_types", "").split(",")}
    if one.is_array and "job_array" in kinds:
        yield f"queue {queue.name} takes no job arrays (disallowed_types)"
    if "batch" in kinds:
        yield f"queue {queue.name} takes only interactive jobs (disallowed_types)"
    if "rerunable" in kinds and one.facts.rerunnable:
        yield f"queue {queue.name} takes only jobs with qsub -r n (disallowed_types)"
    if "nonrerunable" in kinds and not one.facts.rerunnable:
        yield f"queue {queue.name} takes no jobs with qsub -r n (disallowed_types)"
    if not one.user:
        return
    refused_user = _refuses_user(attributes, one.facts.owner)
    refused_group = _refuses_group(attributes, server, one)
    if _either_suffices(attributes, server):
        refused_user = refused_group = refused_user and refused_group
    if refused_user:
        yield f"{one.user} is not on the access list of queue {queue.name} (acl_users)"
    if refused_group:
        yield f"group {one.group} is not on the access list of queue {queue.name} (acl_groups)"
    if one.host and _refuses_host(attributes, one.host):
        yield f"queue {queue.name} takes no jobs from {one.host} (acl_hosts)"


def server_refusals(one: Submission, server: ServerFacts) -> Iterator[str]:
    """Yield why the server accepts no jobs of this user."""
    if one.user and _refuses_user(server.attributes, one.facts.owner):
        yield f"{one.user} is not on the access list of the server (acl_users)"
    if one.host and _refuses_host(server.attributes, one.host):
        yield f"the server takes no jobs from {one.host} (acl_hosts)"


def uncertain_access(one: Submission, queue: QueueFacts, server: ServerFacts) -> Iterator[str]:
    """Yield remarks on access lists that cannot be checked here.

    A user counts as admitted if other jobs of this user are in the queue, or have a group on its list.
    """
    attributes = queue.attributes
    users = is_true(attributes, "acl_user_enable")
    groups = is_true(attributes, "acl_group_enable")
    if not one.user:
        if users or groups:
            yield f"queue {queue.name} has an access list, and the user is not known here"
    elif groups and not _refuses_group(attributes, server, one) and queue.name not in one.known.queues:
        known = one.known.groups | ({one.group} if one.group else set())
        admitted = admits_group(attributes.get("acl_groups", ""), known)
        by_user = _either_suffices(attributes, server) and not _refuses_user(attributes, one.facts.owner)
        if not admitted and not by_user:
            other = "other groups" if known else "groups"
            seen = f" ({', '.join(sorted(known))} is not among them)" if len(known) == 1 else ""
            seen = f" ({', '.join(sorted(known))} are not among them)" if len(known) > 1 else seen
            yield (
                f"queue {queue.name} takes only jobs of some groups{seen}; "
                f"{one.user}'s {other} are not known here"
            )
    for name, acl in ((f"queue {queue.name}", attributes), ("the server", server.attributes)):
        yield from _uncertain_hosts(one, name, acl)


def _uncertain_hosts(one: Submission, name: str, attributes: Mapping[str, str]) -> Iterator[str]:
    """Yield a remark if a list of hosts is in force, and the user's jobs came from none of them, or it is not
    known from where.
    """
    if not is_true(attributes, "acl_host_enable") or one.host:
        return
    refused = sorted(host for host in one.known.hosts if _refuses_host(attributes, host))
    if not refused and one.known.hosts:
        return
    seen = f", not from {', '.join(refused)}, where {one.user}'s jobs came from" if refused else ""
    yield f"{name} takes jobs only from some hosts (acl_hosts){seen}"


def _refuses_host(attributes: Mapping[str, str], host: str) -> bool:
    """Whether the list refuses a host. Without a list only the server's own host is admitted, which is not
    known here.
    """
    printed = attributes.get("acl_hosts", "")
    return is_true(attributes, "acl_host_enable") and bool(printed.strip()) and not admits_host(printed, host)


def _refuses_user(attributes: Mapping[str, str], owner: str) -> bool:
    return is_true(attributes, "acl_user_enable") and not admits_user(attributes.get("acl_users", ""), owner)


def _refuses_group(attributes: Mapping[str, str], server: ServerFacts, one: Submission) -> bool:
    """Whether the group list certainly refuses the user. TORQUE looks only at the job's group, unless
    `acl_group_sloppy` is set. OpenPBS looks at all groups of the user; here only the groups of its jobs are
    known.
    """
    if not is_true(attributes, "acl_group_enable") or not one.group:
        return False
    sloppy = is_true({**server.attributes, **attributes}, "acl_group_sloppy")
    if sloppy or server.family != "torque":
        return False
    return not admits_group(attributes.get("acl_groups", ""), {one.group})


def _either_suffices(attributes: Mapping[str, str], server: ServerFacts) -> bool:
    """Whether one of the two lists suffices for TORQUE (``acl_logic_or``)."""
    both = is_true(attributes, "acl_user_enable") and is_true(attributes, "acl_group_enable")
    return both and is_true({**server.attributes, **attributes}, "acl_logic_or")


def array_refusals(one: Submission, queue: QueueFacts | None, server: ServerFacts) -> Iterator[str]:
    """Yield the limits on the size and the slot limit of arrays that a job array exceeds."""
    if not one.is_array:
        return
    sources = [("the server", server.limits)]
    if queue is not None:
        sources.insert(0, (f"queue {queue.name}", queue.limits))
    limits = (("max_job_array_size", "max_array_size"), ("max_slot_limit",))
    amounts = (one.array.subjobs, one.array.slot_limit)
    words = ("subjobs", "a slot limit of")
    for names, amount, word in zip(limits, amounts, words, strict=True):
        for whose, printed in sources:
            for name in names:
                most = printed.get(name, "")
                if amount is not None and most.isdecimal() and amount > int(most):
                    has = f"{amount} {word}" if word == "subjobs" else f"{word} {amount}"
                    yield f"{has}, and {whose} has {name} = {most}"


def walltime_range_refusals(one: Submission, server: ServerFacts) -> Iterator[str]:
    """Yield the parts of a range of walltimes (shrink to fit) that OpenPBS refuses."""
    wanted = one.facts.resources
    least, most = wanted.get("min_walltime"), wanted.get("max_walltime")
    if server.family != "openpbs" or least is most is None:
        return
    if least is None:
        yield f"max_walltime={most} without a min_walltime"
        return
    if one.is_array:
        yield f"min_walltime={least} of a job array"
    with suppress(RequestError):
        if most is not None and parse_walltime(least) > parse_walltime(most):
            yield f"min_walltime={least} is greater than max_walltime={most}"


def queued_limit_refusals(one: Submission, queue: QueueFacts | None, server: ServerFacts) -> Iterator[str]:
    """Yield the limits on queued jobs, of the queue and of the server, that the submission exceeds."""
    sources = [("the server", "", server.limits)]
    if queue is not None:
        sources.insert(0, (f"queue {queue.name}", queue.name, queue.limits))
    for whose, name, printed in sources:
        for attribute, limits in parse_queued_limits(printed, types=one.queued.types).items():
            for present in _exceeded(one, limits, name):
                yield f"{present}, and {whose} has {attribute} = {printed[attribute]}"


def _exceeded(one: Submission, limits: tuple[Limit, ...], queue: str) -> Iterator[str]:
    """Yield the queued amounts, for each of these limits of a queue (or the server) that is exceeded."""
    claim = make_claim(replace(one.facts, group=one.group), one.understood, types=one.queued.types)
    for limit in strictest([limits], claim).values():
        asked = claim.amounts.get(limit.what, 0) * one.array.subjobs
        if not asked:
            continue
        present = one.queued.amount(limit, queue)
        if present + asked > limit.amount:
            yield _describe_present(limit, present)


def _describe_present(limit: Limit, present: int) -> str:
    state = "queued" if limit.counts == "eligible" else "queued or running"
    if limit.what == "jobs":
        jobs = f"{present} {state} {'job' if present == 1 else 'jobs'}"
        return f"{limit.name} has {jobs}" if limit.who != "all" else f"there are {jobs}"
    whose = f"{limit.name}'s" if limit.who != "all" else "all"
    return f"{whose} {state} jobs have {format_amount(present, limit.what, limit.unit)}"


def _owner(claim: Claim, limit: Limit) -> str:
    return {"user": claim.user, "group": claim.group, "project": claim.project}.get(limit.who, "")
