"""Objects of status replies."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DescribedObject:
    """An object of a status reply, as plain text values by `name` or `name.resource`."""

    object_type: int
    name: str
    values: dict[str, str]
