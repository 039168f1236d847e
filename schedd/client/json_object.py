"""JSON objects of the API's answers."""

import json
from collections.abc import Mapping
from typing import Any, cast


class JsonObject(dict[str, Any]):
    """JSON object with its members as attributes. No answer has a field named like a ``dict`` method."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Return a member. Raises AttributeError."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the answer has no {name}") from None


def parse_json(text: str | bytes) -> Any:
    """Return the JSON value of a text, with each object as a ``JsonObject``. Raises ValueError."""
    return json.loads(text, object_hook=JsonObject)


def json_members(answer: object) -> Mapping[str, Any]:
    """Return the members of an answer as a mapping, for output as JSON."""
    return cast("Mapping[str, Any]", answer)
