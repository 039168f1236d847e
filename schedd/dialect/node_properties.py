"""How people read the properties that a request needs."""

from schedd.wire.resources import A_VNODE_OF, OF_QUEUE, RESERVATION, VNODES_FOR


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
