"""How people read the properties that a request needs."""

from typing import Final

from schedd.wire.resources import A_VNODE_OF, OF_QUEUE, RESERVATION, VNODES_FOR

_TRUE: Final = "=True"  # value of a boolean resource of OpenPBS


def property_name(text: str) -> str:
    """Return a node's property, or of a boolean resource the name without its value."""
    return text.removesuffix(_TRUE)


def resource_name(text: str) -> str:
    """Return the name of the resource whose value this property of a node is; empty: a plain property, or a
    boolean resource, which has no other value to tell nodes apart.
    """
    name, equals, _ = property_name(text).partition("=")
    return name if equals else ""


def describe_property(name: str) -> str:
    """Return a requested property, or its negation (``!``), as readable text."""
    if name == f"!{OF_QUEUE}=True":
        return "no queue of its own"
    if name.startswith(VNODES_FOR):
        return f"a vnode for each of {name.removeprefix(VNODES_FOR)} chunks"
    if name.startswith(A_VNODE_OF):
        return f"a single vnode with {name.removeprefix(A_VNODE_OF).replace('_', ', ')}"
    for property_name, word in ((OF_QUEUE, "queue"), (RESERVATION, "reservation")):
        if name.startswith(f"{property_name}="):
            return f"{word} {name.partition('=')[2]}"
    return f"not {name[1:]}" if name.startswith("!") else name
