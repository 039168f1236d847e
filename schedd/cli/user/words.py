"""Blockers, changes and places of a job in words, with local times."""

from collections.abc import Iterator

from schedd.cli.user.text import few, later, moment, span
from schedd.client.answers import Blocker, Change, Explanation, Link, On, ShareFacts

__all__ = ["blocked", "due", "expected", "linked", "moved", "places", "when", "why_not_sooner"]

_MOMENT_S = 5


def when(time: int, now: int) -> str:
    """`Sat 21 Nov 16:30:08  in 01:02:00`."""
    # The daemon's clock went on between two of its answers.
    away = (
        "now"
        if abs(time - now) <= _MOMENT_S
        else f"in {span(time - now)}"
        if time > now
        else f"{span(now - time)} ago"
    )
    return f"{moment(time, now)}  {away}"


def due(time: int, now: int) -> str:
    """The same of what is still to happen; what is past is `overdue by 00:02:00`."""
    if now - time <= _MOMENT_S:
        return when(time, now)
    return f"{moment(time, now)}  overdue by {span(now - time)}"


def expected(start: int, by: int, now: int) -> str:
    """`about Sat 21 Nov 14:10:00, by 16:00:00 in nine of ten cases`."""
    return f"about {moment(start, now)}, by {later(by, start, now)} in nine of ten cases"


def places(shares: list[ShareFacts]) -> str:
    """`n1 (4 cpus), n2 (4 cpus)`, shortened where there are many."""
    names = [share["node"] for share in shares]
    return few(names, 6)


def moved(change: Change, now: int) -> str:
    """When, by how much and why a planned start moved."""
    before, after = change["before"], change["after"]
    if before is None and after is None:
        how = "still not known"
    elif before is None:
        how = "start known"
    elif after is None:
        how = "start not known any more"
    elif before == after:
        how = "elsewhere, at the same time"
    else:
        how = f"{span(abs(after - before))} {'earlier' if after < before else 'later'}"
    return f"{moment(change['time'], now)}  {how}: {change['words']}"


def blocked(one: Blocker, now: int) -> str:
    """One blocker in words."""
    if one["kind"] == "job":
        until = moment(one["until"] or now, now)
        if one["state"] == "planned":
            does = f"is planned from {moment(one['start'] or now, now)} to {until} and takes"
        else:
            does = f"runs until {until} and holds"
        return f"job {one['name']} {does} {_held(one['on'])}"
    if one["kind"] == "reservation":
        until = f" until {moment(one['until'], now)}" if one["until"] is not None else ""
        others = any("access" in on["what"] for on in one["on"])
        does = "keeps others off" if others else "keeps free"
        return f"reservation {one['name']} {does} {few([on['name'] for on in one['on']])}{until}"
    return one["words"]


def _held(on: list[On]) -> str:
    """`cpus of n1, n2; mem of n3`."""
    by_what: dict[tuple[str, ...], list[str]] = {}
    for one in on:
        by_what.setdefault(tuple(one["what"]), []).append(one["name"])
    parts = []
    for what, names in by_what.items():
        if not what:
            parts.append(f"a part of the limit: {few(names)}")
        elif what == ("node",):
            parts.append(f"all of {few(names)}")
        else:
            parts.append(f"{' and '.join(what)} of {few(names)}")
    return "; ".join(parts) or "what it needs"


_LINKS = 5
_RIGHTS = {
    "priority": ("has a higher priority", "have a higher priority"),
    "earlier": ("came earlier", "came earlier"),
    "promise": ("has a promise to keep", "have promises to keep"),
    "placement": ("fits in before it", "fit in before it"),
}


def why_not_sooner(found: Explanation, now: int) -> Iterator[tuple[str, str]]:
    """What holds the nodes that a job will use until its start, and who goes first, as rows."""
    earliest, because = found["earliest"], found["earliest_why"]
    if because and earliest is not None:
        yield "not before", f"{moment(earliest, now)}: {because}"
    if not found["chain"]:
        if not because and found["planned_start"] is not None and found["planned_start"] > now:
            yield "not sooner", found["why"]
        return
    if found["has_room_sooner"]:
        yield "not sooner", found["why"]
    ahead = {one["right"]: one["count"] for one in found["ahead"]}
    count = sum(ahead.values())
    if count:
        rights = ", ".join(f"{n} {_RIGHTS[right][n > 1]}" for right, n in ahead.items())
        yield "ahead", f"{count} queued job{'s' * (count > 1)} on its nodes: {rights}"
    name = "not sooner"
    links = [link for link in found["chain"] if link["kind"] != "eligible"]
    for link in links[:_LINKS]:
        yield name, f"{linked(link)} until {moment(link['until'], now)}"
        name = "then"
    if len(links) > _LINKS:
        yield name, f"{len(links) - _LINKS} more steps until {moment(links[-1]['until'], now)}"


def linked(link: Link) -> str:
    """What keeps a job off its nodes until the end of the link."""
    on, jobs = few(link["nodes"]) or "a limit", few([one["id"] for one in link["jobs"]])
    if link["kind"] == "running":
        if not jobs:
            return f"a job of another user holds {on}"
        several = len(link["jobs"]) > 1
        return f"{'jobs' if several else 'job'} {jobs} {'hold' if several else 'holds'} {on}"
    if link["kind"] == "queued":
        if link["count"] == 1 and jobs:
            right = link["jobs"][0]["right"]
            return f"job {jobs}, which {_RIGHTS[right or 'placement'][0]}, is planned on {on}"
        named = f" ({jobs})" if jobs else ""
        many = f"{link['count']} queued jobs are" if link["count"] > 1 else "a queued job is"
        return f"{many} planned on {on}{named}"
    if link["kind"] == "reservation":
        return f"reservation {link['name']} keeps {on}"
    if link["kind"] == "limit":
        return f"no room within the limit: {link['name']},"
    if link["kind"] == "node":
        return f"{on} has too little in use"
    return "its nodes are free; the plan is being repaired"
