"""Base class of all settings tables."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{1,255}$")]
Names = tuple[Name, ...]
Weight = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]


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
