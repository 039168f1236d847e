"""Who else may use a TORQUE job's nodes: ``naccesspolicy``, also as ``-W x=``."""

from dataclasses import dataclass

from schedd.dialect.asked import Asked

__all__ = ["Access", "access_policy", "extension_list"]

_POLICIES = ("shared", "singlejob", "singletask", "singleuser", "uniqueuser")


@dataclass(frozen=True, slots=True)
class Access:
    """``exclusive``: whole nodes; ``one_task_per_node``: no two units of the job on one node."""

    exclusive: bool
    one_task_per_node: bool = False


def extension_list(text: str) -> dict[str, str]:
    """The names and values of a ``-W x=`` string: ``NACCESSPOLICY:SINGLEJOB;FLAGS:RESTARTABLE``.

    Only ``naccesspolicy`` is planned; the others keep their place under ``x.`` so that the notes name them.
    """
    extensions = {}
    for item in text.split(";"):
        separator = ":" if ":" in item else "="
        name, _, value = item.partition(separator)
        key = name.strip().lower()
        extensions["naccesspolicy" if key == "naccesspolicy" else f"x.{key}"] = value
    return extensions


def access_policy(asked: Asked, *, exclusive: bool) -> Access:
    """What ``naccesspolicy`` says; ``exclusive`` is what was asked for otherwise. Raises RequestError.

    Policies that depend on the owner of the neighbours cannot be planned as such: whole nodes keep their
    promise, which is what the note says.
    """
    span = asked.get("naccesspolicy")
    if span is None:
        return Access(exclusive)
    policy = str(span).lower()
    if policy not in _POLICIES:
        raise span.error(f"{span.shown()} is no node access policy", ", ".join(_POLICIES))
    if policy == "shared":
        if exclusive:
            asked.note("naccesspolicy=shared was not followed: the job asks for whole nodes")
        return Access(exclusive)
    if policy in ("singleuser", "uniqueuser"):
        asked.note(f"naccesspolicy={policy} is planned as whole nodes (singlejob), which is stricter")
    return Access(exclusive=True, one_task_per_node=policy == "singletask")
