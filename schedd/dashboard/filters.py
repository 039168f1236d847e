"""Times (UTC; a script converts them to the browser's zone), durations and amounts for readers."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

from markupsafe import Markup, escape

from schedd.api.node_selection import name_nodes
from schedd.api.result_views import WhatIfVariantResult
from schedd.array_ids import array_name
from schedd.dashboard.criterion_help import criterion_help
from schedd.deadline_sentence import deadline_facts, describe_deadline_forecast, format_probability
from schedd.dialect.holds import holds_in
from schedd.engine import JobView
from schedd.name_list import name_reservation
from schedd.service.questions.explanation_chain import ChainLink, describe_jobs_before
from schedd.start_sentence import (
    StartFacts,
    describe_cause,
    describe_forecast_wait,
    describe_start,
    format_utc,
)

_MAX_NAMES: Final = 3
_SHOWN_APART: Final = frozenset({"walltime", "nodect"})
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_TIME_PATTERN: Final = re.compile(r"(?:[A-Z][a-z]{2} )?(\d{4}-\d\d-\d\d) (\d\d:\d\d)(:\d\d)? UTC")
"""Times of the API, and of mails, which have the weekday and no seconds."""
_SHARE_CRITERIA: Final = frozenset({"utilisation", "weighted_utilisation"})
"""Criteria that are shares of a whole."""
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


def format_time(moment: int) -> str:
    """``Sat 21 Nov 16:30 UTC``, in another year ``Sat 21 Nov 2027 16:30 UTC``."""
    at = datetime.fromtimestamp(moment, UTC)
    return f"{at:%a %d %b}{'' if at.year == datetime.now(UTC).year else f' {at.year}'} {at:%H:%M} UTC"


def time_element(moment: int | None) -> Markup:
    """A moment as a ``time`` element, which a script turns into the reader's zone; a dash for none."""
    if moment is None:
        return Markup('<span class="none">–</span>')
    iso = f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return Markup('<time datetime="{}">{}</time>').format(iso, format_time(moment))


def near_time_element(moment: int) -> Markup:
    """A moment as a ``time`` element, which a script writes as in the sentence of a start: `today 20:59`."""
    return _near_times(format_utc(moment))


def localise_times(text: str) -> Markup:
    """Mark the times in a text, so that a script converts them to the browser's time zone."""
    parts = _TIME_PATTERN.split(text)
    found = Markup("").join(
        Markup('<time datetime="{}T{}{}Z">{} {}{} UTC</time>{}').format(
            day, hour, seconds or ":00", day, hour, seconds or "", rest
        )
        for day, hour, seconds, rest in zip(*(parts[i::4] for i in (1, 2, 3, 4)), strict=True)
    )
    return escape(parts[0]) + found


def headline(facts: StartFacts, now: int) -> Markup:
    """The sentence about a start, its first words strong; a script shortens its times."""
    first, rest = describe_start(facts, now).parts(format_utc)
    return Markup('<span class="headline"><b>{}</b>{}</span>').format(_near_times(first), _near_times(rest))


def _near_times(text: str) -> Markup:
    parts = _TIME_PATTERN.split(text)
    found = Markup("").join(
        Markup('<time datetime="{}T{}{}Z" data-near>{}</time>{}').format(
            day,
            hour,
            seconds or ":00",
            format_time(int(datetime.fromisoformat(f"{day}T{hour}{seconds or ''}Z").timestamp())),
            rest,
        )
        for day, hour, seconds, rest in zip(*(parts[i::4] for i in (1, 2, 3, 4)), strict=True)
    )
    return escape(parts[0]) + found


def capitalise_first(text: str) -> str:
    """The text with a capital first letter; a path, file, address, setting (`walltime=soon`) or name with a
    digit (`node17`) stays.
    """
    return text if re.match(r"\S*(/|=|\.\w|\d)", text) else text[:1].upper() + text[1:]


def format_duration(seconds: float) -> str:
    """A length of time in its two largest units: ``45 s``, ``12 min``, ``2 h 13 min``, ``3 d 4 h``."""
    left = abs(int(seconds))
    if left < _MINUTE:
        return f"{left} s"
    if left < _HOUR:
        return f"{left // _MINUTE} min"
    if left < _DAY:
        hours, rest = divmod(left, _HOUR)
        return f"{hours} h" + (f" {rest // _MINUTE} min" if rest >= _MINUTE else "")
    days, rest = divmod(left, _DAY)
    return f"{days} d" + (f" {rest // _HOUR} h" if rest >= _HOUR else "")


def format_due(moment: int, now: int, words: str = "overdue by") -> str:
    """The same for future events: ``in 2 h``, ``now``, ``overdue by 5 min``."""
    return (
        f"{words} {format_duration(now - moment)}"
        if now - moment >= _MINUTE
        else format_relative(moment, now)
    )


