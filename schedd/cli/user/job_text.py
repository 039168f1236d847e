"""Blockers, changes and places of a job in words, with local times."""

from collections.abc import Iterator, Sequence
from typing import Any

from schedd.cli.user.formatting import format_duration, format_time
from schedd.client.answers import (
    BlockedResource,
    Blocker,
    ChainLink,
    Change,
    Explanation,
    JobsAhead,
    JobView,
    ShareFacts,
    WhatIfVariantResult,
)
from schedd.client.json_object import json_members
from schedd.deadline_sentence import deadline_facts, describe_deadline_forecast
from schedd.name_list import name_first_jobs, name_reservation, shorten_list
from schedd.start_sentence import (
    FORECAST_FRESH_S,
    RIGHTS,
    StartSentence,
    describe_forecast_wait,
    describe_start,
    format_near_time,
    hypothetical_start_facts,
    job_start_facts,
)

_NOW_TOLERANCE_S = 5


def format_time_and_distance(time: int, now: int) -> str:
    """`Sat 21 Nov 16:30:08  in 01:02:00`."""
    # The daemon's clock went on between two of its answers.
    away = (
        "now"
        if abs(time - now) <= _NOW_TOLERANCE_S
        else f"in {format_duration(time - now)}"
        if time > now
        else f"{format_duration(now - time)} ago"
    )
    return f"{format_time(time, now)}  {away}"


def format_due(time: int, now: int, words: str = "overdue by") -> str:
    """The same for future times, such as an end; a past time is `overdue by 00:02:00`."""
    if now - time <= _NOW_TOLERANCE_S:
        return format_time_and_distance(time, now)
    return f"{format_time(time, now)}  {words} {format_duration(now - time)}"


def format_due_start(time: int, now: int) -> str:
    """The same for a planned start; a past one is `due for 00:02:00`."""
    return format_due(time, now, "due for")


def describe_job_start(job: JobView, now: int) -> StartSentence:
    """The sentence about the start of a job."""
    return describe_start(job_start_facts(job), now)


def describe_what_if_start(found: WhatIfVariantResult, now: int) -> StartSentence:
    """The sentence about the start of a hypothetical job."""
    return describe_start(hypothetical_start_facts(found), now)


def format_start(sentence: StartSentence, now: int) -> str:
    """`Likely today 20:59 (90 % by Fri 10:49), at the latest Sun 21:58`."""
    return sentence.text(lambda time: format_near_time(time, now))


def forecast_age(job: JobView, wait: int | None, now: int) -> str:
    """When the forecast of a job was calculated, if not in these minutes, or when the first one is expected
    (``wait``: seconds); else empty.
    """
    as_of = job.expected_as_of
    if wait is not None and job.predicted and job.expected_start is None:
        return describe_forecast_wait(wait)
    if job.expected_start is None or as_of is None or now - as_of <= FORECAST_FRESH_S // 3:
        return ""
    return f"calculated {format_time_and_distance(as_of, now)}"


def describe_deadline(job: JobView | WhatIfVariantResult, now: int, cause: str = "") -> str:
    """The state of a deadline in words; ``cause`` put it at risk."""
    facts = deadline_facts(job)
    if facts is not None:
        found = f"is {describe_deadline_forecast(facts, lambda time: format_time(time, now))}"
        offer = _format_offer(job, f"{facts.earliest}@{100 * facts.required:g}%")
        return f"{found} ({offer})" if facts.earliest else found
    if job.deadline_state == "accepted":
        return "is accepted: only causes that may break a promise delay it"
    if job.deadline_state == "at_risk":
        return "is accepted, but not met as planned" + (f": {cause}" if cause else "")
    if job.deadline_state == "missed":
        words = "cannot be met"
    else:
        words = "is not guaranteed" if job.earliest_deadline is None else "is refused"
    if job.earliest_deadline is None:
        return words
    earliest = format_time(job.earliest_deadline, now)
    offer = _format_offer(job, str(job.earliest_deadline))
    return f"{words}; the earliest that can be kept is {earliest} ({offer})"


def _format_offer(job: JobView | WhatIfVariantResult, deadline: str) -> str:
    """`qalter -W x=deadline:1796059906` for a job, with the option that it was submitted with, and
    `deadline=1796059906` for a request.
    """
    resources = getattr(job, "resources", None)
    if resources is None:
        return f"deadline={deadline}"
    names = {name.lower() for name in resources}
    as_extension = "x.deadline" in names and "deadline" not in names
    if not as_extension:
        return f"qalter -l deadline={deadline}"
    others = any(name.startswith("x.") and name != "x.deadline" for name in names)
    more = ", with the other values of -W x, which qalter replaces together" if others else ""
    return f"qalter -W x=deadline:{deadline}{more}"


def format_nodes(shares: Sequence[ShareFacts]) -> str:
    """`n1 (4 cpus), n2 (4 cpus)`, shortened where there are many."""
    names = [share.node for share in shares]
    return shorten_list(names, 6)


