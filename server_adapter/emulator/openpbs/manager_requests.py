"""qmgr and pbsnodes: changes to the server, its queues, vnodes, schedulers and resources."""

from collections.abc import Callable, Sequence

from server_adapter.batch.codes import ManagerCommand, ObjectType
from server_adapter.batch.requests import ManageRequest
from server_adapter.dis import Attribute, Operation, values_by_key
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Queue, full_queue_type
from server_adapter.emulator.nodes import NodeSpec
from server_adapter.emulator.openpbs import select_statements
from server_adapter.emulator.openpbs.state import PbsCluster, new_scheduler, new_vnode
from server_adapter.emulator.openpbs.vnodes import Vnode
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.notation import boolean

_SHARING = frozenset(
    ["default_shared", "default_excl", "default_exclhost", "ignore_excl", "force_excl", "force_exclhost"]
)
_NODE_SETTINGS = frozenset({"queue", "partition", "Priority", "resv_enable", "no_multinode_jobs"})
_READ_ONLY = frozenset(
    [
        *("total_jobs", "state_count", "resources_assigned", "server_state", "server_host", "pbs_version"),
        *("license_count", "state", "sched_priv", "sched_log", "jobs", "ntype", "last_state_change_time"),
    ]
)
_TYPES = frozenset({"long", "size", "float", "boolean", "string", "string_array"})
_HOST = 7  # object type of requests about all vnodes of a host


def manage(cluster: PbsCluster, request: ManageRequest) -> None:
    """Carries out a Manager request; rights are the caller's business.

    Raises refusals 15002, 15003, 15004, 15014, 15018, 15025, 15027, 15030, 15035, 15062, 15066, 15213.
    """
    handlers: dict[int, Callable[[PbsCluster, ManagerCommand, str, Sequence[Attribute]], None]] = {
        ObjectType.SERVER: _server,
        ObjectType.QUEUE: _queue,
        ObjectType.NODE: _node,
        ObjectType.SCHEDULER: _scheduler,
        ObjectType.RESOURCE: _resource,
        _HOST: _host,
    }
    handler = handlers.get(request.object_type)
    if handler is None or request.command not in range(4):
        raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request")
    handler(cluster, ManagerCommand(request.command), request.name, request.attributes)


def _server(cluster: PbsCluster, command: ManagerCommand, _: str, changes: Sequence[Attribute]) -> None:
    for change in changes:
        _set(cluster.attributes, change, unset=command is ManagerCommand.UNSET)
        if change.name == "scheduling":
            default = cluster.schedulers["default"].attributes
            default["scheduling"] = cluster.attributes.get("scheduling", "False")
            cluster.notify_schedulers(OpenPBSCommand.CMD)
        elif change.name == "next_job_number":
            cluster.next_number = int(cluster.attributes.pop("next_job_number", "0"))


def _queue(cluster: PbsCluster, command: ManagerCommand, name: str, changes: Sequence[Attribute]) -> None:
    if command is ManagerCommand.CREATE:
        if name in cluster.queues:
            raise RefusalError(OpenPBSErrorCode.QUEEXIST, "Queue already exists")
        cluster.queues[name] = Queue(name, {"queue_type": "Execution"}, modified=cluster.now)
    if name not in cluster.queues:
        raise RefusalError(OpenPBSErrorCode.UNKQUE, "Unknown queue")
    if command is ManagerCommand.DELETE:
        if any(job.queue == name for job in cluster.live_jobs()):
            raise RefusalError(OpenPBSErrorCode.OBJBUSY, "Object busy")
        del cluster.queues[name]
        return
    queue = cluster.queues[name]
    settings = queue.attributes | values_by_key(changes)
    route = settings.get("queue_type", "").lower().startswith("r")
    if route and _is_true(settings.get("enabled", "")) and not settings.get("route_destinations"):
        raise RefusalError(OpenPBSErrorCode.QUENOEN, "Cannot enable queue, incomplete definition")
    for change in changes:
        _set(queue.attributes, change, unset=command is ManagerCommand.UNSET)
    queue.modified = cluster.now


def _scheduler(cluster: PbsCluster, command: ManagerCommand, name: str, changes: Sequence[Attribute]) -> None:
    name = name or "default"
    if command is ManagerCommand.CREATE:
        new_scheduler(cluster, name)
    if name not in cluster.schedulers:
        raise RefusalError(OpenPBSErrorCode.UNKSCHED, "Unknown Scheduler")
    one = cluster.schedulers[name]
    if command is ManagerCommand.DELETE:
        del cluster.schedulers[name]
        return
    for change in changes:
        _set(one.attributes, change, unset=command is ManagerCommand.UNSET)
    if name == "default" and any(change.name == "scheduling" for change in changes):
        cluster.attributes["scheduling"] = one.attributes["scheduling"]
        cluster.notify_schedulers(OpenPBSCommand.CMD)
    elif any(change.name == "scheduling" for change in changes) and one.scheduling:
        one.command = OpenPBSCommand.CMD
    else:
        one.command = OpenPBSCommand.CONFIGURE


