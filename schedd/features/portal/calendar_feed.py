"""Calendar feed (iCalendar, RFC 5545) of a user's jobs, bookings and reservations of nodes."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from schedd.api.node_selection import name_nodes
from schedd.engine import PlanSnapshot
from schedd.feature_list import feature_modules
from schedd.features.portal.job_list import PortalJobView
from schedd.service.access.roles import Bearer
from schedd.wire import Reserve

if TYPE_CHECKING:
    from icalendar import Event

_REFRESH: Final = timedelta(minutes=15)
_CONTROLS: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x85\u2028\u2029]")
_LINE_ENDS: Final = re.compile(r"\r\n?")
_LAST: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())  # later times are written as this one


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """An event over ``[start, end)``, in seconds since the epoch; ``certain``: it has begun or is fixed."""

    uid: str
    start: int
    end: int
    summary: str
    text: str
    category: str
    certain: bool
    place: str = ""


@dataclass(slots=True)
class ClusterEvents:
    """Events of one cluster at a time ``now``."""

    cluster: str
    now: int
    events: list[CalendarEvent] = field(default_factory=list)
    later_subjobs: Counter[str] = field(default_factory=Counter)
    """By array: subjobs that start later than those that were added."""
    _arrays: dict[str, list[PortalJobView]] = field(default_factory=dict)

    def add_job(self, job: PortalJobView) -> None:
        """Add a running job or one with a start; the subjobs of an array become one event."""
        if _start(job) is None:
            return
        if job.array:
            self._arrays.setdefault(job.array, []).append(job)
        else:
            self.events.append(self._job_event(job))

    def add_reservations(self, reservations: Iterable[Reserve], until: int) -> None:
        """Add reservations of nodes that begin before ``until``."""
        for one in reservations:
            end = one.end if one.end is not None else until
            if one.start >= until or end <= self.now:
                continue
            lifted = "" if one.end is not None else "Until it is removed. "
            access = ", ".join((*one.users, *one.groups, *one.accounts, *one.queues))
            amounts = f"{one.amounts}. " if one.amounts else ""
            lines = (f"{lifted}{amounts}{one.reason}", f"For {access}" if access else "")
            text = "\n".join(filter(None, lines))
            self.events.append(
                CalendarEvent(
                    uid=f"reservation-{one.name}",
                    start=one.start,
                    end=end,
                    summary=f"Reservation {one.name}",
                    text=text,
                    category="Reservation",
                    certain=True,
                    place="all nodes" if one.everywhere else name_nodes([*one.nodes, *one.features]),
                )
            )

    def add_bookings(self, published: PlanSnapshot, caller: Bearer) -> None:
        """Add the caller's own bookings that have a start."""
        for module in feature_modules("calendar"):
            for one in module.calendar_context(published, caller).get("bookings", ()):
                if one.start is None or one.end is None or not caller.owns(one.owner):
                    continue
                self.events.append(
                    CalendarEvent(
                        uid=f"booking-{one.name}",
                        start=one.start,
                        end=one.end,
                        summary=f"Booking {one.name}: {one.cpus} cpus",
                        text="It may still be moved." if one.phase == "flexible" else "",
                        category="Booking",
                        certain=one.phase != "flexible",
                        place=name_nodes([share.node for share in one.nodes]),
                    )
                )

    def all_events(self) -> list[CalendarEvent]:
        arrays = [self._array_event(array, jobs) for array, jobs in self._arrays.items()]
        return sorted([*self.events, *arrays], key=lambda one: (one.start, one.uid))

    def _job_event(self, job: PortalJobView) -> CalendarEvent:
        start = _start(job) or self.now
        name = f"{job.name} ({job.id})" if job.name else job.id
        running = job.state in ("running", "starting")
        return CalendarEvent(
            uid=f"job-{job.id}",
            start=start,
            end=_end(job, start),
            summary=f"{name} {'runs' if running else 'likely starts'}",
            text=_job_text(job),
            category="Running job" if running else "Planned job",
            certain=running,
            place=name_nodes([share.node for share in job.nodes]),
        )

    def _array_event(self, array: str, jobs: Sequence[PortalJobView]) -> CalendarEvent:
        spans = [(start, _end(job, start)) for job in jobs if (start := _start(job)) is not None]
        running = sum(job.state in ("running", "starting") for job in jobs)
        first = jobs[0]
        name = f"{first.name} ({array})" if first.name else array
        later = self.later_subjobs[array]
        planned = len(jobs) - running + later
        counts = ", ".join(
            text
            for text, count in ((f"{running} running", running), (f"{planned} planned", planned))
            if count
        )
        return CalendarEvent(
            uid=f"array-{array}",
            start=min(start for start, _ in spans),
            end=max(end for _, end in spans),
            summary=f"{name}: {counts}",
            text=f"Job array on {self.cluster}, queue {first.queue}"
            + (f"\nThis is the time of its first {len(jobs)} jobs; {later} start later." if later else ""),
            category="Job array",
            certain=bool(running),
        )


