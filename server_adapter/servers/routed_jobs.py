"""A job of a routing queue, as a server of either family describes it."""

from collections.abc import Mapping
from typing import Final

from server_adapter.bridge.facts import Values
from server_adapter.bridge.queue_drainer import RoutedJob

__all__ = ["parse_routed_job", "variables"]

_RESOURCE: Final = "Resource_List."
_DERIVED: Final = frozenset({"neednodes", "nodect"})


def parse_routed_job(name: str, values: Values) -> RoutedJob:
    """A job as the server describes it."""
    holds = values.get("Hold_Types", "n")
    return RoutedJob(
        id=name,
        owner=values.get("Job_Owner", ""),
        state=values.get("job_state", ""),
        holds="" if holds == "n" else holds,
        comment=values.get("comment", ""),
        attributes={key: value for key, value in values.items() if "." not in key},
        resources={
            key.removeprefix(_RESOURCE): value
            for key, value in values.items()
            if key.startswith(_RESOURCE) and key.removeprefix(_RESOURCE) not in _DERIVED
        },
        variables=variables(values.get("Variable_List", "")),
    )


def variables(text: str) -> Mapping[str, str]:
    """A `Variable_List`: names and values between commas; a comma or a backslash in a value has a backslash
    before it.
    """
    found: dict[str, str] = {}
    word: list[str] = []
    letters = iter(text + ",")
    for letter in letters:
        if letter == "\\":
            word.append(next(letters, ""))
        elif letter == ",":
            name, equals, value = "".join(word).partition("=")
            if name and equals:
                found[name] = value
            word = []
        else:
            word.append(letter)
    return found
