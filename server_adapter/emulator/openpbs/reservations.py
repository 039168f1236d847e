"""Reservations: asked for, confirmed by a scheduler, running, over (section 5)."""

from collections.abc import Iterable

from server_adapter.dis import Attribute
from server_adapter.emulator import lifecycle, submission
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Order, Queue
from server_adapter.emulator.openpbs import submission as pbs
from server_adapter.emulator.openpbs.state import PbsCluster, Reservation
from server_adapter.emulator.principal import Principal
from server_adapter.openpbs.codes import Command, ReservationState, ServerCode
from server_adapter.openpbs.requests import ConfirmReservationRequest
from server_adapter.openpbs.values import exec_vnode
from server_adapter.torque.values import seconds

_REFUSED = "PBS_RESV_CONFIRM_FAIL"


def ask(cluster: PbsCluster, attributes: Iterable[Attribute], who: Principal) -> str:
    """pbs_rsub: an unconfirmed reservation with a closed queue of its own; its id.

    Raises refusals 15014, 15035, 15086.
    """
    given = {entry.key: entry.value for entry in attributes}
    start, end = _times(given)
    if start < cluster.now or end <= start:
        raise RefusalError(ServerCode.BADTSPEC, "Bad time specification(s)")
    name = f"R{submission.next_id(cluster)}"
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
    order = Order(user=who.user, resources={**wanted, "walltime": str(end - start)})
    full = pbs.resources_of(cluster, order, queue)
    plain = {key: value for key, value in given.items() if not key.startswith("Resource_L")}
    resources = {f"Resource_List.{key}": value for key, value in full.items()}
    one = Reservation(name, f"{who.user}@{who.host}", plain | resources, start, end, cluster.now)
    cluster.reservations[name] = one
    cluster.queues[queue.name] = queue
    cluster.tell(Command.NEW)
    cluster.timers.at(float(start), lambda: _begin(cluster, one))
    cluster.timers.at(float(end), lambda: _end(cluster, one))
    return name


def _times(given: dict[str, str]) -> tuple[int, int]:
    try:
        start = int(given["reserve_start"])
        if "reserve_end" in given:
            return start, int(given["reserve_end"])
        return start, start + seconds(given.get("reserve_duration") or given["Resource_List.walltime"])
    except (KeyError, ValueError):
        raise RefusalError(ServerCode.BADTSPEC, "Bad time specification(s)") from None


def confirm(cluster: PbsCluster, request: ConfirmReservationRequest) -> None:
    """ConfirmResv: the scheduler gives vnodes, or refuses, and then the reservation is gone.

    Raises refusals 15062, 15084.
    """
    one = cluster.reservation(request.name)
    said = request.extension or ""
    if said.startswith(_REFUSED):
        if one.state is ReservationState.UNCONFIRMED:
            _forget(cluster, one)
        return
    try:
        chunks = exec_vnode(request.destination)
    except ValueError:
        raise RefusalError(ServerCode.IVALREQ, "Invalid request") from None
    for chunk in chunks:
        for piece in chunk:
            cluster.vnode(piece.vnode)
    one.nodes = request.destination
    one.partition = said.partition("partition=")[2]
    one.state = ReservationState.CONFIRMED
    cluster.queues[one.queue].attributes["enabled"] = "True"
    if one.start <= cluster.now:
        _begin(cluster, one)


def delete(cluster: PbsCluster, name: str, who: Principal) -> None:
    """pbs_rdel: the reservation goes, with its jobs. Raises refusals 15007, 15084."""
    one = cluster.reservation(name)
    if not who.manager and one.owner.partition("@")[0] != who.user:
        raise RefusalError(ServerCode.PERM, "Unauthorized Request ")
    _forget(cluster, one)
    cluster.tell(Command.TERM)


def _begin(cluster: PbsCluster, one: Reservation) -> None:
    if cluster.reservations.get(one.id) is not one or one.state is not ReservationState.CONFIRMED:
        return
    one.state = ReservationState.RUNNING
    cluster.queues[one.queue].attributes["started"] = "True"
    cluster.tell(Command.RESERVATION_STARTS)


def _end(cluster: PbsCluster, one: Reservation) -> None:
    if cluster.reservations.get(one.id) is one:
        _forget(cluster, one)
        cluster.tell(Command.TERM)


def _forget(cluster: PbsCluster, one: Reservation) -> None:
    """Its jobs end with it; the queue goes once they are over."""
    del cluster.reservations[one.id]
    jobs = [job for job in cluster.live_jobs() if job.queue == one.queue]
    for job in jobs:
        if not job.delete_requested:
            lifecycle.delete(cluster, job)
    queue = cluster.queues[one.queue]
    queue.attributes |= {"enabled": "False", "started": "False"}
    _drop(cluster, queue)


def _drop(cluster: PbsCluster, queue: Queue) -> None:
    if any(job.queue == queue.name for job in cluster.live_jobs()):
        cluster.timers.at(cluster.now + cluster.timing.kill, lambda: _drop(cluster, queue))
    else:
        cluster.queues.pop(queue.name, None)
