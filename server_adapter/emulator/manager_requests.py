"""qmgr and pbsnodes: changes to the server, its queues and its nodes (protocol document, section 5)."""

from collections.abc import Sequence

from server_adapter.batch.codes import ManagerCommand, ObjectType
from server_adapter.batch.requests import ManageRequest
from server_adapter.dis import Attribute, Operation
from server_adapter.emulator.errors import RefusalError, bad_value
from server_adapter.emulator.jobs import Queue, full_queue_type
from server_adapter.emulator.nodes import EmulatedNode, NodeSpec
from server_adapter.emulator.settings import BOOLEANS, NUMBERS, SETTABLE, TEXTS
from server_adapter.emulator.state import Cluster
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.notation import flag


def manage(cluster: Cluster, request: ManageRequest) -> None:
    """Carries out a Manager request; rights are the caller's business.

    Raises refusals 15002, 15016, 15020, 15027, 15064 and others as the real server does.
    """
    command = ManagerCommand(request.command) if request.command in range(4) else None
    if command is None:
        raise RefusalError(TorqueErrorCode.IVALREQ)
    match request.object_type:
        case ObjectType.SERVER:
            for change in request.attributes:
                _set(cluster.attributes, change, unset=command is ManagerCommand.UNSET)
                if change.name == "next_job_number":
                    cluster.next_number = int(cluster.attributes.pop("next_job_number", "0"))
                if change.name == "scheduling" and cluster.scheduling:
                    cluster.poke(SchedulerCommand.CMD)
        case ObjectType.QUEUE:
            _queue(cluster, command, request.name, request.attributes)
        case ObjectType.NODE:
            _node(cluster, command, request.name, request.attributes)
        case _:
            raise RefusalError(TorqueErrorCode.IVALREQ)


def _queue(cluster: Cluster, command: ManagerCommand, name: str, changes: Sequence[Attribute]) -> None:
    if command is ManagerCommand.CREATE:
        if name in cluster.queues:
            raise RefusalError(TorqueErrorCode.QUEEXIST, "Queue already exists")
        cluster.queues[name] = Queue(name, {"enabled": "False", "started": "False"})
    queue = cluster.queue(name)
    if command is ManagerCommand.DELETE:
        if any(job.queue == name for job in cluster.live_jobs()):
            raise RefusalError(TorqueErrorCode.QUEEXIST, "Cannot delete busy queue")
        del cluster.queues[name]
        return
    for change in changes:
        _set(queue.attributes, change, unset=command is ManagerCommand.UNSET)
    queue.modified = cluster.now


def _set(attributes: dict[str, str], change: Attribute, *, unset: bool) -> None:
    if change.name not in SETTABLE:
        raise RefusalError(TorqueErrorCode.NOATTR, f"Undefined attribute  {change.name}")
    key = change.key
    if unset or change.operation is Operation.UNSET:
        attributes.pop(key, None)
        return
    value = change.value
    try:
        if change.name in BOOLEANS:
            value = str(flag(value))
        elif change.name in NUMBERS:
            value = str(int(value))
    except ValueError:
        raise bad_value(change.key) from None
    if change.name == "queue_type":
        value = full_queue_type(value) or ""
        if not value:
            raise bad_value(change.key)
    old = [word for word in attributes.get(key, "").split(",") if word]
    if change.operation is Operation.INCR and change.name in TEXTS:
        value = ",".join([*old, value])
    elif change.operation is Operation.DECR and change.name in TEXTS:
        value = ",".join(word for word in old if word != value)
    attributes[key] = value


def _node(cluster: Cluster, command: ManagerCommand, name: str, changes: Sequence[Attribute]) -> None:
    if command is ManagerCommand.CREATE:
        if name in cluster.nodes:
            raise RefusalError(TorqueErrorCode.QUEEXIST, "Node name already exists")
        port = 30_000 + 2 * (len(cluster.nodes) + 1)
        cluster.nodes[name] = EmulatedNode(NodeSpec(name, slots=1), mom_port=port, reported=int(cluster.now))
    if name not in cluster.nodes:
        raise RefusalError(TorqueErrorCode.UNKNODE)
    node = cluster.nodes[name]
    if command is ManagerCommand.DELETE:
        if node.taken:
            raise RefusalError(TorqueErrorCode.QUEEXIST, "Node is busy")
        del cluster.nodes[name]
        return
    for change in changes:
        _set_node(node, change, unset=command is ManagerCommand.UNSET)


def _set_node(node: EmulatedNode, change: Attribute, *, unset: bool) -> None:
    words = [word for word in change.value.split(",") if word]
    match change.name:
        case "state":
            if change.operation is Operation.DECR:
                node.offline = node.offline and "offline" not in words
            elif change.operation is Operation.INCR:
                node.offline = node.offline or "offline" in words
            else:
                node.offline = "offline" in words
        case "np":
            if not change.value.isdecimal() or int(change.value) < 1:
                raise RefusalError(TorqueErrorCode.BADATVAL)
            node.slots = int(change.value)
        case "properties":
            if unset:
                node.properties = ()
            elif change.operation is Operation.INCR:
                node.properties += tuple(word for word in words if word not in node.properties)
            elif change.operation is Operation.DECR:
                node.properties = tuple(word for word in node.properties if word not in words)
            else:
                node.properties = tuple(words)
        case "note":
            node.note = "" if unset else change.value
        case "ntype" | "power_state" | "ttl" | "acl" | "requestid":
            pass
        case _:
            raise RefusalError(TorqueErrorCode.NOATTR, f"Undefined attribute  {change.name}")
