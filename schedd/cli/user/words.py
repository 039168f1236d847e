"""Blockers, changes and places of a job in words, with local times."""

from collections.abc import Iterator

from schedd.cli.user.text import few, later, moment, span
from schedd.client.answers import Blocker, Change, Explanation, On, ShareFacts

__all__ = ["blocked", "due", "expected", "moved", "places", "when", "why_not_sooner"]

_SHOWN = 3
_MOMENT_S = 5


def when(time: int, now: int) -> str:
    """`Sat Nov 21 16:30:08  in 01:02:00`."""
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
    """`about Sat Nov 21 14:10:00, by 16:00:00 in nine of ten cases`."""
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


def why_not_sooner(found: Explanation, now: int, most: int = _SHOWN) -> Iterator[tuple[str, str]]:
    """What keeps a job from starting sooner, as rows."""
    blockers = [one for one in found["blockers"] if one["sooner"]]
    hidden = found["hidden"]
    earliest, because = found["earliest"], found["earliest_why"]
    if because and earliest is not None:
        yield (
            "not before",
            f"{moment(earliest, now)}: {because.removesuffix(' before').removesuffix(' then')}",
        )
    if not found["blockers"] and not hidden:
        if not because and found["planned_start"] is not None and found["planned_start"] > now:
            yield "not sooner", found["why"]
        return
    name = "not sooner"
    for one in blockers[:most]:
        yield name, blocked(one, now)
        name = ""
    more = len(blockers) - most
    if more > 0:
        yield name, f"and {more} more"
        name = ""
    if hidden:
        yield name, f"{hidden} jobs of other users" if hidden > 1 else "a job of another user"
    if found["without"] is not None and found["planned_start"] is not None:
        these = "these" if len(blockers) + hidden > 1 else "this"
        yield "otherwise", f"{when(found['without'], now)}, were it not for {these}"
