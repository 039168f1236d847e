"""Base class of all settings tables, and texts for errors in them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{1,255}$")]
Names = tuple[Name, ...]
Weight = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Problem = Mapping[str, Any]
"""An error of a validation, as pydantic reports it."""
_TYPE_WORDS: Final = {
    **dict.fromkeys(("tuple_type", "list_type"), "a list is expected"),
    **dict.fromkeys(
        ("dict_type", "model_type", "model_attributes_type", "dataclass_type"), "a table is expected"
    ),
}
"""Words for errors that pydantic describes by Python's names of types."""


class SettingConflictError(ValueError):
    """A setting that contradicts another; ``place`` is its path below the table that was checked."""

    def __init__(self, place: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.place = tuple(place)


def main_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the errors that do not follow from others: a list is too short if its entries are wrong."""
    found = list(problems)
    places = [problem["loc"] for problem in found]
    return [
        problem
        for problem in found
        if problem["type"] != "too_short" or not any(_is_within(one, problem["loc"]) for one in places)
    ]


def _is_within(place: Sequence[str | int], table: Sequence[str | int]) -> bool:
    return len(place) > len(table) and place[: len(table)] == table


def problem_place(problem: Problem) -> tuple[str | int, ...]:
    """Return the path of the setting that is wrong."""
    conflict = (problem.get("ctx") or {}).get("error")
    return (*problem["loc"], *(conflict.place if isinstance(conflict, SettingConflictError) else ()))


def problem_words(problem: Problem) -> str:
    """Return the text of an error."""
    if problem["type"] == "too_short":
        least = (problem.get("ctx") or {}).get("min_length", 1)
        return f"it needs at least {least} {'entry' if least == 1 else 'entries'}"
    return _TYPE_WORDS.get(problem["type"]) or str(problem["msg"]).removeprefix("Value error, ")


class Section(BaseModel):
    """A table of the file: unknown keys are rejected, and values are immutable.

    The docstrings of its fields describe the settings (`setting_descriptions`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    def with_changes(self, **changes: Any) -> Self:
        """Return a copy with other values, which are not validated. Raises TypeError for an unknown field."""
        if unknown := changes.keys() - type(self).model_fields:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        return self.model_copy(update=changes)
