"""Reservations: submitted, confirmed, altered, running, ended (section 5); standing ones recur."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrulestr

from server_adapter.dis import Attribute, values_by_key
from server_adapter.emulator import lifecycle, submission
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import JobOrder, Queue
from server_adapter.emulator.openpbs import submission as pbs
from server_adapter.emulator.openpbs.state import PbsCluster, Reservation
from server_adapter.emulator.principal import Principal
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode, ReservationCode
from server_adapter.openpbs.notation import clock_time, exec_vnode, unrolled
from server_adapter.openpbs.requests import ConfirmReservationRequest, ModifyReservationRequest
from server_adapter.torque.notation import seconds

_REFUSED: Final = "PBS_RESV_CONFIRM_FAIL"
_MOST: Final = 1000  # occurrences of a standing reservation
_WALLTIME: Final = "Resource_List.walltime"
_ALTERABLE: Final = frozenset(
    {ReservationCode.UNCONFIRMED, ReservationCode.CONFIRMED, ReservationCode.RUNNING}
)


def submit(cluster: PbsCluster, attributes: Iterable[Attribute], who: Principal) -> str:
    """Create an unconfirmed reservation with its closed queue (pbs_rsub); return its id.

    Raises refusals 15014, 15035, 15086.
    """
    given = values_by_key(attributes)
    start, end = _times(given)
    if start < cluster.now or end <= start:
        raise RefusalError(OpenPBSErrorCode.BADTSPEC, "Bad time specification(s)")
    times = _repeated(given, start)
    name = f"{'S' if times else 'R'}{submission.next_id(cluster)}"
    wanted = {key.partition(".")[2]: value for key, value in given.items() if key.startswith("Resource_L")}
    queue = Queue(
        name.partition(".")[0],
        {
            "queue_type": "Execution",
            "acl_user_enable": "True",
            "acl_users": f"{who.user}@{who.host}",
            "enabled": "False",
            "started": "False",
        },
        modified=cluster.now,
    )
    order = JobOrder(user=who.user, resources={**wanted, "walltime": str(end - start)})
    full = pbs.full_resources(cluster, order, queue)
    plain = {key: value for key, value in given.items() if not key.startswith("Resource_L")}
    resources = {f"Resource_List.{key}": value for key, value in full.items()}
    one = Reservation(name, f"{who.user}@{who.host}", plain | resources, start, end, cluster.now, times=times)
    cluster.reservations[name] = one
    cluster.queues[queue.name] = queue
    cluster.notify_schedulers(OpenPBSCommand.NEW)
    _set_timers(cluster, one)
    return name


def _set_timers(cluster: PbsCluster, one: Reservation) -> None:
    """Set the timers of the current occurrence. A timer checks whether the reservation was altered since."""
    start, end = one.start, one.end
    cluster.timers.at(float(start), lambda: _begin(cluster, one) if one.start == start else None)
    cluster.timers.at(float(end), lambda: _end(cluster, one) if one.end == end else None)


def _repeated(given: dict[str, str], start: int) -> tuple[int, ...]:
    """Return the starts of a standing reservation, else an empty tuple. Raises refusal 15086."""
    rule = given.get("reserve_rrule", "")
    if not rule:
        return ()
    try:
        clock = ZoneInfo(given.get("reserve_timezone") or "UTC")
        begin = datetime.fromtimestamp(start, clock).replace(tzinfo=None)
        found = [
            int(time.replace(tzinfo=clock).timestamp())
            for time in islice(rrulestr(rule, dtstart=begin), _MOST)
        ]
    except (ValueError, KeyError, TypeError, AttributeError, ZoneInfoNotFoundError):
        raise RefusalError(OpenPBSErrorCode.BADTSPEC, "Bad time specification(s)") from None
    return tuple(found)


def _times(given: dict[str, str]) -> tuple[int, int]:
    try:
        start = int(given["reserve_start"])
        if "reserve_end" in given:
            return start, int(given["reserve_end"])
        return start, start + seconds(given.get("reserve_duration") or given["Resource_List.walltime"])
    except (KeyError, ValueError):
        raise RefusalError(OpenPBSErrorCode.BADTSPEC, "Bad time specification(s)") from None


def confirm(cluster: PbsCluster, request: ConfirmReservationRequest) -> None:
    """ConfirmResv: the scheduler assigns vnodes or refuses. A refused new reservation is deleted, a refused
    alteration is undone.

    For a standing reservation the request has the vnodes of all occurrences, for an altered one only of the
    next occurrence. Raises refusals 15004, 15062, 15084.
    """
    one = cluster.reservation(request.name)
    said = request.extension or ""
    if said.startswith(_REFUSED):
        if one.state is ReservationCode.UNCONFIRMED:
            _forget(cluster, one)
        elif one.state is ReservationCode.BEING_ALTERED:
            _revert(cluster, one)
        return
    altered = one.state is ReservationCode.BEING_ALTERED
    try:
        places = unrolled(request.destination) if one.recurring else [request.destination]
        chunks = [chunk for place in places for chunk in exec_vnode(place)]
    except ValueError:
        raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request") from None
    if not places or (one.recurring and not altered and len(places) != len(one.times)):
        raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request")
    for chunk in chunks:
        for piece in chunk:
            cluster.vnode(piece.vnode)
    one.nodes = places[0]
    if one.recurring and not altered:
        one.places = request.destination
    one.partition = said.partition("partition=")[2]
    runs = altered and one.resumes is ReservationCode.RUNNING
    one.state, one.resumes = (ReservationCode.RUNNING if runs else ReservationCode.CONFIRMED), None
    one.reverts = {}
    one.modified = cluster.now
    cluster.queues[one.queue].attributes["enabled"] = "True"
    if one.start <= cluster.now:
        _begin(cluster, one)


def alter(cluster: PbsCluster, request: ModifyReservationRequest, who: Principal) -> None:
    """Alter start or duration of a reservation (pbs_ralter), for a standing one of its next occurrence; it
    then waits for a confirmation.

    Raises refusals 15004, 15007, 15014, 15084, 15086.
    """
    one = cluster.reservation(request.name)
    if not who.manager and one.owner.partition("@")[0] != who.user:
        raise RefusalError(OpenPBSErrorCode.PERM, "Unauthorized Request ")
    if one.state not in _ALTERABLE:
        raise RefusalError(OpenPBSErrorCode.BADSTATE, "Request invalid for state of job")
    given = values_by_key(request.attributes)
    length = one.end - one.start
    try:
        start = int(given.get("reserve_start", one.start))
        if "reserve_end" in given:
            end = int(given["reserve_end"])
        else:
            end = start + (seconds(given["reserve_duration"]) if "reserve_duration" in given else length)
    except ValueError:
        raise RefusalError(OpenPBSErrorCode.BADTSPEC, "Bad time specification(s)") from None
    runs = one.state is ReservationCode.RUNNING
    if end <= max(start, int(cluster.now)) or (start != one.start and (runs or start < cluster.now)):
        raise RefusalError(OpenPBSErrorCode.BADTSPEC, "Bad time specification(s)")
    one.reverts = {
        "select": one.attributes["Resource_List.select"],
        "start_time": str(one.start),
        "walltime": clock_time(length),
    }
    if one.recurring and not one.first:
        one.first = dict(one.reverts)
    one.resumes, one.state = one.state, ReservationCode.BEING_ALTERED
    _set_time(cluster, one, start, end)
    cluster.notify_schedulers(OpenPBSCommand.RECONFIRM)


def _set_time(cluster: PbsCluster, one: Reservation, start: int, end: int) -> None:
    one.start, one.end, one.modified = start, end, cluster.now
    one.attributes[_WALLTIME] = clock_time(end - start)
    _set_timers(cluster, one)


def _revert(cluster: PbsCluster, one: Reservation) -> None:
    assert one.resumes is not None
    one.state, one.resumes = one.resumes, None
    start = int(one.reverts["start_time"])
    if one.first == one.reverts:
        one.first = {}
    end = start + seconds(one.reverts["walltime"])
    one.reverts = {}
    _set_time(cluster, one, start, end)


def delete(cluster: PbsCluster, name: str, who: Principal) -> None:
    """Delete a reservation and its jobs (pbs_rdel). Raises refusals 15007, 15084."""
    one = cluster.reservation(name)
    if not who.manager and one.owner.partition("@")[0] != who.user:
        raise RefusalError(OpenPBSErrorCode.PERM, "Unauthorized Request ")
    _forget(cluster, one)
    cluster.notify_schedulers(OpenPBSCommand.TERM)


def _begin(cluster: PbsCluster, one: Reservation) -> None:
    if cluster.reservations.get(one.id) is not one or one.state is not ReservationCode.CONFIRMED:
        return
    one.state = ReservationCode.RUNNING
    cluster.queues[one.queue].attributes["started"] = "True"
    cluster.notify_schedulers(OpenPBSCommand.RESERVATION_STARTS)


def _end(cluster: PbsCluster, one: Reservation) -> None:
    """End an occurrence; a standing reservation waits on its vnodes with its queue."""
    if cluster.reservations.get(one.id) is not one:
        return
    if one.places and one.index + 1 < len(one.times):
        length = seconds(one.first["walltime"]) if one.first else one.end - one.start
        one.index += 1
        one.first, one.reverts, one.resumes = {}, {}, None
        one.nodes = unrolled(one.places)[one.index]
        one.state = ReservationCode.CONFIRMED
        cluster.queues[one.queue].attributes["started"] = "False"
        _end_its_jobs(cluster, one)
        _set_time(cluster, one, one.times[one.index], one.times[one.index] + length)
    else:
        _forget(cluster, one)
    cluster.notify_schedulers(OpenPBSCommand.TERM)


def _forget(cluster: PbsCluster, one: Reservation) -> None:
    """Delete a reservation with its jobs; the queue is deleted after their end."""
    del cluster.reservations[one.id]
    _end_its_jobs(cluster, one)
    queue = cluster.queues[one.queue]
    queue.attributes |= {"enabled": "False", "started": "False"}
    _drop(cluster, queue)


def _end_its_jobs(cluster: PbsCluster, one: Reservation) -> None:
    jobs = [job for job in cluster.live_jobs() if job.queue == one.queue]
    for job in jobs:
        if not job.delete_requested:
            lifecycle.delete(cluster, job)


def _drop(cluster: PbsCluster, queue: Queue) -> None:
    if any(job.queue == queue.name for job in cluster.live_jobs()):
        cluster.timers.at(cluster.now + cluster.timing.kill, lambda: _drop(cluster, queue))
    else:
        cluster.queues.pop(queue.name, None)