def _start(job: PortalJobView) -> int | None:
    """The start of a running job, the likely start of a planned one; None: not known."""
    if job.state in ("running", "starting"):
        return job.started if job.started is not None else job.planned_start
    if job.state != "planned":
        return None
    return job.expected_start if job.expected_start is not None else job.displayed_start


def _end(job: PortalJobView, start: int) -> int:
    """The end at the latest: a suspension or an overrun makes that of a running job later."""
    runs = job.state == "running" and job.planned_end is not None
    return max(start + 60, job.planned_end if runs and job.planned_end is not None else start + job.walltime)


def _job_text(job: PortalJobView) -> str:
    cpus = f", {job.cpus} cpus" if job.cpus is not None else ""
    return f"{job.headline}\nCluster {job.cluster}, queue {job.queue}{cpus}"


def calendar_text(name: str, clusters: Sequence[ClusterEvents]) -> bytes:
    """Return the calendar of these clusters as text."""
    # Loaded by the first request for a calendar: the library takes long to load.
    from icalendar import Calendar, vDuration  # noqa: PLC0415

    found = Calendar()
    found.add("prodid", "-//schedd//calendar//EN")
    found.add("version", "2.0")
    found.add("method", "PUBLISH")
    found.add("x-wr-calname", _strip_controls(f"Jobs of {name}"))
    found.add("refresh-interval", vDuration(_REFRESH), parameters={"VALUE": "DURATION"})
    found.add("x-published-ttl", vDuration(_REFRESH))
    several = len(clusters) > 1
    for cluster in clusters:
        for one in cluster.all_events():
            found.add_component(_component(cluster, one, f" on {cluster.cluster}" if several else ""))
    return bytes(found.to_ical())


def _component(cluster: ClusterEvents, one: CalendarEvent, where: str) -> "Event":
    from icalendar import Event  # noqa: PLC0415

    event = Event()
    event.add("uid", _strip_controls(f"{one.uid}@{cluster.cluster}.schedd"))
    event.add("dtstamp", _time(cluster.now))
    event.add("dtstart", _time(one.start))
    event.add("dtend", _time(one.end))
    event.add("summary", _strip_controls(one.summary + where))
    if one.text:
        event.add("description", _CONTROLS.sub(" ", _LINE_ENDS.sub("\n", one.text)))
    if one.place:
        event.add("location", _strip_controls(one.place))
    event.add("categories", [one.category])
    event.add("status", "CONFIRMED" if one.certain else "TENTATIVE")
    event.add("transp", "TRANSPARENT")
    return event


def _strip_controls(text: str) -> str:
    """Return the text without control characters, which calendar programs do not read."""
    return _CONTROLS.sub(" ", text.replace("\n", " "))


def _time(moment: int) -> datetime:
    return datetime.fromtimestamp(min(moment, _LAST), UTC)