def format_relative(moment: int, now: int) -> str:
    """How far off a moment is: ``in 2 h``, ``now``, ``5 min ago``."""
    if abs(moment - now) < _MINUTE:
        return "now"
    return f"in {format_duration(moment - now)}" if moment > now else f"{format_duration(now - moment)} ago"


def format_memory(amount: int) -> str:
    """An amount of memory: ``64 GiB``."""
    if not amount:
        return "0"
    value = float(amount)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.4g} {_UNITS[-1]}"


def format_number(value: float) -> str:
    """A number with commas between its thousands, as in sentences of the API and in charts."""
    return f"{value:,}"


def format_figure(value: float, digits: int = 4) -> str:
    """A measured number with that many digits, and without an exponent: ``12,346``, ``0.0173``, ``0``."""
    if value < 0:
        return f"-{format_figure(-value, digits)}"
    if not isfinite(value):
        return str(value)
    if value >= 10 ** (digits - 1):
        return f"{round(value):,}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.6f}".rstrip("0").rstrip(".")


def pluralise(count: int, one: str, more: str = "") -> str:
    """The noun for a count: ``job`` for 1, else ``jobs`` or the given plural."""
    return one if count == 1 else more or f"{one}s"


def format_request(resources: Mapping[str, str]) -> str:
    """What a job asks for, without its walltime, as `qsub -l` takes it."""
    return ", ".join(f"{name}={value}" for name, value in resources.items() if name not in _SHOWN_APART)


def format_criterion(value: float, criterion: str, unit: str) -> str:
    """A criterion's value: a length of time, a share in percent, a count of jobs, or a plain number."""
    if unit == "s":
        return format_duration(value)
    if criterion in _SHARE_CRITERIA:
        return f"{100 * value:.3g} %"
    return f"{format_figure(value)}{' jobs' if unit == 'jobs' else ''}"


def format_change(share: float) -> str:
    """By how much something differs: ``+1.5 %``, ``-0.2 %``; ``0 %`` where that would be rounded away."""
    text = f"{100 * share:+.1f}"
    return "0 %" if text in {"+0.0", "-0.0"} else f"{text} %"


def describe_link(link: ChainLink) -> str:
    """What holds a job's nodes for the length of a link of its chain, without times and ids of jobs; whether
    they run or are queued stands before it.
    """
    on = name_nodes(link.nodes, _MAX_NAMES)
    planned = f"planned on {on}" if on else f"planned within the limit {link.name}"
    on = on or f"the limit {link.name}"
    if link.kind == "running":
        return f"a job holds {on}" if link.count == 1 else f"{format_number(link.count)} jobs hold {on}"
    if link.kind == "queued":
        many = "1 job is" if link.count == 1 else f"{format_number(link.count)} jobs are"
        return f"{many} {planned}"
    if link.kind == "reservation":
        return f"{name_reservation(link.name)} keeps {on}"
    if link.kind == "limit":
        return f"the limit is reached: {link.name}"
    if link.kind == "node":
        return f"{on} has too little usable capacity"
    if link.kind == "eligible":
        return link.name
    return "its nodes are free; the plan is being repaired"


def mark_commands(text: str) -> Markup:
    """A remedy with its commands, which stand between backticks, set as code; lines break between words."""
    found = Markup("")
    for number, part in enumerate(text.split("`")):
        if number % 2:
            words = Markup(" ").join(Markup("<span>{}</span>").format(word) for word in part.split(" "))
            found += Markup("<code>{}</code>").format(words)
        else:
            found += escape(part)
    return found


def describe_forecast(view: JobView | WhatIfVariantResult) -> str:
    """The forecast of a deadline with a probability, with times in UTC; empty without one."""
    facts = deadline_facts(view)
    return describe_deadline_forecast(facts, format_utc) if facts is not None else ""


def describe_holds(letters: str) -> str:
    """`a user hold and a system hold`."""
    return " and ".join(one.value for one in holds_in(letters))


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "array_name": array_name,
    "cause": describe_cause,
    "change": format_change,
    "timed": localise_times,
    "when": time_element,
    "near": near_time_element,
    "capitalised": capitalise_first,
    "span": format_duration,
    "kib": format_memory,
    "number": format_number,
    "figure": format_figure,
    "plural": pluralise,
    "ahead": describe_jobs_before,
    "linked": describe_link,
    "forecast_wait": describe_forecast_wait,
    "commands": mark_commands,
    "request": format_request,
    "meaning": criterion_help,
    "worth": format_criterion,
    "holds": describe_holds,
    "named": name_nodes,
    "forecast": describe_forecast,
    "probability": format_probability,
}
