"""Jobs of routing queues, from the values of a server of either family."""

from collections.abc import Mapping
from typing import Final

from server_adapter.bridge.facts import Values
from server_adapter.bridge.queue_drainer import RoutedJob

_RESOURCE: Final = "Resource_List."
_DERIVED: Final = frozenset({"neednodes", "nodect"})


def parse_routed_job(name: str, values: Values) -> RoutedJob:
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
    """Parse a `Variable_List`: pairs separated by commas; commas and backslashes in values are escaped."""
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
