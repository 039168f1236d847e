"""Access rules: the jobs, co-allocations, bags and bookings that a caller may see and change."""

from typing import Any, TypeVar

from schedd.api.problems import ProblemError
from schedd.federation.items import FederationItem, Items
from schedd.service.access.roles import Bearer

_ItemT = TypeVar("_ItemT", bound=FederationItem[Any])


def is_item_visible(caller: Bearer, item: FederationItem[Any]) -> bool:
    """Return whether the caller may see the item: its owner, readers and admins may."""
    return caller.may("see all") or caller.name == item.owner


def visible_items(items: Items[_ItemT], caller: Bearer) -> list[_ItemT]:
    """Return the items that the caller may see, in order of submission."""
    return [one for one in list(items.by_id.values()) if is_item_visible(caller, one)]


def find_item(items: Items[_ItemT], caller: Bearer, name: str, kind: str) -> _ItemT:
    """Return the item if the caller may see it; ``kind`` is its name in the message. Raises ProblemError."""
    item = items.by_id.get(name)
    if item is None or not is_item_visible(caller, item):
        raise ProblemError("unknown-job", f"the federation has no {kind} {name[:40]}")
    return item


def require_write_role(caller: Bearer) -> None:
    """Raise ProblemError if the caller's role may only read."""
    if caller.role not in ("user", "admin"):
        raise ProblemError("not-allowed", f"{caller.name} has a role that may only read")


def acting_owner(caller: Bearer, owner: str) -> str:
    """Return the owner of a request; ``owner`` is the requested one, or empty. Raises ProblemError."""
    require_write_role(caller)
    if owner and owner != caller.name and caller.role != "admin":
        raise ProblemError("not-allowed", f"{caller.name} may not act for {owner}")
    return owner or caller.name
