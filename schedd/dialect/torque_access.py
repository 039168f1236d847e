"""Node access policy of TORQUE jobs: ``naccesspolicy``, also as ``-W x=``."""

from dataclasses import dataclass

from schedd.dialect.requested_resources import RequestedResources

_POLICIES = ("shared", "singlejob", "singletask", "singleuser", "uniqueuser")


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """``exclusive``: whole nodes; ``one_task_per_node``: no two units of the job on one node."""

    exclusive: bool
    one_task_per_node: bool = False


def access_policy(requested: RequestedResources, *, exclusive: bool) -> NodeAccess:
    """Return the access policy; ``exclusive`` is used without ``naccesspolicy``.

    Raises RequestError. Policies that depend on the owner of other jobs on the node are planned as whole
    nodes, with a remark.
    """
    span = requested.get("naccesspolicy")
    if span is None:
        return NodeAccess(exclusive)
    policy = str(span).lower()
    if policy not in _POLICIES:
        raise span.error(f"{span.shown()} is no node access policy", ", ".join(_POLICIES))
    if policy == "shared":
        if exclusive:
            requested.note("naccesspolicy=shared was not followed: the job asks for whole nodes")
        return NodeAccess(exclusive)
    if policy in ("singleuser", "uniqueuser"):
        requested.note(f"naccesspolicy={policy} is planned as whole nodes (singlejob), which is stricter")
    return NodeAccess(exclusive=True, one_task_per_node=policy == "singletask")