def describe_change(change: Change, now: int) -> str:
    """When, by how much and why a planned start moved."""
    before, after = change.before, change.after
    if before is None and after is None:
        how = "still not known"
    elif before is None:
        how = "first planned"
    elif after is None:
        how = "start not known any more"
    elif before == after:
        how = "elsewhere, at the same time"
    else:
        how = f"{format_duration(abs(after - before))} {'earlier' if after < before else 'later'}"
    return f"{format_time(change.time, now)}  {how}: {change.words}"


def describe_blocker(one: Blocker, now: int) -> str:
    if one.kind == "job":
        until = format_time(one.until or now, now)
        if one.state == "planned":
            does = f"is planned from {format_time(one.start or now, now)} to {until} and takes"
        else:
            does = f"runs until {until} and holds"
        by = f"; its value by {one.ranked_by} is higher" if one.ranked_by else ""
        return f"job {one.name} {does} {_describe_holdings(one.on)}{by}"
    if one.kind == "reservation":
        until = f" until {format_time(one.until, now)}" if one.until is not None else ""
        others = any("access" in on.what for on in one.on)
        places = shorten_list([on.name for on in one.on if on.name != f"reservation {one.name}"])
        does = f"keeps {'others off' if others else 'free'} {places}" if places else "keeps it off"
        return f"reservation {name_reservation(one.name)} {does}{until}"
    return one.words


def _describe_holdings(on: Sequence[BlockedResource]) -> str:
    """`cpus of n1, n2; mem of n3`."""
    by_what: dict[tuple[str, ...], list[str]] = {}
    for one in on:
        by_what.setdefault(tuple(one.what), []).append(one.name)
    parts = []
    for what, names in by_what.items():
        if not what:
            parts.append(f"a part of the limit: {shorten_list(names)}")
        elif what == ("node",):
            parts.append(f"all of {shorten_list(names)}")
        else:
            parts.append(f"{' and '.join(what)} of {shorten_list(names)}")
    return "; ".join(parts) or "its nodes"


_REPEATED = ("view", "moves", "promise_ended")


def explanation_members(found: Explanation) -> dict[str, Any]:
    """Return an explanation for output as JSON, without the job and its moves."""
    return {name: value for name, value in json_members(found).items() if name not in _REPEATED}


_MAX_LINKS = 5


def explanation_rows(found: Explanation, now: int) -> Iterator[tuple[str, str]]:
    """The jobs that hold the nodes of a job until its start, and jobs with precedence, as rows."""
    if found.node_choice:
        yield "its nodes", found.node_choice
    earliest, because = found.earliest, found.earliest_why
    if because and earliest is not None:
        yield "not before", f"{format_time(earliest, now)}: {because}"
    if not found.chain:
        if not because and found.planned_start is not None and found.planned_start > now:
            yield "not sooner", found.why
        return
    if found.has_room_sooner:
        yield "not sooner", found.why
    count = sum(one.count for one in found.ahead)
    if count:
        rights = ", ".join(map(_describe_jobs_ahead, found.ahead))
        yield "ahead", f"{count} queued job{'s' * (count > 1)} on its nodes: {rights}"
    name = "not sooner"
    links = [link for link in found.chain if link.kind != "eligible"]
    for link in links[:_MAX_LINKS]:
        yield name, f"{describe_link(link)} until {format_time(link.held_until, now)}"
        name = "then"
    if len(links) > _MAX_LINKS:
        yield name, f"{len(links) - _MAX_LINKS} more steps until {format_time(links[-1].until, now)}"


def _describe_jobs_ahead(one: JobsAhead) -> str:
    """`2 came earlier (5, 6)`; only jobs that the caller may see are named."""
    right = f"{one.count} {RIGHTS[one.right][one.count > 1]}"
    return right + name_first_jobs([job.id for job in one.jobs], one.count)


def describe_link(link: ChainLink) -> str:
    """What keeps a job off its nodes until the end of the link."""
    on = shorten_list(link.nodes) or f"the limit {link.name}"
    planned = f"planned {'on' if link.nodes else 'within'} {on}"
    jobs = shorten_list([one.id for one in link.jobs])
    if link.kind == "running":
        if not jobs:
            return f"a job of another user holds {on}"
        several = len(link.jobs) > 1
        return f"{'jobs' if several else 'job'} {jobs} {'hold' if several else 'holds'} {on}"
    if link.kind == "queued":
        if link.count == 1 and jobs:
            right = link.jobs[0].right
            return f"job {jobs}, which {RIGHTS[right or 'placement'][0]}, is {planned}"
        named = f" ({jobs})" if jobs else ""
        many = f"{link.count} queued jobs are" if link.count > 1 else "a queued job is"
        return f"{many} {planned}{named}"
    if link.kind == "reservation":
        return f"reservation {name_reservation(link.name)} keeps {shorten_list(link.nodes) or 'it off'}"
    if link.kind == "limit":
        return f"the limit is reached ({link.name})"
    if link.kind == "node":
        return f"{on} has too little usable capacity"
    return "its nodes are free; the plan is being repaired"