def _resource(cluster: PbsCluster, command: ManagerCommand, name: str, changes: Sequence[Attribute]) -> None:
    if command is ManagerCommand.DELETE:
        if cluster.resources.pop(name, None) is None:
            raise RefusalError(OpenPBSErrorCode.UNKRESC, f"Unknown resource {name}")
    else:
        kind, flag = cluster.resources.get(name, ("string", ""))
        for change in changes:
            if change.name == "type":
                if change.value not in _TYPES:
                    raise RefusalError(OpenPBSErrorCode.BADATVAL, f"invalid resource type {change.value}")
                kind = change.value
            elif change.name == "flag":
                flag = change.value
            else:
                raise RefusalError(OpenPBSErrorCode.NOATTR, f"Undefined attribute  {change.name}")
        cluster.resources[name] = (kind, flag)
    cluster.notify_schedulers(OpenPBSCommand.CONFIGURE, always=True)


def _host(cluster: PbsCluster, command: ManagerCommand, name: str, changes: Sequence[Attribute]) -> None:
    nodes = [node for node in cluster.vnodes() if node.host == name]
    if not nodes:
        raise RefusalError(OpenPBSErrorCode.UNKNODE, "Unknown node ")
    for node in nodes:
        _node(cluster, command, node.name, changes)


def _node(cluster: PbsCluster, command: ManagerCommand, name: str, changes: Sequence[Attribute]) -> None:
    if command is ManagerCommand.CREATE:
        if name in cluster.nodes:
            raise RefusalError(OpenPBSErrorCode.NODEEXIST, "Node name already exists")
        node = new_vnode(cluster, NodeSpec(name, slots=1))
    else:
        node = cluster.vnode(name)
    if command is ManagerCommand.DELETE:
        if node.charged:
            raise RefusalError(OpenPBSErrorCode.OBJBUSY, "Object busy")
        del cluster.nodes[name]
        return
    for change in changes:
        gone = command is ManagerCommand.UNSET or change.operation is Operation.UNSET
        _set_node(cluster, node, change, gone=gone)


def _set_node(cluster: PbsCluster, node: Vnode, change: Attribute, *, gone: bool) -> None:
    match change.name:
        case "state":
            words = {word.strip() for word in change.value.split(",")}
            before = node.offline
            if change.operation is Operation.DECR:
                node.offline = node.offline and "offline" not in words
            elif change.operation is Operation.INCR:
                node.offline = node.offline or "offline" in words
            else:
                node.offline = "offline" in words
            if node.offline != before:
                node.changed = cluster.now
        case "comment":
            node.note = "" if gone else change.value
        case "resources_available" if change.resource is not None:
            _set_available(cluster, node, change.resource, None if gone else change.value)
        case "sharing":
            if change.value not in _SHARING:
                raise RefusalError(OpenPBSErrorCode.BADATVAL, "Illegal attribute or resource value sharing")
            node.settings["sharing"] = change.value
        case "Mom":
            node.host = change.value.partition(".")[0]
        case name if name in _NODE_SETTINGS:
            if gone:
                node.settings.pop(name, None)
            else:
                node.settings[name] = change.value
        case "Port":
            pass
        case name:
            raise RefusalError(OpenPBSErrorCode.NOATTR, f"Undefined attribute  {name}")


def _set_available(cluster: PbsCluster, node: Vnode, name: str, value: str | None) -> None:
    name = select_statements.resource_types(cluster).spelled(name)
    if name == "ncpus":
        if value is None or not value.isdecimal():
            raise RefusalError(
                OpenPBSErrorCode.BADATVAL, "Illegal attribute or resource value resources_available.ncpus"
            )
        node.slots = int(value)
    elif not select_statements.is_known(cluster, name):
        raise RefusalError(OpenPBSErrorCode.UNKRESC, f"Unknown resource resources_available.{name}")
    elif value is None:
        node.offers.pop(name, None)
    elif not select_statements.is_value(cluster, name, value):
        text = f"Illegal attribute or resource value resources_available.{name}"
        raise RefusalError(OpenPBSErrorCode.BADATVAL, text)
    else:
        types = select_statements.resource_types(cluster)
        truth = boolean(name, value, types)
        node.offers[name] = value if truth is None else str(truth)


def _is_true(value: str) -> bool:
    return value.lower() in ("true", "t", "1", "y")


def _set(attributes: dict[str, str], change: Attribute, *, unset: bool) -> None:
    if change.name in _READ_ONLY:
        text = f"Cannot set attribute, read only or insufficient permission  {change.key}"
        raise RefusalError(OpenPBSErrorCode.ATTRRO, text)
    if unset or change.operation is Operation.UNSET:
        attributes.pop(change.key, None)
        return
    value = change.value
    if value.lower() in ("true", "t", "1", "y", "false", "f", "0", "n") and change.name in _BOOLEANS:
        value = str(value.lower() in ("true", "t", "1", "y"))
    if change.name == "queue_type":
        value = full_queue_type(value) or ""
        if not value:
            raise RefusalError(
                OpenPBSErrorCode.BADATVAL, f"Illegal attribute or resource value  {change.key}"
            )
    old = [word for word in attributes.get(change.key, "").split(",") if word]
    if change.operation is Operation.INCR and old:
        value = ",".join([*old, value])
    elif change.operation is Operation.DECR:
        value = ",".join([word for word in old if word != value])
    attributes[change.key] = value


_BOOLEANS = frozenset(
    [
        *("scheduling", "enabled", "started", "query_other_jobs", "job_history_enable", "acl_user_enable"),
        *("clear_topjob_estimates_enable", "eligible_time_enable", "resv_enable", "acl_host_enable"),
        *("acl_group_enable", "throughput_mode", "flatuid", "node_group_enable"),
    ]
)
