"""Base class of all settings tables, and texts for errors in them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{1,255}$")]
Names = tuple[Name, ...]


def _one_node(name: str) -> str:
    if any(sign in name for sign in "[]*?"):
        raise ValueError("a range or pattern names no node here; list the nodes, or use a property")
    return name


NodeNames = tuple[Annotated[Name, AfterValidator(_one_node)], ...]
Weight = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Problem = Mapping[str, Any]
"""An error of a validation, as pydantic reports it."""
_EXPECTED: Final = {
    "a list is expected": ("tuple_type", "list_type"),
    "a table is expected": ("dict_type", "model_type", "model_attributes_type", "dataclass_type"),
    "a whole number is expected": ("int_parsing", "int_parsing_size", "int_type", "int_from_float"),
    "a number is expected": ("float_parsing", "float_type"),
    "a finite number is expected": ("finite_number",),
    "true or false is expected": ("bool_parsing", "bool_type"),
    "text is expected": ("string_type",),
    "a path is expected": ("path_type",),
    "it is missing": ("missing",),
    "it is not known here": ("extra_forbidden", "unexpected_keyword_argument"),
    "it must be at least {ge}": ("greater_than_equal",),
    "it must be at most {le}": ("less_than_equal",),
    "it must be above {gt}": ("greater_than",),
    "it must be below {lt}": ("less_than",),
    "it must be {expected}": ("literal_error", "enum"),
    "it must match the pattern {pattern}": ("string_pattern_mismatch",),
    "it must have at least {min_length} characters": ("string_too_short",),
    "it must have at most {max_length} characters": ("string_too_long",),
    "it must have at most {max_length} entries": ("too_long",),
}
_TYPE_WORDS: Final = {kind: words for words, kinds in _EXPECTED.items() for kind in kinds}
"""Words for errors that pydantic describes in its own terms, by their type."""


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


def problem_text(problem: Problem) -> str:
    """Return the text of an error."""
    if problem["type"] == "too_short":
        least = (problem.get("ctx") or {}).get("min_length", 1)
        return f"it needs at least {least} {'entry' if least == 1 else 'entries'}"
    words = _TYPE_WORDS.get(problem["type"])
    if words is not None:
        return words.format_map(problem.get("ctx") or {})
    return str(problem["msg"]).removeprefix("Value error, ")


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
